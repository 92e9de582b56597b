"""Programs on a canvas whose schedule is known: which cells are decided in which order.

Where the cells that a step decides are fixed beforehand, or are chosen by the draws in one and the same way, and each gets a
fresh draw of the model's row there on this very canvas, the canvas has a distribution that depends on the schedule alone
(`scheduled_agree` in proof/Canvas.v): what thresholds, memories, coins, externs and counters compute beside it makes no
difference. So two programs with one schedule agree. Claims `when block == 1` and `when steps == 1` are of this kind: both
programs decide the cells one by one from the left, or all at once. With the specification's own noise, by how many cells are
decided, the tokens are the same (`scheduled_tokens`).

A function is gone through once. Numbers are sums over parameters (ir/linear.py), a set of cells is an interval, and what
depends on draws is unknown (vectors.py, cells.py). canvases.py has the rules of what is done to a canvas: an op without one
loses it. A loop is followed one iteration after the other where their number is known and small. Else it is shown to leave
the canvas as it is; or, by induction, that each iteration decides the next cell, the surest of a part, so many of a part, or
a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from decgraph.check.proof.canvas_values import (
    NONE,
    AnyOpen,
    Blocks,
    Canvas,
    CanvasValue,
    CellEdit,
    Cells,
    Column,
    Counts,
    Lost,
    PartlyDecided,
    Steps,
    TreeNodes,
    Vector,
)
from decgraph.check.proof.canvases import Canvases, then
from decgraph.check.proof.cells import BLOCK
from decgraph.check.proof.invariants import DerivationStopped, Step
from decgraph.check.proof.vectors import size, vector
from decgraph.ir.known_numbers import ONE, ZERO, KnownNumbers, anywhere
from decgraph.ir.linear import Linear, at_least, condition_of
from decgraph.ir.settings import conjuncts
from decgraph.ir.values import Claim, Constant, Function, Module, Op, Region

UNROLLED = 3
"""Iterations that are followed one by one."""
STEP = Linear.of(" step")
"""The counter of a loop that decides so many of the surest cells in each iteration."""
HEAD = "the steps before this iteration"


class Walk(Canvases):
    """One pass over a function."""

    def run(self) -> Canvas:
        """The canvas that is committed; Stopped where it is not known how its cells are decided."""
        for name, low in ((" step", 0), (" block", 0), (" low", 0), (" high", 1)):
            self.known.symbol(name, low)
        self.region(self.function.body)
        if self.end is None or self.asked is None:
            raise DerivationStopped(None, "it commits no canvas")
        if len(self.models) != 1:
            raise DerivationStopped(None, "cells are drawn from more than one model")
        if not all(map(anywhere, (self.asked, *_amounts(self.end.steps)))):
            raise DerivationStopped(None, "how many cells are decided is not known")
        return self.end

    def region(self, region: Region) -> list[CanvasValue]:
        for op in region.ops:
            found = self.op(op)
            values = found if isinstance(found, list) else [found] * len(op.results)
            for v, value in zip(op.results, values, strict=True):
                if v.type.elem == "canvas" and not isinstance(value, Canvas | Lost):
                    value = Lost(op, f"nothing is known of a canvas that `{op.opcode}` makes")
                self.now[v] = value
        return [self.now.get(v) for v in region.yields]

    def op(self, op: Op) -> CanvasValue | list[CanvasValue]:
        values = [self.now.get(v) for v in op.operands]
        if op.opcode in OWN:
            return OWN[op.opcode](self, op, *values)
        inside = {o.opcode for r in op.regions for o in r.walk()}
        if {"commit", "return"} & inside or op.opcode in ("return", "run"):
            raise DerivationStopped(op, f"`{op.opcode}` in a program on a canvas")
        if op.opcode == "reduce" and (found := self.counted(op, values[0])) is not None:
            return found
        return vector(self, op, values)

    # -- branches
    def branch(self, op: Op, cond: CanvasValue) -> list[CanvasValue]:
        if isinstance(cond, bool):
            return self.region(op.regions[0 if cond else 1])
        mark, ends = list(self.known.assumed), []
        for region in op.regions:
            ends.append(self.region(region))
            self.known.assumed = list(mark)
        full = cond.cells.canvas if isinstance(cond, AnyOpen) else None
        return [self.either(op, a, b, full) for a, b in zip(*ends, strict=True)]

    def either(self, op: Op, a: CanvasValue, b: CanvasValue, full: Canvas | None) -> CanvasValue:
        """One of two values, and nobody knows which. full: a canvas of whose part nothing is masked where it is the second."""
        if _alike(a, b):
            return a
        if "draft" in op.attrs:  # an error may end the first region anywhere
            return None
        if isinstance(a, Canvas) and isinstance(b, Canvas):
            part = a.part
            if part is not None and part.shared and not part.counts and (part, a.done, a.steps) == (b.part, b.done, b.steps):
                return replace(a, went=a.went and (b.went or b is full))
        if isinstance(a, Canvas | Lost):
            return a if isinstance(a, Lost) else b if isinstance(b, Lost) else Lost(op, "which cells are decided is not known")
        if isinstance(a, CellEdit) and b is NONE or isinstance(b, CellEdit) and a is NONE:
            return a if isinstance(a, CellEdit) else b
        n = size(self, a)
        return Vector(n) if n is not None and n == size(self, b) else None

    def each(self, op: Op, nodes: CanvasValue) -> CanvasValue:
        """A value for each node of a tree of canvases."""
        if not isinstance(nodes, TreeNodes) or nodes.one or op.attrs.get("filtered"):
            return vector(self, op, [nodes])
        region, mark = op.regions[0], list(self.known.assumed)
        self.now |= dict(zip(region.args, (self.known.fresh(0), replace(nodes, one=True)), strict=True))
        (found,) = self.region(region)
        self.known.assumed = list(mark)
        return Column(nodes.tree, found)

    # -- loops
    def for_(self, op: Op, low: CanvasValue, high: CanvasValue, *carried: CanvasValue) -> list[CanvasValue]:
        if not isinstance(low, Linear) or not isinstance(high, Linear):
            return self.attempt(op, carried, [])
        low, high = self.known.truncated(low), self.known.truncated(high)
        times, now = high - low, list(carried)
        if low == ZERO and high in self.blocks:
            return self.attempt(op, carried, [lambda: self.over_blocks(op, self.blocks[high], carried)])
        if times.number is None or times.number > UNROLLED:
            ways = [self.induction, self.filling, self.counting]
            return self.attempt(op, carried, [partial(way, op, low, times, carried) for way in ways])
        for i in range(int(times.number)):
            now, stops = self.body(op, low + Linear.of(i), now)
            if stops:
                break
            if stops is None:
                raise DerivationStopped(op, "when the loop ends is not known")
        return now

    def while_(self, op: Op, *operands: CanvasValue) -> list[CanvasValue]:
        limit, carried = (operands[0], operands[1:]) if op.attrs.get("limited") else (None, operands)
        mark, steps, now = list(self.known.assumed), list(self.steps), list(carried)
        for i in range(UNROLLED + 1):
            more = limit is None or (self.known.compared(limit, Linear.of(i + 1)) if isinstance(limit, Linear) else None)
            goes = more and self.goes_on(op, Linear.of(i), now)
            if goes is False:
                return now
            if goes is not True or i == UNROLLED:
                break
            now, stops = self.body(op, Linear.of(i), now)
            if stops is not False:
                break
        self.known.assumed = list(mark)
        self.steps = steps
        left = self.iterations(op, limit, carried)
        ways = [lambda: self.induction(op, ZERO, left(), carried), lambda: self.filling(op, ZERO, limit, carried)]
        return self.attempt(op, carried, ways)

    def iterations(self, op: Op, limit: CanvasValue, carried: Sequence[CanvasValue]) -> Callable[[], Linear]:
        """How many iterations a loop makes that decides one cell in each, while cells are masked."""

        def times() -> Linear:
            canvases = [v for v in carried if isinstance(v, Canvas)]
            found = self.length - canvases[0].done
            if len(canvases) != 1 or limit is not None and not self.limited(limit, found):
                raise DerivationStopped(op, "when the loop ends is not known")
            return found

        return times

    def limited(self, limit: CanvasValue, times: Linear) -> bool:
        """Whether a limit is no less than the number of iterations."""
        return isinstance(limit, Linear) and self.known.at_least(limit - times)

    def goes_on(self, op: Op, counter: Linear, carried: Sequence[CanvasValue]) -> CanvasValue:
        """What the condition of a loop says."""
        self.now |= dict(zip(op.regions[0].args, (counter, *carried), strict=True))
        return self.region(op.regions[0])[0]

    def body(self, op: Op, counter: Linear, carried: Sequence[CanvasValue]) -> tuple[list[CanvasValue], bool | None]:
        """What an iteration leaves, and whether it ends the loop (None: nobody knows)."""
        self.now |= dict(zip(op.regions[-1].args, (counter, *carried), strict=True))
        found = self.region(op.regions[-1])
        if not op.attrs.get("stops"):
            return found, False
        return found[1:], found[0] if isinstance(found[0], bool) else None

    def attempt(
        self, op: Op, carried: Sequence[CanvasValue], ways: Sequence[Callable[[], list[CanvasValue]]]
    ) -> list[CanvasValue]:
        """What a loop leaves: the first of several ways to see it that holds."""
        mark, steps, shared = list(self.known.assumed), list(self.steps), self.shared
        found: list[DerivationStopped] = []
        for way in (lambda: self.idle(op, carried), *ways):
            try:
                return way()
            except DerivationStopped as stopped:
                self.known.assumed = list(mark)
                self.steps, self.shared = list(steps), shared
                found.append(stopped)
            if not any(isinstance(v, Canvas) for v in carried):
                break
        raise next((stopped for stopped in reversed(found) if stopped.op is not op), found[-1])

    def idle(self, op: Op, carried: Sequence[CanvasValue]) -> list[CanvasValue]:
        """A loop that leaves canvases as they are, however often it runs. Of what else it carries that is known that every
        iteration leaves as it was."""
        if op.opcode == "while" and not op.attrs.get("limited"):
            raise DerivationStopped(op, "when the loop ends is not known")
        head, mark, steps = list(carried), list(self.known.assumed), list(self.steps)
        while True:
            counter = self.any_counter(op)
            found, _ = self.body(op, counter, head)
            self.known.assumed = list(mark)
            changed = [n for n, (a, b) in enumerate(zip(head, found, strict=True)) if a is not None and not _alike(a, b)]
            for n in changed:
                if isinstance(head[n], Canvas):
                    raise self.unlike(op, found[n], "the loop decides cells")
                head[n] = None
            if not changed:
                return head
            self.steps = list(steps)

    def any_counter(self, op: Op) -> Linear:
        """The counter of any iteration, with what is known of it."""
        counter = self.known.fresh()
        low, high = (self.now.get(v) for v in op.operands[:2]) if op.opcode == "for" else (ZERO, None)
        if isinstance(low, Linear):
            self.known.assumed.append(at_least(counter, self.known.truncated(low)))
        if isinstance(high, Linear):
            self.known.assumed.append(at_least(self.known.truncated(high), counter + 1))
        return counter

    def induction(self, op: Op, low: Linear, times: Linear, carried: Sequence[CanvasValue]) -> list[CanvasValue]:
        """A loop of `times` iterations, each of which decides the next cell. What it carries is guessed from the first one and
        then shown: it holds before the loop, and every iteration takes it to the next counter."""
        if not self.known.at_least(times):
            raise DerivationStopped(op, "how often the loop runs is not known")
        mark, steps, i = list(self.known.assumed), list(self.steps), self.known.fresh(0)
        self.known.assumed.append(at_least(times, 1))
        first, _ = self.body(op, low, carried)
        if any(
            isinstance(a, Canvas) and a is not b and (a.part or isinstance(b, Canvas) and b.part)
            for a, b in zip(carried, first)
        ):
            raise DerivationStopped(op, "an iteration does not decide the next cell")
        slopes = [_slope(a, b) for a, b in zip(carried, first, strict=True)]
        while True:
            self.known.assumed = list(mark)
            self.known.assumed.append(at_least(times, i + 1))
            self.steps = list(steps)
            head = [_after(v, s, i) for v, s in zip(carried, slopes, strict=True)]
            if op.opcode == "while" and self.goes_on(op, i, head) is not True:
                raise DerivationStopped(op, "when the loop ends is not known")
            found, stops = self.body(op, low + i, head)
            if stops is not False:
                raise DerivationStopped(op, "when the loop ends is not known")
            wrong = [n for n, s in enumerate(slopes) if s is not None and not _advances(found[n], head[n], carried[n], s, i)]
            for n in wrong:
                if isinstance(carried[n], Canvas):
                    raise self.unlike(op, found[n], "an iteration does not decide the next cell")
                slopes[n] = None
            if not wrong:
                break
        self.known.assumed = list(mark)
        end = [_after(v, s, times) for v, s in zip(carried, slopes, strict=True)]
        if op.opcode == "while" and self.goes_on(op, times, end) is not False:
            raise DerivationStopped(op, "when the loop ends is not known")
        return end

    def unlike(self, op: Op, value: CanvasValue, why: str) -> DerivationStopped:
        """Why an iteration is not of some kind: what it does to the canvas."""
        return DerivationStopped(value.op, value.why) if isinstance(value, Lost) else DerivationStopped(op, why)

    def head(self, op: Op, counter: Linear, carried: Sequence[CanvasValue]) -> tuple[int, Canvas, PartlyDecided]:
        """The one canvas that a loop carries: its place and value, and the part in which the first iteration decides cells."""
        (n, canvas), mark = _only(op, carried), list(self.known.assumed)
        after = self.body(op, counter, _with(carried, canvas))[0][n]
        self.known.assumed = list(mark)
        if not isinstance(after, Canvas) or after.part is None:
            raise self.unlike(op, after, "an iteration does not decide the surest cells of a part")
        return n, canvas, after.part

    def within_part(self, op: Op, counter: Linear, carried: Sequence[CanvasValue], n: int, head: Canvas) -> Canvas:
        """What an iteration makes of a canvas of whose part some cells are decided: another one such."""
        now = _with(carried, head)
        if op.opcode == "while":
            cond = self.goes_on(op, counter, now)
            if not isinstance(cond, AnyOpen) or cond.cells.canvas is not head:
                raise DerivationStopped(op, "when the loop ends is not known")
        found, stops = self.body(op, counter, now)
        after = found[n]
        if stops is not False or not isinstance(after, Canvas) or after.part is None or not after.went:
            raise self.unlike(op, after, "an iteration does not decide the surest cells of a part")
        if (after.done, after.steps, after.part.low, after.part.high) != (head.done, head.steps, *_ends(head)):
            raise DerivationStopped(op, "an iteration decides cells of another part")
        return after

    def filling(self, op: Op, low: Linear, limit: CanvasValue, carried: Sequence[CanvasValue]) -> list[CanvasValue]:
        """A loop each of whose iterations decides the surest masked cell of a part. It fills the part if it runs while a cell
        is masked, or as often as there are cells. limit: how often it runs at most (of a `for` loop, in fact)."""
        n, before, part = self.head(op, low, carried)
        if part.counts or before.part is not None and (before.part.low, before.part.high) != (part.low, part.high):
            raise DerivationStopped(op, "an iteration does not decide the surest cell of a part")
        head = Canvas(before.done, before.steps, part)
        mark = list(self.known.assumed)
        after = self.within_part(op, self.any_counter(op), carried, n, head)
        self.known.assumed = list(mark)
        if after.part != head.part:
            raise DerivationStopped(op, "an iteration does not decide the surest cell of a part")
        end = replace(head, went=False)
        waits = op.opcode == "while" and limit is None
        if waits or self.limited(limit, part.high - part.low):
            end = Canvas(part.high, then(head.steps, "surest", part.low, part.high), went=True)
        return _with(carried, end)

    def counting(self, op: Op, low: Linear, times: Linear, carried: Sequence[CanvasValue]) -> list[CanvasValue]:
        """A loop each of whose iterations decides so many of the surest masked cells of a part, as `spread` shares all of them
        among the iterations."""
        n, before, part = self.head(op, low, carried)
        if before.part is not None or low != ZERO:
            raise DerivationStopped(op, "the loop goes on with a part of the canvas")
        head = Canvas(before.done, before.steps, replace(part, counts=(HEAD,)))
        mark = list(self.known.assumed)
        self.known.assumed.append(at_least(times, STEP + 1))
        after = self.within_part(op, STEP, carried, n, head)
        self.known.assumed = list(mark)
        cells, counts = part.high - part.low, list(after.part.counts if after.part is not None else ())
        for key in list(self.known.facts):
            match key:
                case ("counts", of, Linear() as steps, at) if counts == [HEAD, Linear.of(key)] and (of, at) == (cells, STEP):
                    if size(self, Counts(cells, steps)) == times:
                        break
        else:
            raise DerivationStopped(op, "it is not known that the loop decides all cells of the part")
        end = Canvas(part.high, (*before.steps, ("counts", part.low, part.high, counts[1], times)), went=True)
        return _with(carried, end)

    def over_blocks(self, op: Op, step: Linear, carried: Sequence[CanvasValue]) -> list[CanvasValue]:
        """A loop through all blocks, whose body decides any one of them; all before it are decided."""
        n, before = _only(op, carried)
        if self.block is not None:
            raise DerivationStopped(op, "more than one canvas")
        low, high = Linear.of(" low"), Linear.of(" high")
        if before.done != ZERO or before.part is not None:
            raise DerivationStopped(op, "some cells are decided before the loop")
        mark = list(self.known.assumed)
        self.known.assumed += [at_least(high, low + 1), at_least(self.length, high), at_least(step, high - low)]
        self.block = step, Cells(low, high)
        try:
            found, stops = self.body(op, BLOCK, _with(carried, Canvas(low)))
        finally:
            self.block = None
        self.known.assumed = list(mark)
        after = found[n]
        if stops is not False or not isinstance(after, Canvas) or after.part is not None or after.done != high:
            raise self.unlike(op, after, "it is not known that all cells of a block are decided")
        end = Canvas(self.length, (("blocks", step, after.steps),), went=True)
        return _with(carried, end)


def _only(op: Op, carried: Sequence[CanvasValue]) -> tuple[int, Canvas]:
    """The one canvas that a loop carries, with its place."""
    canvases = [(n, v) for n, v in enumerate(carried) if isinstance(v, Canvas)]
    if len(canvases) != 1:
        raise DerivationStopped(op, "more than one canvas")
    return canvases[0]


def _with(carried: Sequence[CanvasValue], canvas: Canvas) -> list[CanvasValue]:
    """Carried values of which nothing is known but the canvas."""
    return [canvas if isinstance(v, Canvas) else v if isinstance(v, Lost) else None for v in carried]


def _ends(canvas: Canvas) -> tuple[Linear, Linear]:
    assert canvas.part is not None
    return canvas.part.low, canvas.part.high


def _amounts(steps: Steps | tuple[str | Linear | Steps, ...] | Linear | str) -> list[Linear]:
    if isinstance(steps, Linear):
        return [steps]
    return [a for part in steps for a in _amounts(part)] if isinstance(steps, tuple) else []


def _alike(a: CanvasValue, b: CanvasValue) -> bool:
    """Whether two values are known to be one."""
    return a is b or isinstance(a, Linear | bool | Blocks) and a == b


def _slope(a: CanvasValue, b: CanvasValue) -> Linear | None:
    """How a value may change from iteration to iteration: by so much, not at all (0), or in no way that is followed (None)."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        return b - a if (b - a).number is not None else None
    if isinstance(a, Canvas):
        return ZERO if a is b else ONE
    return ZERO if a is b and a is not None else None


