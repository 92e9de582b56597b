"""Evaluates regions of the IR for all lanes at once, in torch, with nothing read back and no shape that depends on data.

Static values decide the control flow in Python. Where data decides, both sides are computed and selected; a loop runs to its
bound while `mask` says which lanes are still in it. Effects (commits, states) happen in the lanes of `mask` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from typing import Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.lowering import lower
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Operand, Static, Vec, is_static
from decgraph.backends.triton.vectors import Vectors, both
from decgraph.ir.table import lookup
from decgraph.ir.values import Op, Region, Value

F = TypeVar("F", bound=Callable[..., "Operand"])

STEP: dict[str, Callable[..., Operand]] = {}
"""By opcode: `f(s, op, *operands)`, where `s` is the step's state (state.py)."""
FOLDED: set[str] = set()
"""The opcodes that are the host's where all operands are static."""
WITHOUT = {
    "automaton": "an automaton follows the text on the host",
    "model.evals": "calls that were merged",
    "model.read": "a model reads another text than the request's",
    "pairs.top": "a search chooses among paths",
    "retokenize": "a text is read in another vocabulary",
    "return": "a search returns texts",
    "run": "a sub-run",
    "tree.up": "a fold over what stands below the nodes of a tree",
}
"""Why operations that a reader may not know by name have no form in a step."""
JOINS: dict[type, Callable[..., Operand]] = {}
"""By the type of a value: `f(s, lanes bool[B], a, b)`, a in those lanes and b in the others."""
TOPICS = (
    "numbers", "distributions", "draws", "selection", "sequences", "trees", "walk",
    "models", "request", "indexes", "canvases", "masked",
)  # fmt: skip


def step(*opcodes: str, folded: bool = False) -> Callable[[F], F]:
    """Register the function below as the step's form of ops. folded: static operands alone give a static result, which the host
    computes. Raises TypeError for an op registered before."""

    def register(f: F) -> F:
        for name in opcodes:
            if name in STEP:
                raise TypeError(f"op {name} stands in backends/triton/ops twice")
            STEP[name] = f
        FOLDED.update(opcodes if folded else ())
        return f

    return register


def joins(*types: type) -> Callable[[F], F]:
    """Register the function below as the selection between values of a type."""

    def register(f: F) -> F:
        JOINS.update((t, f) for t in types)
        return f

    return register


@lru_cache(maxsize=1)
def load() -> None:
    """Import the files that register ops and slots."""
    for file in (*(f"ops.{topic}" for topic in TOPICS), "cache", "canvas_cache"):
        import_module(f"decgraph.backends.triton.{file}")


@dataclass
class Decided:
    """What the host decided the last time, by place: whether a condition holds; how many cells of a canvas are computed, and
    whether slots between are missing."""

    conditions: dict[Op | None, bool | None] = field(default_factory=dict)
    cells: dict[Op | None, tuple[int, bool]] = field(default_factory=dict)


class RunsBodies(Protocol):
    """Runs the bodies of loops that the host runs (bodies.py: as recorded graphs)."""

    def run(self, region: Region, arguments: Sequence[Operand]) -> tuple[Operand, ...]:
        """The yields of a body for its arguments, in the lanes that are here."""
        ...


