"""Part of simplify: whole numbers and bools computed at compile time, and branches that are decided.

Only whole numbers and bools are folded: they are the same in float64 and in exact fractions, reals are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.table import lookup
from decgraph.ir.types import BOOL, INT
from decgraph.ir.values import Op, Region, Value
from decgraph.ir.walk import rebuild, without_exit

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
        self.made: dict[Value, Op] = {}

    def rewrite(self, op: Op) -> Answer:
        if op.opcode == "const":
            value = op.attrs["value"]
            if op.result.type in (INT, BOOL) and type(value) in (int, bool):
                self.known[op.result] = value
            return None
        for v in op.results:
            self.made[v] = op
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
                inner = self.made.get(xs[0])
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
