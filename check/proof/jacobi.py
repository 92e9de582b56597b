"""Jacobi iteration: a loop that replaces guesses by the target's own tokens after the guesses before them.

    repeat n:
        draft t: grow chain(y[:-1])
        z ~ target(t) as output
        same = all(z[:-1] == y[:len(z) - 1])
        y = z.token
        break if same

After j iterations the first j tokens are own, and where nothing changes all are (`jacobi_owned`, proof/Jacobi.v). So `y` is own
after the loop if no more tokens are guessed than there are iterations, or if it ends early only where nothing changes.
"""

from __future__ import annotations

from decgraph.ir.facts import Known, Path, Rows, Tree
from decgraph.ir.values import Op, Value


def iterated(k: Known, op: Op) -> dict[Value, Path]:
    """The results of a `for` loop that are own tokens after the context by that argument."""
    out: dict[Value, Path] = {}
    if op.attrs.get("lanes") or "fills" in op.attrs:  # it ends early where some tree is full, whatever the guesses are
        return out
    for n, result in enumerate(op.results):
        path = _Loop(k, op, n).path()
        if path is not None:
            out[result] = path
    return out


class _Loop:
    """One value that a `for` loop carries."""

    def __init__(self, k: Known, op: Op, n: int) -> None:
        body, self.stops = op.regions[0], int(bool(op.attrs.get("stops")))
        self.k, self.op = k, op
        self.first, self.y, self.next = op.operands[2 + n], body.args[1 + n], body.yields[self.stops + n]

    def path(self) -> Path | None:
        low, high = self.op.operands[:2]
        got = self.producer(self.next, "draw.get", field="token")
        drawn = self.producer(got.operands[0], "draw") if got is not None else None
        if drawn is None or self.k.const(low) != 0 or high.type.elem != "int" or not self.k.low(high) >= 1:
            return None
        rows, noise = self.k.of(drawn.operands[0]), drawn.operands[1]
        if not (isinstance(rows, Rows) and rows.all and self.k.is_output(noise) and self.chain(rows.tree)):
            return None
        enough = self.at_most(self.first, high)
        return Path(rows.model, self.k.version, "own") if enough and self.ends(drawn.result) else None

    def producer(self, v: Value, opcode: str, **attrs: object) -> Op | None:
        """The op that made a value, if it is of this kind."""
        op = self.k.producers.get(v)
        return op if op is not None and op.opcode == opcode and all(op.attrs.get(a) == x for a, x in attrs.items()) else None

    def chain(self, tree: Value) -> bool:
        """Whether a tree on the context is the chain of y[:-1], or the beginning of it that there is room for."""
        grown = self.producer(tree, "tree.grow", chain=True, has_at=False)
        fact = self.k.of(tree)
        if grown is None or not isinstance(fact, Tree) or fact.version != self.k.version:
            return False
        points = self.producer(grown.operands[1], "draw.point")
        bare = self.producer(grown.operands[0], "tree.new")
        return bare is not None and points is not None and self.but_last(points.operands[0], self.y)

    def but_last(self, v: Value, whole: Value) -> bool:
        """Whether a value is `whole[:-1]`."""
        cut = self.producer(v, "slice", has_lo=False, has_hi=True)
        return cut is not None and cut.operands[0] is whole and self.k.const(cut.operands[1]) == -1

    def at_most(self, v: Value, high: Value) -> bool:
        """Whether a vector has no more elements than `high`."""
        tile = self.producer(v, "tile", kind="tile")
        if tile is None or len(v.type.dims) != 1:
            return False
        least = self.producer(tile.operands[1], "map", fn="minimum")
        return high is tile.operands[1] or least is not None and high in least.operands

    def ends(self, z: Value) -> bool:
        """Whether the loop ends early only where z[:-1] == y[:len(z) - 1]."""
        if not self.stops or self.k.const(stop := self.op.regions[0].yields[0]) is False:
            return True
        whole = self.producer(stop, "reduce", fn="all")
        equal = self.producer(whole.operands[0], "map", fn="eq") if whole is not None else None
        if equal is None:
            return False
        new, old = equal.operands
        cut = self.producer(old, "slice", has_lo=False, has_hi=True)
        less = self.producer(cut.operands[1], "map", fn="sub") if cut is not None and cut.operands[0] is self.y else None
        size = self.producer(less.operands[0], "len") if less is not None else None
        if less is None or size is None or self.k.const(less.operands[1]) != 1:
            return False
        return size.operands[0] is z and (self.but_last(new, z) or self.but_last(new, self.next))