def _after(v: CanvasValue, slope: Linear | None, times: Linear) -> CanvasValue:
    """A carried value after so many iterations."""
    if slope is None:
        return v if isinstance(v, Lost) else None
    if isinstance(v, Linear):
        return v + times.times(slope.constant)
    if isinstance(v, Canvas) and slope == ONE:
        return Canvas(v.done + times, then(v.steps, "each", v.done, v.done + times))
    return v


def _advances(result: CanvasValue, head: CanvasValue, v: CanvasValue, slope: Linear, i: Linear) -> bool:
    """Whether an iteration takes a value to that of the next counter."""
    want = _after(v, slope, i + ONE)
    if isinstance(want, Canvas) and slope == ONE:
        return isinstance(result, Canvas) and (result.done, result.steps, result.part) == (want.done, want.steps, None)
    return result == want if isinstance(v, Linear) else result is head


OWN: dict[str, Callable[..., CanvasValue | list[CanvasValue]]] = {
    "canvas.new": Walk.new,
    "canvas.get": Walk.get,
    "canvas.put": Walk.put,
    "model.eval": Walk.eval,
    "model.memory": Walk.memory,
    "draw": Walk.draw,
    "commit": Walk.commit,
    "tree.new": Walk.tree,
    "tree.grow": Walk.grow,
    "tree.get": Walk.column,
    "tree.nodes": Walk.all_nodes,
    "tree.walk": Walk.walk,
    "each": Walk.each,
    "if": Walk.branch,
    "for": Walk.for_,
    "while": Walk.while_,
}


