"""Deciding a claim in one world: a model for every parameter, parameter values, and a request. Claims about single tokens are
`ensures` and `keeps support`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from decgraph.backends.exact.choices import Arrived, Choices, FollowedChoices, Point, TooMany, runs
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Unlikely, World
from decgraph.backends.reference.protocols import RowSource
from decgraph.backends.run import CALLS
from decgraph.check.beside import orders
from decgraph.check.case import Case, begun
from decgraph.check.chances import ByChance, attempts
from decgraph.check.constants import loop_of, masked
from decgraph.check.counts import Exceeded, SpentCounts
from decgraph.check.distributions import (
    AdversaryWins,
    Distribution,
    RunTally,
    Specification,
    Tokens,
    continued_distribution,
    execute,
    run_steps,
    total_variation,
    whole_distribution,
)
from decgraph.check.faults import internal
from decgraph.errors import ConstraintError, ContextFullError, DecError
from decgraph.ir.data.canvas import Canvas, Cell
from decgraph.ir.data.dist import Dist, Draw, Row, Soft, value_row
from decgraph.ir.failing import Failing
from decgraph.ir.values import Function
from decgraph.runtime.models import interface
from decgraph.runtime.models.derive import check_derivations
from decgraph.runtime.models.interface import Model, Scores
from decgraph.runtime.models.table import Tabled
from decgraph.runtime.parameters import check_shapes

if TYPE_CHECKING:
    from decgraph.check.case import Case


def row_after(case: Case, m: ExactMachine, name: str, path: tuple[int, ...]) -> Row:
    """A model's row after a text, whatever the machine gets wrong."""
    scores = partial(ExactMachine.score_path, m, case.models[name], path, None)
    return ExactMachine.model_row(m, RowSource(case.models[name], scores, path))


def given_to(case: Case, m: ExactMachine, path: tuple[int, ...], x: int) -> str:
    """What the claim's models give a token that a claim does not hold of."""
    names = (
        case.claim.models if case.claim.kind == "keeps_support" else [k for k, v in case.models.items() if v.kind == "causal"]
    )
    rows = []
    for name in names:
        row = row_after(case, m, name, path)
        rows.append(f"{name} gives it probability {row.face('raw' if case.claim.kind == 'keeps_support' else 'shaped')[x]}")
    return ", where " + " and ".join(rows[:2]) if rows else ""


class Unsupported(NamedTuple):
    """A token that was decided on a canvas, to which no model assigns a probability there, and how to say so."""

    token: int
    words: str


def unsupported(case: Case, m: ExactMachine, c: Canvas, positions: Sequence[int], values: Sequence[Cell]) -> list[Unsupported]:
    """Tokens just decided on a canvas to which no model of the claim assigns a probability there, computed without a cache."""
    cells, base = m.cells(c), len(c.base)
    out = []
    for i, v in zip(positions, values, strict=True):
        x = v.token if isinstance(v, Draw) else int(cast(int | Soft, v))
        path = tuple(m.mask_token if not isinstance(t, int) else t for t in cells[: base + i])
        rows = [
            ExactMachine.model_row(m, RowSource(model, partial(_cell_scores, model, cells, base + i), path, i))
            for model in map(case.models.__getitem__, case.claim.models)
        ]
        if not any(row.face("raw")[x] > 0 for row in rows):
            line = f", line {m.op.loc.line}," if m.op is not None and m.op.loc.line else ""
            seen = " ".join(str(t) if isinstance(t, int) and t != m.mask_token else "_" for t in path + cells[base + i :])
            given = " and ".join(
                f"{name} gives {', '.join(str(p) for p in row.face('raw'))} to the tokens"
                for name, row in zip(case.claim.models, rows, strict=True)
            )
            out.append(
                Unsupported(x, f"token {x} was decided at position {i} of the canvas{line} where {given}, from cells {seen}")
            )
    return out


def _cell_scores(model: Model, cells: tuple[interface.Cell, ...], at: int) -> Scores:
    return model.eval_canvas(cells, [at], None)[0]


def token_holds(case: Case, m: ExactMachine, path: tuple[int, ...], x: int) -> bool:
    """Whether the claim holds of one token at its context."""
    if case.claim.kind == "keeps_support":
        return any(row_after(case, m, name, path).face("raw")[x] > 0 for name in case.claim.models)
    model = next(v for v in case.models.values() if v.kind == "causal")
    row = m.model_row(RowSource(model, partial(m.score_path, model, path, None), path))
    assert case.claim.region is not None
    p = Dist(np.array(value_row(row.face("shaped")), dtype=object).reshape(()))
    return bool(m.num.truth(m.region(case.claim.region, (p, x))[0]))


