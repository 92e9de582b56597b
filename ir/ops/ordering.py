"""Ordering: sorting, ranks, firsts, and what a condition leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels, sizes
from decgraph.ir.data.dist import Dist, Draws
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Datum, Machine, Vector
from decgraph.ir.opdef import Attrs, OpError, Regions, Types, op
from decgraph.ir.ops.common import array, as_int, keep_bound, keys_of, matches, need, need_keys, need_one, numeric
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op, Value


@op("sort")
class Sort:
    """The candidates in the order of their keys (attribute descending), or a vector's own values."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(bool(types[0].dims), f"sort needs a vector, got {types[0]}")
        need(len(types[0].dims) == 1 and types[0].elem != "dist", f"sort needs a vector of candidates, got {types[0]}")
        need_keys(types[0], types[1:] or types[:1], "sort")
        return (types[0].with_dims((keep_bound(types[0], None),) + types[0].dims[1:]),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, *by: Datum) -> tuple[Datum, ...]:
        keys = [k for b in by for k in keys_of(m, b)] or [list(array(m, x).ravel())]
        order = m.num.order(keys, bool(op.attrs.get("descending")))
        return (Draws(x.items[order]) if isinstance(x, Draws) else array(m, x)[order],)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        return facts.points_stay(k, op)

    attrs = ("descending?",)
    label, batch = labels.choice, "ragged"
    looks = "all"
    samples = (
        ("%z = sort(%xs)", [1, 2, 3]),
        ("%z = sort(%xs, %rs, descending = true)", [1, 2, 3]),
    )
    refusals = (
        ("int", "vector"),
        ("int[k], real", "by ="),
    )


