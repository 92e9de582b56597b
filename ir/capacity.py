"""How large trees get: an upper bound on the nodes of each, from the ranges of parameters, by arithmetic.

`repeat depth` of `grow topk(q, k)` on a frontier of at most k nodes makes at most k + (depth - 1) * k * k of them.
The analysis runs the loops on sizes alone: some turns one by one until what a turn adds is always the same, the rest
by multiplication. What it cannot bound has no bound (None), which is an answer too: the tree lives where memory grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.ir.ops.limits import NODES
from decgraph.ir.types import ANY
from decgraph.ir.values import Function, Module, Op, Region, Value

Size = int | None
MOST_TURNS = 40
"""Turns that are followed one by one; a tree that still grows faster then has no bound."""

TOO_MANY = 1 << 40
DRAWN = ("draw", "draw.many", "draw.race", "topk", "face", "draw.point", "gather")
MIXED = ("map", "normalize", "softmax", "warp", "renorm")


def add(a: Size, b: Size) -> Size:
    return None if a is None or b is None or a + b > TOO_MANY else a + b


def times(sizes: Sequence[Size]) -> Size:
    out = 1
    for s in sizes:
        if s is None or out * s > TOO_MANY:
            return None
        out *= s
    return out


def most(a: Size, b: Size) -> Size:
    return None if a is None or b is None else max(a, b)


def least(a: Size, b: Size) -> Size:
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True)
class Nodes:
    """A tree's sizes: nodes (the root counts), leaves, frontier, newest nodes; `edge`: the frontier is all the leaves."""

    size: Size
    leaves: Size
    frontier: Size
    new: Size
    edge: bool = True
    made: tuple[Op, ...] = ()


Known = int | tuple[Any, ...] | Nodes | None
"""An upper bound of a number; of a vector's lengths, one for each dimension; a tree; or nothing."""