@dataclass
class Failure:
    """Why a claim does not hold: the case, the two distributions (or token strings), and the decisions that lead there."""

    case: Case
    kind: str
    ours: Distribution
    theirs: Distribution
    distance: Fraction
    points: list[Point]
    words: str = ""
    notes: list[str] = field(default_factory=list)
    """On canvases all that was drawn and masked again on the way there."""


def memoryless(f: Function) -> bool:
    """Whether a specification is a function of the context: one `while not done` that carries nothing, and no state."""
    whiles = [op for op in f.body.ops if op.opcode == "while"]
    return (
        not f.states
        and len(whiles) == 1
        and whiles[0].attrs.get("bound") == "done"
        and not whiles[0].results
        and not any(op.opcode in ("canvas.new", "commit") for op in f.body.ops)
    )


def decide(case: Case, tally: RunTally, *, far: bool = True) -> Failure | None:
    """None where the claim holds in this world. Raises TooMany or Unlikely where that cannot be said.

    A lossless claim is decided for the world's request and, since that has few tokens, for the same request at temperature 0
    and `DEEP` tokens, which is a single run for most algorithms. far: whether that is decided, too. Beside another sequence a
    claim is decided in every order.
    """
    if case.start.beside and case.start.order is None:
        each = (replace(case, start=replace(case.start, order=n)) for n in orders(case.start.beside == "lines", case.turns))
        return next((failure for one in each if (failure := decide(one, tally, far=False)) is not None), None)
    case = begun(case)
    if case.claim.for_greedy:
        case = replace(case, request=replace(case.request, temperature=0))
    if case.claim.bound:
        return within_bound(case, tally)
    if case.claim.kind != "refines":
        return every_token(case, tally)
    tokens = case.claim.mode in ("tokens", "greedy")
    if case.sampled:
        return in_tokens(case, tally) if tokens else too_likely(case, tally)
    try:
        failure = in_tokens(case, tally) if tokens else in_distribution(case, tally)
        return failure if failure is not None or not far or case.start.before is not None else deep(case, tally)
    except DecError as error:
        longer = replace(case, request=replace(case.request, temperature=0, max_tokens=max(DEEP, case.request.max_tokens)))
        crash = ended(case, error, tally) or (None if masked(case.function) else ended(longer, error, tally))
        if crash is None:
            raise
        return crash


def ended(case: Case, error: DecError, tally: RunTally) -> Failure | None:
    """The failure that a run ends in an error where the specification goes on. None where that error may not be the
    program's or cannot happen: in a carried state of any kind, after an imposed outcome, with parameters that
    a session refuses."""
    real = (
        case.speaks()
        and case.engine is ExactMachine
        and case.start.arbitrary is None
        and not (case.ran is not None and case.ran.forced)
    )
    if not real or isinstance(error, ConstraintError | ContextFullError) or internal(error, case.externs):
        return None
    try:
        check_derivations(case.function, case.models, case.params)
        check_shapes(case.function, case.params, next(iter(case.models.values())).vocab.size)
        start, done, spec = replace(case, ran=None).starts(World(coupled=True)), case.start.committed, case.spec()
        if any(Failing(case.module.functions[case.claim.spec]).outside_drafts()):
            world = World(coupled=True)

            def spec_start(choices: Choices) -> ExactMachine:
                world.restart(choices)
                return spec.machine(case.request, world).resume(done)

            if any(isinstance(found, DecError) for _, found in outcomes(spec_start, case.limit, tally)):
                return None
        for choices, found in outcomes(start, case.limit, tally):
            if isinstance(found, DecError):
                said = str(found.diagnostics[0]).removeprefix("error: ")
                text = (done, True)
                how = "does not end" if any(words in said for words in ENDLESS) else "ends with an error"
                words = f"{case.function.name} {how} where {case.claim.spec} goes on: {said}"
                return Failure(case, "error", {text: Fraction(1)}, {}, Fraction(1), choices.points, words)
    except (DecError, TooMany, Unlikely, NotSeparated):
        return None
    return None


ENDLESS = ("does not end", "committed nothing and decided nothing", "decided no cell")
"""Words of the errors with which a run ends that would go on for ever."""


