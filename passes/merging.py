"""Part of simplify: equal computations become one, and values that a loop carries twice are carried once."""

from __future__ import annotations

from decgraph.ir.printing import data
from decgraph.ir.types import Type
from decgraph.ir.values import Op, Region, Value
from decgraph.ir.walk import breaking, rebuild
from decgraph.passes.folding import fold
from decgraph.passes.motion import Parts, mergeable, reads, writes

Key = tuple[object, ...]


def merge(region: Region) -> Region:
    """The region with an op wherever an equal one is visible replaced by that one's results."""
    return rebuild(Merger().region(region, {}), merge_columns)


class Merger:
    """Walks regions in order. `seen` holds what is visible; a write of something read makes what read it unknown again."""

    def __init__(self) -> None:
        self.known: dict[Value, Value] = {}
        self.epoch: dict[str, int] = {}
        self.clock = 0

    def of(self, v: Value) -> Value:
        while v in self.known:
            v = self.known[v]
        return v

    def touched(self, parts: Parts) -> None:
        self.clock += 1
        for part in parts:
            self.epoch[part] = self.clock

    def region(self, region: Region, seen: dict[Key, Op]) -> Region:
        seen = dict(seen)
        ops: list[Op] = []
        for old in region.ops:
            op = self.one(old, seen)
            if op is None:
                continue
            if op.regions:
                op = self.inside(op, seen)
            else:
                self.touched(writes(op))
            ops.append(op)
        yields = tuple(map(self.of, region.yields))
        same = len(ops) == len(region.ops) and all(a is b for a, b in zip(ops, region.ops, strict=True))
        return region if same and yields == region.yields else Region(region.args, tuple(ops), yields)

    def one(self, old: Op, seen: dict[Key, Op]) -> Op | None:
        operands = tuple(map(self.of, old.operands))
        op = old if operands == old.operands else Op(old.opcode, operands, old.attrs, old.regions, old.results, old.loc)
        if not mergeable(op):
            return op
        key = self.key(op)
        twin = seen.get(key)
        if twin is None:
            seen[key] = op
            return op
        self.known.update(zip(op.results, twin.results, strict=True))
        return None

    def key(self, op: Op) -> Key:
        read = tuple((part, self.epoch.get(part, 0)) for part in sorted(reads(op)))
        types: tuple[Type, ...] = tuple(v.type for v in op.results)
        return (op.opcode, op.operands, data(op.attrs), types, read)

    def inside(self, op: Op, seen: dict[Key, Op]) -> Op:
        """An op's regions. What a loop writes it may have written before its first op runs again."""
        changed = writes(op)
        if op.opcode != "if":
            self.touched(changed)
        around = {} if op.opcode == "segment" else seen  # what it uses is its operands: nothing is merged into it
        regions = [self.region(r, around) for r in op.regions]
        if changed:
            self.touched(changed)
        if all(a is b for a, b in zip(regions, op.regions, strict=True)):
            return op
        return Op(op.opcode, op.operands, op.attrs, tuple(regions), op.results, op.loc)


def merge_columns(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
    """Results of an `if` that are alike in both branches, or carried values of a loop that are alike in every iteration, as
    one."""
    if op.opcode == "if":
        pairs = list(zip(op.regions[0].yields, op.regions[1].yields, strict=True))
        first = {
            n: next(m for m in range(n + 1) if pairs[m] == pair and op.results[m].type == op.results[n].type)
            for n, pair in enumerate(pairs)
        }
        if all(a == b for a, b in first.items()):
            return None
        keep = [n for n, m in first.items() if n == m]
        regions = tuple(Region((), r.ops, tuple(r.yields[n] for n in keep)) for r in op.regions)
        made = Op("if", op.operands, op.attrs, regions, tuple(op.results[n] for n in keep), op.loc)
        return (made,), tuple(op.results[first[n]] for n in range(len(pairs)))
    if op.opcode == "for":
        return merge_carried(op)
    return None


def merge_carried(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
    """The first two carried values of a `for` that start alike and, if they are alike before an iteration, are alike after
    it."""
    body, carried = op.regions[0], op.operands[2:]
    skip = 1 if op.attrs.get("stops") else 0
    for j in range(1, len(carried)):
        for i in range(j):
            if carried[i] is not carried[j] or op.results[i].type != op.results[j].type:
                continue
            arg_i, arg_j = body.args[1 + i], body.args[1 + j]
            if arg_i.type != arg_j.type:
                continue
            tried = rebuild(body, lambda _: None, {arg_j: arg_i})
            tried = fold(rebuild(Merger().region(tried, {}), _columns_of_ifs))
            if tried.yields[skip + i] is not tried.yields[skip + j]:
                continue
            left = breaking(tried, [n for n in range(len(carried)) if n != j])
            made = Op(
                "for",
                drop(op.operands, 2 + j),
                op.attrs,
                (Region(drop(tried.args, 1 + j), left.ops, drop(tried.yields, skip + j)),),
                drop(op.results, j),
                op.loc,
            )
            return (made,), tuple(op.results[i if n == j else n] for n in range(len(carried)))
    return None


def drop(values: tuple[Value, ...], n: int) -> tuple[Value, ...]:
    """All but the n-th."""
    return (*values[:n], *values[n + 1 :])


def _columns_of_ifs(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
    return merge_columns(op) if op.opcode == "if" else None