def join(a: Known, b: Known) -> Known:
    """What holds of either value."""
    if isinstance(a, Nodes) and isinstance(b, Nodes):
        made = a.made + tuple(op for op in b.made if op not in a.made)
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
    made: dict[Value, Op] = field(default_factory=dict)
    peaks: dict[Op, Size] = field(default_factory=dict)
    least: bool = False  # with every parameter at the low end of its range
    too_large: list[Op] = field(default_factory=list)  # what grows a tree beyond NODES

    def run(self) -> dict[Op, Size]:
        """The most nodes of the tree that each `tree.new` starts."""
        for p in self.function.params:
            if p.value.type.elem == "int" and not p.value.type.dims and p.high is not None and (p.low or 0) >= 0:
                self.known[p.value] = int((p.low or 0) if self.least else p.high)
        for op in self.function.body.walk():
            self.made.update(dict.fromkeys(op.results, op))
        self.region(self.function.body, [])
        return self.peaks

    # -- values
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
            outs = RULES.get(op.opcode, Sizes.other)(self, op)
            self.known.update(zip(op.results, outs, strict=True))
        return [self.known.get(v) for v in region.yields]

    def other(self, op: Op) -> list[Known]:
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
                    for n, e in zip(self.lengths(v), v.type.dims, strict=True):
                        if d.kind != "k" and e.same(d):
                            here = least(here, n)
                found.append(here)
            if op.operands and [d.kind for d in op.operands[0].type.dims] == [d.kind for d in r.type.dims]:
                found = [least(x, y) for x, y in zip(found, self.lengths(op.operands[0]), strict=True)]
            out.append(tuple(found))
        return out

    # -- numbers
    def const(self, op: Op) -> list[Known]:
        v = op.attrs["value"]
        return [v if isinstance(v, int) and not isinstance(v, bool) else None]

    def arithmetic(self, op: Op) -> list[Known]:
        if op.result.type.dims or op.result.type.elem not in ("int", "real"):
            return self.other(op)
        xs = [self.number(v) for v in op.operands]
        fn = op.attrs["fn"]
        if fn == "add":
            return [add(*xs)]
        if fn == "mul":
            return [times(xs)]
        if fn == "div":
            return [xs[0]]
        if fn == "sub":  # what is taken away is a length, a parameter or a number, not a difference itself
            taken = self.made.get(op.operands[1])
            return [xs[0] if taken is None or taken.opcode in ("len", "const", "path.get", "counter") else None]
        if fn in ("minimum", "mod"):
            return [least(*xs)]
        if fn == "clamp":
            return [least(most(*xs[:2]), xs[2])]
        if fn in ("maximum", "select"):
            return [most(*xs[-2:])]
        return [xs[0] if fn in ("floor", "abs") else None]

    def same(self, op: Op) -> list[Known]:
        return [self.known.get(op.operands[0])]

    def within(self, op: Op) -> list[Known]:
        if len(op.operands) == 1:
            return [least(self.number(op.operands[0]), op.attrs["most"])]
        sizes = [self.number(v) for v in op.operands[1:]]
        have = self.lengths(op.operands[0])
        return [tuple(least(n, sizes[i] if i < len(sizes) else None) for i, n in enumerate(have)) if have else None]

    def length(self, op: Op) -> list[Known]:
        sizes = self.lengths(op.operands[0])
        return [sizes[0] if sizes else None]

    # -- vectors
    def widened(self, op: Op) -> list[Known]:
        """k for each of what there is: topk, sample."""
        k = self.number(op.operands[1])
        return [(*self.lengths(op.operands[0])[: len(op.result.type.dims) - 1], least(k, op.result.type.dims[-1].bound))]

    def chosen(self, op: Op) -> list[Known]:
        k = self.number(op.operands[1]) if len(op.operands) > 1 else None
        return [
            tuple(
                [least(k, times(self.lengths(op.operands[0])))]
                if op.attrs.get("flatten")
                else [least(k, (self.lengths(op.operands[0]) or (None,))[0]), *self.lengths(op.operands[0])[1:]]
            )
            if r.type.dims
            else None
            for r in op.results
        ]

    def slice(self, op: Op) -> list[Known]:
        if not op.result.type.dims:
            return [None]
        first, *rest = self.lengths(op.operands[0])
        made = self.made.get(op.operands[-1])
        end = made.attrs["value"] if op.attrs.get("has_hi") and made is not None and made.opcode == "const" else None
        return [(least(first, end if isinstance(end, int) and end >= 0 else None), *rest)]

    def pairs(self, op: Op) -> list[Known]:
        return [(self.number(op.operands[1]),)] * len(op.results)

    def concat(self, op: Op) -> list[Known]:
        if not op.result.type.dims:
            return [None]
        parts = [
            (self.lengths(v) or (1,)) if v.type.elem != "list" else (0 if v.type.of[0] == ANY else None,) for v in op.operands
        ]
        return [(add(parts[0][0], parts[1][0]), *self.lengths(op.result)[1:])]

    def gather(self, op: Op) -> list[Known]:
        v, *ix = op.operands
        if not op.result.type.dims:
            return [None]
        index = max((self.lengths(i) for i in ix), key=len, default=())
        rest = self.lengths(v)[len(ix) :] if v.type.elem not in ("list", "topology") else ()
        sizes = (*index, *rest)
        return [sizes if len(sizes) == len(op.result.type.dims) else tuple(d.bound for d in op.result.type.dims)]

    # -- trees
    def tree_new(self, op: Op) -> list[Known]:
        self.peaks.setdefault(op, 1)
        return [Nodes(1, 1, 1, 1, True, (op,))]

    def grow(self, op: Op) -> list[Known]:
        t, edges = self.tree(op.operands[0]), op.operands[1]
        at = op.operands[2] if op.attrs.get("has_at") else None
        count = times(self.lengths(edges)) if edges.type.elem != "list" else None
        if not edges.type.dims and at is not None and edges.type.elem != "list":
            count = times(self.lengths(at))
        if op.opcode == "tree.best_first":
            count, at = self.number(op.operands[2]), None
        all_leaves = t.size == 1 or self.over_leaves(edges, at, t)
        if op.attrs.get("chain") or op.opcode == "tree.best_first":
            all_leaves = t.size == 1 and count == 1
        size = add(t.size, count)
        if size is not None and size > NODES and op not in self.too_large:
            self.too_large.append(op)
        leaves = count if all_leaves else add(t.leaves, count)
        for op_new in t.made:
            self.peaks[op_new] = most(self.peaks[op_new], size)
        return [Nodes(size, leaves, count, count, all_leaves, t.made), (count,)]

    def over_leaves(self, edges: Value, at: Value | None, t: Nodes) -> bool:
        """Whether draws grow at every leaf: they were made (or are placed) at `t.leaves`, or at a frontier that is these."""
        return self.all_leaves(edges if at is None else at, t)

    def all_leaves(self, v: Value, t: Nodes) -> bool:
        op = self.made.get(v)
        if op is None:
            return False
        if op.opcode == "draw.point":  # a token that was drawn nowhere grows at the frontier
            return t.edge
        if op.opcode == "if":
            return all(self.all_leaves(r.yields[op.results.index(v)], t) for r in op.regions)
        if op.opcode == "model.eval":
            return self.all_leaves(op.operands[1], t)
        if op.opcode == "tree.nodes":
            return op.attrs["which"] == "leaves" or (op.attrs["which"] == "frontier" and t.edge)
        if (
            op.opcode == "gather"
            and not op.operands[1].type.dims
            and ([d.kind for d in op.operands[0].type.dims[:1]] in (["part"], ["nodes"]))
        ):
            return False  # one leaf of many
        if op.opcode in DRAWN:
            return self.all_leaves(op.operands[0], t)
        if op.opcode in MIXED:  # of several laws, each over the leaves (or over no nodes)
            over = [x for x in op.operands if any(d.kind in ("part", "nodes") for d in x.type.dims)]
            return bool(over) and all(self.all_leaves(x, t) for x in over)
        return False

    def keep(self, op: Op) -> list[Known]:
        t = self.tree(op.operands[0])
        n = (self.lengths(op.operands[1]) or (1,))[0]
        size = least(t.size, add(n, 1))
        return [replace(t, size=size, leaves=size, frontier=least(t.frontier, size), new=least(t.new, size), edge=False)]

    def front(self, op: Op) -> list[Known]:
        n = self.lengths(op.operands[1])
        return [replace(self.tree(op.operands[0]), frontier=n[0] if n else 1, edge=False)]

    def nodes(self, op: Op) -> list[Known]:
        t, which = self.tree(op.operands[0]), op.attrs["which"]
        if which == "root":
            return [None]
        drafted = add(t.size, -1)
        return [({"frontier": t.frontier, "leaves": t.leaves, "new": t.new, "all": t.size}.get(which, drafted),)]

    # -- control
    def branch(self, op: Op) -> list[Known]:
        a, b = (self.region(r, []) for r in op.regions)
        return [join(x, y) for x, y in zip(a, b, strict=True)]

    def loop(self, op: Op) -> list[Known]:
        if op.opcode == "for":
            turns, carried = self.number(op.operands[1]), op.operands[2:]
        elif op.attrs.get("limited"):
            turns, carried = self.number(op.operands[0]), op.operands[1:]
        else:
            turns, carried = None, op.operands
        now: list[Known] = [self.known.get(v) for v in carried]
        body, last = op.regions[-1], None
        skip = len(body.yields) - len(carried)
        index: Known = None if turns is None or op.opcode != "for" else max(turns - 1, 0)
        for turn in range(MOST_TURNS if turns is None else min(turns, MOST_TURNS)):
            if len(op.regions) == 2:
                self.region(op.regions[0], [index, *now])
            before = dict(self.peaks)
            after = self.region(body, [index, *now])[skip:]
            if after == now:
                return now
            shape = [growth(a, b) for a, b in zip(now, after, strict=True)]
            if turns is not None and shape == last and None not in shape:
                rest = turns - turn - 1
                for made, peak in self.peaks.items():
                    old = before.get(made)
                    if peak is not None and old is not None and peak + rest * (peak - old) > NODES:
                        self.too_large.append(op)
                    self.peaks[made] = None if peak is None or old is None else add(peak, rest * (peak - old))
                return [
                    b if not isinstance(b, Nodes) else replace(b, size=add(b.size, rest * grown))
                    for b, grown in zip(after, (s or 0 for s in shape), strict=True)
                ]
            last, now = shape, [join(a, b) if turns is None else b for a, b in zip(now, after, strict=True)]
        if turns is not None and turns <= MOST_TURNS:
            return now
        lost = [a if a == b else None for a, b in zip(now, self.region(body, [index, *now])[skip:], strict=True)]
        for a, b in zip(now, lost, strict=True):
            if isinstance(a, Nodes) and b is None:
                self.peaks.update(dict.fromkeys(a.made))
        self.region(body, [index, *lost])
        return lost

    def segment(self, op: Op) -> list[Known]:
        return self.region(op.regions[0], [])

    def each(self, op: Op) -> list[Known]:
        self.region(op.regions[0], [None, None])
        xs = self.lengths(op.operands[0])
        return [(xs[0] if xs else None, *self.lengths(op.result)[1:]) if op.result.type.dims else None]


