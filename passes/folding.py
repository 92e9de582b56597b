"""Part of simplify: whole numbers and bools computed at compile time, branches that are decided, equal computations merged.

Only whole numbers and bools are folded: they are the same in float64 and in exact fractions, reals are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.printing import data
from decgraph.ir.table import lookup
from decgraph.ir.types import BOOL, INT, Type
from decgraph.ir.values import Op, Region, Value
from decgraph.ir.walk import breaking, rebuild, without_exit
from decgraph.passes.motion import Parts, mergeable, reads, writes

Answer = tuple[Sequence[Op], Sequence[Value]] | None

FOLDED = frozenset(
    {
        "add",
        "sub",
        "mul",
        "neg",
        "abs",
        "minimum",
        "maximum",
        "mod",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "not",
        "select",
    }
)


def fold(region: Region) -> Region:
    """The region with what can be computed now as constants, and with decided branches and loops without iterations gone."""
    return rebuild(region, ConstantFolder().rewrite)


class _Numbers:
    """As much of a machine as `map` needs."""

    num = FLOAT


class ConstantFolder:
    """Remembers the constants seen so far; `rewrite` is an argument of `ir.walk.rebuild`."""

    def __init__(self) -> None:
        self.known: dict[Value, int] = {}
        self.producers: dict[Value, Op] = {}

    def rewrite(self, op: Op) -> Answer:
        if op.opcode == "const":
            value = op.attrs["value"]
            if op.result.type in (INT, BOOL) and type(value) in (int, bool):
                self.known[op.result] = value
            return None
        for v in op.results:
            self.producers[v] = op
        match op.opcode:
            case "map":
                return self.map(op)
            case "as_int":
                return ((), op.operands) if op.operands[0].type == op.result.type else None
            case "if":
                return self.branch(op)
            case "for":
                return self.loop(op)
        return None

    def const(self, value: int, like: Op) -> Answer:
        made = Op("const", (), {"value": value, "type": like.result.type}, (), (Value(like.result.type),), like.loc)
        self.known[made.result] = value
        return (made,), (made.result,)

    def map(self, op: Op) -> Answer:
        if op.result.type not in (INT, BOOL):
            return None
        fn, xs = op.attrs["fn"], op.operands
        if fn in FOLDED and all(v in self.known for v in xs):
            return self.computed(op)
        match fn:
            case "not":
                inner = self.producers.get(xs[0])
                if inner is not None and inner.opcode == "map" and inner.attrs["fn"] == "not":
                    return (), inner.operands
            case "and" | "or":
                for a, b in (xs, xs[::-1]):
                    if a in self.known:
                        absorbs = self.known[a] == (fn == "or")
                        return (), ((a,) if absorbs else (b,))
                if xs[0] is xs[1]:
                    return (), xs[:1]
            case "select" if xs[0] in self.known and xs[0].type == BOOL:
                chosen = xs[1 if self.known[xs[0]] else 2]
                return ((), (chosen,)) if chosen.type == op.result.type else None
        return None

    def computed(self, op: Op) -> Answer:
        if op.attrs["fn"] == "mod" and self.known[op.operands[1]] == 0:
            return None  # an error of the program, when it runs
        if any(v.type not in (INT, BOOL) for v in op.operands):
            return None
        (value,) = lookup("map").meaning(_Numbers(), op, *[self.known[v] for v in op.operands])
        if op.result.type == INT and abs(int(value)) >= 1 << 62:
            return None
        return self.const(bool(value) if op.result.type == BOOL else int(value), op)

    def branch(self, op: Op) -> Answer:
        """A decided `if` is the branch taken; a result that both branches give alike needs no branch."""
        cond = op.operands[0]
        if cond in self.known:
            taken = op.regions[0 if self.known[cond] else 1]
            fits = all(a.type == b.type for a, b in zip(taken.yields, op.results, strict=True))
            return (without_exit(taken.ops), taken.yields) if fits else None
        inside = {v for r in op.regions for o in r.walk() for v in o.results}
        before: list[Op] = []
        out: list[Value] = []
        for a, b, old in zip(op.regions[0].yields, op.regions[1].yields, op.results, strict=True):
            if a is b and a not in inside and a.type == old.type:
                out.append(a)
            elif a in self.known and b in self.known and self.known[a] == self.known[b] and a.type == b.type == old.type:
                out.append(a if a not in inside else b if b not in inside else self.again(self.known[a], old, op, before))
            elif old.type == BOOL and self.known.get(a) is True and self.known.get(b) is False:
                out.append(cond)
            else:
                out.append(old)
        if all(a is b for a, b in zip(out, op.results, strict=True)):
            return None
        keep = [n for n, (a, b) in enumerate(zip(out, op.results, strict=True)) if a is b]
        regions = tuple(Region(r.args, r.ops, tuple(r.yields[n] for n in keep)) for r in op.regions)
        left = Op(op.opcode, op.operands, op.attrs, regions, tuple(op.results[n] for n in keep), op.loc)
        return (*before, left), out

    def again(self, value: int, like: Value, op: Op, before: list[Op]) -> Value:
        made = Op("const", (), {"value": value, "type": like.type}, (), (Value(like.type),), op.loc)
        self.known[made.result] = value
        before.append(made)
        return made.result

    def loop(self, op: Op) -> Answer:
        """A `for` without iterations returns its operands."""
        low, high = (self.known.get(v) for v in op.operands[:2])
        if low is None or high is None or high > low:
            return None
        fits = all(a.type == b.type for a, b in zip(op.operands[2:], op.results, strict=True))
        return ((), op.operands[2:]) if fits else None


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
