"""Noise and draws. A noise is named, not drawn: it is a function of the request's seed, its site and its counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from decgraph.errors import DecError
from decgraph.ir import facts, labels, sizes
from decgraph.ir.data.dist import Dist, Draw, Draws, NoiseKey, Path, Row, box, box0, token_of, tokens_of
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Arithmetic, Datum, Machine
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import as_int, need, need_one, numeric
from decgraph.ir.types import ANY, BOOL, NOISE, PROB, REAL, Dim, Type
from decgraph.ir.values import Op

NO_PLACE = "say which token it is: x ~ p as output(count(c.decided)), or shape a mixture at its place: warp(mixture, at = n)"
"""What to try where the `output` stream is read and nobody says at which index."""


def drawn(t: Type) -> Type:
    """The type of one draw from each distribution of type `t` (or from probabilities over a vocabulary)."""
    return Type("draw", t.of[:1], t.dims) if t.elem == "dist" else Type("draw", (t.dims[-1].of,), t.dims[:-1])


@op("noise")
class Noise:
    """A noise: attribute site (a source place that passes keep), kind "race", "unit" or "output". Operands: the counters
    of the enclosing loops, outermost first; for kind "output" at most the index (by default the row's position)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(attrs["kind"] in ("race", "unit", "output"), f"unknown noise {attrs['kind']}")
        return (NOISE,)

    @staticmethod
    def meaning(m: Machine, op: Op, *counters: int | np.ndarray) -> tuple[Datum, ...]:
        if op.attrs["kind"] == "output":
            return (NoiseKey("output", (), "output", counters[0] if counters else None),)
        return (NoiseKey(op.attrs["site"], tuple(as_int(c) for c in counters), op.attrs["kind"]),)

    attrs = ("kind", "site")
    label, batch = labels.joined, "pointwise"
    samples = (
        ('%z = noise(kind = "race", site = "f.0")', NoiseKey("f.0", ())),
        ('%z = noise(%i, kind = "output", site = "output")', NoiseKey("output", (), "output", 2)),
    )
    refusals = (("", "loud", {"kind": "loud", "site": "f.0"}),)


def need_dist(t: Type, what: str) -> None:
    """Raises OpError unless `t` is a distribution or numbers over a vocabulary."""
    hint = "turn scores into a distribution with softmax(...) or warp(...)" if t.is_number or t.elem == "scores" else ""
    need(
        t.elem == "dist" or (t.is_number and bool(t.dims) and t.dims[-1].kind == "vocab"),
        f"{what} needs a distribution, got {t}",
        hint,
    )


def rows_of(value: Datum) -> tuple[np.ndarray, str, np.ndarray | None, np.ndarray | None]:
    """Rows of a dist, or of an array of probabilities [*dims, V]; the face, and what axes 0 and 1 range over."""
    if isinstance(value, Dist):
        return value.rows, value.face, value.at, value.inner
    from decgraph.ir.data.dist import value_row

    a = np.asarray(value)
    rows = np.empty(a.shape[:-1], dtype=object)
    for i in np.ndindex(a.shape[:-1]):
        rows[i] = value_row(a[i])
    return rows, "shaped", None, None


def index_for(key: NoiseKey, i: tuple[int, ...], n: int) -> int | None:
    """The output index that element i of n dimensions reads: the given one, lined up with the leading dimensions."""
    if key.index is None:
        return None
    a = np.asarray(key.index)
    return int(a[i[: a.ndim]]) if a.ndim else int(a)


def _drawn(c: Checker, op: Op) -> list[Abs]:
    """A draw holds itself: its noise, which draws that share it tell of."""
    noise = next(v for v in op.operands if v.type.elem == "noise")
    made = c.producers.get(noise)
    if made is not None and made.attrs.get("kind") == "output":  # one stream, whatever reads it
        c.output = noise = c.output or noise
    return [Abs(c.reads(op), frozenset({(noise, None)}))]


@op("draw")
class DrawOp:
    """One draw from each distribution: the race argmin E_v / q_v with the noise. It is drawn from that distribution."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need_dist(types[0], "a draw")
        need(types[1].elem == "noise", "draw needs a noise")
        return (drawn(types[0]),)

    @staticmethod
    def meaning(m: Machine, op: Op, q: Datum, key: NoiseKey) -> tuple[Datum, ...]:
        rows, face, at, inner = rows_of(q)
        items = np.empty(rows.shape, dtype=object)
        for n, (i, row) in enumerate(np.ndenumerate(rows)):
            items[i] = m.draw(op, row, face, key, n, index_for(key, i, rows.ndim))
        return (Draws(items, at, inner=inner),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A draw of the model's distribution, its own where the noise is the `output` stream; of a computed one, a draft."""
        row, noise = k.of(op.operands[0]), op.operands[1]
        k.reads_noise(op, noise)
        if isinstance(row, facts.Row):
            if row.face != "shaped":
                return facts.Token(row.model, row.version, "inside") if row.face in facts.MASS else None
            if k.is_output(noise):
                return facts.Token(row.model, row.version, "own", frozenset({(noise, None)}))
            if k.fresh(op, noise) and row.version == k.version:
                return facts.Token(row.model, row.version, "drawn", frozenset({(noise, None)}))
            return facts.Token(row.model, row.version, "inside")
        if isinstance(row, facts.Rows) and row.all and k.is_output(noise):
            return facts.Tokens(row.model, row.tree)
        fresh = k.fresh(op, noise) and k.sums_to_one(op.operands[0])
        drafts = facts.Drafts(frozenset({(noise, None)})) if fresh else None
        if isinstance(row, facts.CellRows) and row.face in facts.MASS:
            return facts.CellTokens(row.model, row.canvas, row.at, drafts)
        return drafts

    label, batch, exact = _drawn, "pointwise", "choice"
    vocabulary = True
    samples = (
        ("%z = draw(%q, %g)", 2),
        ("%z = draw(%qs, %g)", [2, 2]),
        ("%z = draw(%at_t, %g)", [2, 2, 0, 0]),
    )
    refusals = (
        ("real[k], noise", "distribution"),
        ("scores<V>, noise", "softmax"),
    )


@op("draw.many")
class DrawMany:
    """k draws from each distribution, ordered: with replacement, or without (attribute replace), where a later one
    is drawn from the distribution less the earlier ones, renormalised, and at most the support's size are drawn."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need_dist(types[0], "sample")
        need_one(types[1], "sample")
        t = drawn(types[0])
        return (t.with_dims(t.dims + (Dim("k", "", attrs.get("bound")),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, q: Datum, k: Datum, key: NoiseKey) -> tuple[Datum, ...]:
        rows, face, at, inner = rows_of(q)
        k = max(0, as_int(k))
        groups = [m.draw_many(op, row, face, k, op.attrs["replace"], key, n) for n, row in enumerate(rows.ravel())]
        return (Draws(pad(groups, rows.shape, k), at, inner=inner),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        row, noise = k.of(op.operands[0]), op.operands[2]
        k.reads_noise(op, noise)
        after = (row.model, row.version) if isinstance(row, facts.Row) and row.face in facts.MASS else None
        fresh = k.fresh(op, noise) and k.sums_to_one(op.operands[0])
        return facts.Drafts(frozenset({(noise, None)}), after=after) if fresh else None

    attrs = ("replace", "bound?")
    label, batch, exact = _drawn, "ragged", "choice"
    capacity = sizes.widened
    vocabulary = True
    samples = (
        ("%z = draw.many(%q, %i, %g, replace = false, bound = 2)", [2, 1]),
        ("%z = draw.many(%w, %i, %g, replace = false, bound = 2)", [1, 0]),
        ("%z = draw.many(%qs, %i, %g, replace = true, bound = 2)", [[2, 1], [2, 0]]),
    )
    refusals = (("dist<V,shaped>, text, noise", "number", {"replace": True}),)


def pad(groups: Sequence[Sequence[object]], shape: tuple[int, ...], k: int) -> np.ndarray:
    """Groups of at most k as one object array [*shape, k]; short groups end in None."""
    out = np.empty((len(groups), k), dtype=object)
    for i, g in enumerate(groups):
        for j, x in enumerate(g[:k]):
            out[i, j] = x
    return out.reshape(shape + (k,))


@op("draw.race")
class DrawRace:
    """Every token of each distribution with its race key (truncated Gumbel): the order of keys is the order of sampling
    without replacement. Operand `under` (attribute has_under): no key exceeds the parent's, for stochastic beams."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need_dist(types[0], "race")
        t = drawn(types[0])
        if attrs.get("has_under"):
            need(
                types[2].is_number and len(types[2].dims) <= len(t.dims),
                f"under = needs the race key of each parent, got {types[2]}",
                "race(q, under = t.race[t.leaves])",
            )
        return (t.with_dims(t.dims + (Dim("k"),)),)  # tokens without mass have no key

    @staticmethod
    def meaning(m: Machine, op: Op, q: Datum, key: NoiseKey, under: Datum = None) -> tuple[Datum, ...]:
        rows, face, at, inner = rows_of(q)
        bounds = np.asarray(under, dtype=object).ravel() if under is not None else [None] * rows.size
        groups = [m.draw_race(op, row, face, key, n, bounds[n if len(bounds) > 1 else 0]) for n, row in enumerate(rows.ravel())]
        size = max((len(g) for g in groups), default=0)
        return (Draws(pad(groups, rows.shape, size), at, inner=inner),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        noise = op.operands[1]
        k.reads_noise(op, noise)
        good = k.fresh(op, noise) and k.sums_to_one(op.operands[0])
        return facts.Drafts(frozenset({(noise, None)}), race=True) if good else None

    attrs = ("has_under?",)
    label, batch, exact = _drawn, "ragged", "choice"
    vocabulary = True
    samples = (
        ("%z = draw.race(%q, %g)", [2, 1, 0]),
        ("%z = draw.race(%w, %g)", [1, 0, 2]),
    )
    refusals = (("int, noise", "distribution"),)


@op("draw.point")
class DrawPoint:
    """Tokens as draws from one-hot distributions (drafts without randomness). A number has to be a token of the vocabulary."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        need(t.elem in ("token", "int"), f"point needs tokens, got {types[0]}", "sample a distribution with ~ first")
        return (Type("draw", (t.vocab or attrs.get("vocab", "V"),), t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, tokens: Datum) -> tuple[Datum, ...]:
        a = np.asarray(tokens_of(tokens))
        if op.operands[0].type.elem == "int":
            must_be_tokens(a.ravel(), m.vocab_size)
        items = np.empty(a.shape, dtype=object)
        for i in np.ndindex(a.shape):
            items[i] = point(m, int(a[i]), tag=op.attrs.get("tag", ""))
        return (Draws(items),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact:
        tokens, points = k.of(op.operands[0]), facts.Drafts(facts.NONE)
        return replace(tokens, drafts=points) if isinstance(tokens, facts.CellTokens) else points

    attrs = ("tag?", "vocab?")
    label, batch = labels.certain, "pointwise"
    vocabulary = True
    surface = "point(token)"
    samples = (
        ("%z = draw.point(%toks)", [2, 0]),
        ("%z = draw.point(%i)", 2),
    )
    refusals = (("dist<V,shaped>", "sample"),)


@op("draw.stated")
class DrawStated:
    """Tokens that were drawn elsewhere, such as an inner decoder's, as draws: a token, or a vector or path of them, with the
    distribution that each was drawn from. That they were is the author's statement; the exact check follows every outcome of
    what made them, so that a wrong one is refuted."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0]) if types[0].elem != "path" else Type("token", types[0].of[:1], (Dim("k"),))
        hint = "drawn(xs, p[:len(xs)])"
        need(t.elem in ("token", "int"), f"drawn needs tokens and their distributions, got {types[0]} first", hint)
        need_dist(types[1], "drawn")
        q = drawn(types[1])
        if len(t.dims) > 1:  # brackets around what is one for every node already
            hint = "drawn(x, q), without brackets: x and q have a value for each node already"
        need(len(t.dims) == len(q.dims) <= 1, f"drawn needs a distribution for each token, got {types[0]} and {types[1]}", hint)
        return (q.with_dims(t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, tokens: Datum, q: Datum) -> tuple[Datum, ...]:
        given = tokens.tokens if isinstance(tokens, Path) else np.asarray(tokens_of(tokens)).ravel()
        rows, face, at, inner = rows_of(q)
        each_stated(len(given), rows.size)
        if op.operands[0].type.elem == "int":
            must_be_tokens(map(token_of, given), m.vocab_size)
        made = m.stated([token_of(x) for x in given], list(rows.ravel()), face)
        return (Draws(box(made).reshape(rows.shape), at, inner=inner),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return [Abs(c.of(op.operands[1]).reads, frozenset({(op.results[0], None)}))]

    batch = "ragged"
    vocabulary = True
    surface = "drawn(tokens, q)"
    samples = (
        ("%z = draw.stated(%tok, %q)", 1),
        ("%z = draw.stated(%ds, %qs)", [2, 0]),
        ("%z = draw.stated(%toks, %qs)", [2, 0]),
    )
    refusals = (
        ("dist<V,shaped>, dist<V,shaped>", "tokens"),
        ("token<V>, token<V>", "distribution"),
        ("token<V>[k], dist<V,shaped>", "for each"),
    )


def each_stated(tokens: int, laws: int) -> None:
    """Raises DecError unless there is a distribution for each token."""
    if tokens != laws:
        raise DecError(f"drawn got {tokens} tokens and {laws} distributions", hint="one for each: drawn(xs, p[:len(xs)])")


def must_be_tokens(numbers: Iterable[int], size: int) -> None:
    """Raises DecError unless numbers are tokens of a vocabulary of that size."""
    for n in numbers:
        if not 0 <= n < size:
            raise DecError(f"{n} is no token: the vocabulary has {size} tokens", hint=f"a number in 0..{size - 1}")


def point(m: Arithmetic, token: int, source: Row | None = None, tag: str = "") -> Draw:
    """A draw that is certain: its distribution is one-hot on `token`."""
    size = m.vocab_size
    row = Row(
        lambda face: m.num.onehot(token, size),
        node=source.node if source else None,
        position=source.position if source else None,
    )
    return Draw(token, row, "raw", source=source or row, point=True, tag=tag)


def law_row(d: Draw) -> Row:
    """The distribution of a draw as a row of its own, the same raw and shaped."""
    return Row(lambda face: d.law_vector(), node=d.law.node, position=d.law.position)


@op("draw.get")
class DrawGet:
    """A field of draws: token, law (the distribution that it was drawn from), prob (of the token, not
    shaped by the request), race, point."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "draw", f".{attrs['field']} needs draws, got {types[0]}")
        v, dims = types[0].of, types[0].dims
        return (
            {
                "token": Type("token", v, dims),
                "law": Type("dist", v + ("shaped",), dims),
                "prob": Type("prob", (), dims),
                "race": Type("real", (), dims),
                "point": Type("bool", (), dims),
            }[attrs["field"]],
        )

    @staticmethod
    def meaning(m: Machine, op: Op, x: Draws | Draw) -> tuple[Datum, ...]:
        field = op.attrs["field"]
        if isinstance(x, Draw):
            x = Draws(box0(x))
        if field == "token":
            return (x.tokens(),)
        if field == "law":
            rows = np.empty(x.shape, dtype=object)
            for i, d in np.ndenumerate(x.items):
                rows[i] = law_row(d)
            return (Dist(rows, "shaped", x.at, x.inner),)
        values = np.empty(x.shape, dtype=object)
        for i, d in np.ndenumerate(x.items):
            if d is None:  # nothing was left to draw
                values[i] = {"prob": m.num.zero, "race": -m.num.inf, "point": False}[field]
            elif field == "prob":
                values[i] = d.source.face("raw")[d.token]
            else:
                values[i] = d.race if field == "race" else d.point
        if field == "point":
            return (values.astype(bool),)
        return (m.num.lift(values) if m.num.exact else values.astype(np.float64),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        x = c.of(op.operands[0])
        return [Abs(x.dep if op.attrs["field"] in ("law", "point") else x.reads)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        known = k.of(op.operands[0])
        kept = isinstance(known, facts.Token | facts.Tokens | facts.CellTokens | facts.Picked)
        return known if op.attrs["field"] == "token" and kept else None

    attrs = ("field",)
    batch = "pointwise"
    vocabulary = True
    samples = (
        ('%z = draw.get(%ds, field = "token")', [2, 0]),
        ('%z = draw.get(%ds, field = "prob")', [0.25, 0.5]),
        ('%z = draw.get(%x, field = "law")', [0.5, 0.25, 0.25]),
        ('%z = draw.get(%ds, field = "point")', [False, False]),
        ('%z = draw.get(%ds, field = "race")', [-1.0, -1.0]),
    )
    refusals = (("token<V>", "draws", {"field": "law"}),)


@op("bernoulli")
class Bernoulli:
    """True with the given probability, clamped to [0, 1]."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].is_number, f"bernoulli needs a probability, got {types[0]}")
        return (Type("bool", (), types[0].dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, p: Datum, key: NoiseKey) -> tuple[Datum, ...]:
        a = np.asarray(p)
        if a.shape == ():
            return (m.flip(op, a.item(), key, 0),)
        return (np.array([m.flip(op, v, key, n) for n, v in enumerate(a.ravel())], dtype=bool).reshape(a.shape),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> None:
        k.reads_noise(op, op.operands[1])

    label, batch, exact = labels.joined, "pointwise", "choice"
    samples = (
        ("%z = bernoulli(%r, %g)", True),
        ("%z = bernoulli(%rs, %g)", [True] * 3),
    )
    refusals = (("text, noise", "probability"),)


@op("beta")
class Beta:
    """A Beta(a, b) variable, known only through `bernoulli`."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].is_number and types[1].is_number and not types[0].dims and not types[1].dims, "beta needs two numbers")
        return (PROB,)

    @staticmethod
    def meaning(m: Machine, op: Op, a: Datum, b: Datum, key: NoiseKey) -> tuple[Datum, ...]:
        return (m.beta(op, a, b, key),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> None:
        for v in op.operands:
            if v.type.elem == "noise":
                k.reads_noise(op, v)

    label, batch, exact = labels.joined, "pointwise", "choice"
    samples = (("%z = beta(%i, %i, %g)", 0.5),)
    refusals = (("bool, int, noise", "numbers"),)


__all__ = ["ANY", "BOOL", "NO_PLACE", "NoiseKey", "REAL", "index_for", "pad", "point", "rows_of"]
