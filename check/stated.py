"""Whether every draft is drawn from the distribution that it states: a claim about the draft side alone.

An engine that verifies for itself takes drafts with their distributions on trust. Each is a draw of what it states where,
given the drafts before it and what they state, its token has that distribution: then rejection keeps any target's
distribution. The kernel of proofs derives this for trees whose draws are fresh. What it does not (`drawn(x, q)` is the
author's word) is enumerated: every outcome of every draw, in small worlds, up to the first verification.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from decgraph.backends.exact.choices import Choices, TooMany, runs
from decgraph.backends.exact.reals import NotSeparated, real
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Enough, Unlikely, World
from decgraph.check.case import Case, WorldPlan, begun
from decgraph.check.constants import masked
from decgraph.check.counterexample import Counterexample, requested
from decgraph.check.distributions import Distribution, OutOfTime, RunTally, run_steps
from decgraph.check.initial_states import NoValue
from decgraph.check.plans import further_plans
from decgraph.check.proof.derive import MOST_ROUNDS, judged
from decgraph.check.proof.invariants import DerivationStopped, Invariant, NotKept, Step
from decgraph.check.proof.kernel import Kernel
from decgraph.check.table_models import Style
from decgraph.check.worlds import world
from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Draw, Path
from decgraph.ir.data.tree import Edge, Tree
from decgraph.ir.facts import Fact
from decgraph.ir.facts import Tree as TreeFact
from decgraph.ir.machine import Datum
from decgraph.ir.values import Claim, Constant, Module, Op
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.table import TableFeatures, TableModel

CLAIM = "every draft is drawn from what it states"
ABOUT = Claim("drafts", CLAIM, mode="distribution")
SECONDS = 5.0
"""Of processor time, in which worlds are tried where nothing is derived."""


@dataclass(frozen=True)
class Stated:
    """What is known of the drafts. verdict: as in `Report`; `none` where none are stated. steps: of the derivation.
    line, why: where it stopped. worlds: how many were enumerated."""

    verdict: Literal["proved", "holds", "refuted", "undecided", "none"]
    steps: tuple[Step, ...] = ()
    line: int = 0
    why: str = ""
    worlds: int = 0
    counterexample: Counterexample | None = None

    def reach(self) -> str:
        """By what, in a line."""
        if self.verdict == "none":
            return "no distribution of a draft is stated: an engine takes each for a certain token"
        if self.verdict == "proved":
            return "for every vocabulary, model and context: " + "; ".join(f"line {s.line}: {s.text}" for s in self.steps)
        stopped = f"no derivation: {f'line {self.line}: ' if self.line else ''}{self.why}"
        return stopped if self.verdict == "refuted" else f"in {self.worlds} worlds; {stopped}"

    def to_json(self) -> dict[str, object]:
        """Plain data for `--json`."""
        found = self.counterexample.to_json() if self.counterexample else None
        return {"claim": CLAIM, "verdict": self.verdict, "by": self.reach(), "worlds": self.worlds, "counterexample": found}


def verifications(module: Module) -> list[Op]:
    """The verifications of drafted tokens in a module's algorithm."""
    return [op for op in module.entry.body.walk() if op.opcode == "tree.walk" and op.operands[0].type.of[1] != "edit"]


def states(module: Module) -> bool:
    """Whether a module's algorithm states distributions of drafts: a rule reads them, or `drawn(x, q)` says them. To other
    rules a draft is a token."""
    walks = verifications(module)
    read = [op for walk in walks for region in walk.regions for op in region.walk()]
    read = [op for op in read if op.attrs.get("field", op.attrs.get("column")) in ("law", "prob")]
    return bool(read or walks and any(op.opcode == "draw.stated" for op in module.entry.body.walk()))


def stated(module: Module, given: Mapping[str, ParamValue] | None = None, *, seconds: float = SECONDS) -> Stated:
    """What is known of a module's drafts. given: values of parameters, by name; the others are any. seconds: of processor
    time for worlds, where nothing is derived; 0 tries none."""
    if not states(module) or masked(module.entry):
        return Stated("none")
    try:
        return Stated("proved", tuple(dict.fromkeys(_derived(module, given or {}))))
    except DerivationStopped as stopped:
        return _enumerated(module, given or {}, seconds, Stated("undecided", line=stopped.line, why=stopped.why))


