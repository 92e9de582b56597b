"""Choosing: arg, topk, sort, rank, compact. All are stable: of equals the first comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from decgraph.ir import labels, sizes
from decgraph.ir.data.dist import Dist, Draw, Draws, Row
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.opdef import OpError, op
from decgraph.ir.ops.common import array, as_int, element, matches, need, need_keys, need_one, numeric
from decgraph.ir.ops.draws import pad, point
from decgraph.ir.sizes import Known, Sizes
from decgraph.ir.types import INT, Dim, Type
from decgraph.ir.values import Op, Value


def _keys(m: Any, by: Any) -> list[list[Any]]:
    keys = by if isinstance(by, (list, tuple)) else [by]
    return [list(np.asarray(array(m, k)).ravel()) for k in keys]


def keep_bound(t: Type, k: Any) -> Dim:
    d = t.dims[0]
    bounds = [b for b in (d.bound, k) if b is not None]
    return Dim(
        "part" if d.kind in ("nodes", "cells", "part") else "k",
        d.of if d.kind in ("nodes", "cells", "part") else "",
        min(bounds) if bounds else None,
    )


@op("arg")
class Arg:
    """The element of a vector with the largest (attribute fn "max") or smallest key; ties go to the first. With one operand,
    over the vocabulary: the best token of each distribution. With more: operand 0 the candidates, the rest the keys, most
    significant first."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = types[0]
        n = numeric(t)
        if len(types) == 1:
            need(bool(n.dims) and n.elem not in ("list",), f"arg{attrs['fn']} needs a vector, got {t}")
            need(
                n.is_number or n.elem in ("bool", "token", "position"),
                f"arg{attrs['fn']} needs numbers, got {t}",
                "say which: by = a vector over the same things",
            )
            d = n.dims[-1]
            return ((Type("token", (d.of,), n.dims[:-1]) if d.kind == "vocab" else Type("int", (), n.dims[:-1])),)
        need(len(t.dims) == 1, f"arg{attrs['fn']} needs a vector of candidates, got {t}")
        need_keys(t, types[1:], f"arg{attrs['fn']}")
        return (t.drop(),)

    def meaning(m: Any, op: Any, x: Any, *by: Any) -> Any:
        down = op.attrs["fn"] == "max"
        if not by:
            a = np.asarray(array(m, x))
            out = np.array([m.num.order([a[i]], down)[0] for i in np.ndindex(a.shape[:-1])], dtype=np.int64).reshape(
                a.shape[:-1]
            )
            return (out if out.shape else int(out),)
        keys = [k for b in by for k in _keys(m, b)]
        if not keys[0]:
            return (m.nothing(op, "argmax of nothing"),)
        best = m.num.order(keys, down)[0]
        return (element(x, best),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return (labels.choice if len(op.operands) > 1 else labels.joined)(c, op)

    attrs = ("fn",)
    batch = "ragged"
    samples = (
        ('%z = arg(%rs, fn = "max")', 1),
        ('%z = arg(%q, fn = "max")', 2),
        ('%z = arg(%m, fn = "min")', [0, 1]),
        ('%z = arg(%ds, %rs, fn = "min")', 2),
        ('%z = arg(%xs, %rs, %xs, fn = "max")', 2),
    )
    refusals = (
        ("int", "vector", {"fn": "max"}),
        ("int[k], dist<V,shaped>[k]", "every candidate", {"fn": "max"}),
    )


def _seen(row: Row, face: str) -> Row:
    """The row by one of its faces."""
    return Row(lambda _: row.face(face), node=row.node, position=row.position, label=row.label)


@op("topk")
class TopK:
    """The k most probable tokens of each distribution, most probable first, as draws without randomness (point masses):
    their score is read from the distribution, their law is certain."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        n = numeric(types[0])
        need(
            bool(n.dims) and n.dims[-1].kind == "vocab",
            f"topk needs a distribution, got {types[0]}",
            "to choose among nodes or draws use top(candidates, k, by = key)",
        )
        need_one(types[1], "topk")
        return (Type("draw", (n.dims[-1].of,), n.dims[:-1] + (Dim("k", "", attrs.get("bound")),)),)

    def meaning(m: Any, op: Any, q: Any, k: Any) -> Any:
        k = max(0, as_int(k))
        if not isinstance(q, Dist):
            from decgraph.ir.ops.distributions import rows_from

            q = Dist(rows_from(np.asarray(q)))
        groups = []
        for i in np.ndindex(q.shape):
            row: Row = q.rows[i]
            vector = row.face(q.face)
            order = m.num.order([vector], True)[:k]
            seen = _seen(row, q.face)
            groups.append([point(m, v, source=seen) for v in map(int, order)])
        return (Draws(pad(groups, q.shape, min(k, m.vocab_size)), q.at, inner=q.inner),)

    attrs = ("bound?",)
    label, batch = labels.certain, "ragged"
    capacity = sizes.widened
    samples = (
        ("%z = topk(%q, %i, bound = 2)", [2, 1]),
        ("%z = topk(%m, %n, bound = 1)", [[1], [2]]),
    )
    refusals = (
        ("node<t>[part.t], int", "top(candidates"),
        ("dist<V,shaped>, real[k]", "one number"),
    )


def _is_race(c: Checker, v: Value) -> bool:
    op = c.made.get(v)
    if op is not None and op.opcode == "segment":
        return _is_race(c, op.regions[0].yields[op.results.index(v)])
    return op is not None and op.opcode == "draw.get" and op.attrs["field"] == "race"


@op("select.top")
class SelectTop:
    """The k candidates with the largest keys, best first. Operands candidates, k, keys. Candidates are nodes, draws,
    positions or numbers. Attribute order: "best" (best first) or "kept" (in their own order). Attribute by_race: the keys
    are race keys, the one selection by a draw's own value that leaves its law intact."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = types[0]
        need_one(types[1], "top")
        need_keys(t, types[2:], "top")
        need(
            t.elem != "dist",
            f"top chooses among nodes, draws, positions or numbers, got {t}",
            "of a distribution's tokens use topk(q, k); of its rows choose the nodes: top(nodes, k, by = key)",
        )
        if t.elem == "list":
            return (t,)
        need(
            bool(t.dims),
            f"top needs candidates to choose from, got {t}",
            "of a distribution's tokens use topk(q, k)" if t.elem == "dist" else "",
        )
        if attrs.get("flatten"):
            return (Type(t.elem, t.of, (Dim("k", "", attrs.get("bound")),)),)
        return (t.with_dims((keep_bound(t, attrs.get("bound")),) + t.dims[1:]),)

    def meaning(m: Any, op: Any, x: Any, k: Any, *by: Any) -> Any:
        if op.attrs.get("by_race") and m.num.exact:
            return (m.select_race(x, as_int(k)),)
        if op.attrs.get("flatten") and not isinstance(x, (Draws, list)):
            x = np.asarray(array(m, x)).ravel()
        items = list(x.items.ravel()) if isinstance(x, Draws) else list(x)
        live = [i for i, v in enumerate(items) if v is not None]
        keys = [k2 for b in by for k2 in _keys(m, b)] or [list(np.asarray(array(m, x)).ravel())]
        if len(keys[0]) != len(items) and len(keys[0]) == len(live):
            place = {i: n for n, i in enumerate(live)}
            pick = lambda key, i: key[place[i]]
        else:
            # keys over the whole tree (or canvas) for candidates that are part of it
            ids = [int(v) for v in items] if not isinstance(x, Draws) and len(keys[0]) != len(items) else None
            pick = (lambda key, i: key[ids[i]]) if ids is not None else (lambda key, i: key[i])
        order = m.num.order([[pick(key, i) for i in live] for key in keys], True)[: max(0, as_int(k))]
        chosen = [live[i] for i in order]
        if op.attrs.get("order") == "kept":
            chosen.sort()
        if isinstance(x, Draws):
            out = np.empty(len(chosen), dtype=object)
            for n, i in enumerate(chosen):
                out[n] = items[i]
            return (Draws(out),)
        if isinstance(x, list):
            return ([items[i] for i in chosen],)
        return (np.asarray(x)[chosen] if chosen else np.asarray(x)[:0],)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        """By race keys, which leaves every law as it was; else as every choice."""
        x, k, *keys = (c.of(v) for v in op.operands)
        if not x.column and op.operands[0].type.elem in labels.HOLDERS and op.attrs.get("by_race"):
            if all(_is_race(c, v) for v in op.operands[2:]):
                return [replace(x, dep=x.dep | k.reads)]
        return labels.choice(c, op)

    attrs = ("order?", "by_race?", "flatten?", "bound?")
    batch = "ragged"
    capacity = sizes.chosen
    samples = (
        ("%z = select.top(%xs, %i, %rs, bound = 2)", [1, 2]),
        ('%z = select.top(%xs, %i, order = "kept", bound = 2)', [3, 2]),
        ("%z = select.top(%ns, %n, %col, bound = 1)", [3]),
    )
    refusals = (
        ("dist<V,shaped>, int", "topk"),
        ("int[k], int[k]", "one number"),
    )


@op("pairs.top")
class PairsTop:
    """The k best of rows x vocabulary: results rows (int), tokens, values, best first; ties by row, then token; scores of
    minus infinity are never chosen."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        n = numeric(types[0])
        need(len(n.dims) == 2 and n.dims[-1].kind == "vocab", f"every needs scores [rows, vocab], got {types[0]}")
        need_one(types[1], "top")
        d = Dim("k", "", attrs.get("bound"))
        return (INT.over(d), Type("token", (n.dims[-1].of,), (d,)), Type("real", (), (d,)))

    def meaning(m: Any, op: Any, s: Any, k: Any) -> Any:
        a = np.asarray(array(m, s))
        flat = list(a.ravel())
        order = [i for i in m.num.order([flat], True) if flat[i] > -m.num.inf][: as_int(k)]
        width = a.shape[1]
        values = np.array([flat[i] for i in order], dtype=a.dtype)
        return (
            np.array([i // width for i in order], dtype=np.int64),
            np.array([i % width for i in order], dtype=np.int64),
            values,
        )

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        return [(s.number(op.operands[1]),)] * len(op.results)

    attrs = ("bound?",)
    label, batch = labels.joined, "ragged"
    samples = (("%z, %y, %v = pairs.top(%m, %i, bound = 2)", [0, 1]),)
    refusals = (("real[k], int", "scores"),)


@op("sort")
class Sort:
    """The candidates in the order of their keys (attribute descending), or a vector's own values."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(bool(types[0].dims), f"sort needs a vector, got {types[0]}")
        need(len(types[0].dims) == 1 and types[0].elem != "dist", f"sort needs a vector of candidates, got {types[0]}")
        need_keys(types[0], types[1:] or types[:1], "sort")
        return (types[0].with_dims((keep_bound(types[0], None),) + types[0].dims[1:]),)

    def meaning(m: Any, op: Any, x: Any, *by: Any) -> Any:
        keys = [k for b in by for k in _keys(m, b)] or [list(np.asarray(array(m, x)).ravel())]
        order = m.num.order(keys, bool(op.attrs.get("descending")))
        return (Draws(x.items[order]) if isinstance(x, Draws) else np.asarray(array(m, x))[order],)

    attrs = ("descending?",)
    label, batch = labels.choice, "ragged"
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

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = numeric(types[0])
        need(t.is_number and bool(t.dims), f"rank needs numbers, got {types[0]}")
        return (Type("int", (), t.dims),)

    def meaning(m: Any, op: Any, x: Any) -> Any:
        a = np.asarray(array(m, x))
        out = np.zeros(a.shape, dtype=np.int64)
        for row in np.ndindex(a.shape[:-1]):
            for place, i in enumerate(m.num.order([list(a[row])], True)):
                out[row][i] = place
        return (out,)

    label, batch = labels.joined, "ragged"
    samples = (
        ("%z = rank(%rs)", [2, 0, 1]),
        ("%z = rank(%qs)", [[2, 1, 0], [1, 2, 0]]),
    )
    refusals = (("int", "numbers"),)


@op("first_max")
class FirstMax:
    """True at the first of the largest values along the last dimension (nowhere in an empty vector)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = numeric(types[0])
        need(t.is_number and bool(t.dims), f"first_max needs numbers, got {types[0]}")
        return (Type("bool", (), t.dims),)

    def meaning(m: Any, op: Any, x: Any) -> Any:
        a = np.asarray(array(m, x))
        out = np.zeros(a.shape, dtype=bool)
        for row in np.ndindex(a.shape[:-1] if a.size else (0,)):
            out[row][m.num.order([list(a[row])], True)[0]] = True
        return (out,)

    label, batch = labels.joined, "ragged"
    samples = (
        ("%z = first_max(%rs)", [False, True, False]),
        ("%z = first_max(%m)", [[False, True, False], [False, False, True]]),
    )
    refusals = (("bool[k]", "numbers"),)


@op("compact")
class Compact:
    """The elements at which a condition holds, in order. Where the vector is part of what the condition ranges over (nodes,
    positions), the condition is read at each element."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
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

    def meaning(m: Any, op: Any, v: Any, c: Any) -> Any:
        c = np.asarray(c)
        n = v.shape[0] if isinstance(v, (Dist, Draws)) else len(v) if np.ndim(v) or isinstance(v, list) else 1
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
        """What a condition on point masses leaves are point masses."""
        x, cond = (c.of(v) for v in op.operands)
        if not x.column and op.operands[0].type.elem in labels.HOLDERS and cond.points is not None:
            return [replace(x, held=cond.points, dep=x.dep | cond.dep, tree=None)]
        return labels.choice(c, op)

    batch = "ragged"
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

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = types[0]
        need_one(types[1], "first")
        if t.elem == "list":
            return (t,)
        need(bool(t.dims), f"first needs a vector, got {t}")
        if t.elem == "bool" and t.dims[0].kind in ("cells", "part"):
            return (Type("position", (t.dims[0].of,), (Dim("part", t.dims[0].of, attrs.get("bound")),)),)
        return (t.with_dims((keep_bound(t, attrs.get("bound")),) + t.dims[1:]),)

    def meaning(m: Any, op: Any, x: Any, k: Any) -> Any:
        k = max(0, as_int(k))
        t = op.operands[0].type
        if t.elem == "bool" and op.results[0].type.elem == "position":
            return (np.flatnonzero(np.asarray(x))[:k],)
        if isinstance(x, Draws):
            return (x.pick(slice(k), None if x.at is None else x.at[:k]),)
        if isinstance(x, Dist):
            return (x.pick(slice(k), (x.at if x.at is not None else np.arange(x.shape[0]))[:k]),)
        return (x[:k],)

    attrs = ("bound?",)
    label, batch = labels.choice, "ragged"
    capacity = sizes.chosen
    samples = (
        ("%z = take_first(%xs, %i, bound = 2)", [3, 1]),
        ("%z = take_first(%sure, %n, bound = 1)", [0]),
    )
    refusals = (("int, int", "vector"),)


__all__ = ["Draw"]
