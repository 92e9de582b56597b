"""Programs on a canvas whose schedule is known: which cells are decided in which order, whatever is drawn.

Where the cells that a step decides are fixed beforehand, and each is drawn anew from the model's row there on this very canvas,
the canvas has a distribution that depends on the schedule alone (`scheduled_agree` in proof/Canvas.v): what scores, thresholds,
memories, coins, externs and counters compute beside it makes no difference. So two programs with one schedule agree. Claims
`when block == 1` and `when steps == 1` are of this kind: both programs decide the cells one by one from the left, or all at
once.

`Walk` goes through a function once. Numbers are polynomials over parameters (amounts.py), a set of cells is an interval, and
what depends on draws is unknown (vectors.py, cells.py). A canvas that two outcomes of something unknown would fill differently
is lost, and so is one that is changed by an op without a rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.check.proof.amounts import ONE, ZERO, Amount, Known
from decgraph.check.proof.cells import within
from decgraph.check.proof.invariants import Step, Stopped
from decgraph.check.proof.vectors import NOTHING, Between, Blocks, Cells, Drawn, Rows, Vector, size, vector
from decgraph.ir.values import Claim, Function, Module, Op, Param, Region, Value

UNROLLED = 3
"""Iterations that are followed one by one; loops of more, or of an unknown number, need an induction."""
Steps = tuple[tuple[str, Amount, Amount], ...]
"""In order: ("each", a, b), the cells from a to b one after the other; ("at once", a, b), all of them from one canvas."""


@dataclass(frozen=True, eq=False)
class Canvas:
    """A canvas whose first `done` cells are decided, by these steps, and whose others are masked."""

    done: Amount
    steps: Steps = ()


@dataclass(frozen=True, eq=False)
class Lost:
    """A canvas of which nothing is known any more: since which op, and why."""

    op: Op
    why: str


@dataclass(frozen=True)
class Schedule:
    """What a function commits: its canvas's length, as it asks for it, the model, and the steps."""

    length: Amount
    model: str
    steps: Steps


def then(steps: Steps, kind: str, low: Amount, high: Amount) -> Steps:
    """One more step; cells that are decided one by one are one step together."""
    if steps and kind == "each" and steps[-1][0] == "each" and steps[-1][2] == low:
        return (*steps[:-1], ("each", steps[-1][1], high))
    return (*steps, (kind, low, high))


