"""How large trees get: an upper bound on the nodes of each, from the ranges of parameters, by arithmetic.

`repeat depth` of `grow topk(q, k)` on a frontier of at most k nodes makes at most k + (depth - 1) * k * k of them.
The analysis runs the loops on sizes alone: some iterations one by one until what an iteration adds is always the same, the rest
by multiplication. What it cannot bound has no bound (None), which is an answer too: the tree lives where memory grows.

The rule of an op is its `capacity` (ir/ops): upper bounds of its results, from those of its operands. Below are the rules that
several ops share, and what runs the analysis over a module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from decgraph.ir.opdef import TABLE
from decgraph.ir.values import Function, Module, Op, Region, Value

Size = int | None
TOO_MANY = 1 << 40


def add(a: Size, b: Size) -> Size:
    """The sum; None where there is no bound."""
    return None if a is None or b is None or a + b > TOO_MANY else a + b


def times(sizes: Sequence[Size]) -> Size:
    """The product; None where there is no bound."""
    out = 1
    for s in sizes:
        if s is None or out * s > TOO_MANY:
            return None
        out *= s
    return out


def most(a: Size, b: Size) -> Size:
    """The larger of two bounds, either of which may hold."""
    return None if a is None or b is None else max(a, b)


def least(a: Size, b: Size) -> Size:
    """The smaller of two bounds, both of which hold."""
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True)
class Nodes:
    """A tree's sizes: nodes (the root counts), leaves, frontier, newest nodes; `edge`: the frontier is all the leaves."""

    size: Size
    leaves: Size
    frontier: Size
    new: Size
    edge: bool = True
    producers: tuple[Op, ...] = ()


Known = int | tuple[Size, ...] | Nodes | None
"""An upper bound of a number; of a vector's lengths, one for each dimension; a tree; or nothing."""


def join(a: Known, b: Known) -> Known:
    """What holds of either value."""
    if isinstance(a, Nodes) and isinstance(b, Nodes):
        made = a.producers + tuple(op for op in b.producers if op not in a.producers)
        return Nodes(
            most(a.size, b.size),
            most(a.leaves, b.leaves),
            most(a.frontier, b.frontier),
            most(a.new, b.new),
            a.edge and b.edge,
            made,
        )
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(most(x, y) for x, y in zip(a, b, strict=True))
    return None


@dataclass
class Sizes:
    """Walks one function."""

    function: Function
    known: dict[Value, Known] = field(default_factory=dict)
    producers: dict[Value, Op] = field(default_factory=dict)
    peaks: dict[Op, Size] = field(default_factory=dict)
    least: bool = False  # with every parameter at the low end of its range
    too_large: list[Op] = field(default_factory=list)  # what grows a tree beyond NODES

    def run(self) -> dict[Op, Size]:
        """The most nodes of the tree that each `tree.new` starts."""
        for p in self.function.params:
            if p.value.type.elem == "int" and not p.value.type.dims and p.high is not None and (p.low or 0) >= 0:
                self.known[p.value] = int((p.low or 0) if self.least else p.high)
        for op in self.function.body.walk():
            self.producers.update(dict.fromkeys(op.results, op))
        self.region(self.function.body, [])
        return self.peaks

    def number(self, v: Value) -> Size:
        k = self.known.get(v)
        return k if isinstance(k, int) else None

    def lengths(self, v: Value) -> tuple[Size, ...]:
        k = self.known.get(v)
        bounds = tuple(d.bound for d in v.type.dims)
        if isinstance(k, tuple) and len(k) == len(bounds):
            return tuple(least(x, y) for x, y in zip(k, bounds, strict=True))
        return bounds

    def tree(self, v: Value) -> Nodes:
        k = self.known.get(v)
        return k if isinstance(k, Nodes) else Nodes(None, None, None, None, False)

    def region(self, region: Region, args: Sequence[Known]) -> list[Known]:
        self.known.update(zip(region.args, args, strict=False))
        for op in region.ops:
            outs = (TABLE[op.opcode].capacity or of_operands)(self, op)
            self.known.update(zip(op.results, outs, strict=True))
        return [self.known.get(v) for v in region.yields]


# -- rules that several ops share


def of_operands(s: Sizes, op: Op) -> list[Known]:
    """Lengths of a result that ranges over what an operand ranges over."""
    out: list[Known] = []
    for r in op.results:
        if not r.type.dims:
            out.append(None)
            continue
        found: list[Size] = []
        for d in r.type.dims:
            here = d.bound
            for v in op.operands:
                for n, e in zip(s.lengths(v), v.type.dims, strict=True):
                    if d.kind != "k" and e.same(d):
                        here = least(here, n)
            found.append(here)
        if op.operands and [d.kind for d in op.operands[0].type.dims] == [d.kind for d in r.type.dims]:
            found = [least(x, y) for x, y in zip(found, s.lengths(op.operands[0]), strict=True)]
        out.append(tuple(found))
    return out


def same(s: Sizes, op: Op) -> list[Known]:
    """What is known of the first operand."""
    return [s.known.get(op.operands[0])]


def widened(s: Sizes, op: Op) -> list[Known]:
    """k for each of what there is: topk, sample."""
    k = s.number(op.operands[1])
    return [(*s.lengths(op.operands[0])[: len(op.result.type.dims) - 1], least(k, op.result.type.dims[-1].bound))]


def chosen(s: Sizes, op: Op) -> list[Known]:
    """The k best, or the first k."""
    have, *given = op.operands
    k, lengths = s.number(given[0]) if given else None, s.lengths(have)
    first = times(lengths) if op.attrs.get("flatten") else next(iter(lengths), None)
    sizes = (least(k, first), *(() if op.attrs.get("flatten") else lengths[1:]))
    return [sizes if r.type.dims else None for r in op.results]


def capacities(function: Function) -> dict[Op, Size]:
    """For each tree that is started in a function, the most nodes it ever has (the root counts); None: no static bound."""
    return Sizes(function).run()


def too_large(function: Function) -> list[Op]:
    """What makes a tree larger than trees may be, whatever the parameters are."""
    sizes = Sizes(function, least=True)
    sizes.run()
    return sizes.too_large


def note_capacities(module: Module) -> None:
    """Write what is known into attribute `capacity` of every `tree.new` (in place: for modules just created)."""
    for function in module.functions.values():
        for op, size in capacities(function).items():
            op.attrs.pop("capacity", None)
            if size is not None:
                op.attrs["capacity"] = size