def growth(a: Known, b: Known) -> int | None:
    """By how much a tree grew, if all else is as it was; 0 for what did not change, None for any other change."""
    if a == b:
        return 0
    if (
        isinstance(a, Nodes)
        and isinstance(b, Nodes)
        and a.size is not None
        and b.size is not None
        and (replace(a, size=0, leaves=0) == replace(b, size=0, leaves=0))
    ):
        return b.size - a.size
    return None


RULES: dict[str, Callable[[Sizes, Op], list[Known]]] = {
    "const": Sizes.const,
    "map": Sizes.arithmetic,
    "as_int": Sizes.same,
    "len": Sizes.length,
    "within": Sizes.within,
    "topk": Sizes.widened,
    "draw.many": Sizes.widened,
    "select.top": Sizes.chosen,
    "batch.top": Sizes.chosen,
    "take_first": Sizes.chosen,
    "pairs.top": Sizes.pairs,
    "slice": Sizes.slice,
    "concat": Sizes.concat,
    "gather": Sizes.gather,
    "tree.new": Sizes.tree_new,
    "tree.grow": Sizes.grow,
    "tree.best_first": Sizes.grow,
    "tree.keep": Sizes.keep,
    "tree.front": Sizes.front,
    "tree.nodes": Sizes.nodes,
    "tree.set": Sizes.same,
    "if": Sizes.branch,
    "for": Sizes.loop,
    "while": Sizes.loop,
    "each": Sizes.each,
    "segment": Sizes.segment,
}


def capacities(function: Function) -> dict[Op, Size]:
    """For each tree that is started in a function, the most nodes it ever has (the root counts); None: no static bound."""
    return Sizes(function).run()


def too_large(function: Function) -> list[Op]:
    """What makes a tree larger than trees may be, whatever the parameters are."""
    sizes = Sizes(function, least=True)
    sizes.run()
    return sizes.too_large


def note_capacities(module: Module) -> None:
    """Write what is known into attribute `capacity` of every `tree.new` (in place: for modules just made)."""
    for function in module.functions.values():
        for op, size in capacities(function).items():
            op.attrs.pop("capacity", None)
            if size is not None:
                op.attrs["capacity"] = size


__all__ = ["capacities", "note_capacities", "too_large"]