@dataclass
class Walk:
    """One pass over a function. given: the values of its parameters; models by name."""

    function: Function
    known: Known
    given: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    length: Amount = field(default_factory=lambda: Amount.of(" n"))

    def __post_init__(self) -> None:
        self.now: dict[Value, Any] = {p.value: self.given.get(p.name) for p in self.function.params}
        self.loops: dict[Value, tuple[Value, ...]] = {}
        self.reads: dict[Value, int] = {}
        self.made: dict[Value, Op] = {}
        self._place(self.function.body, ())
        sites = [op.attrs["site"] for op in self.made.values() if op.opcode == "noise"]
        self.shared = {s for s in sites if sites.count(s) > 1}
        self.asked: Amount | None = None
        self.models: set[str] = set()
        self.end: Canvas | None = None

    def _place(self, region: Region, counters: tuple[Value, ...]) -> None:
        for op in region.ops:
            self.made |= dict.fromkeys(op.results, op)
            self.loops |= dict.fromkeys(op.results, counters)
            for v in op.operands:
                self.reads[v] = self.reads.get(v, 0) + 1
            for r in op.regions:
                self._place(r, (*counters, r.args[0]) if op.opcode in ("for", "while", "each") else counters)

    def run(self) -> Schedule:
        """The schedule of the canvas that is committed; Stopped where there is none."""
        self.region(self.function.body)
        if self.end is None or self.asked is None:
            raise Stopped(None, "it commits no canvas")
        if len(self.models) != 1:
            raise Stopped(None, "cells are drawn from more than one model")
        if not all(x.known for x in (self.asked, *(a for _, *ends in self.end.steps for a in ends))):
            raise Stopped(None, "how many cells are decided is not known")
        return Schedule(self.asked, *self.models, self.end.steps)

    def region(self, region: Region) -> list[Any]:
        for op in region.ops:
            found = self.op(op)
            values = found if isinstance(found, list) else [found] * len(op.results)
            for v, value in zip(op.results, values, strict=True):
                if v.type.elem == "canvas" and not isinstance(value, Canvas | Lost):
                    value = Lost(op, f"nothing is known of a canvas that `{op.opcode}` makes")
                self.now[v] = value
        return [self.now.get(v) for v in region.yields]

    def op(self, op: Op) -> Any:
        values = [self.now.get(v) for v in op.operands]
        if op.opcode in OWN:
            return OWN[op.opcode](self, op, *values)
        inside = {o.opcode for r in op.regions for o in r.walk()}
        if {"commit", "return"} & inside or op.opcode in ("return", "run"):
            raise Stopped(op, f"`{op.opcode}` in a program on a canvas")
        return vector(self, op, values)

    # -- canvases
    def new(self, op: Op, *operands: Any) -> Canvas:
        if self.asked is not None or len(operands) != 1 or self.loops[op.result] or not isinstance(operands[0], Amount):
            raise Stopped(op, "more than one canvas, or one that grows")
        self.asked = operands[0]
        self.known.ranges.setdefault(" n", (1, float("inf")))  # an empty canvas is committed as it is
        self.known.facts.append(operands[0] - self.length)
        return Canvas(ZERO)

    def get(self, op: Op, canvas: Any) -> Any:
        what, every = op.attrs["field"], Cells(ZERO, self.length)
        if what == "length":
            return self.length
        if what == "all":
            return every
        if what not in ("masked", "decided") or not isinstance(canvas, Canvas):
            return Vector(self.length)
        ends = (canvas.done, self.length) if what == "masked" else (ZERO, canvas.done)
        return Vector(self.length, within(self, Between(*ends), every))

    def put(self, op: Op, canvas: Any, where: Any, *rest: Any) -> Any:
        """Masked cells become decided, each by a fresh draw of its own row on this very canvas."""
        if not isinstance(canvas, Canvas):
            return canvas
        mask = True
        if op.attrs.get("has_mask"):
            mask = rest[-1].item if isinstance(rest[-1], Vector) else rest[-1]
        if mask is False or isinstance(where, Cells) and self.known.at_least(where.low - where.high):
            return canvas
        if op.attrs["kind"] != "token":
            return Lost(op, "cells may be masked again" if op.attrs["kind"] == "mask" else "cells may hold an embedding")
        if isinstance(where, Amount):
            where = Cells(where, where + ONE)
        new = self.chosen(where, mask, size(self, rest[-1])) if isinstance(where, Cells) else None
        if new is None:
            return Lost(op, "which cells are decided is not known before they are drawn")
        if (
            new.low != canvas.done
            or not self.known.at_least(self.length - new.high)
            or not self.known.above(new.high - new.low)
        ):
            return Lost(op, "the cells that are decided are not the next ones from the left, each once")
        x = rest[0]
        if not isinstance(x, Drawn) or x.canvas is not canvas:
            return Lost(op, "a cell gets a token that is not known to be a fresh draw of the model's row there on this canvas")
        every = x.at is None and op.operands[2].type.dims[:1] and op.operands[2].type.dims[0].kind == "cells"
        alone = x.at is not None and size(self, x.at) == size(self, where) == ONE and x.at.low == where.low
        if not (every or alone or x.at is where):
            return Lost(op, "tokens may be put at other cells than they were drawn for")
        kind = "each" if new.high - new.low == ONE else "at once"
        self.say(op, "decides the next cell from the left" if kind == "each" else "decides all cells at once", "cells-drawn")
        return Canvas(new.high, then(canvas.steps, kind, new.low, new.high))

    def chosen(self, where: Cells, mask: Any, entries: Amount | None) -> Cells | None:
        """Those cells at which a condition is true, one for each of them or for each of the canvas."""
        if mask is True:
            return where
        if not isinstance(mask, Between) or not where.ordered or entries not in (self.length, size(self, where)):
            return None
        start = ZERO if entries == self.length else where.low
        low, high = start + mask.low, start + mask.high
        return Cells(low, high) if self.known.at_least(low - where.low) and self.known.at_least(where.high - high) else None

    def eval(self, op: Op, model: Any, canvas: Any, *rest: Any) -> Any:
        given = dict(zip(op.attrs.get("with", ()), rest, strict=True))
        at = given.get("at")
        if (
            not isinstance(model, str)
            or not isinstance(canvas, Canvas)
            or op.attrs.get("part")
            or given.keys() - {"at", "given"}
        ):
            return None
        if "given" in given:  # on a memory that holds nothing a call of all cells computes everything
            every = isinstance(at, Cells) and at.low == ZERO and at.high == self.length
            if given["given"] is not NOTHING or "at" in given and not every:
                return None
        self.models.add(model)
        if op.result.type.dims[0].kind == "cells":
            return Rows(canvas, None)
        return Rows(canvas, at if isinstance(at, Cells) else Cells(self.known.atom(), self.known.atom(), ordered=False))

    def memory(self, op: Op, model: Any, canvas: Any, *rest: Any) -> Any:
        at = rest[0] if tuple(op.attrs.get("with", ())) == ("at",) else None
        return NOTHING if isinstance(at, Cells) and self.known.at_least(at.low - at.high) else None

    def draw(self, op: Op, rows: Any, _: Any) -> Any:
        noise = self.made.get(op.operands[1])
        if not isinstance(rows, Rows) or rows.face != "shaped" or noise is None or noise.opcode != "noise":
            return Vector(size(self, rows))
        if noise.attrs["kind"] == "output":  # each step has a number of its own: how many cells are decided
            fresh = len(noise.operands) == 1 and self.now.get(noise.operands[0]) == rows.canvas.done
        else:
            fresh = (
                noise.attrs["site"] not in self.shared
                and self.reads[noise.result] == 1
                and self.loops[noise.result] == self.loops[op.result]
                and set(self.loops[noise.result]) <= set(noise.operands)
            )
        return Drawn(rows.canvas, rows.at) if fresh else Vector(size(self, rows))

    def commit(self, op: Op, *values: Any) -> None:
        if len(values) != 1 or self.end is not None or op not in self.function.body.ops:
            raise Stopped(op, "commits more than one canvas, once")
        if isinstance(values[0], Lost):
            raise Stopped(values[0].op, values[0].why)
        if not isinstance(values[0], Canvas) or values[0].done != self.length:
            raise Stopped(op, "it is not known that all cells of what is committed are decided")
        kinds = {kind for kind, _, _ in values[0].steps}
        how = (
            "one by one, from the left"
            if kinds == {"each"}
            else "all at once"
            if len(values[0].steps) == 1
            else "in these steps"
        )
        self.say(op, f"commits the canvas, decided {how}, whatever was drawn", "commit-scheduled")
        self.end = values[0]

    def say(self, op: Op, text: str, rule: str) -> None:
        step = Step(op.loc.line, text, rule)
        if step not in self.steps:
            self.steps.append(step)

    # -- control flow
    def branch(self, op: Op, cond: Any) -> list[Any]:
        if isinstance(cond, bool):
            return self.region(op.regions[0 if cond else 1])
        mark, ends = self.known.mark(), []
        for region in op.regions:
            ends.append(self.region(region))
            self.known.back(mark)
        return [self.either(op, a, b) for a, b in zip(*ends, strict=True)]

    def either(self, op: Op, a: Any, b: Any) -> Any:
        """One of two values, and nobody knows which."""
        if a is b or isinstance(a, Amount | bool | Blocks) and a == b:
            return a
        if isinstance(a, Canvas | Lost):
            return a if isinstance(a, Lost) else b if isinstance(b, Lost) else Lost(op, "which cells are decided is not known")
        if isinstance(a, Rows) and isinstance(b, Rows) and a.canvas is b.canvas and a.at is b.at:
            return replace(a, face="one of two")
        n = size(self, a)
        return Vector(n) if n is not None and n == size(self, b) else None

    def for_(self, op: Op, low: Any, high: Any, *carried: Any) -> list[Any]:
        if not isinstance(low, Amount) or not isinstance(high, Amount):
            return self.idle(op, carried)
        times, now = high - low, list(carried)
        if self.known.at_least(-times):
            return now
        if times.number is None or times.number > UNROLLED:
            return self.attempt(op, carried, lambda: self.induction(op, low, times, carried))
        for i in range(int(times.number)):
            now, stops = self.body(op, low + Amount.of(i), now)
            if stops:
                break
            if stops is None:
                raise Stopped(op, "when the loop ends is not known")
        return now

    def while_(self, op: Op, *operands: Any) -> list[Any]:
        limit, carried = (operands[0], operands[1:]) if op.attrs.get("limited") else (None, operands)
        mark, steps, now = self.known.mark(), list(self.steps), list(carried)
        for i in range(UNROLLED + 1):
            more = limit is None or (self.known.compared(limit, Amount.of(i + 1)) if isinstance(limit, Amount) else None)
            goes = more and self.goes_on(op, Amount.of(i), now)
            if goes is False:
                return now
            if goes is None or i == UNROLLED:
                break
            now, stops = self.body(op, Amount.of(i), now)
            if stops:
                return now
            if stops is None:
                break
        self.known.back(mark)
        self.steps = steps
        return self.attempt(op, carried, lambda: self.waiting(op, limit, carried))

    def goes_on(self, op: Op, counter: Amount, carried: Sequence[Any]) -> bool | None:
        """What the condition of a loop says (None: nobody knows)."""
        self.now |= dict(zip(op.regions[0].args, (counter, *carried), strict=True))
        (found,) = self.region(op.regions[0])
        return found if isinstance(found, bool) else None

    def waiting(self, op: Op, limit: Any, carried: Sequence[Any]) -> list[Any]:
        """A loop that goes on while cells are masked, and decides one in each iteration."""
        canvases = [v for v in carried if isinstance(v, Canvas)]
        if len(canvases) != 1:
            raise Stopped(op, "when the loop ends is not known")
        times = self.length - canvases[0].done
        if limit is not None and not (isinstance(limit, Amount) and self.known.at_least(limit - times)):
            raise Stopped(op, "the loop may end before all cells are decided")
        return self.induction(op, ZERO, times, carried)

    def attempt(self, op: Op, carried: Sequence[Any], otherwise: Callable[[], list[Any]]) -> list[Any]:
        """What a loop leaves that does nothing to canvases, or else what `otherwise` finds."""
        mark, steps = self.known.mark(), list(self.steps)
        try:
            return self.idle(op, carried)
        except Stopped:
            self.known.back(mark)
            self.steps = steps
            if not any(isinstance(v, Canvas) for v in carried):
                raise
            return otherwise()

    def body(self, op: Op, counter: Amount, carried: Sequence[Any]) -> tuple[list[Any], bool | None]:
        """What an iteration leaves, and whether it ends the loop (None: nobody knows)."""
        self.now |= dict(zip(op.regions[-1].args, (counter, *carried), strict=True))
        found = self.region(op.regions[-1])
        if not op.attrs.get("stops"):
            return found, False
        return found[1:], found[0] if isinstance(found[0], bool) else None

    def idle(self, op: Op, carried: Sequence[Any]) -> list[Any]:
        """A loop that leaves canvases as they are, however often it runs; nothing is known of what else it carries."""
        if op.opcode == "while" and not op.attrs.get("limited"):
            raise Stopped(op, "when the loop ends is not known")
        head = [v if isinstance(v, Canvas | Lost) else None for v in carried]
        counter, mark = self.known.atom(0), self.known.mark()
        if op.opcode == "for":
            low, high = (self.now.get(v) for v in op.operands[:2])
            if isinstance(low, Amount) and isinstance(high, Amount):
                self.known.facts += [high - counter - ONE, counter - low]
            else:
                counter = self.known.atom()
        else:
            self.goes_on(op, counter, head)
        found, _ = self.body(op, counter, head)
        self.known.back(mark)
        for before, after in zip(head, found, strict=True):
            if isinstance(before, Canvas) and after is not before:
                raise Stopped(getattr(after, "op", op), getattr(after, "why", "the loop decides cells"))
        return head

    def induction(self, op: Op, low: Amount, times: Amount, carried: Sequence[Any]) -> list[Any]:
        """A loop of `times` iterations, each of which decides one more cell. What it carries is guessed from the first one and
        then shown: it holds before the loop, and every iteration takes it to the next counter."""
        if not self.known.at_least(times):
            raise Stopped(op, "how often the loop runs is not known")
        mark, steps, i = self.known.mark(), list(self.steps), self.known.atom(0)
        self.known.facts.append(times - ONE)
        first, _ = self.body(op, low, carried)
        slopes = [_slope(a, b) for a, b in zip(carried, first, strict=True)]
        while True:
            self.known.back(mark)
            self.known.facts.append(times - i - ONE)
            self.steps = list(steps)
            head = [_after(v, s, i) for v, s in zip(carried, slopes, strict=True)]
            if op.opcode == "while" and self.goes_on(op, i, head) is not True:
                raise Stopped(op, "when the loop ends is not known")
            found, stops = self.body(op, low + i, head)
            if stops is not False:
                raise Stopped(op, "when the loop ends is not known")
            wrong = [n for n, s in enumerate(slopes) if s is not None and not _kept(found[n], head[n], carried[n], s, i)]
            for n in wrong:
                if isinstance(carried[n], Canvas):
                    lost = found[n]
                    raise Stopped(
                        lost.op if isinstance(lost, Lost) else op, getattr(lost, "why", "an iteration decides not one cell")
                    )
                slopes[n] = None
            if not wrong:
                break
        self.known.back(mark)
        end = [_after(v, s, times) for v, s in zip(carried, slopes, strict=True)]
        if op.opcode == "while" and self.goes_on(op, times, end) is not False:
            raise Stopped(op, "when the loop ends is not known")
        return end


