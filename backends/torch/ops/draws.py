"""Lowerings of ir/ops/draws.py: draws are races over keyed noise."""

from __future__ import annotations

from math import prod

import numpy as np

from decgraph.backends.torch import noise as stream
from decgraph.backends.torch.data import array, host
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws, points
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.ops.distributions import dist_of, tensor_of
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows, TorchDist
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchPath
from decgraph.errors import DecError
from decgraph.ir.ops.draws import NoiseKey, each_stated, index_for, must_be_tokens
from decgraph.ir.values import Op
from decgraph.runtime import noise as runtime_noise


@lowering("noise")
def noise(m: Machine, *counters: int, kind: str, site: str) -> NoiseKey:
    """The key of a draw's noise; nothing is drawn yet."""
    if kind == "output":
        return NoiseKey("output", (), "output", counters[0] if counters else None)
    return NoiseKey(site, tuple(map(int, counters)), kind)


def as_dist(m: Machine, q: object) -> TorchDist:
    """A dist, or probabilities [*dims, V] as one."""
    return q if isinstance(q, TorchDist) else dist_of(m, tensor_of(q))


def place_of(q: TorchDist, n: int) -> tuple[int | None, int | None]:
    """(position, node) of row n of a flattened dist."""
    r = int(q.index.reshape(-1)[n])
    rows = q.rows
    return (None if rows.positions is None else rows.positions[r], None if rows.nodes is None else rows.nodes[r])


class _Keys:
    """The Philox keys of a draw's rows, computed when a race needs them."""

    def __init__(self, m: Machine, q: TorchDist, key: NoiseKey) -> None:
        self.m, self.q, self.key = m, q, key
        self.shape = q.shape

    def __getitem__(self, n: int) -> runtime_noise.Key:
        i = tuple(int(x) for x in np.unravel_index(n, self.shape)) if self.shape else ()
        position, node = place_of(self.q, n)
        return self.m.key(self.key, (n,), position, node, index_for(self.key, i, len(self.shape)))


@lowering("draw")
def draw(m: Machine, q: object, key: NoiseKey) -> TorchDraws:
    """One draw from each distribution. Where a distribution is one-hot its token wins whatever the noise."""
    if not isinstance(q, TorchDist):
        q = as_dist(m, q)
    ones = q.points()
    if ones is not None and (type(q.rows) is Rows or bool((ones >= 0).all())):
        return TorchDraws(np.asarray(ones), q.rows, q.index, q.face, at=q.at, inner=q.inner)
    vectors = fetched(q.vector())
    tokens = stream.races(vectors.reshape(-1, vectors.shape[-1]), _Keys(m, q, key)).reshape(q.shape)  # type: ignore[arg-type]
    return TorchDraws(tokens, q.rows, q.index, q.face, at=q.at, inner=q.inner)


@lowering("draw.many")
def draw_many(m: Machine, q: object, k: int, key: NoiseKey, *, replace: bool) -> TorchDraws:
    """k draws from each distribution, with or without replacement; short groups end in -1."""
    q, k = as_dist(m, q), max(0, int(k))
    vectors = fetched(q.vector()).reshape(prod(q.shape), int(q.rows.size))
    n = len(vectors)
    if replace:
        places = [place_of(q, i) for i in range(n)] if k else []
        lanes = [m.key(key, (i, j), *place) for i, place in enumerate(places) for j in range(k)]
        tokens = stream.races(np.repeat(vectors, k, axis=0), lanes).reshape(n, k) if lanes else np.zeros((n, k), dtype=np.int64)
    else:
        keys = _Keys(m, q, key)
        tokens = stream.first_arrivals(vectors, [keys[i] for i in range(n)], k)
    shape = (*q.shape, k)
    row = np.broadcast_to(q.index[..., None], shape)
    rank = None if replace else np.broadcast_to(np.arange(k), shape)
    group = None if replace else np.broadcast_to(np.arange(n).reshape(q.shape)[..., None], shape)
    return TorchDraws(
        tokens.reshape(shape),
        q.rows,
        row,
        q.face,
        rank=rank,
        group=group,
        members=None if replace else tokens,
        at=q.at,
        inner=q.inner,
    )


def above(q: TorchDist, n: int) -> float:
    """The log-probability of the path to the node that row n of a dist was evaluated at, by the dist's own view."""
    tree = q.rows.tree
    if tree is None or q.rows.nodes is None:
        return 0.0
    total = 0.0
    with np.errstate(divide="ignore"):
        for node in tree.path_nodes(int(q.rows.nodes[int(q.index.reshape(-1)[n])]))[1:]:
            total += float(np.log(tree.draw(node).prob(q.face)))
    return total