@op("rank")
class Rank:
    """The place of each value from the largest (0) along the last dimension, ties in order."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        need(t.is_number and bool(t.dims), f"rank needs numbers, got {types[0]}")
        return (Type("int", (), t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        a = array(m, x)
        out = np.zeros(a.shape, dtype=np.int64)
        for row in np.ndindex(a.shape[:-1]):
            for place, i in enumerate(m.num.order([list(a[row])], True)):
                out[row][i] = place
        return (out,)

    label, batch = labels.joined, "ragged"
    vocabulary = True
    surface = "rank(x)"
    looks = "last"
    samples = (
        ("%z = rank(%rs)", [2, 0, 1]),
        ("%z = rank(%qs)", [[2, 1, 0], [1, 2, 0]]),
    )
    refusals = (("int", "numbers"),)


@op("first_max")
class FirstMax:
    """True at the first of the largest values along the last dimension (nowhere in an empty vector)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        need(t.is_number and bool(t.dims), f"first_max needs numbers, got {types[0]}")
        return (Type("bool", (), t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        a = array(m, x)
        out = np.zeros(a.shape, dtype=bool)
        for row in np.ndindex(a.shape[:-1] if a.size else (0,)):
            out[row][m.num.order([list(a[row])], True)[0]] = True
        return (out,)

    label, batch = labels.joined, "ragged"
    vocabulary = True
    surface = "first_max(x)"
    looks = "last"
    samples = (
        ("%z = first_max(%rs)", [False, True, False]),
        ("%z = first_max(%m)", [[False, True, False], [False, False, True]]),
    )
    refusals = (("bool[k]", "numbers"),)


@op("compact")
class Compact:
    """The elements at which a condition holds, in order. Where the vector is part of what the condition ranges over (nodes,
    positions), the condition is read at each element."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v, c = types
        need(c.elem == "bool", f"`where` needs a condition, got {c}")
        if v.elem == "list":
            return (v,)
        if not v.dims:
            need(not c.dims, f"`where` selects from a vector, got {v}", "write a if cond else b")
            return (v.over(Dim("k", "", 1)),)
        need(
            len(c.dims) == 1 and matches(v.dims[0], c.dims[0]) > 0,
            f"`where` needs a condition over the same things as {v}, got {c}",
            "read it there: xs where c[xs]",
        )
        return (v.with_dims((keep_bound(v, None),) + v.dims[1:]),)

    @staticmethod
    def meaning(m: Machine, op: Op, v: Vector | Dist | Draws | int, c: Datum) -> tuple[Datum, ...]:
        c = np.asarray(c)
        n = v.shape[0] if isinstance(v, (Dist, Draws)) else len(v if isinstance(v, list) else np.atleast_1d(np.asarray(v)))
        if (
            op.operands[0].type.elem in ("node", "position")
            and c.ndim
            and (op.operands[1].type.dims[0].kind in ("nodes", "cells"))
        ):
            c = c[np.asarray(v, dtype=np.int64)] if n else np.zeros(0, dtype=bool)
        if c.shape == ():
            c = np.full(n, bool(c))
        if len(c) != n:
            raise OpError(f"`where`: {n} elements and {len(c)} conditions")
        keep = np.flatnonzero(c)
        if isinstance(v, Dist):
            at = v.at if v.at is not None else np.arange(n)
            return (v.pick(keep, at[keep]),)
        if isinstance(v, Draws):
            return (v.pick(keep, None if v.at is None else v.at[keep]),)
        if isinstance(v, list):
            return ([v[i] for i in keep],)
        return (np.atleast_1d(np.asarray(v))[keep],)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        """What a condition on one-hot draws selects is one-hot."""
        x, cond = (c.of(v) for v in op.operands)
        if not x.column and op.operands[0].type.elem in labels.HOLDERS and cond.points is not None:
            return [replace(x, draws=cond.points, dep=x.dep | cond.dep, tree=None)]
        return labels.choice(c, op)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Some nodes, the root among them, where the condition is true there."""
        nodes, kept = k.of(op.operands[0]), k.of(op.operands[1])
        if (
            isinstance(nodes, facts.Nodes)
            and nodes.which == "all"
            and isinstance(kept, facts.Column)
            and kept.tree is nodes.tree
        ):
            if kept.holds != "depth":
                return nodes if kept.holds == "everywhere" else replace(nodes, which="some")
        if isinstance(nodes, facts.CellTokens) and isinstance(nodes.at, Value):
            return replace(nodes, at=(nodes.at, op.operands[1]), drafts=None)
        return facts.points_stay(k, op)

    batch = "ragged"
    looks = "all"
    samples = (
        ("%z = compact(%rs, %bs)", [0.5, 2.0]),
        ("%z = compact(%ns, %ok)", [1, 3]),
        ("%z = compact(%ps, %sure)", [0, 2]),
        ("%z = compact(%i, %b)", [2]),
    )
    refusals = (
        ("int[k], int[k]", "condition"),
        ("int, bool[k]", "a if cond else b"),
    )


@op("take_first")
class TakeFirst:
    """The first k of a vector (fewer if there are fewer); of a condition over positions, the first k where it holds."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need_one(types[1], "first")
        if t.elem == "list":
            return (t,)
        need(bool(t.dims), f"first needs a vector, got {t}")
        if t.elem == "bool" and t.dims[0].kind in ("cells", "part"):
            return (Type("position", (t.dims[0].of,), (Dim("part", t.dims[0].of, attrs.get("bound")),)),)
        return (t.with_dims((keep_bound(t, attrs.get("bound")),) + t.dims[1:]),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Vector | Dist | Draws, k: Datum) -> tuple[Datum, ...]:
        k = max(0, as_int(k))
        t = op.operands[0].type
        if t.elem == "bool" and op.results[0].type.elem == "position":
            return (np.flatnonzero(np.asarray(x))[:k],)
        if isinstance(x, Draws):
            return (x.pick(slice(k), None if x.at is None else x.at[:k]) if t.elem == "draw" else array(m, x)[:k],)
        if isinstance(x, Dist):
            return (x.pick(slice(k), (x.at if x.at is not None else np.arange(x.shape[0]))[:k]),)
        return (x[:k],)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The first of some draws, where what they turned out to be does not say how many."""
        drafts = k.of(op.operands[0])
        if isinstance(drafts, facts.Drafts) and not drafts.race and not k.tells(drafts.noises, op.operands[1]):
            return drafts
        return facts.points_stay(k, op)

    attrs = ("bound?",)
    label, batch = labels.choice, "ragged"
    capacity = sizes.chosen
    looks = "all"
    samples = (
        ("%z = take_first(%xs, %i, bound = 2)", [3, 1]),
        ("%z = take_first(%sure, %n, bound = 1)", [0]),
    )
    refusals = (("int, int", "vector"),)