class _DraftSide(Kernel):
    """A pass that follows the drafts: whatever verifies them, what is committed begins another context."""

    def walk(self, op: Op) -> Fact:
        tree = self.of(op.operands[0])
        if op.operands[0].type.of[1] != "edit":
            if not isinstance(tree, TreeFact):
                raise DerivationStopped(op, "verifies a tree that is not known to stand on the context")
            if str(op.operands[0].type.of[0]) in self.mislabelled:
                raise DerivationStopped(op, "a draft was chosen by what it is")
            if tree.fault:
                raise DerivationStopped(op, tree.fault)
            drawn = "each draft is a fresh draw of what it states" if tree.noises else "the drafts are certain"
            self.say(op, drawn, "drafts-stated")
        return super().walk(op)

    def step(self, op: Op) -> None:
        if op.opcode != "commit":
            return super().step(op)
        self._new_context(op)
        self.progress = True


def _derived(module: Module, given: Mapping[str, ParamValue]) -> list[Step]:
    """The steps of a derivation. Raises DerivationStopped."""
    models = [p.name for p in module.entry.params if p.value.type.elem == "model"]
    known: dict[str, Constant] = {k: v for k, v in given.items() if isinstance(v, bool | int | Fraction)}
    invariants: dict[Op | None, Invariant] = {}
    for _ in range(MOST_ROUNDS):
        kernel = _DraftSide(module, module.entry, models[0], "drawn", judged, invariants, False, known, (), _never)
        kernel.ended = True  # where texts end is no matter of the drafts
        try:
            return [step for step in kernel.run() if step.rule == "drafts-stated"]
        except NotKept as found:
            invariants[found.op] = found.weaker
    raise DerivationStopped(None, f"no invariant of a loop was found in {MOST_ROUNDS} rounds")


def _never() -> bool:
    return False


class _Drafting(ExactMachine):
    """A machine that ends where its first drafts are verified. drafted: of each, in the order of growth, the probabilities
    that it states, its token, and the line that grew it."""

    def start_run(self) -> None:
        super().start_run()
        self.drafted: list[tuple[tuple[Fraction, ...], int, int]] = []
        self.lines: dict[int, int] = {}

    def grew(self, tree: Tree, node: int, edge: Edge) -> None:
        if self.op is not None:
            self.lines[id(edge)] = self.op.loc.line
        super().grew(tree, node, edge)

    def walk(self, op: Op, t: Tree, evidence: Datum, rest: tuple[Datum, ...]) -> Path | Canvas:
        if self.parent is not None or isinstance(t.base, Canvas):
            return super().walk(op, t, evidence, rest)
        for node in t.nodes[1:]:
            if isinstance(node.edge, Draw):
                law = tuple(map(real, node.edge.law_vector()))
                if any(type(x) is not Fraction for x in law):  # equal numbers of other sorts are not known to be equal
                    raise NotSeparated("a draft states probabilities that are no rationals")
                self.drafted.append((law, node.edge.token, self.lines.get(id(node.edge), 0)))
        raise Enough


@dataclass
class _After:
    """What is drafted after one history: what is stated, the line, the mass of the history, and that of each token after it."""

    law: tuple[Fraction, ...]
    line: int
    tokens: dict[int, Fraction] = field(default_factory=dict)