def outcomes(
    start: Callable[[Choices], ExactMachine], limit: int, tally: RunTally
) -> Iterator[tuple[Choices, DecError | None]]:
    """The runs of the machines that `start` returns for choices, each with the error that ended it, or None."""

    def run(choices: Choices) -> DecError | None:
        m = start(choices)
        try:
            execute(m)
        except DecError as error:
            return None if error.outside or m.op is not None and m.op.opcode in CALLS else error
        return None

    try:
        for choices, found in runs(run, limit):
            tally.count()
            yield choices, found
    except TooMany:
        for seed in range(limit // 4):
            choices = ByChance(seed)
            tally.count()
            yield choices, run(choices)


def deep(case: Case, tally: RunTally) -> Failure | None:
    """The part of `decide` at temperature 0. Nothing is said of drafts that are random there too."""
    if case.claim.kind != "refines" or case.request.greedy or masked(case.function):
        return None
    limit = max(DEEP, case.request.max_tokens) if case.request.max_tokens > 1 else case.request.max_tokens
    if case.claim.mode == "distribution" and not certain(case):
        return None
    far = replace(case, request=replace(case.request, temperature=0, max_tokens=limit), limit=min(case.limit, 60), steps=None)
    try:
        return in_tokens(far, tally)
    except (TooMany, Unlikely, NotSeparated):
        return None


DEEP = 9


def certain(case: Case) -> bool:
    """Whether the specification leaves nothing to chance at temperature 0: one that draws from what the request does not shape
    has another token for other noise."""
    world = World(coupled=True)
    choices = Choices(())
    world.restart(choices)
    try:
        execute(case.spec().machine(replace(case.request, temperature=0, max_tokens=2), world))
    except DecError:
        return False
    return not choices.points


def in_distribution(case: Case, tally: RunTally) -> Failure | None:
    """One step (or a few) and then the specification, against the specification alone."""
    if not case.speaks():
        return None
    spec_f = case.module.functions[case.claim.spec]
    a, b = case.program(), case.spec()
    setup, done = case.setup(), case.start.committed
    try:
        if memoryless(spec_f) and loop_of(case.function) is not None:
            spec = Specification(b, case.request, case.limit, tally)
            length = len(done) + case.length
            theirs: Distribution = {}
            spec.extend(done, length, theirs, Fraction(1))
            ours = continued_distribution(a, spec, case.request, case.steps, length, case.limit, tally, setup, done)
        else:
            theirs = whole_distribution(b, case.request, case.limit, tally)
            ours = whole_distribution(a, case.request, case.limit, tally, setup)
    except AdversaryWins as wins:
        one, other = wins.laws[0], next(d for d in wins.laws if d != wins.laws[0])
        words = f"the value of {wins.point.label} changes the distribution"
        return Failure(case, "adversary", one, other, total_variation(one, other), [wins.point], words)
    if ours == theirs:
        return None
    return Failure(case, "distribution", ours, theirs, total_variation(ours, theirs), [])


def in_tokens(case: Case, tally: RunTally) -> Failure | None:
    """With the same noise, the same tokens: for everything that the noise can be. From another start than the beginning one
    step is compared with as many tokens of the specification."""
    if not case.speaks():
        return None
    world, spec_program, done = World(coupled=True, ran=case.ran), case.spec(), case.start.committed
    started = bool(done) or case.start.arbitrary is not None
    steps = (case.steps or 1) if started and memoryless(case.module.functions[case.claim.spec]) else None

    start = case.starts(world, steps)

    def both(choices: Choices) -> tuple[Tokens, Tokens]:
        m = start(choices)
        whole = run_steps(m)
        ours = m.committed_tokens()
        choices.known = None  # the states of the specification do not say what we have committed
        world.ran = None
        spec = spec_program.machine(case.request, world).resume(done)
        if not whole:
            spec.until = lambda s: s.committed() >= len(ours)
        theirs = execute(spec).committed_tokens() if not spec.done() else done
        world.ran = case.ran
        # A specification may commit more at once than a run that was stopped had.
        return ours, theirs if whole else theirs[: len(ours)]

    for choices, found in attempts(both, limit=case.limit, sampled=case.sampled, merge=mergeable(case)):
        tally.count()
        if isinstance(found, Arrived):
            continue
        ours, theirs = found
        if ours != theirs:
            return Failure(
                case, "tokens", {(ours, True): Fraction(1)}, {(theirs, True): Fraction(1)}, Fraction(1), choices.points
            )
    return None


def too_likely(case: Case, tally: RunTally) -> Failure | None:
    """A text that some runs, drawn at random, commit with more probability than the specification does: what these runs add
    up to is a bound from below, so that no more of them need be known."""
    if not case.speaks():
        return None
    world, b, first = World(coupled=False, ran=case.ran), case.spec(), ByChance(0)
    start = case.starts(world)

    def one(choices: Choices) -> tuple[Tokens, bool]:
        m = start(choices)
        whole = run_steps(m)
        return m.committed_tokens(), whole

    world.restart(first)
    theirs: dict[Tokens, Fraction] = {execute(b.machine(case.request, world)).committed_tokens(): first.weight()}
    spec = Specification(b, case.request, case.limit, tally)
    small = memoryless(case.module.functions[case.claim.spec])
    if first.points and not small:
        theirs = {text: p for (text, _), p in whole_distribution(b, case.request, case.limit, tally).items()}

    def allowed(text: Tokens, whole: bool) -> Fraction:
        """The probability that the specification gives to a text, or to all that begin like it."""
        if first.points and small:
            return spec.share(text, whole)
        return sum((p for t, p in theirs.items() if t == text or (not whole and t[: len(text)] == text)), Fraction(0))

    ways: dict[tuple[Tokens, bool], dict[tuple[int, ...], Fraction]] = {}
    for choices, found in attempts(one, limit=case.limit, sampled=case.sampled, merge=False):
        tally.count()
        if isinstance(found, Arrived) or any(p.kind == "adversary" for p in choices.points):
            continue
        ways.setdefault(found, {})[tuple(p.taken for p in choices.points)] = choices.weight()
        had, most = sum(ways[found].values(), Fraction(0)), allowed(*found)
        if had > most:
            least = "" if had == 1 else "at least "
            words = f"the first commits its text with probability {least}{had}, the second with probability {most}"
            other: Distribution = {(found[0], True): most}
            other |= {(text, True): p for text, p in theirs.items() if not first.points}
            return Failure(case, "text", {(found[0], True): had}, other, had - most, choices.points, words)
    return None


def mergeable(case: Case) -> bool:
    """Whether runs that come to a state again need not be followed: all that what follows depends on is part of the state.
    Noise that is no output noise is not; a specification must not read any, since the program may have read it before. A
    machine with a bug may remember more than a state says.

    The first run in a state has come to its end, and no claim failed there. The next one commits the same tokens, and on the
    same noise the specification commits the same."""
    if case.engine is not ExactMachine or case.start.beside:
        return False
    if case.claim.kind != "refines":
        return True
    ops = list(case.module.functions[case.claim.spec].body.walk())
    return not any(op.opcode == "run" or (op.opcode == "noise" and op.attrs["kind"] != "output") for op in ops)


def every_token(case: Case, tally: RunTally) -> Failure | None:
    """`ensures` and `keeps support`: of every token that is committed, at its context (or, on a canvas, when it was
    decided)."""
    if not case.speaks():
        return None
    start, done = case.starts(World(coupled=True, ran=case.ran)), case.start.committed
    on_canvas = masked(case.function)

    def one(choices: Choices) -> tuple[Tokens, str] | None:
        m = start(choices)
        if on_canvas and case.claim.kind == "keeps_support":
            m.watch_canvas = partial(unsupported, case, m)
            execute(m)
            return next(((token,), words) for token, words in m.found_on_canvas) if m.found_on_canvas else None
        execute(m)
        tokens = m.committed_tokens()
        for i, x in enumerate(tokens):
            path = tuple(case.request.prompt) + tokens[:i]
            if i >= len(done) and not token_holds(case, m, path, x):
                return tokens[: i + 1], f"token {x} was committed after {list(path)}{given_to(case, m, path, x)}"
        return None

    return first_bad(case, tally, one, "token")


def within_bound(case: Case, tally: RunTally) -> Failure | None:
    """`at most`: no run spends more."""
    if not case.speaks():
        return None
    start = case.starts(World(coupled=True, ran=case.ran))

    def one(choices: Choices) -> tuple[Tokens, str] | None:
        m = start(choices)
        m.counted = spent = SpentCounts(case)
        try:
            if run_steps(m):
                spent.judge()
        except Exceeded as words:
            return m.committed_tokens(), str(words)
        return None

    return first_bad(case, tally, one, "count")


def first_bad(case: Case, tally: RunTally, one: Callable[[Choices], tuple[Tokens, str] | None], kind: str) -> Failure | None:
    """The first run of which something is wrong: what it committed until then, and what it is."""
    for choices, bad in attempts(one, limit=case.limit, sampled=case.sampled, merge=mergeable(case)):
        tally.count()
        if bad is not None and not isinstance(bad, Arrived):
            tokens, words = bad
            again = FollowedChoices(tuple(p.taken for p in choices.points))
            for m in case.models.values():
                if isinstance(m, Tabled):
                    m.forget()  # what is shown are the rows of this run
            one(again)
            notes = again.notes if masked(case.function) else []
            return Failure(case, kind, {(tokens, True): Fraction(1)}, {}, Fraction(1), choices.points, words, notes)
    return None