def scheduled(module: Module, claim: Claim) -> list[Step]:
    """The steps of a derivation that an algorithm has its specification's schedule where the claim holds; else Stopped."""
    spec = module.functions.get(claim.spec)
    if spec is None:
        raise DerivationStopped(None, f"no specification {claim.spec}")
    mine, known = _setting(module.entry, claim)
    args, theirs = dict(claim.args), {}
    for p in spec.params:
        kind, value = args.get(p.name, ("const", p.default))
        theirs[p.name] = mine.get(str(value)) if kind == "param" else _value(value)
    want = Walk(spec, _setting(module.entry, claim)[1], theirs)
    try:
        want.run()
    except DerivationStopped as stopped:
        raise DerivationStopped(None, f"the specification {claim.spec} (line {stopped.line}): {stopped.why}") from None
    found = Walk(module.entry, known, mine)
    found.run()
    assert found.end is not None and want.end is not None
    if (found.asked, found.models, found.end.steps) != (want.asked, want.models, want.end.steps):
        raise DerivationStopped(None, f"{claim.spec} decides the cells in another order")
    if claim.mode == "tokens" and not (found.shared and want.shared):
        raise DerivationStopped(None, "the draws read other noise than those of the specification")
    return found.steps


def _value(x: Constant) -> CanvasValue:
    if isinstance(x, bool):
        return x
    if isinstance(x, tuple | list | frozenset):
        return None if x else ()
    return Linear.of(Fraction(x)) if isinstance(x, int | float | Fraction) else None


def _setting(function: Function, claim: Claim) -> tuple[dict[str, CanvasValue], KnownNumbers]:
    """What the parameters are under a claim's condition, and what is known of them. A part of the condition that is not
    understood is left out: what follows without it holds with it."""
    known = KnownNumbers()
    given: dict[str, CanvasValue] = {
        p.name: p.name if p.value.type.elem == "model" else known.parameter(p, p.name) for p in function.params
    }

    def number(kind: str, name: str) -> Linear | None:
        found = given.get(name) if kind == "param" else None
        return found if isinstance(found, Linear) else None

    for part in conjuncts(claim.setting):
        match part:
            case ("param", name):
                given[name] = True
            case ("not", ("param", name)):
                given[name] = False
            case ("==", ("param", name), ("param", _) | ("const", _) as other):
                old, new = given[name], given.get(other[1]) if other[0] == "param" else _value(other[1])
                if isinstance(old, Linear) and isinstance(new, Linear):
                    given = {k: new if v == old else v for k, v in given.items()}
                elif old is None and not isinstance(new, Linear):
                    given[name] = new
            case _:
                known.assumed.append(condition_of(part, number))
    return given, known