def _wrong(case: Case, tally: RunTally) -> tuple[tuple[int, ...], _After] | None:
    """The first drafts, and a next one that is not drawn from what it states; None where all are. Raises what a world that
    is too large raises."""
    start = case.starts(World(coupled=False))

    def one(choices: Choices) -> list[tuple[tuple[Fraction, ...], int, int]]:
        m = start(choices)
        run_steps(m)
        assert isinstance(m, _Drafting)
        return m.drafted

    after: dict[tuple[tuple[Fraction, ...] | int, ...], _After] = {}
    for choices, drafted in runs(one, case.limit):
        tally.count()
        if any(point.kind != "chance" for point in choices.points):
            raise Unlikely("a function of the caller's is asked, which may answer anything")
        history: tuple[tuple[Fraction, ...] | int, ...] = ()
        for law, token, line in drafted:
            history += (law,)
            here = after.setdefault(history, _After(law, line))
            here.tokens[token] = here.tokens.get(token, Fraction(0)) + choices.weight()
            history += (token,)
    for history in sorted(after, key=len):
        here = after[history]
        mass = sum(here.tokens.values(), Fraction(0))
        real_law = {x: p / mass for x, p in here.tokens.items()}
        if any(real_law.get(x, Fraction(0)) != p for x, p in enumerate(here.law)):
            return tuple(x for x in history if isinstance(x, int)), replace(here, tokens=real_law)
    return None


def plans(module: Module, given: Mapping[str, ParamValue]) -> Iterator[WorldPlan]:
    """Worlds, small ones first: temperatures, what requests ask for, then those that the program's own numbers ask for."""
    simple = WorldPlan("drafts", prompt=1, limit=4, tight=True)
    settings: Sequence[tuple[Fraction | int, tuple[str, ...]]] = (
        (1, ()),
        (Fraction(1, 2), ()),
        *((1, (name,)) for name in ("top_k", "top_p", "min_p", "bans", "bias", "presence_penalty")),
    )
    for vocab in (2, 3, 4):
        for n, (temperature, features) in enumerate(settings):
            seed = 1 + 3 * (8 * vocab + n)  # no multiple of three: functions are drawn there, and not an adversary's
            style = Style("zeros" if n % 4 == 3 else "plain", shared=seed)
            yield replace(simple, seed=seed, vocab=vocab, style=style, temperature=temperature, features=features)
    for plan in further_plans(module, ABOUT, 3, 6, given):
        if not plan.pair:
            yield replace(plan, limit=max(plan.limit, plan.committed + 3))


def _enumerated(module: Module, given: Mapping[str, ParamValue], seconds: float, known: Stated) -> Stated:
    """The first world in which a draft is not drawn from what it states, or how many have none."""
    tally, worlds = RunTally(until=time.process_time() + seconds), 0
    for plan in plans(module, given) if seconds > 0 else ():
        try:
            case = begun(world(module, ABOUT, plan, fixed=given, engine=_Drafting))
            wrong = _wrong(case, tally)
        except OutOfTime:
            break
        except (DecError, TooMany, Unlikely, NotSeparated, NoValue):
            continue  # not decided: a larger world than can be followed, or a request that this program cannot meet
        if wrong is not None:
            return replace(known, verdict="refuted", worlds=worlds + 1, counterexample=_told(case, tally, *wrong))
        worlds += 1
    return replace(known, verdict="holds" if worlds else "undecided", worlds=worlds)


def _told(case: Case, tally: RunTally, before: tuple[int, ...], wrong: _After) -> Counterexample:
    """A draft and its world, with the rows of the tables that were read."""
    for m in case.models.values():
        if isinstance(m, TableModel | TableFeatures):
            m.forget()
    _wrong(case, RunTally())
    tables = [m.describe() for m in case.models.values() if hasattr(m, "describe")]
    ours: Distribution = {((x,), False): p for x, p in wrong.tokens.items()}
    theirs: Distribution = {((x,), False): p for x, p in enumerate(wrong.law) if p}
    distance = sum((abs(ours.get(k, Fraction(0)) - theirs.get(k, Fraction(0))) for k in {*ours, *theirs}), Fraction(0)) / 2
    behind = f" after the drafts {' '.join(map(str, before))}" if before else ""
    return Counterexample(
        CLAIM,
        "draft",
        case.request.prompt,
        requested(case.request),
        case.values,
        [table for table in tables if "\n" in table],  # of the target no row is read
        [],
        ours,
        theirs,
        distance,
        f"the draft that line {wrong.line} grows{behind}" if wrong.line else f"a draft{behind}",
        ("drawn", "stated"),
        start=str(case.start),
    )


__all__ = ["CLAIM", "Stated", "stated", "verifications"]
