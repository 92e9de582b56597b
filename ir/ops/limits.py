"""Limits: a number or a vector that is what it says it is, or an error at its line before anything is built from it."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from decgraph.ir import facts, labels
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, OpError, Regions, Types, op
from decgraph.ir.ops.common import as_int, need, need_one
from decgraph.ir.sizes import Known, Sizes, least
from decgraph.ir.values import Op

LARGEST = 1_000_000
"""Iterations of a loop, elements of a vector, positions of a canvas, tokens chosen: what one program may ask for at once."""

TABLE = 32 * LARGEST
"""Entries of a table of zeros of two dimensions and more: some for each token of a vocabulary of 256,000."""

WIDEST = 1 << 63
"""What a whole number stays below, with either sign: the backends compute with 64 bits."""

NODES = 1 << 16
"""Nodes of one tree."""


def bounded(x: Any, most: int, what: str) -> Any:
    """x, or OpError where it is larger."""
    if -most <= x <= most:
        return x
    raise OpError(f"{what} is {spoken(x)}; it may be at most {most:,}", "bound it: min(n, 1000), or a range of the parameter")


def allowed(n: int, what: str, most: int = LARGEST) -> None:
    """Raise OpError where something of n elements is about to be built that may not be."""
    if n > most:
        raise OpError(f"{what} would be {spoken(n)} long; at most {most:,} are possible", "build less, or cut it: xs[-n:]")


def joined_length(a: object, b: object) -> int:
    """How long a ++ b is."""
    shapes = [(x, getattr(x, "shape", ())) for x in (a, b)]
    return sum(int(shape[0]) if shape else len(x) if isinstance(x, list) else 1 for x, shape in shapes)


def room_for_nodes(have: int, more: int) -> None:
    """Raise OpError where a tree is about to have more nodes than a tree may have."""
    if have + more > NODES:
        raise OpError(
            f"a tree of {have:,} nodes grows by {more:,}; it may have at most {NODES:,}",
            "grow fewer: top(xs, k, by = ...), or prune t to top(t.drafted, k, by = t.logprob)",
        )


def spoken(x: object) -> str:
    """A number for a message, which may be too long to write out."""
    x = int(x) if isinstance(x, Integral) else x
    if isinstance(x, int) and abs(x) >= 10**18:
        return f"a number of {x.bit_length():,} bits"
    return f"{x:,}" if isinstance(x, int) else str(x)


@op("within")
class Within:
    """x itself where it is as small as it must be: a number between -most and most (attribute most), or a vector or list that
    has at most as many elements in each dimension as the operands after it say. Attribute what names it in the error."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        x, *sizes = types
        if not sizes:
            need(x.is_number and not x.dims, f"{attrs['what']} must be one number, got {x}")
            need("most" in attrs, "within needs what a number must stay below")
        else:
            need(bool(x.dims) or x.elem in ("list", "any"), f"{attrs['what']} has no elements, it is {x}")
        for t in sizes:
            need_one(t, "a capacity")
        return (x,)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, *sizes: Datum) -> tuple[Datum, ...]:
        if not sizes:
            return (bounded(x, op.attrs["most"], op.attrs["what"]),)
        fits(x, [as_int(n) for n in sizes], op.attrs["what"])
        return (x,)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        return k.of(op.operands[0])

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        if len(op.operands) == 1:
            return [least(s.number(op.operands[0]), op.attrs["most"])]
        sizes = [s.number(v) for v in op.operands[1:]]
        have = s.lengths(op.operands[0])
        return [tuple(least(n, sizes[i] if i < len(sizes) else None) for i, n in enumerate(have)) if have else None]

    attrs = ("what", "most?")
    label, batch = labels.joined, "pointwise"
    samples = (
        ('%z = within(%i, what = "n", most = 2)', 2),
        ('%z = within(%xs, %three, what = "state xs")', [3, 1, 2]),
        ('%z = within(%ds, %three, what = "ds")', [2, 0]),
    )
    refusals = (
        ("int, int", "no elements", {"what": "n"}),
        ("int[k]", "one number", {"what": "n", "most": 2}),
    )


def fits(x: Any, sizes: list[int], what: str) -> None:
    """Raise OpError where a vector, or a list of vectors, is longer than its capacity."""
    shape = getattr(x, "shape", None)
    if shape is None:
        shape = (len(x),)
        for inner in x if len(sizes) > 1 else ():
            if hasattr(inner, "__len__") or hasattr(inner, "shape"):
                fits(inner, sizes[1:], what)
    for have, most in zip(shape, sizes, strict=False):
        if have > most:
            raise OpError(f"{what} has room for {most}, this is {have}", "make it shorter: xs[-n:], first(xs, n), or more room")


__all__ = ["LARGEST", "NODES", "TABLE", "WIDEST", "allowed", "bounded", "fits", "joined_length", "room_for_nodes"]
