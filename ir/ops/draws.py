"""Noise and draws. A noise is named, not drawn: it is a function of the request's seed, its site and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from decgraph.ir.data.dist import Dist, Draw, Draws, Row, box0, tokens_of
from decgraph.ir.ops.common import as_int, need, need_one, numeric
from decgraph.ir.table import op
from decgraph.ir.types import ANY, BOOL, NOISE, PROB, REAL, Dim, Type

NO_PLACE = "say which token it is: x ~ p as output(count(c.decided)), or give a mixture its place: warp(weights, at = n)"
"""What to try where the `output` stream is read and nobody says at which index."""


@dataclass(frozen=True)
class NoiseKey:
    """Which noise: a site with its loop counters, or the `output` stream at an index (None: the row's own position)."""

    site: str
    counters: tuple[int, ...]
    kind: str = "race"
    index: Any = None


def drawn(t: Type) -> Type:
    """The type of one draw from each distribution of type `t` (or from probabilities over a vocabulary)."""
    return Type("draw", t.of[:1], t.dims) if t.elem == "dist" else Type("draw", (t.dims[-1].of,), t.dims[:-1])


@op("noise")
class Noise:
    """A noise: attribute site (a source place that passes keep), kind "race", "unit" or "output". Operands: the counters
    of the enclosing loops, outermost first; for kind "output" at most the index (by default the row's position)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(attrs["kind"] in ("race", "unit", "output"), f"unknown noise {attrs['kind']}")
        return (NOISE,)

    def meaning(m: Any, op: Any, *counters: Any) -> Any:
        if op.attrs["kind"] == "output":
            return (NoiseKey("output", (), "output", counters[0] if counters else None),)
        return (NoiseKey(op.attrs["site"], tuple(as_int(c) for c in counters), op.attrs["kind"]),)

    attrs = ("kind", "site")
    label, batch = "none", "pointwise"


def need_dist(t: Type, what: str) -> None:
    hint = "turn scores into a distribution with softmax(...) or warp(...)" if t.is_number or t.elem == "scores" else ""
    need(
        t.elem == "dist" or (t.is_number and bool(t.dims) and t.dims[-1].kind == "vocab"),
        f"{what} needs a distribution, got {t}",
        hint,
    )


def rows_of(value: Any) -> tuple[np.ndarray, str, np.ndarray | None, np.ndarray | None]:
    """Rows of a dist, or of an array of probabilities [*dims, V]; the face, and what axes 0 and 1 range over."""
    if isinstance(value, Dist):
        return value.rows, value.face, value.at, value.inner
    from decgraph.ir.data.dist import value_row

    a = np.asarray(value)
    rows = np.empty(a.shape[:-1], dtype=object)
    for i in np.ndindex(a.shape[:-1]):
        rows[i] = value_row(a[i])
    return rows, "shaped", None, None


def index_for(key: NoiseKey, i: tuple[int, ...], n: int) -> Any:
    """The output index that element i of n dimensions reads: the given one, lined up with the leading dimensions."""
    if key.index is None:
        return None
    a = np.asarray(key.index)
    return int(a[i[: a.ndim]]) if a.ndim else int(a)


@op("draw")
class DrawOp:
    """One draw from each distribution: the race argmin E_v / q_v with the noise. The law is the distribution."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need_dist(types[0], "a draw")
        need(types[1].elem == "noise", "draw needs a noise")
        return (drawn(types[0]),)

    def meaning(m: Any, op: Any, q: Any, key: NoiseKey) -> Any:
        rows, face, at, inner = rows_of(q)
        items = np.empty(rows.shape, dtype=object)
        for n, i in enumerate(np.ndindex(rows.shape)):
            items[i] = m.draw(op, rows[i], face, key, n, index_for(key, i, rows.ndim))
        return (Draws(items, at, inner=inner),)

    label, batch, exact = "draw", "pointwise", "choice"


@op("draw.many")
class DrawMany:
    """k draws from each distribution, ordered: with replacement, or without (attribute replace), where the law of a later
    one is the distribution less the earlier ones, renormalised, and at most the support's size are drawn."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need_dist(types[0], "sample")
        need_one(types[1], "sample")
        t = drawn(types[0])
        return (t.with_dims(t.dims + (Dim("k", "", attrs.get("bound")),)),)

    def meaning(m: Any, op: Any, q: Any, k: Any, key: NoiseKey) -> Any:
        rows, face, at, inner = rows_of(q)
        k = max(0, as_int(k))
        groups = [m.draw_many(op, rows[i], face, k, op.attrs["replace"], key, n) for n, i in enumerate(np.ndindex(rows.shape))]
        return (Draws(pad(groups, rows.shape, k), at, inner=inner),)

    attrs = ("replace", "bound?")
    label, batch, exact = "draw", "ragged", "choice"


def pad(groups: list[list[Any]], shape: tuple[int, ...], k: int) -> np.ndarray:
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

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need_dist(types[0], "race")
        t = drawn(types[0])
        return (t.with_dims(t.dims + (Dim("vocab", t.vocab),)),)

    def meaning(m: Any, op: Any, q: Any, key: NoiseKey, under: Any = None) -> Any:
        rows, face, at, inner = rows_of(q)
        bounds = np.asarray(under, dtype=object).ravel() if under is not None else [None] * rows.size
        groups = [
            m.draw_race(op, rows[i], face, key, n, bounds[n if len(bounds) > 1 else 0])
            for n, i in enumerate(np.ndindex(rows.shape))
        ]
        size = max((len(g) for g in groups), default=0)
        return (Draws(pad(groups, rows.shape, size), at, inner=inner),)

    attrs = ("has_under?",)
    label, batch, exact = "draw", "ragged", "choice"


@op("draw.point")
class DrawPoint:
    """Tokens as draws whose law is the point mass on them (drafts without randomness)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = numeric(types[0])
        need(t.elem in ("token", "int"), f"point needs tokens, got {types[0]}", "sample a distribution with ~ first")
        return (Type("draw", (t.vocab or attrs.get("vocab", "V"),), t.dims),)

    def meaning(m: Any, op: Any, tokens: Any) -> Any:
        a = np.asarray(tokens_of(tokens))
        items = np.empty(a.shape, dtype=object)
        for i in np.ndindex(a.shape):
            items[i] = point(m, int(a[i]), tag=op.attrs.get("tag", ""))
        return (Draws(items),)

    attrs = ("tag?", "vocab?")
    label, batch = "point", "pointwise"


def point(m: Any, token: int, source: Row | None = None, tag: str = "") -> Draw:
    """A draw that is certain: its law is the point mass on `token`."""
    size = m.vocab_size
    row = Row(
        lambda face: m.num.onehot(token, size),
        node=source.node if source else None,
        position=source.position if source else None,
    )
    return Draw(token, row, "raw", source=source or row, point=True, tag=tag)


def law_row(d: Draw) -> Row:
    """The law of a draw as a row of its own: every face is the law."""
    return Row(lambda face: d.law_vector(), node=d.law.node, position=d.law.position)


@op("draw.get")
class DrawGet:
    """A field of draws: token, law (a dist), prob (of the token under the law's raw face), race, point."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
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

    def meaning(m: Any, op: Any, x: Any) -> Any:
        field = op.attrs["field"]
        if isinstance(x, Draw):
            x = Draws(box0(x))
        if field == "token":
            return (x.tokens(),)
        if field == "law":
            rows = np.empty(x.shape, dtype=object)
            for i in np.ndindex(x.shape):
                d = x.items[i]
                rows[i] = law_row(d)
            return (Dist(rows, "shaped", x.at, x.inner),)
        values = np.empty(x.shape, dtype=object)
        for i in np.ndindex(x.shape):
            d = x.items[i]
            if d is None:  # nothing was left to draw
                values[i] = {"prob": m.num.zero, "race": -m.num.inf, "point": False}[field]
            else:
                values[i] = d.source.face("raw")[d.token] if field == "prob" else getattr(d, field)
        if field == "point":
            return (values.astype(bool),)
        return (m.num.lift(values) if m.num.exact else values.astype(np.float64),)

    attrs = ("field",)
    label, batch = "law", "pointwise"


@op("bernoulli")
class Bernoulli:
    """True with the given probability, clamped to [0, 1]."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(types[0].is_number, f"bernoulli needs a probability, got {types[0]}")
        return (Type("bool", (), types[0].dims),)

    def meaning(m: Any, op: Any, p: Any, key: NoiseKey) -> Any:
        a = np.asarray(p)
        if a.shape == ():
            return (m.flip(op, a[()], key, 0),)
        return (np.array([m.flip(op, v, key, n) for n, v in enumerate(a.ravel())], dtype=bool).reshape(a.shape),)

    label, batch, exact = "draw", "pointwise", "choice"


@op("beta")
class Beta:
    """A Beta(a, b) variable, known only through `bernoulli`."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(types[0].is_number and types[1].is_number and not types[0].dims and not types[1].dims, "beta needs two numbers")
        return (PROB,)

    def meaning(m: Any, op: Any, a: Any, b: Any, key: NoiseKey) -> Any:
        return (m.beta(op, a, b, key),)

    label, batch, exact = "draw", "pointwise", "choice"


__all__ = ["ANY", "BOOL", "NO_PLACE", "NoiseKey", "REAL", "index_for", "pad", "point", "rows_of"]
