"""One world in which a claim is decided: its plan, models, parameters, a request, and where its first step begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, cast

from decgraph.backends.exact.choices import Choices
from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.reals import Log
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.check.beside import Beside, owned
from decgraph.check.chances import ByChance
from decgraph.check.constants import facts, loop_of
from decgraph.check.distributions import CheckedProgram, Folds, execute
from decgraph.check.initial_states import Arbitrary, Start
from decgraph.check.settings import speaks
from decgraph.check.table_models import Style
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params
from decgraph.runtime.text import Detokenizer
from decgraph.runtime.words import TEXT, tokens_by_text

Pinned = tuple[tuple[str, ParamValue], ...]
"""Values of parameters that a world is about."""


@dataclass(frozen=True)
class WorldPlan:
    """The parts of a world.

    label: what it is there for, in a word or two. seed: of everything that is drawn. vocab: tokens. style: of the tables' rows.
    free: free models (hashes of what they were computed from) in the place of tables. prompt: its length. temperature,
    features: the request's; a feature is a name in FEATURES. limit: most new tokens; length: of how many the distribution is
    compared. steps: decoding steps before the specification goes on (None: the whole text). committed: tokens committed before
    the start. arbitrary: the seed of arbitrary carried values. session: requests finished before. params: values that the world
    is about; span: cells of a canvas. window: the models' context length beyond prompt and limit (None: no limit). tight:
    parameters that are not named are as small as they can be. deep: free models have layers enough for the program's constants.
    tables: other tables for what is otherwise the same world. pair: another request (see Start): one `after` another with the
    same seed, also with `another` prompt, or one beside another that may come between `steps` or `lines`.
    """

    label: str = "base"
    seed: int = 0
    vocab: int = 3
    style: Style = field(default_factory=Style)
    free: bool = False
    prompt: int = 2
    temperature: Fraction | int = 1
    features: tuple[str, ...] = ()
    limit: int = 5
    length: int = 3
    steps: int | None = 1
    committed: int = 0
    repeat: bool = False
    arbitrary: int | None = None
    session: int = 0
    params: Pinned = ()
    span: int = 0
    window: int | None = None
    tight: bool = False
    deep: bool = False
    runs: int = 700
    tables: int = 0
    pair: Literal["", "after", "another", "steps", "lines"] = ""


@dataclass
class Case:
    """One world. others: scores of the batch's other candidates (None: an adversary's). steps: decoding steps before the
    specification goes on (None: the whole text). length: new tokens whose distribution is compared. start: the state in which
    the first step begins. ran: takes note of what of the program runs. plan: of the world. limit: most runs. sampled: how many
    runs are drawn at random in the place of an enumeration (0: none). spec_engine: the machine of the specification.
    folds: see CheckedProgram. turns: how many choices of who moves next the runs beside another sequence made."""

    module: Module
    function: Function
    claim: Claim
    models: dict[str, Model]
    params: dict[str, ParamValue]
    request: Request
    steps: int | None = 1
    length: int = 3
    engine: type[ExactMachine] = ExactMachine
    externs: dict[str, Callable[..., object]] = field(default_factory=dict)
    pinned: frozenset[str] = frozenset()
    limit: int = 700
    start: Start = field(default_factory=Start)
    detokenizer: Detokenizer | None = None
    plan: WorldPlan = field(default_factory=WorldPlan)
    ran: CoveredRun | None = None
    others: tuple[Log, ...] | None = None
    flags: set[str] = field(default_factory=set)
    sampled: int = 0
    spec_engine: type[ExactMachine] = ExactMachine
    folds: Folds = None
    turns: list[int] = field(default_factory=list)

    def program(self) -> CheckedProgram:
        engine = type("BesideAnother", (Beside, self.engine), {}) if self.start.beside else self.engine
        numbered = self.start.before is None or self.engine is ExactMachine  # else noise is read again that no state tells of
        return CheckedProgram(
            self.module,
            self.function.name,
            self.models,
            check_params(self.function, self.params),
            engine,
            self.externs,
            self.detokenizer,
            self.ran,
            merge=numbered and not self.start.beside,
            folds=self.folds,
        )

    def spec(self) -> CheckedProgram:
        """The specification with its arguments: our models and parameters by the claim's names, its defaults else."""
        f = self.module.functions[self.claim.spec]
        models: dict[str, Model] = {}
        params: dict[str, ParamValue] = {}
        for name, (kind, value) in self.claim.args:
            if f.param(name).value.type.elem == "model":
                models[name] = self.models[str(value)]
            else:
                params[name] = value if kind == "const" else self.params[str(value)]
        return CheckedProgram(
            self.module, f.name, models, check_params(f, params), self.spec_engine, self.externs, self.detokenizer
        )

    @property
    def values(self) -> dict[str, ParamValue]:
        """What a counterexample tells of: the parameters, and which tokens have the texts that the program names."""
        found = tokens_by_text(self.module, self.function.name, None, next(iter(self.models.values()), None))
        return {**self.params, **{json.dumps(text.removeprefix(TEXT)): token for text, token in found.items()}}

    def speaks(self) -> bool:
        """Whether the claim says anything here: a smaller request, or a longer one, need not satisfy its condition."""
        return speaks(self.claim, self.params, self.request, len(self.start.committed))

    def setup(self) -> Callable[[ExactMachine], None]:
        """A function that puts a machine into the start: arbitrary carried values, what earlier requests of the session left,
        another sequence beside it."""
        left = earlier_requests(self) if self.start.session else None
        known = facts(self.module, self.function) if self.start.arbitrary is not None else None

        def prepare(m: ExactMachine) -> None:
            m.others = self.others
            if left is not None:
                m.shared.update(left)
            if known is not None and self.start.arbitrary is not None:
                m.begin = Arbitrary(self.start.arbitrary, known, self.flags)
            if self.start.before is not None:
                m.join(self.request_before(m.world, self.start.before))
            if isinstance(m, Beside) and self.start.order is not None:
                other = cast(Beside, self.program().machine(self.request, m.world))
                other.join(m.shared)
                m.beside(other, self.start.order, self.start.beside == "lines", self.turns)

        return prepare

    def request_before(self, world: World, prompt: tuple[int, ...]) -> dict[tuple[str, str], object]:
        """What the session holds after a request with this one's seed and id, in the same world. What ran is not compared."""
        m = self.program().machine(replace(self.request, prompt=prompt), world)
        m.others, world.ran, since = (), None, len(world.choices.points)
        execute(m)
        world.ran = self.ran
        owned(world, since, "the request before's")
        return m.shared

    def starts(self, world: World, steps: int | None = None) -> Callable[[Choices], ExactMachine]:
        """A function from choices to a machine in the start, ready to run with them. steps: decoding steps (None: all)."""
        program, prepare = self.program(), self.setup()

        def start(choices: Choices) -> ExactMachine:
            world.restart(choices)
            m = program.machine(self.request, world, steps).resume(self.start.committed)
            prepare(m)
            return m

        return start


