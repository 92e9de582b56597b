"""Choosing: arg, topk, sort, rank, compact. All are stable: of equals the first comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels, sizes
from decgraph.ir.data.dist import Dist, Draw, Draws, Row
from decgraph.ir.data.numbers import Number
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Arithmetic, Datum, Listed, Machine, Vector
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import array, as_int, element, keep_bound, keys_of, need, need_keys, need_one, numeric
from decgraph.ir.ops.draws import pad, point
from decgraph.ir.sizes import Known, Sizes
from decgraph.ir.types import INT, Dim, Type
from decgraph.ir.values import Op, Value


@op("arg")
class Arg:
    """The element of a vector with the largest (attribute fn "max") or smallest key; ties go to the first. With one operand,
    over the vocabulary: the best token of each distribution. With more: operand 0 the candidates, the rest the keys, most
    significant first."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
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

    @staticmethod
    def meaning(m: Machine, op: Op, x: Listed, *by: Datum) -> tuple[Datum, ...]:
        down = op.attrs["fn"] == "max"
        if not by:
            a = array(m, x)
            out = np.array([m.num.order([a[i]], down)[0] for i in np.ndindex(a.shape[:-1])], dtype=np.int64).reshape(
                a.shape[:-1]
            )
            return (out if out.shape else int(out),)
        keys = [k for b in by for k in keys_of(m, b)]
        if not keys[0]:
            return (m.nothing(op, "argmax of nothing"),)
        best = m.num.order(keys, down)[0]
        return (element(x, best),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return (labels.choice if len(op.operands) > 1 else labels.joined)(c, op)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The likeliest token of a model's distribution is its own draw where the request is greedy. Of a computed row nothing
        is known: where the model has no mass it is 0, and that may be the largest entry."""
        row = k.of(op.operands[0])
        likeliest = len(op.operands) == 1 and op.attrs["fn"] == "max"
        if isinstance(row, facts.CellRows) and likeliest and row.face in ("shaped", "raw"):
            return facts.CellTokens(row.model, row.canvas, row.at)
        if len(op.operands) > 1 and op.operands[0].type.elem in ("position", "draw", "token") and not op.result.type.dims:
            vector = row.at if isinstance(row, facts.CellTokens) and isinstance(row.at, Value) else op.operands[0]
            return facts.Picked(vector, (op.attrs["fn"], *op.operands[1:]), row if isinstance(row, facts.CellTokens) else None)
        if isinstance(row, facts.Row) and likeliest and row.face in ("shaped", "raw"):
            return facts.Token(row.model, row.version, "own" if k.greedy and row.face == "shaped" else "inside")
        return None

    attrs = ("fn",)
    batch = "ragged"
    vocabulary = True
    looks = "last"
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
    """The k most probable tokens of each distribution, most probable first, as draws without randomness (one-hot);
    their score is read from the distribution."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        n = numeric(types[0])
        need(
            bool(n.dims) and n.dims[-1].kind == "vocab",
            f"topk needs a distribution, got {types[0]}",
            "to choose among nodes or draws use top(candidates, k, by = key)",
        )
        need_one(types[1], "topk")
        return (Type("draw", (n.dims[-1].of,), n.dims[:-1] + (Dim("k", "", attrs.get("bound")),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, q: Datum, k: Datum) -> tuple[Datum, ...]:
        k = max(0, as_int(k))
        if not isinstance(q, Dist):
            from decgraph.ir.ops.distributions import rows_from

            q = Dist(rows_from(np.asarray(q)))
        groups = []
        for i in np.ndindex(q.shape):
            row = q.row_at(i)
            vector = row.face(q.face)
            order = m.num.order([vector], True)[:k]
            seen = _seen(row, q.face)
            groups.append([point(m, v, source=seen) for v in map(int, order)])
        return (Draws(pad(groups, q.shape, min(k, m.vocab_size)), q.at, inner=q.inner),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        return facts.Drafts(facts.NONE) if op.result.type.elem == "draw" else None

    attrs = ("bound?",)
    label, batch = labels.certain, "ragged"
    capacity = sizes.widened
    vocabulary = True
    samples = (
        ("%z = topk(%q, %i, bound = 2)", [2, 1]),
        ("%z = topk(%m, %n, bound = 1)", [[1], [2]]),
    )
    refusals = (
        ("node<t>[part.t], int", "top(candidates"),
        ("dist<V,shaped>, real[k]", "one number"),
    )


def _is_race(c: Checker, v: Value) -> bool:
    op = c.producers.get(v)
    if op is not None and op.opcode == "segment":
        return _is_race(c, op.regions[0].yields[op.results.index(v)])
    return op is not None and op.opcode == "draw.get" and op.attrs["field"] == "race"


def ranked(m: Arithmetic, x: Vector | Draws, by: Sequence[Datum]) -> list[tuple[int, tuple[Number, ...]]]:
    """Candidates best first: where each stands in x, and its keys."""
    items = list(x.items.ravel()) if isinstance(x, Draws) else list(x)
    live = [i for i, v in enumerate(items) if v is not None]
    keys = [k2 for b in by for k2 in keys_of(m, b)] or [list(array(m, x).ravel())]
    at = live
    if len(keys[0]) != len(items):
        if len(keys[0]) == len(live):
            at = list(range(len(live)))
        elif not isinstance(x, Draws):  # keys over the whole tree (or canvas) for candidates that are part of it
            at = [as_int(items[i]) for i in live]
    rows = [[key[i] for i in at] for key in keys]
    return [(live[i], tuple(row[i] for row in rows)) for i in m.num.order(rows, True)]


@op("select.top")
class SelectTop:
    """The k candidates with the largest keys, best first. Operands candidates, k, keys. Candidates are nodes, draws,
    positions or numbers. Attribute order: "best" (best first) or "kept" (in their own order). Attribute by_race: the keys
    are race keys, the one selection by a draw's own value that leaves its distribution unchanged."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need_one(types[1], "top")
        need(
            t.elem != "list" or not isinstance(t.of[0], Type) or not t.of[0].dims or t.of[0].elem == "token",
            f"top chooses among texts and single things, got {t}",
            "choose their numbers: top(range_(0, len(xs)), k, by = key)",
        )
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

    @staticmethod
    def meaning(m: Machine, op: Op, x: Vector | Draws, k: Datum, *by: Datum) -> tuple[Datum, ...]:
        if isinstance(x, Draws) and op.attrs.get("by_race") and m.num.exact:
            return (m.select_race(x, as_int(k)),)
        if op.attrs.get("flatten") and not isinstance(x, (Draws, list)):
            x = array(m, x).ravel()
        items = list(x.items.ravel()) if isinstance(x, Draws) else list(x)
        chosen = [i for i, _ in ranked(m, x, by)[: max(0, as_int(k))]]
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
        """By race keys, which leaves every distribution unchanged; else as every choice."""
        x, k, *keys = (c.of(v) for v in op.operands)
        if not x.column and op.operands[0].type.elem in labels.HOLDERS and op.attrs.get("by_race"):
            if all(_is_race(c, v) for v in op.operands[2:]):
                return [replace(x, dep=x.dep | k.reads)]
        return labels.choice(c, op)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The first of a race are draws without replacement (stochastic beams; ir/labels.py); points stay points."""
        drafts, many, *keys = op.operands
        known = k.of(drafts)
        if not isinstance(known, facts.Drafts) or not known.noises:
            return known if isinstance(known, facts.Drafts) else None
        made = [k.producers.get(v) for v in keys]
        own = all(o is not None and o.opcode == "draw.get" and o.operands[0] is drafts for o in made)
        first = known.race and op.attrs.get("by_race") and own and not k.tells(known.noises, many)
        return facts.Drafts(known.noises) if first else None

    attrs = ("order?", "by_race?", "flatten?", "bound?")
    batch = "ragged"
    capacity = sizes.chosen
    looks = "all"
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

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        n = numeric(types[0])
        need(len(n.dims) == 2 and n.dims[-1].kind == "vocab", f"every needs scores [rows, vocab], got {types[0]}")
        need_one(types[1], "top")
        d = Dim("k", "", attrs.get("bound"))
        return (INT.over(d), Type("token", (n.dims[-1].of,), (d,)), Type("real", (), (d,)))

    @staticmethod
    def meaning(m: Machine, op: Op, s: Datum, k: Datum) -> tuple[Datum, ...]:
        a = array(m, s)
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
    vocabulary = True
    looks = "all"
    samples = (("%z, %y, %v = pairs.top(%m, %i, bound = 2)", [0, 1]),)
    refusals = (("real[k], int", "scores"),)


__all__ = ["Draw"]
