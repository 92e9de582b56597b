"""The host: functions the caller supplies, and choices and folds across a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decgraph.ir import labels, sizes
from decgraph.ir.data.dist import Draws
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum, Machine, Vector
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import need, need_keys, need_one
from decgraph.ir.types import REAL, Type, join, parse_type
from decgraph.ir.values import Op


@op("extern")
class Extern:
    """Call a Python function handed over by the caller (attribute extern); memoised by its arguments within a request.
    Where an argument is a vector of what it takes, it is called for each."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        want = attrs["params"]
        need(len(types) == len(want), f"{attrs['extern']} takes {len(want)} arguments, got {len(types)}")
        for n, (t, w) in enumerate(zip(types, want, strict=True)):
            need(join(t.scalar, w.scalar) == w.scalar, f"argument {n + 1} of {attrs['extern']} is {w}, got {t}")
        vector = next((t.dims for t, w in zip(types, want, strict=True) if t.dims and not w.dims), ())
        return (attrs["returns"].over(*vector),)

    @staticmethod
    def meaning(m: Machine, op: Op, *args: Datum) -> tuple[Datum, ...]:
        return (m.extern(op, args),)

    attrs = ("extern", "params", "returns")
    label, batch, exact, effects = labels.joined, "host", "adversary", "host"
    samples = (('%z = extern(%word, extern = "judge", params = (!text,), returns = !bool)', True),)
    refusals = (
        ("int", "argument 1 of judge", {"extern": "judge", "params": (parse_type("text"),), "returns": parse_type("bool")}),
        ("", "judge", {"extern": "judge", "params": (parse_type("text"),), "returns": parse_type("bool")}),
    )


@op("batch.top")
class BatchTop:
    """Of the candidates of all sequences of the batch that are at this place, those among the k with the largest keys that are
    this sequence's, best first. Of equal ones those of the sequence that comes first. Alone, a batch of one."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need(bool(t.dims) and t.elem != "dist", f"top needs candidates, got {t}")
        need_one(types[1], "top")
        need_keys(t, types[2:], "top")
        return (t,)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Vector | Draws, k: Datum, *by: Datum) -> tuple[Datum, ...]:
        return (m.batch_top(op, x, k, by),)

    label, batch, exact, effects = labels.choice, "barrier", "adversary", "host"
    capacity = sizes.chosen
    looks = "all"
    samples = (("%z = batch.top(%ns, %n, %col)", [1]),)
    refusals = (("int, int", "candidates"),)


ACROSS = ("batch.top", "batch.fold")
"""Ops that read all sequences of a batch."""


def shares(asked: Sequence[tuple[Sequence[tuple[Number, ...]], int]]) -> list[int]:
    """How many candidates of each sequence are among the k best of all; asked: each one's keys, best first, and its k. Of
    equals those of the sequence that comes first are chosen."""
    ranked = sorted(((keys, n) for n, (mine, _) in enumerate(asked) for keys in mine), key=lambda c: c[0], reverse=True)
    return [sum(owner == n for _, owner in ranked[:k]) for n, (_, k) in enumerate(asked)]


FOLDS: dict[str, Callable[..., Number]] = {"max": max, "min": min, "sum": sum, "any": any, "all": all}
"""What the numbers of a batch are folded by, by name."""


def folded(fn: str, numbers: Sequence[object]) -> list[Number]:
    """For each sequence what the numbers of all fold to."""
    return [FOLDS[fn](numbers)] * len(numbers)


@op("batch.fold")
class BatchFold:
    """One number of every sequence of the batch that is at this place, folded (attribute fn: max, min, sum; any, all of
    conditions). Sequences that ended take no part; the others wait. Alone, the sequence's own number."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        fn = attrs["fn"]
        need(not t.dims, f"{fn} across a batch needs one value of each sequence, got {t}")
        need(fn in FOLDS, f"a batch is folded by one of {', '.join(FOLDS)}, not by {fn}")
        if fn in ("any", "all"):
            need(t.elem == "bool", f"{fn} across a batch needs a condition, got {t}")
            return (t,)
        need(t.is_number, f"{fn} across a batch needs a number, got {t}")
        return (REAL if fn == "sum" and t.elem == "prob" else Type(t.elem),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        return (m.batch_fold(op, x),)

    attrs = ("fn",)
    label, batch, exact, effects = labels.joined, "barrier", "adversary", "host"
    samples = (
        ('%z = batch.fold(%i, fn = "max")', 2),
        ('%z = batch.fold(%b, fn = "any")', True),
    )
    refusals = (
        ("text", "needs a number", {"fn": "max"}),
        ("int", "needs a condition", {"fn": "any"}),
        ("int", "one of max", {"fn": "median"}),
    )


__all__ = ["ACROSS", "FOLDS", "Type", "folded", "shares"]
