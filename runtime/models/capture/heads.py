"""Pass: neighbouring queries and keys are cut into heads once, normalised together and rotated together.

Why: after the projections are one product, its parts are each viewed as heads, and queries and keys go through the
same operations one after the other. On few rows every call costs more than its arithmetic.

Precondition: all parts of the product are viewed as heads of one size. Two neighbours are joined as far as both go
through the same operations with the same operands; constants of a head's size may differ (the weights of norms of
queries and of keys): they become one constant with a row per head.

    before   q, k, v = p.split((nq, nk, nv), -1); q = f(q.view(B, T, hq, d), a); k = f(k.view(B, T, hk, d), b)
    after    qk, v = p.view(B, T, h, d).split((hq + hk, hv), 2); q, k = f(qk, ab).split((hq, hk), 2)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from decgraph.runtime.models.capture.ops import POINTWISE
from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, is_op, only_user, shape_of

_TOGETHER = POINTWISE | {"roll", "vector_norm"}


def heads(program: CapturedGraph) -> None:
    """Views the parts of every split as heads, and joins neighbours that go through the same operations."""
    for split in program.of("split"):
        _view_first(program, split)
    program.sweep()
    for split in program.of("split"):
        _Neighbours(program, split).join()
    program.sweep()


def _items(split: fx.Node) -> list[fx.Node] | None:
    """The items of a split in order, if every one is there once."""
    sizes = split.args[1]
    if not isinstance(sizes, tuple) or not all(is_op(n, "item") for n in split.users):
        return None
    items = sorted(split.users, key=lambda n: int(n.args[1]))
    return items if [n.args[1] for n in items] == list(range(len(sizes))) else None


def _item(program: CapturedGraph, split: fx.Node, place: int, like: fx.Node) -> fx.Node:
    part = program.make("getitem", (split, place), shape=shape_of(like), dtype=dtype_of(like), layer=like.meta["layer"])
    part.meta["op"] = "item"
    return part


def _view_first(program: CapturedGraph, split: fx.Node) -> None:
    """Views of all parts as heads become one view of the whole."""
    items, whole = _items(split), split.args[0]
    if items is None or argument(split, 2, "dim", 0) != -1 or not isinstance(whole, fx.Node):
        return
    if len(shape_of(whole) or ()) not in (2, 3):
        return
    views = [only_user(n) for n in items]
    shapes = [shape_of(v) if is_op(v, "view", "reshape") else None for v in views]
    if any(s is None or len(s) != 4 or s[:2] != ("B", "T") for s in shapes):
        return
    if len({s[3] for s in shapes if s is not None}) != 1:
        return
    counts = tuple(int(s[2]) for s in shapes if s is not None)
    shape = ("B", "T", sum(counts), shapes[0][3])  # type: ignore[index]
    layer = split.meta["layer"]
    with program.before(split):
        view = program.make("view", (whole, program.sizes(shape)), shape=shape, dtype=dtype_of(whole), layer=layer)
        cut = program.make("split", (view, counts, 2), shape=None, dtype=None, layer=layer)
        for place, old in enumerate(views):
            assert old is not None
            program.replace(old, _item(program, cut, place, old))


class _Neighbours:
    """The first two items of a split into heads, and the operations on both."""

    def __init__(self, program: CapturedGraph, split: fx.Node) -> None:
        self.program, self.split = program, split
        self.twins: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}  # of one's: the other's, and the two together

    def join(self) -> None:
        items = _items(self.split)
        if items is None or argument(self.split, 2, "dim", 0) != 2 or len(items) < 2:
            return
        one, two = items[:2]
        if self.pair(one, two) is None:
            return
        program, counts = self.program, self.split.args[1]
        assert isinstance(counts, tuple)
        self.counts = (int(counts[0]), int(counts[1]))
        with program.before(self.split):
            cut = program.make(
                "split", (self.split.args[0], (sum(self.counts), *counts[2:]), 2), shape=None, dtype=None,
                layer=self.split.meta["layer"],
            )  # fmt: skip
            slab = _item(program, cut, 0, one)
            slab.meta["shape"] = self.shape(one)
            for place, item in enumerate(items[2:], start=1):
                item.replace_all_uses_with(_item(program, cut, place, item))
        self.twins[one] = (two, slab)
        done: set[fx.Node] = set()
        node = one
        while node.op != "output":  # in the graph's order, so that operands are joined before what uses them
            for mine in [n for n in self.twins if node in n.users]:
                twin = self.pair(mine, self.twins[mine][0], node)
                if twin is not None and node not in self.twins:
                    self.twins[node] = (twin, self.made(node, twin))
                    done |= {node, twin}
            node = node.next
        for mine, (other, both) in self.twins.items():
            if any(u not in done for u in (*mine.users, *other.users)):
                self.cut(mine, other, both, done)

    def shape(self, one: fx.Node) -> tuple[Any, ...]:
        shape = shape_of(one)
        assert shape is not None
        return (*shape[:2], sum(self.counts), *shape[3:])

    def pair(self, one: fx.Node, two: fx.Node, use: fx.Node | None = None) -> fx.Node | None:
        """A use of `two` that does what this use (or any) of `one` does."""
        for mine in one.users if use is None else [use]:
            for other in two.users:
                if self.alike(mine, other, one, two):
                    return other
        return None

    def alike(self, mine: fx.Node, other: fx.Node, one: fx.Node, two: fx.Node) -> bool:
        if mine.meta["op"] != other.meta["op"] or mine.meta["op"] not in _TOGETHER or mine.kwargs != other.kwargs:
            return False
        if len(mine.args) != len(other.args) or len(shape_of(mine) or ()) != 4:
            return False
        return all(
            a == b or (a, b) == (one, two) or (a in self.twins and self.twins[a][0] is b) or self.weights(a, b)
            for a, b in zip(mine.args, other.args)
        )

    def weights(self, a: Any, b: Any) -> bool:
        mine, other = self.program.tensor(a), self.program.tensor(b)
        return mine is not None and other is not None and mine.dim() == 1 and mine.shape == other.shape

    def made(self, mine: fx.Node, other: fx.Node) -> fx.Node:
        """What is done to both, done to the two together."""
        args: list[Any] = []
        for a, b in zip(mine.args, other.args):
            if isinstance(a, fx.Node) and a in self.twins:
                args.append(self.twins[a][1])
            elif a == b:
                args.append(a)
            else:
                first, second = self.program.tensors[str(a.target)], self.program.tensors[str(b.target)]
                rows = torch.cat([first.expand(self.counts[0], -1), second.expand(self.counts[1], -1)])
                args.append(self.program.constant(f"{a.target}_and_{b.target}", rows))
        # Before the first of the two: operands are joined already, shared by both, or constants.
        with self.program.before(mine if _later(other, mine) else other):
            shape, dtype, layer = self.shape(mine), dtype_of(mine), mine.meta["layer"]
            return self.program.make(str(mine.meta["op"]), args, shape=shape, dtype=dtype, layer=layer, **mine.kwargs)

    def cut(self, mine: fx.Node, other: fx.Node, both: fx.Node, done: set[fx.Node]) -> None:
        """Where their ways part, the two are taken apart again."""
        with self.program.before(both.next):
            parts = self.program.make("split", (both, self.counts, 2), shape=None, dtype=None, layer=both.meta["layer"])
            pieces = [_item(self.program, parts, 0, mine), _item(self.program, parts, 1, other)]
        for old, piece in zip((mine, other), pieces):
            old.replace_all_uses_with(piece, delete_user_cb=lambda user: user not in done)


def _later(one: fx.Node, two: fx.Node) -> bool:
    """Whether `one` comes after `two`."""
    node = two.next
    while node.op != "root":
        if node is one:
            return True
        node = node.next
    return False