@lowering("draw.race")
def draw_race(m: Machine, q: object, key: NoiseKey, under: object = None) -> TorchDraws:
    """Every token of each distribution in the order of its race key."""
    q = as_dist(m, q)
    vectors = fetched(q.vector()).reshape(-1, int(q.rows.size))
    n, keys = len(vectors), _Keys(m, q, key)
    bounds = np.asarray(under, dtype=np.float64).ravel() if under is not None else None
    groups, races = [], []
    with np.errstate(divide="ignore"):
        for i in range(n):
            times = stream.exponentials([keys[i]], vectors.shape[-1])[0]
            race = runtime_noise.race_keys(np.log(vectors[i]) + above(q, i), times)
            if bounds is not None:
                race = runtime_noise.under(race, float(bounds[i if len(bounds) > 1 else 0]))
            order = runtime_noise.race_order(race, len(race))
            groups.append(order)
            races.append(race[order])
    size = max((len(g) for g in groups), default=0)
    tokens, raced = np.full((n, size), -1, dtype=np.int64), np.full((n, size), -np.inf)
    for i, (g, r) in enumerate(zip(groups, races, strict=True)):
        tokens[i, : len(g)], raced[i, : len(g)] = g, r
    shape = (*q.shape, size)
    return TorchDraws(
        tokens.reshape(shape),
        q.rows,
        np.broadcast_to(q.index[..., None], shape),
        q.face,
        rank=np.broadcast_to(np.arange(size), shape),
        group=np.broadcast_to(np.arange(n).reshape(q.shape)[..., None], shape),
        members=tokens,
        race=raced.reshape(shape),
        at=q.at,
        inner=q.inner,
    )


@lowering("draw.point")
def draw_point(m: Machine, tokens: object, *, tag: str = "", numbers: bool = False) -> TorchDraws:
    """Certain drafts."""
    found = array(tokens)
    if numbers:
        must_be_tokens(found.ravel().tolist(), m.vocab_size)
    return points(found, tag=tag)


@lowering("draw.stated")
def draw_stated(m: Machine, tokens: object, q: object, *, numbers: bool = False) -> TorchDraws:
    """Tokens with the distributions that they are said to be drawn from."""
    q, given = as_dist(m, q), np.ravel(np.asarray(tokens.tokens if isinstance(tokens, TorchPath) else host(tokens)))
    each_stated(len(given), q.index.size)
    if numbers:
        must_be_tokens(given.tolist(), m.vocab_size)
    return TorchDraws(given.astype(np.int64).reshape(q.shape), q.rows, q.index, q.face, at=q.at, inner=q.inner)


@lowering("draw.get")
def draw_get(m: Machine, x: Draws, *, field: str) -> object:
    """A field of draws."""
    if field == "token":
        return host(x)
    if field == "law":
        return x.law(m.request, m.vocab_size)
    if field == "prob":
        out = np.asarray(x.prob())
    elif field == "race":
        out = np.asarray(x.race)
    else:
        flags = [d.point for d in x.items] if isinstance(x, Mixed) else np.full(x.shape, x.point)
        out = np.asarray(flags, dtype=bool) & (x.tokens >= 0)
    return out if out.ndim else out.item()


def flip(m: Machine, p: float, key: NoiseKey, lane: int) -> bool:
    """True with probability p. Certain outcomes read no noise: the uniform is never 0 and never 1.
    Raises DecError for a NaN."""
    if p != p:
        raise DecError("bernoulli of NaN (0 / 0)")
    if p >= 1:
        return True
    return p > 0 and stream.unit(m.key(key, (lane,))) < p


@lowering("bernoulli")
def bernoulli(m: Machine, p: object, key: NoiseKey) -> object:
    """True with the given probability."""
    a = array(p)
    if a.ndim == 0:
        return m.flip(float(a), key, 0)
    return np.array([m.flip(float(v), key, n) for n, v in enumerate(a.ravel())], dtype=bool).reshape(a.shape)


def law(m: Machine, x: Draws) -> TorchDist:
    """The distribution that each draw was taken from."""
    return x.law(m.request, m.vocab_size)


def drawn_beta(m: Machine, op: Op, a: float, b: float, key: NoiseKey) -> float:
    """A draw from Beta(a, b) with the noise of a key."""
    w = runtime_noise.words(m.key(key, ()), 4)
    return float(np.random.Generator(np.random.Philox(key=[int(w[0]), int(w[1])])).beta(float(a), float(b)))


on_host("beta", why="it is one number, drawn on the host")
