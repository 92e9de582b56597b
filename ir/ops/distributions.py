"""Distributions: faces, softmax, warp, normalize, information, and looking tokens up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels
from decgraph.ir.data.dist import Dist, Draw, Row, tokens_of, value_row
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, OpError, Regions, Types, op
from decgraph.ir.ops.common import align, array, as_int, need, need_one, numeric
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


def rows_from(a: np.ndarray) -> np.ndarray:
    """Rows with the given probabilities [*dims, V]."""
    rows = np.empty(np.shape(a)[:-1], dtype=object)
    for i in np.ndindex(rows.shape):
        rows[i] = value_row(a[i])
    return rows


def like(q: Datum, a: np.ndarray) -> Dist:
    """Probabilities `a` as a dist that keeps the places of `q`, where it has any."""
    rows = rows_from(a)
    if isinstance(q, Dist) and q.shape == rows.shape:
        for i in np.ndindex(rows.shape):
            rows[i] = value_row(a[i], q.row_at(i))
        return Dist(rows, "shaped", q.at, q.inner)
    return Dist(rows)


def _over_vocab(t: Type, what: str) -> Type:
    n = numeric(t)
    need(n.is_number and bool(n.dims) and n.dims[-1].kind == "vocab", f"{what} needs numbers over a vocabulary, got {t}")
    return Type("dist", (n.dims[-1].of, "shaped"), n.dims[:-1])


@op("face")
class Face:
    """Another face of a distribution: "raw" (constraints applied, shaping not) or "logits" (scores before a softmax)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need(t.elem == "dist", f".{attrs['face']} needs a model's distribution, got {t}")
        return (Type("dist", (t.of[0], attrs["face"]), t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, q: Dist) -> tuple[Datum, ...]:
        return (q.seen(op.attrs["face"]),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The other faces are the model's where the row is what the model returned: a computed row has one face only."""
        row, made = k.of(op.operands[0]), k.producers.get(op.operands[0])
        while made is not None and made.opcode == "gather":
            made = k.producers.get(made.operands[0])
        returned = made is not None and made.opcode in ("model.eval", "model.read")
        return replace(row, face=op.attrs["face"]) if returned and facts.is_row(row, "shaped") else None

    attrs = ("face",)
    label, batch = labels.elementwise, "pointwise"
    vocabulary = True
    samples = (('%z = face(%q, face = "raw")', ...),)
    refusals = (("int", "distribution", {"face": "raw"}),)


@op("softmax")
class Softmax:
    """Scores to a distribution, over the vocabulary (or over the last dimension of plain numbers)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        n = numeric(types[0])
        need(n.is_number and bool(n.dims), f"softmax needs numbers over a vocabulary, got {types[0]}")
        return (_over_vocab(types[0], "softmax") if n.dims[-1].kind == "vocab" else Type("prob", (), n.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, s: Datum) -> tuple[Datum, ...]:
        a = m.num.softmax(array(m, s))
        return (like(s, a) if op.results[0].type.elem == "dist" else a,)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        row = k.of(op.operands[0])
        return replace(row, face="mass") if facts.is_row(row, *facts.SCORES) else None

    label, batch = labels.joined, "pointwise"
    vocabulary = True
    surface = "softmax(scores)"
    samples = (
        ("%z = softmax(%w)", ...),
        ("%z = softmax(%rs)", ...),
    )
    refusals = (("int", "vocabulary"),)


@op("normalize")
class Normalize:
    """Non-negative weights divided by their sum over the vocabulary. Where the sum is 0 there is no distribution: it stays
    zeros, and drawing from it is an error of the program (it can only be reached with probability 0)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (_over_vocab(types[0], "normalize"),)

    @staticmethod
    def meaning(m: Machine, op: Op, w: Datum) -> tuple[Datum, ...]:
        a = array(m, w)
        out = np.empty(a.shape, dtype=a.dtype if a.dtype == object else np.float64)
        for i in np.ndindex(a.shape[:-1]):
            total = a[i].sum()
            out[i] = m.no_mass(op, a[i]) if not total > 0 else m.num.normalized(a[i]) if m.num.exact else a[i] / total
        return (like(w, out),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """What sums to one stays what it is; tokens without mass stay without."""
        row = k.of(op.operands[0])
        if isinstance(row, facts.Rows) or facts.is_row(row, "shaped"):
            return row
        return replace(row, face="mass") if facts.is_row(row, *facts.MASS) else None

    label, batch = labels.joined, "pointwise"
    vocabulary = True
    surface = "normalize(weights)"
    samples = (("%z = normalize(%w)", [0.25, 0.75, 0.0]),)
    refusals = (("real[k]", "vocabulary"),)


@op("warp")
class Warp:
    """The request's constraints and shaping, applied to scores or to a mixed distribution. Operand at: where it stands
    (the second operand is nodes, the third their tree; else the committed context)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(
            len(types) == 1 or types[1].elem in ("node", "path", "tree"),
            f"at = needs the context or nodes of a tree, got {types[-1]}",
            "warp(scores, at = ctx)",
        )
        return (_over_vocab(types[0], "warp"),)

    @staticmethod
    def meaning(m: Machine, op: Op, s: Datum, *at: Datum) -> tuple[Datum, ...]:
        given = s if isinstance(s, Dist) else None
        a = array(m, s)
        paths = m.paths(at, a.shape[:-1]) if at else None
        rows = np.empty(a.shape[:-1], dtype=object)
        for n, i in enumerate(np.ndindex(rows.shape)):
            old = given.row_at(i) if given is not None else None
            path = paths[n] if paths is not None else (old.path if old is not None else m.context())
            rows[i] = m.warp_row(a[i], path, given is not None and given.face != "logits", old)
        return (Dist(rows, "shaped", given.at, given.inner) if given is not None else Dist(rows),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The request's shaping of a model's own scores, at its own place, is the model's distribution. That of the logarithms
        of its probabilities is if scores are these: a repetition penalty looks at the scores themselves."""
        scores, *at = op.operands
        row, place = k.of(scores), k.of(at[0]) if at else facts.Context(k.version)
        if isinstance(row, facts.Row) and place == facts.Context(row.version):
            if row.face == "logits" or row.face == "logs" and k.normalised():
                return facts.Row(row.model, row.version)
        return replace(row, face="mass") if facts.is_row(row, *facts.SCORES) else None

    label, batch = labels.joined, "pointwise"
    vocabulary = True
    samples = (
        ("%z = warp(%w)", ...),
        ("%z = warp(%q)", [1 / 6, 2 / 6, 3 / 6]),
    )
    refusals = (("real", "vocabulary"),)


@op("adjust")
class Adjust:
    """Scores with what the request asks of them before temperature and truncation (constraints, processors, penalties, bias),
    not normalised. Operand at: where they stand, as of `warp`."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        n = numeric(types[0])
        need(
            n.elem == "real" and bool(n.dims) and n.dims[-1].kind == "vocab",
            f"adjust needs scores over a vocabulary, got {types[0]}",
            "adjust(log(p.raw), at = n)",
        )
        need(
            len(types) > 1 and types[1].elem in ("node", "path", "tree"),
            "adjust needs the place of its scores",
            "adjust(scores, at = ctx)",
        )
        return (Type("real", (), n.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, s: Datum, *at: Datum) -> tuple[Datum, ...]:
        a = array(m, s)
        paths = m.paths(at, a.shape[:-1])
        out = np.empty(a.shape, dtype=a.dtype if a.dtype == object else np.float64)
        for n, i in enumerate(np.ndindex(a.shape[:-1])):
            out[i] = m.adjusted_row(a[i], paths[n])
        return (out,)

    label, batch = labels.joined, "pointwise"
    vocabulary = True
    samples = (("%z = adjust(%w, %ctx)", [1.0, 3.0, 0.0]),)
    refusals = (("real, node<ctx>", "vocabulary"), ("real[vocab.V]", "place"))


@op("lookup")
class Lookup:
    """p[x]: the entry of a token in each distribution (or in numbers over a vocabulary). Distributions and tokens line up
    by their dimensions; a single distribution serves every token and the other way round."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        p, x = numeric(types[0]), numeric(types[1])
        need(bool(p.dims) and p.dims[-1].kind == "vocab", f"[token] needs a distribution, got {types[0]}")
        need(
            x.elem in ("token", "int", "any"),
            f"a distribution is looked up by a token, got {types[1]}",
            "a condition selects with `where`" if x.elem == "bool" else "",
        )
        if x.elem == "token" and x.vocab and p.dims[-1].of and x.vocab != p.dims[-1].of:
            raise OpError(
                f"a token of vocabulary {x.vocab} looks into a distribution over {p.dims[-1].of}",
                "take models that share one vocabulary",
            )
        front = p.dims[:-1]
        long, short = (front, x.dims) if len(front) >= len(x.dims) else (x.dims, front)
        need(align(short, long) is not None, f"{types[0]} and {types[1]} do not line up")
        return (Type(p.elem, p.of, long),)

    @staticmethod
    def meaning(m: Machine, op: Op, p: Datum, x: Datum) -> tuple[Datum, ...]:
        tp, tx = op.operands[0].type, op.operands[1].type
        front = tp.dims if tp.elem in ("dist", "scores") else tp.dims[:-1]
        t = np.asarray(tokens_of(x))
        if isinstance(p, Dist):
            if p.shape == () and t.shape == ():
                return (p.row.face(p.face)[int(t)],)
            if p.shape == t.shape:
                out = [p.row_at(i).face(p.face)[int(t[i])] for i in np.ndindex(t.shape)]
                return (_packed(m, out, t.shape),)
        a = array(m, p)
        from decgraph.ir.ops.common import spread

        n = max(len(front), len(tx.dims))
        long = front if len(front) >= len(tx.dims) else tx.dims
        ta = spread(t, tx.dims, long) if t.shape else t
        shape = np.broadcast_shapes(spread(np.empty(a.shape[:-1]), front, long).shape if front else (), np.shape(ta))
        ix = np.broadcast_to(ta, shape)
        fa = a.reshape(spread(np.empty(a.shape[:-1]), front, long).shape + a.shape[-1:]) if front else a
        fa = np.broadcast_to(fa, shape + a.shape[-1:])
        del n
        return (_packed(m, [fa[i][int(ix[i])] for i in np.ndindex(shape)], shape),)

    label, batch = labels.elementwise, "pointwise"
    vocabulary = True
    samples = (
        ("%z = lookup(%q, %tok)", 1 / 3),
        ("%z = lookup(%qs, %tok)", [1 / 3, 2 / 7]),
        ("%z = lookup(%q, %toks)", [1 / 2, 1 / 6]),
        ("%z = lookup(%w, %x)", 3.0),
        ("%z = lookup(%m, %ds)", [1.0, 4.0]),
    )
    refusals = (
        ("real[k], token<V>", "distribution"),
        ("dist<V,shaped>, token<W>", "share one"),
        ("dist<V,shaped>, bool[k]", "where"),
    )


def _packed(m: Machine, values: Sequence[Number], shape: tuple[int, ...]) -> Datum:
    if m.num.exact:
        out = np.empty(len(values), dtype=object)
        for i, v in enumerate(values):
            out[i] = v
        return out.reshape(shape) if shape else out[0]
    return np.array(values).reshape(shape)[()]


@op("info")
class Info:
    """Entropy of each distribution, or the divergence kl(p, q), in nats. Attribute kind."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        n = numeric(types[0])
        for t in types:
            d = numeric(t)
            need(d.is_number and bool(d.dims) and d.dims[-1].kind == "vocab", f"{attrs['kind']} needs a distribution, got {t}")
            need(
                d.dims[-1].of == n.dims[-1].of,
                f"{attrs['kind']} of distributions over different vocabularies",
                "take models that share one vocabulary",
            )
        return (Type("real", (), n.dims[:-1]),)

    @staticmethod
    def meaning(m: Machine, op: Op, *ps: Datum) -> tuple[Datum, ...]:
        a = [array(m, p) for p in ps]
        return (m.num.entropy(a[0]) if op.attrs["kind"] == "entropy" else m.num.kl(*a),)

    attrs = ("kind",)
    label, batch = labels.elementwise, "pointwise"
    vocabulary = True
    surface = {"entropy(p)": {"kind": "entropy"}, "kl(p, q)": {"kind": "kl"}}
    samples = (
        ('%z = info(%q, kind = "entropy")', ...),
        ('%z = info(%q, %q, kind = "kl")', 0.0),
    )
    refusals = (
        ("real[k]", "distribution", {"kind": "entropy"}),
        ("dist<V,shaped>, int", "distribution", {"kind": "kl"}),
    )


@op("renorm")
class Renorm:
    """The k most probable tokens (attribute kind "topk"), or the smallest prefix with mass p ("topp"), renormalised."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need_one(types[1], "renorm")
        return (_over_vocab(types[0], "renorm"),)

    @staticmethod
    def meaning(m: Machine, op: Op, p: Datum, k: Datum) -> tuple[Datum, ...]:
        a = array(m, p)
        out = np.empty(a.shape, dtype=a.dtype if a.dtype == object else np.float64)
        for i in np.ndindex(a.shape[:-1]):
            order = [int(v) for v in m.num.order([a[i]], True)]
            if op.attrs["kind"] == "topk":
                keep = order[: as_int(k)]
            else:
                keep, mass = [], m.num.zero
                for v in order:
                    keep.append(v)
                    mass = mass + a[i][v]
                    if mass >= k:
                        break
            row = a[i] * 0
            row[keep] = a[i][keep]
            out[i] = row / row.sum()
        return (like(p, out),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Tokens without mass stay without; a nucleus with all of the mass is the distribution."""
        row = k.of(op.operands[0])
        if not facts.is_row(row, *facts.MASS):
            return None
        whole = op.attrs["kind"] == "topp" and k.const(op.operands[1]) == 1 and row.face != "mass"
        return row if whole else replace(row, face="mass")

    attrs = ("kind",)
    label, batch = labels.joined, "pointwise"
    vocabulary = True
    surface = {"renorm_topk(p, k)": {"kind": "topk"}, "renorm_topp(p, mass)": {"kind": "topp"}}
    samples = (
        ('%z = renorm(%q, %i, kind = "topk")', [0.0, 0.4, 0.6]),
        ('%z = renorm(%q, %r, kind = "topp")', [0.0, 0.0, 1.0]),
    )
    refusals = (("int, int", "vocabulary", {"kind": "topk"}),)


__all__ = ["Dim", "Draw", "Row", "like", "rows_from"]