class Evaluator(Vectors):
    """Runs regions. env: the current value of every IR value."""

    longest = 4096
    """The most iterations that a loop is unrolled to."""
    lengths = False
    """Whether vectors and states may have lengths that data decides, where nothing else is to be known of them."""

    def __init__(self, batch: int, device: torch.device) -> None:
        load()
        super().__init__(batch, device)
        self.env: dict[Value, Operand] = {}
        self.sizes: dict[Value, float] = {}
        """The most that numbers can be that are not negative, where it is known."""
        self.tops: dict[Value, float] = {}
        """The most that other numbers can be."""
        self.decided = Decided()
        self.odd: list[Tensor] = []
        self.bodies: RunsBodies | None = None
        """What runs the bodies of loops; None: they are run as they are."""
        self.measuring = False
        """Whether it is found out what an iteration needs."""
        self.recording = False
        """Whether a graph is being recorded: nothing may be read then, and the host runs no loop."""

    def region(self, region: Region, args: Sequence[Operand]) -> tuple[Operand, ...]:
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
                raise NotSteppable(WITHOUT.get(op.opcode, f"`{op.opcode}` has no form in a step"), op)
            out = (out,) if len(op.results) == 1 else cast(Sequence[Operand], out)
        self.env.update(zip(op.results, out, strict=True) if op.results else ())
        self.place = before

    def hosted(self, op: Op, operands: Sequence[Operand]) -> Operand:
        """An op over static values: its NumPy meaning. Forms in ops/ call this too where all operands are static."""
        if op.regions or lookup(op.opcode).batch == "host":
            raise NotSteppable(WITHOUT.get(op.opcode, f"`{op.opcode}` is the host's"), op)
        low = lower(op)
        try:
            if not low.machine:
                return cast(Operand, low.fn(*operands))
            out = lookup(op.opcode).meaning(self, op, *operands)
        except (IndexError, ZeroDivisionError) as error:  # of constants, in a branch that may never be taken
            raise NotSteppable(f"an operation on constants that fails: {error}", op) from None
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
        graph it is what it was the last time, and `odd` says whether it was not (bodies.py runs the body again then)."""
        here = self.active()
        if self.recording and self.place in self.decided.conditions:
            known = self.decided.conditions[self.place]
            if known is not None:
                self.odd.append(((lanes != known) & here).any())
            return known
        some = self.reads((lanes & here).any().long() + 2 * (~lanes & here).any().long())
        known = self.decided.conditions[self.place] = None if some == 3 else some != 2
        return known

    # -- masks
    @contextmanager
    def within(self, lanes: Tensor | None) -> Iterator[None]:
        """A block in which only some of the lanes are. lanes: bool[B], or None: all."""
        before, self.mask = self.mask, both(self.mask, lanes)
        try:
            yield
        finally:
            self.mask = before

    def join(self, lanes: Tensor, a: Operand, b: Operand) -> Operand:
        """a in the lanes bool[B], b in the others. What one side lacks (none) is the other's: nothing reads it there."""
        if a is b:
            return a
        if a is None or b is None:
            return a if b is None else b
        if is_static(a) and is_static(b) and _same(a, b):
            return a
        for kind, f in JOINS.items():
            if isinstance(a, kind) or isinstance(b, kind):
                return f(self, lanes, a, b)
        if isinstance(a, list | str) or isinstance(b, list | str):
            raise NotSteppable(f"a {'text' if isinstance(a, str) else 'list'} that depends on data", self.place)
        x, y = self.tensor(a), self.tensor(b)
        if x.shape[1:] != y.shape[1:]:
            live = self.either_live(lanes, a, b) if self.lengths and x.ndim > 1 < y.ndim else None
            if live is None:
                raise NotSteppable("a vector whose length data decides", self.place)
            return Vec(self.either(lanes, a, b), live)
        return torch.where(lanes.reshape(-1, *([1] * (x.ndim - 1))), x, y)

    # -- control flow
    def truth(self, value: Operand) -> bool | None:
        """A condition that is static; None where data decides."""
        return bool(value) if is_static(value) else None

    # Each gives the results of its op, one after the other.
    def op_const(self, op: Op) -> Sequence[Operand]:
        v = op.attrs["value"]
        if isinstance(v, list | tuple):
            return [np.array([number(x) for x in v]) if v else []]
        return [float(v) if v in ("inf", "-inf") and op.attrs["type"].elem != "text" else number(v)]

    def op_unfailing(self, op: Op) -> Sequence[Operand]:
        """True: an error in a draft makes the lane one for the driver, as any other error does."""
        return [True]

    def op_segment(self, op: Op) -> Sequence[Operand]:
        """A segment is its region: values from outside keep their names."""
        out = self.region(op.regions[0], ())
        for outside, inside in zip(op.results, op.regions[0].yields, strict=True):
            self.renamed(outside, inside)
        return out

    def renamed(self, value: Value, before: Value) -> None:
        """What is known of the size of one value is so of another, which is the same."""
        self.note(value, self.sizes.get(before, self.tops.get(before)), before in self.sizes)

    def note(self, value: Value, top: float | None, natural: bool = False) -> None:
        """Note the most that a number can be, None: not known, in place of what was known in an earlier iteration. natural:
        whether it is not negative."""
        self.sizes.pop(value, None)
        self.tops.pop(value, None)
        if top is not None:
            (self.sizes if natural else self.tops)[value] = top

    def op_if(self, op: Op) -> Sequence[Operand]:
        cond = self.env[op.operands[0]]
        known = self.truth(cond)
        if known is None and any(v.type.elem == "memory" for v in op.results):
            known = self.agreed(self.lanes(cond).bool())  # what is computed depends on it
        if known is not None:
            return self.region(op.regions[0 if known else 1], ())
        lanes = self.tensor(cond)
        with self.within(lanes):
            a = self.region(op.regions[0], ())
        with self.within(~lanes):
            b = self.region(op.regions[1], ())
        self.bounds_of_either(op)
        return [self.join(lanes, x, y) for x, y in zip(a, b, strict=True)]

    def op_for(self, op: Op) -> Sequence[Operand]:
        lo, hi, *carried = (self.env[v] for v in op.operands)
        if is_static(lo) and is_static(hi):
            return self.loop_of(op, range(int(lo), int(hi)), carried, lambda i: None)
        first, count = self.tensor(lo), self.tensor(hi) - self.tensor(lo)
        bounds = (op.attrs.get("bound"), self.most(op.operands[1]) if is_static(lo) else None)
        bound = min((b for b in bounds if isinstance(b, int)), default=None)
        hosted = bound is None or bound > self.short or self.calls(op)
        if hosted:
            here = count if self.mask is None else torch.where(self.mask, count, 0)
            bound = self.reads(here.amax())
        recorded = hosted and self.bodies is not None  # a graph is for every iteration: its number is a tensor
        if recorded or not is_static(lo):
            return self.loop_of(op, range(bound or 0), carried, lambda i: count > i, start=self.lanes(first), hosted=hosted)
        end = count + int(lo)
        return self.loop_of(op, range(int(lo), int(lo) + (bound or 0)), carried, lambda i: end > i, hosted=hosted)

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
        now = self.env.get(value)
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
        self.note(op.result, found, natural)

    def bounds_of_either(self, op: Op) -> None:
        """Note the most that numbers can be which one of two regions gives."""
        for value, *sides in zip(op.results, *(r.yields for r in op.regions), strict=True):
            tops = [self.top(v) for v in sides]
            known = [top for top in tops if top is not None]
            whole = value.type.elem == "int" and not value.type.dims and len(known) == len(tops)
            self.note(value, max(known) if whole else None)

    def op_break(self, op: Op) -> Sequence[Operand]:
        """Nothing: the lanes of `mask` that leave say so by what the loop or the rule yields."""
        return ()

    op_verdict = op_break

    def op_while(self, op: Op) -> Sequence[Operand]:
        carried = [self.env[v] for v in op.operands]
        limit = carried.pop(0) if op.attrs.get("limited") else None
        within = None if limit is None or is_static(limit) else self.tensor(limit)
        bound = int(limit) if limit is not None and is_static(limit) else op.attrs.get("bound")
        hosted = not isinstance(bound, int) or bound > self.short or self.calls(op)
        numbers = range(bound) if isinstance(bound, int) else range(self.longest + 2)
        return self.loop_of(
            op, numbers, carried, lambda i: None if within is None else within > i, cond=op.regions[0], hosted=hosted
        )

    def body_of(self, region: Region, arguments: Sequence[Operand]) -> tuple[Operand, ...]:
        """An iteration of a loop that the host runs (program.py has graphs of them)."""
        if self.bodies is None or self.recording:
            return self.region(region, arguments)
        counted = not any(region.args[0] in o.operands for o in region.walk())
        number = arguments[0] if counted else self.lanes(arguments[0]).clone()  # the number differs from iteration to iteration
        return self.bodies.run(region, (0 if counted else number, *arguments[1:]))

    def loop_of(
        self, op: Op, numbers: range, carried: Sequence[Operand], inside: Callable[[int], Tensor | None], *,
        cond: Region | None = None, start: Tensor | None = None, hosted: bool = False,
    ) -> Sequence[Operand]:  # fmt: skip
        """Iterations of the last region of an op, in lanes bool[B], as `iterations` has them."""
        run = self.body_of if hosted else self.region
        with closing(self.iterations(op, numbers, carried, inside, cond=cond, start=start, hosted=hosted)) as bodies:
            try:
                arguments = next(bodies)
                while True:
                    arguments = bodies.send(run(op.regions[-1], arguments))
            except StopIteration as over:
                return cast(Sequence[Operand], over.value)

    def iterations(
        self, op: Op, numbers: range, carried: Sequence[Operand], inside: Callable[[int], Tensor | None], *,
        cond: Region | None = None, start: Tensor | None = None, hosted: bool = False,
    ) -> Generator[Sequence[Operand], Sequence[Operand], Sequence[Operand]]:  # fmt: skip
        """The arguments of each iteration of the last region of an op, for what it yields; returns what the loop gives.

        inside: bool[B], the lanes that have an iteration of that number, None: all. cond: what is evaluated before each. start:
        int64[B], what the numbers are counted from. hosted: whether the host runs the loop; one with a condition ends then when
        no lane is in it."""
        if hosted and any(o.opcode == "tree.grow" for o in op.regions[-1].walk()):
            raise NotSteppable("a tree that grows as long as data decides", op)
        until_over = hosted and cond is not None
        if len(numbers) > self.longest and not until_over:
            raise NotSteppable(f"a loop of {len(numbers)} iterations", op)
        stops, going, quiet = bool(op.attrs.get("stops")), None, self.quiet(op)
        out: list[tuple[Tensor, Sequence[Operand]]] = []  # the lanes that leave, and what they leave with
        for n, i in enumerate(numbers):
            if n > self.longest:
                raise NotSteppable("a loop that does not end", op)
            counter: Operand = i if start is None else start + i
            lanes = both(going, inside(i))
            if quiet and n and lanes is not None and self.idle(lanes):
                break
            if cond is not None:
                with self.within(lanes):
                    holds = self.region(cond, [counter, *carried])[0]
                known = self.truth(holds)
                if known is False:
                    break
                if known is None:
                    lanes = both(lanes, self.lanes(holds).bool())
            if lanes is not going and lanes is not None:
                out.append((~lanes if going is None else going & ~lanes, carried))
            with self.within(lanes):
                if until_over and self.mask is not None and not self.reads(self.active().any()):
                    break
                made = yield [counter, *carried]
            stop, carried = (made[0], made[1:]) if stops else (False, made)
            going, known = lanes, self.truth(stop)
            if known:
                break
            if known is None:
                stopped = self.lanes(stop).bool()
                out.append((stopped if going is None else going & stopped, carried))
                going = both(going, ~stopped)
        for lanes, values in reversed(out):  # those that are still in it have the last values, static as far as can be
            carried = [self.join(lanes, x, y) for x, y in zip(values, carried, strict=True)]
        return carried


def number(x: Static | Fraction) -> Static:
    """A number of the IR as Python computes with it: fractions as floats."""
    return float(x) if isinstance(x, Fraction) else x


def _same(a: Static, b: Static) -> bool:
    """Whether two static values are equal."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.all(np.asarray(a) == np.asarray(b)))
    return type(a) is type(b) and bool(a == b)
