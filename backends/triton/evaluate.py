"""Evaluates regions of the IR for all lanes at once, in torch, with nothing read back and no shape that depends on data.

Static values decide the control flow in Python. Where data decides, both sides are computed and selected; a loop runs to its
bound while `mask` says which lanes are still in it. Effects (commits, states) happen in the lanes of `mask` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.lowering import TEMPLATES, lower, not_
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Vec, is_static
from decgraph.backends.triton.vectors import Vectors, both
from decgraph.ir.table import lookup
from decgraph.ir.values import Op, Region, Value

STEP: dict[str, Callable[..., Any]] = {}
"""By opcode: `f(s, op, *operands)`, where `s` is the step's state (state.py)."""
FOLDED: set[str] = set()
"""The opcodes that are the host's where all operands are static."""
JOINS: dict[type, Callable[..., Any]] = {}
"""By the type of a value: `f(s, lanes bool[B], a, b)`, a in those lanes and b in the others."""
TOPICS = (
    "numbers", "distributions", "draws", "selection", "sequences", "trees", "walk",
    "models", "request", "indexes", "canvases", "masked", "automata",
)  # fmt: skip


def step(*opcodes: str, folded: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function below as the step's form of ops. folded: static operands alone give a static result, which the host
    computes. Raises TypeError for an op registered before."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in opcodes:
            if name in STEP:
                raise TypeError(f"op {name} stands in backends/triton/ops twice")
            STEP[name] = f
        FOLDED.update(opcodes if folded else ())
        return f

    return register


def joins(*types: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function below as the selection between values of a type."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        JOINS.update((t, f) for t in types)
        return f

    return register


@lru_cache(maxsize=1)
def load() -> None:
    """Import the files that register ops."""
    for topic in TOPICS:
        import_module(f"decgraph.backends.triton.ops.{topic}")


class Evaluator(Vectors):
    """Runs regions. env: the current value of every IR value; mask: bool[B], the lanes that are here, or None: all."""

    longest = 4096
    """The most iterations that a loop is unrolled to."""

    def __init__(self) -> None:
        load()
        self.env: dict[Value, Any] = {}
        self.mask: Tensor | None = None
        self.sizes: dict[Value, float] = {}
        """The most that numbers can be that are not negative, where it is known."""
        self.tops: dict[Value, float] = {}
        """The most that other numbers can be."""
        self.decided: dict[Any, Any] = {}
        """What the host decided the last time, by place."""
        self.odd: list[Tensor] = []
        self.pieces: Any = None
        """The recorded bodies of loops (pieces.py); None: they are run as they are."""
        self.measuring = False
        """Whether it is found out what an iteration needs."""
        self.recording = False
        """Whether a graph is being recorded: nothing may be read then, and the host runs no loop."""
        self.place: Op | None = None
        """The op that is being evaluated, for the listing."""

    def region(self, region: Region, args: Sequence[Any]) -> tuple[Any, ...]:
        """The yields of a region for its arguments."""
        self.env.update(zip(region.args, args, strict=True))
        for op in region.ops:
            self.op(op)
        return tuple(self.env[v] for v in region.yields)

    def op(self, op: Op) -> None:
        """Run one op and keep its results."""
        before, self.place = self.place, op
        special = getattr(self, "op_" + op.opcode.replace(".", "_"), None)
        if special is not None:
            out = special(op)
        else:
            operands = [self.env[v] for v in op.operands]
            static = all(is_static(v) for v in operands)
            if op.opcode in STEP and not (static and op.opcode in FOLDED):
                out = STEP[op.opcode](self, op, *operands)
            elif static:
                out = self.hosted(op, operands)
            else:
                raise NotSteppable(f"`{op.opcode}` has no form in a step", op)
        if len(op.results) == 1:
            self.env[op.result] = out
        elif op.results:
            self.env.update(zip(op.results, out, strict=True))
        self.place = before

    def hosted(self, op: Op, operands: Sequence[Any]) -> Any:
        """An op over static values: its NumPy meaning. Forms in ops/ call this too where all operands are static."""
        if op.regions or lookup(op.opcode).batch == "host":
            raise NotSteppable(f"`{op.opcode}` is the host's", op)
        low = lower(op)
        if low.fn in TEMPLATES or low.fn is not_:
            return low.fn(*operands)
        out = lookup(op.opcode).meaning(self, op, *operands)
        return out[0] if len(op.results) == 1 else tuple(out)

    def reads(self, flag: Tensor) -> int:
        """A number that the host reads, the one way in which it learns of data. Raises NotSteppable where it cannot."""
        if self.recording:
            raise NotSteppable("a loop whose number of iterations depends on data", self.place)
        return int(flag)

    def idle(self, lanes: Tensor) -> bool:
        """Whether no lane of these bool[B] is here, where the host knows it without waiting: what they would do is left out."""
        return not self.recording and lanes.device.type == "cpu" and not bool((lanes & self.active()).any())

    def agreed(self, lanes: Tensor) -> bool | None:
        """Whether a condition bool[B] holds in all lanes that are here, or in none; None: in some. The host reads it. In a
        graph it is what it was the last time, and `odd` says whether it was not (pieces.py runs the body again then)."""
        here = self.active()
        if self.recording and self.place in self.decided:
            known = self.decided[self.place]
            if known is not None:
                self.odd.append(((lanes != known) & here).any())
            return known
        some = self.reads((lanes & here).any().long() + 2 * (~lanes & here).any().long())
        self.decided[self.place] = None if some == 3 else some != 2
        return self.decided[self.place]

    def active(self) -> Tensor:
        """bool[B]: the lanes in which effects happen now (state.py)."""
        raise NotImplementedError

    def over(self) -> Tensor:
        """bool[B]: the lanes that are over (state.py)."""
        raise NotImplementedError

    # -- masks
    def within(self, lanes: Tensor | None) -> _Within:
        """A block in which only some of the lanes are. lanes: bool[B], or None: all."""
        return _Within(self, lanes)

    def here(self, lanes: Tensor | None) -> Tensor | None:
        """Those lanes that are here; None for all. lanes: bool[B]."""
        if lanes is None or self.mask is None:
            return self.mask if lanes is None else lanes
        return self.mask & lanes

    def join(self, lanes: Tensor, a: Any, b: Any) -> Any:
        """a in the lanes bool[B], b in the others. What one side lacks (none) is the other's: nothing reads it there."""
        if a is b:
            return a
        if (a is None or b is None) and not getattr(a if b is None else b, "optional", False):
            return a if b is None else b
        if is_static(a) and is_static(b) and _same(a, b):
            return a
        if isinstance(a, list) and isinstance(b, list) and len(a) != len(b) and not (is_static(a) and is_static(b)):
            raise NotSteppable("a list whose length depends on data", self.place)
        for kind, f in JOINS.items():
            if isinstance(a, kind) or isinstance(b, kind):
                return f(self, lanes, a, b)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
            return [self.join(lanes, x, y) for x, y in zip(a, b, strict=True)]
        if isinstance(a, str) or isinstance(b, str):
            raise NotSteppable("a text that depends on data", self.place)
        x, y = self.tensor(a), self.tensor(b)
        if x.ndim != y.ndim:
            raise NotSteppable("values of different dimensions in two branches", self.place)
        if x.shape[1:] != y.shape[1:]:
            return JOINS[Vec](self, lanes, a, b)
        return torch.where(lanes.reshape(-1, *([1] * (x.ndim - 1))), x, y)

    def tensor(self, x: Any) -> Tensor:
        """A number, an array or a value as a tensor [B or 1, *dims] (state.py)."""
        raise NotImplementedError

    # -- control flow
    def truth(self, value: Any) -> bool | None:
        """A condition that is static; None where data decides."""
        return bool(value) if is_static(value) else None

    def op_const(self, op: Op) -> Any:
        v = op.attrs["value"]
        if v in ("inf", "-inf") and op.attrs["type"].elem != "text":
            return float(v)
        if isinstance(v, list | tuple):
            return np.array([float(x) if hasattr(x, "numerator") and not isinstance(x, int) else x for x in v]) if v else []
        return float(v) if hasattr(v, "numerator") and not isinstance(v, bool | int) else v

    def op_unfailing(self, op: Op) -> bool:
        """True: an error in a draft makes the lane one for the driver, as any other error does."""
        return True

    def op_segment(self, op: Op) -> Any:
        """A segment is its region: values from outside keep their names."""
        out = self.region(op.regions[0], ())
        for outside, inside in zip(op.results, op.regions[0].yields, strict=True):
            self.renamed(outside, inside)
        return out[0] if len(op.results) == 1 else out

    def renamed(self, value: Value, before: Value) -> None:
        """What is known of the size of one value is so of another, which is the same."""
        for kept in (self.sizes, self.tops):
            kept.pop(value, None)
            if before in kept:
                kept[value] = kept[before]

    def op_if(self, op: Op) -> Any:
        cond = self.env[op.operands[0]]
        known = self.truth(cond)
        if known is None and any(v.type.elem == "memory" for v in op.results):
            known = self.agreed(self.lanes(cond).bool())  # what is computed depends on it
        if known is not None:
            out = self.region(op.regions[0 if known else 1], ())
        else:
            lanes = self.tensor(cond)
            with self.within(lanes):
                a = self.region(op.regions[0], ())
            with self.within(~lanes):
                b = self.region(op.regions[1], ())
            self.bounds_of_either(op)
            out = tuple(self.join(lanes, x, y) for x, y in zip(a, b, strict=True))
        return out[0] if len(op.results) == 1 else out

    def op_for(self, op: Op) -> Any:
        lo, hi, *carried = (self.env[v] for v in op.operands)
        if is_static(lo) and is_static(hi):
            out = self.unroll(op, range(int(lo), int(hi)), carried, lambda i: None)
        else:
            first, count = self.tensor(lo), self.tensor(hi) - self.tensor(lo)
            bound = op.attrs.get("bound") if isinstance(op.attrs.get("bound"), int) else None
            if is_static(lo) and self.most(op.operands[1]) is not None:
                bound = int(min(b for b in (bound, self.most(op.operands[1])) if b is not None))
            hosted = bound is None or bound > self.short or self.calls(op)
            if hosted:
                here = count if self.mask is None else torch.where(self.mask, count, 0)
                bound = self.reads(here.amax())
            numbers, inside = range(bound or 0), lambda i: count > i
            recorded = hosted and self.pieces is not None  # a graph is for every iteration: its number is a tensor
            start = self.lanes(first) if recorded or not is_static(lo) else None
            if start is None:
                numbers, count = range(int(lo), int(lo) + len(numbers)), count + int(lo)
            out = self.unroll(op, numbers, carried, inside, start=start, hosted=hosted)
        return out[0] if len(op.results) == 1 else tuple(out)

    short = 64
    """Iterations up to which the host does not run a loop whose bound is known."""

    def calls(self, op: Op) -> bool:
        """Whether a loop has a loop inside that the host has to run, or calls at canvases, of which one is much."""
        return any(
            o.opcode == "while"
            and not isinstance(o.attrs.get("bound"), int)
            or o.opcode == "model.eval"
            and o.operands[1].type.elem == "canvas"
            for r in op.regions
            for o in r.walk()
        )

    def quiet(self, op: Op) -> bool:
        """Whether nothing follows from a loop's iterations but its values: what models have computed does not depend on them.
        While a program is measured all of them count."""
        loud = ("model.", "memory.", "head.", "commit", "canvas.", "state.")
        return not self.measuring and not any(o.opcode.startswith(loud) for r in op.regions for o in r.walk())

    def top(self, value: Value) -> float | None:
        """The most that a number can be, None: not known."""
        now: Any = self.env.get(value)
        if isinstance(now, int | float | np.integer):
            return float(now) if abs(float(now)) < 2**31 else None
        return self.sizes.get(value, self.tops.get(value))

    def most(self, value: Value) -> int | None:
        """The most that a whole number can be, None: not known."""
        top = self.top(value)
        return None if top is None else int(top // 1)

    def bounds_of(self, op: Op, fn: str) -> None:
        """Note the most that a sum, a minimum or the like of numbers can be, and whether it is known not to be negative."""
        found, tops = None, [self.top(v) for v in op.operands]
        known = [n for n in tops if n is not None]
        static = [isinstance(self.env.get(v), int | float | np.integer) for v in op.operands]
        natural = all(
            v in self.sizes or s and n is not None and n >= 0 for v, s, n in zip(op.operands, static, tops, strict=True)
        )
        if fn == "minimum" and known:
            found = min(known)
        elif fn == "sub" and tops[0] is not None and static[1] and tops[1] is not None:
            found, natural = tops[0] - tops[1], False
        elif fn == "sub" and tops[0] is not None and op.operands[1] in self.sizes:
            found, natural = tops[0], False
        elif fn == "clamp" and tops[2] is not None:
            found = tops[2]
        elif len(known) == len(tops) and fn in ("add", "maximum", "select", "floor"):
            found = sum(known) if fn == "add" else max(known[1:] if fn == "select" else known)
        elif natural and fn in ("mul", "weigh"):
            found = tops[0] * tops[1] if tops[0] is not None and tops[1] is not None else None
        elif natural and fn == "div" and static[1] and tops[0] is not None and tops[1]:
            found = tops[0] / tops[1]
        for kept in (self.sizes, self.tops):  # of an earlier iteration
            kept.pop(op.result, None)
        if found is not None:
            (self.sizes if natural else self.tops)[op.result] = found

    def bounds_of_either(self, op: Op) -> None:
        """Note the most that numbers can be which one of two regions gives."""
        for value, *sides in zip(op.results, *(r.yields for r in op.regions), strict=True):
            tops: list[Any] = [self.top(v) for v in sides]
            self.sizes.pop(value, None)
            self.tops.pop(value, None)
            if value.type.elem == "int" and not value.type.dims and None not in tops:
                self.tops[value] = max(tops)

    def op_while(self, op: Op) -> Any:
        carried = [self.env[v] for v in op.operands]
        limit = carried.pop(0) if op.attrs.get("limited") else None
        bound = int(limit) if limit is not None and is_static(limit) else op.attrs.get("bound")
        within = None if limit is None or is_static(limit) else self.tensor(limit)
        if isinstance(bound, int) and bound <= self.short and not self.calls(op):
            inside = (lambda i: within > i) if within is not None else lambda i: None
            out = self.unroll(op, range(bound), carried, inside, cond=op.regions[0])
        else:
            out = self.hosted_while(op, carried, bound if isinstance(bound, int) else None, within)
        return out[0] if len(op.results) == 1 else tuple(out)

    def hosted_while(self, op: Op, carried: list[Any], most: int | None, within: Tensor | None) -> list[Any]:
        """A loop that the host runs until no lane is in it. within: int64[B], the most iterations of a lane, or None."""
        outer, stops, going, i = self.mask, bool(op.attrs.get("stops")), self.mask, 0
        out: list[tuple[Tensor, list[Any]]] = []
        while most is None or i < most:
            self.mask = going
            held = self.region(op.regions[0], (i, *carried))[0]
            lanes = both(going, None if held is True else self.lanes(held).bool())
            if within is not None:
                lanes = both(lanes, within > i)
            if lanes is not None and lanes is not going:
                out.append((~lanes if going is None else going & ~lanes, carried))
            if lanes is not None and not self.reads((lanes & ~self.over()).any()):
                break
            if i > self.longest:
                raise NotSteppable("a loop that does not end", op)
            self.mask = lanes
            made = self.body_of(op.regions[1], (i, *carried))
            stop, after = (made[0], made[1:]) if stops else (False, made)
            carried, going = list(after), lanes
            if stop is not False:
                stopped = self.lanes(stop).bool()
                out.append((stopped if lanes is None else lanes & stopped, carried))
                going = both(lanes, ~stopped)
            i += 1
        self.mask = outer
        for lanes, values in reversed(out):
            carried = [self.join(lanes, x, y) for x, y in zip(values, carried, strict=True)]
        return carried

    def body_of(self, region: Region, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """An iteration of a loop that the host runs (program.py has graphs of them)."""
        if self.pieces is None or self.recording:
            return self.region(region, arguments)
        counted = not any(region.args[0] in o.operands for o in region.walk())
        number = arguments[0] if counted else self.lanes(arguments[0]).clone()  # the number differs from iteration to iteration
        return self.pieces.run(region, (0 if counted else number, *arguments[1:]))

    def lanes(self, x: Any) -> Tensor:
        """A value as numbers of every lane (state.py)."""
        raise NotImplementedError

    def unroll(
        self,
        op: Op,
        numbers: range,
        carried: list[Any],
        inside: Any,
        *,
        cond: Region | None = None,
        start: Tensor | None = None,
        hosted: bool = False,
    ) -> list[Any]:
        """Iterations of the last region of an op. inside: bool[B], the lanes that have an iteration of that number, None:
        all."""
        if len(numbers) > self.longest:
            raise NotSteppable(f"a loop of {len(numbers)} iterations", op)
        stops, going, outer, quiet = bool(op.attrs.get("stops")), None, self.mask, self.quiet(op)
        out: list[tuple[Tensor, list[Any]]] = []  # the lanes that leave, and what they leave with
        for i in numbers:
            counter: Any = i if start is None else start + i
            lanes = both(going, inside(i))
            if quiet and i > numbers.start and lanes is not None and self.idle(lanes):
                break
            if cond is not None:
                with self.within(lanes):
                    held = self.region(cond, [counter, *carried])[0]
                known = self.truth(held)
                if known is False:
                    break
                if known is None:
                    lanes = both(lanes, self.lanes(held).bool())
            if lanes is not going and lanes is not None:
                out.append((~lanes if going is None else going & ~lanes, carried))
            with self.within(lanes):
                run = self.body_of if hosted else self.region
                made = run(op.regions[-1], [counter, *carried])
            stop, carried = (made[0], list(made[1:])) if stops else (False, list(made))
            going, known = lanes, self.truth(stop)
            if known:
                break
            if known is None:
                stopped = self.lanes(stop).bool()
                out.append((stopped if going is None else going & stopped, carried))
                going = both(going, ~stopped)
        self.mask = outer
        for lanes, values in reversed(
            out
        ):  # those that are still in it have the last values, which are static as far as can be
            carried = [self.join(lanes, x, y) for x, y in zip(values, carried, strict=True)]
        return carried


def _same(a: Any, b: Any) -> bool:
    """Whether two static values are equal."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a) == np.asarray(b)))
    return type(a) is type(b) and bool(a == b)


class _Within:
    """Restricts an evaluator's mask while a block runs."""

    def __init__(self, s: Evaluator, lanes: Tensor | None) -> None:
        self.s, self.lanes = s, lanes

    def __enter__(self) -> None:
        self.before = self.s.mask
        self.s.mask = self.s.here(self.lanes)

    def __exit__(self, *what: object) -> None:
        self.s.mask = self.before
