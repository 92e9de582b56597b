"""What a mutant is, and planting all of them in one algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Unlikely
from decgraph.check.case import Case
from decgraph.check.claims import decide, deep
from decgraph.check.constants import masked
from decgraph.check.distributions import RunTally
from decgraph.check.equivalent_mutants import changes_nothing
from decgraph.check.planting import Planting, Rewrite
from decgraph.check.profile import AlgorithmProfile, profile
from decgraph.check.worlds import least
from decgraph.errors import DecError
from decgraph.ir.values import Module


@dataclass(frozen=True)
class Mutant:
    """One bug that a check must find.

    why: what is wrong with it. applies: whether it can matter to an algorithm with these facts (where it provably cannot,
    the reason stands beside the mutant). sees: the smallest world that is expected to show it. bugs: where it was seen in
    the wild. rewrite: the patch of the program; engine: the broken machine; one of the two. worlds: numbers of the worlds
    that show it best, tried first. steps: iterations of the outer loop that it takes. asks: only a request that asks for
    something can show it.
    """

    name: str
    why: str
    applies: Callable[[AlgorithmProfile], bool]
    sees: str
    bugs: str = ""
    rewrite: Rewrite | None = None
    engine: type[ExactMachine] | None = None
    worlds: tuple[int, ...] = ()
    steps: int = 1
    asks: bool = False

    @classmethod
    def of(
        cls,
        what: type[ExactMachine] | Rewrite,
        name: str,
        applies: Callable[[AlgorithmProfile], bool],
        sees: str,
        bugs: str = "",
        where: Callable[[Rewrite], Rewrite] | None = None,
        worlds: tuple[int, ...] = (),
        steps: int = 1,
        asks: bool = False,
    ) -> Mutant:
        """The mutant of a machine, or of a patch of what `where` chooses (None: of the whole program). Its docstring says what
        is wrong."""
        told = (what.__doc__ or name).rstrip(".")  # python -OO has no docstrings
        engine = what if isinstance(what, type) else None
        patch = None if isinstance(what, type) else what if where is None else where(what)
        return cls(name, told[0].lower() + told[1:], applies, sees, bugs, patch, engine, worlds, steps, asks)


@dataclass
class Kill:
    """The result of one mutant. by: how it was found (distribution, tokens, adversary, token, error, refused) and in which
    world. outside: it changes nothing at the setting of the claim that it was planted for."""

    name: str
    why: str
    killed: bool
    by: dict[str, str | int] = field(default_factory=dict)
    outside: bool = False

    def to_json(self) -> dict[str, object]:
        beside = {"outside": True} if self.outside else {}
        return {"name": self.name, "why": self.why, "killed": self.killed, "by": self.by, **beside}


WORLD_LIMIT = 400  # a world with more runs is tried with smaller parameters


def judge(case: Case, steps: int = 1) -> str | None:
    """How a mutant shows in one world; None where it does not, or where the world is too large."""
    case = replace(case, limit=WORLD_LIMIT, steps=None if case.steps is None else max(case.steps, steps))
    try:
        if deep(case, RunTally()) is not None:  # the quickest test
            return "tokens"
    except DecError:
        return "error"
    later = case.plan.committed > 0  # the runs above began at the prompt
    fewer = () if case.steps in (steps, None) else (replace(case, steps=steps),)
    for small in (case, *fewer, least(case)):
        try:
            failure = decide(small, RunTally(), far=later or small.params != case.params)
        except (TooMany, Unlikely, NotSeparated):
            continue
        except DecError:
            if small.params != case.params:  # smaller parameters need not go together
                continue
            return "error"
        return failure.kind if failure is not None else None
    return None


def asking(case: Case) -> bool:
    """Whether the request asks for more than a number of tokens."""
    return bool(case.plan.features) or case.plan.temperature not in (0, 1)


def applicable(
    facts: AlgorithmProfile, mutants: Sequence[Mutant], planting: Planting | None
) -> Iterator[tuple[Mutant, str | None]]:
    """The mutants that can matter, with the patched text of those that are patches."""
    for m in mutants:
        if not m.applies(facts):
            continue
        if m.rewrite is None:
            yield m, None
        elif planting is not None:
            text = planting.patched(m.rewrite)
            if text is not None:
                yield m, text


Cases = Callable[[Module, type[ExactMachine], int], Sequence[Case]]
Without = Callable[[Case], Case]
ROUNDS = 3
WANTED = 160  # a mutant counts as not found after this many base worlds


def plant(
    module: Module,
    planting: Planting | None,
    mutants: Sequence[Mutant],
    cases: Cases,
    without: Without,
    progress: Callable[[str, int, int], None] | None = None,
    tally: RunTally | None = None,
    setting: bool = False,
    rounds: int = ROUNDS,
) -> list[Kill]:
    """Plant every mutant that applies and look for a world that shows it. `cases` returns the worlds of a module:
    those that its claims are decided in (round 0), and where they do not show a mutant as many again, and again, in `rounds`.
    `without` returns the same world without the bug: an error shows a bug only where the program has none of its own.
    setting: whether the claim is about some values of the parameters, where a mutant need not change anything."""
    plain = cases(module, ExactMachine, 0)
    facts = profile(plain[:8])
    todo = list(applicable(facts, mutants, planting))
    out = []
    for i, (m, text) in enumerate(todo):
        if progress is not None:
            progress(f"mutant {m.name}", i, len(todo))
        if tally is not None:
            tally.check_time()
        out.append(one(module, planting, m, text, cases, without, rounds))
        if setting and not out[-1].killed:
            broken = module if text is None or planting is None else planting.load(text)
            worlds = (case for part in range(2) for case in cases(broken, m.engine or ExactMachine, part))
            out[-1].outside = changes_nothing(worlds, without)
    return out


def one(
    module: Module,
    planting: Planting | None,
    m: Mutant,
    text: str | None,
    cases: Cases,
    without: Without,
    rounds: int = ROUNDS,
) -> Kill:
    """One mutant: the first world that shows it."""
    if text is not None:
        assert planting is not None
        try:
            module = planting.load(text)
        except DecError as error:
            return Kill(m.name, m.why, True, {"how": "refused", "code": error.diagnostics[0].code if error.diagnostics else ""})
    tried = 0
    for part in range(rounds):
        worlds = cases(module, m.engine or ExactMachine, part)
        first = [i for i in m.worlds if i < len(worlds)] if part == 0 else []
        order = first + [i for i in range(len(worlds)) if i not in first]
        if m.asks:
            order = [i for i in order if asking(worlds[i])]
        # The smallest parameters first, which are quick; drafts of one edit hide what there is to see of canvases.
        quick = [least(worlds[i]) for i in order[:3] if not masked(worlds[i].function)]
        for case in [*quick, *(worlds[i] for i in order)]:
            tried += 1
            how = judge(case, m.steps)
            if how == "error" and judge(without(case), m.steps) == "error":
                continue
            if how is not None:
                size = next(iter(case.models.values())).vocab.size
                return Kill(m.name, m.why, True, {"how": how, "vocab": size, "models": tried})
    return Kill(m.name, m.why, False, {"models": tried})