def _slope(a: Any, b: Any) -> Any:
    """How a value may change from iteration to iteration: by so much, not at all (0), or in no way that is followed (None)."""
    if isinstance(a, Amount) and isinstance(b, Amount):
        return b - a if (b - a).number is not None else None
    if isinstance(a, Canvas):
        return ZERO if a is b else ONE
    return ZERO if a is b and a is not None else None


def _after(v: Any, slope: Any, times: Amount) -> Any:
    """A carried value after so many iterations."""
    if slope is None:
        return v if isinstance(v, Lost) else None
    if isinstance(v, Amount):
        return v + slope * times
    if isinstance(v, Canvas) and slope == ONE:
        return Canvas(v.done + times, then(v.steps, "each", v.done, v.done + times))
    return v


def _kept(found: Any, head: Any, v: Any, slope: Amount, i: Amount) -> bool:
    """Whether an iteration takes a value to that of the next counter."""
    want = _after(v, slope, i + ONE)
    if isinstance(v, Canvas) and slope == ONE:
        return isinstance(found, Canvas) and (found.done, found.steps) == (want.done, want.steps)
    return found == want if isinstance(v, Amount) else found is head


OWN: dict[str, Callable[..., Any]] = {
    "canvas.new": Walk.new,
    "canvas.get": Walk.get,
    "canvas.put": Walk.put,
    "model.eval": Walk.eval,
    "model.memory": Walk.memory,
    "draw": Walk.draw,
    "commit": Walk.commit,
    "if": Walk.branch,
    "for": Walk.for_,
    "while": Walk.while_,
}