def begun(case: Case) -> Case:
    """The world with the tokens that are committed at its start: by the specification, or where there is none by the
    program."""
    plan = case.plan
    if not plan.committed or case.start.committed or loop_of(case.function) is None:
        return case
    lucky = World(coupled=True)
    program = case.spec() if case.claim.kind == "refines" else replace(case, engine=ExactMachine, ran=None).program()
    lucky.restart(ByChance(plan.seed))
    m = program.machine(case.request, lucky)
    m.until = lambda m: m.committed() >= plan.committed
    tokens = case.request.prompt[:1] * plan.committed if plan.repeat else execute(m).committed_tokens()[: plan.committed]
    while tokens and program.machine(case.request, lucky).resume(tokens).done():
        tokens = tokens[:-1]
    return replace(case, start=replace(case.start, committed=tokens))


def earlier_requests(case: Case) -> dict[tuple[str, str], object]:
    """What the session holds after earlier requests, of which every choice was one that can happen."""
    shared: dict[tuple[str, str], object] = {}
    for n in range(case.start.session):
        world = World(coupled=True)
        world.restart(ByChance(100 * n + case.plan.seed))
        prompt = tuple(t for t in reversed(case.request.prompt)) if n % 2 == 0 else case.request.prompt[:1]
        request = replace(
            case.request, prompt=prompt, request_id=case.request.request_id + 1 + n, max_tokens=max(3, case.request.max_tokens)
        )
        m = case.program().machine(request, world)
        m.shared = shared
        execute(m)
    return shared