def scheduled(module: Module, claim: Claim) -> list[Step]:
    """The steps of a derivation that an algorithm has its specification's schedule where the claim holds; else Stopped."""
    spec = module.functions.get(claim.spec)
    if spec is None or claim.mode not in ("distribution", "greedy"):
        raise Stopped(None, f"no derivation in {claim.mode} for specifications such as {claim.spec} yet")
    mine, known = _setting(module.entry, claim)
    walk = Walk(module.entry, known, mine)
    found = walk.run()
    args = dict(claim.args)
    theirs = {}
    for p in spec.params:
        kind, value = args.get(p.name, ("const", p.default))
        theirs[p.name] = mine.get(value) if kind == "param" else _value(value)
    want = Walk(spec, _setting(module.entry, claim)[1], theirs).run()
    if found != want:
        raise Stopped(None, f"{claim.spec} decides the cells in another order")
    return walk.steps


def _value(x: Any) -> Any:
    if isinstance(x, bool) or isinstance(x, tuple | list | frozenset) and not x:
        return x if isinstance(x, bool) else ()
    return Amount.of(x) if isinstance(x, int | float) or hasattr(x, "denominator") else None


def _setting(function: Function, claim: Claim) -> tuple[dict[str, Any], Known]:
    """What the parameters are under a claim's condition, and what is known of them."""
    known = Known()
    given: dict[str, Any] = {}
    for p in function.params:
        given[p.name] = _parameter(p, known)
    parts = claim.setting[1:] if claim.setting[:1] == ("and",) else (claim.setting,) if claim.setting else ()
    for part in parts:  # a part that is not understood is left out: what follows without it holds with it
        match part:
            case ("param", name) | ("==", ("param", name), ("const", True)):
                given[name] = True
            case ("not", ("param", name)) | ("==", ("param", name), ("const", False)):
                given[name] = False
            case ("==", ("param", name), ("const", ())):
                given[name] = ()
            case ("==", ("param", name), other) if isinstance(given[name], Amount) and (x := _amount(other, given)) is not None:
                atom = given[name]
                given = {k: x if v == atom else v for k, v in given.items()}
            case ("<=", a, b) | (">=", b, a) if (x := _amount(a, given)) is not None and (y := _amount(b, given)) is not None:
                known.facts.append(y - x)
            case ("<", a, b) | (">", b, a) if (x := _amount(a, given)) is not None and (y := _amount(b, given)) is not None:
                known.facts.append(y - x - ONE if known.whole(y - x) else y - x)
    return given, known


def _amount(part: Any, given: dict[str, Any]) -> Amount | None:
    match part:
        case ("param", name):
            return given[name] if isinstance(given[name], Amount) else None
        case ("const", x):
            value = _value(x)
            return value if isinstance(value, Amount) else None
    return None


def _parameter(p: Param, known: Known) -> Any:
    t = p.value.type
    if t.elem == "model":
        return p.name
    if t.dims or not t.is_number:
        return None
    bounds = (0, 1) if t.elem == "prob" else (-float("inf"), float("inf"))
    low, high = (end if given is None else given for end, given in zip(bounds, (p.low, p.high), strict=True))
    return known.atom(low, high, real=t.elem != "int", name=f"{p.name}")


__all__ = ["Schedule", "Walk", "scheduled"]
