"""Noise and draws: races over rows, and what draws carry of their laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton import noise
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.distributions import as_dist, dist_of, flat_index, normalized, numbered, placed
from decgraph.backends.triton.ops.nodes import reachable
from decgraph.backends.triton.ops.numbers import live_of, made, reordered, take
from decgraph.backends.triton.ops.sequences import lifted, one_draws, pick
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Law, Nodes, Noise, Path, Tree, Vec, is_static


@step("noise")
def key(s: Any, op: Any, *counters: Any) -> Noise:
    """A noise key; nothing is drawn yet."""
    if op.attrs["kind"] == "output":
        return Noise("output", "output", (), counters[0] if counters else None)
    return Noise(op.attrs["kind"], op.attrs["site"], tuple(counters))


@joins(Noise)
def join_keys(s: Any, lanes: Tensor, a: Noise, b: Noise) -> Noise:
    """One of two keys of one site. lanes: bool[B]."""
    if a.site != b.site or len(a.counters) != len(b.counters):
        raise NotSteppable("noise of one of two sites", s.place)
    index = None if a.index is None and b.index is None else s.join(lanes, a.index, b.index)
    return replace(a, counters=tuple(s.join(lanes, x, y) for x, y in zip(a.counters, b.counters, strict=True)), index=index)


def _flat(s: Any, q: Dist) -> Tensor:
    """Probabilities [B, n, V] of the rows of a dist, in its view."""
    s.require_mass(q)
    values = take(s, s.lanes(s.view(q.rows, q.face)), flat_index(q))
    return values


def shaped(q: Dist, a: Tensor, *more: int) -> Tensor:
    """[B, n, *more] in the shape of a dist."""
    return a.reshape(int(a.shape[0]), *q.shape, *more)


@step("draw")
def draw(s: Any, op: Any, q: Any, key: Noise) -> Draws:
    """One draw from each distribution."""
    q = as_dist(s, q)
    probs = _flat(s, q)
    n = int(probs.shape[1])
    numbers = drafted_rows(s, q, n) if key.kind != "output" else None if key.index is None else numbered(s, q)
    words = s.noise_words(
        key,
        n,
        placed(s, q) if key.kind == "output" and key.index is None else None,
        None if numbers is None else [numbers],
        q.live,
    )
    tokens = s.draw(probs, words, q.live)
    return Draws(shaped(q, tokens), (Law(q.rows, q.face),), q.index, at=q.at, live=q.live, inner=q.inner)


def drafted_rows(s: Any, q: Dist, n: int) -> Tensor | None:
    """int64[B, n]: rows by the numbers that they have in a driver's draws, where nodes that it does not draft have none; None:
    those that they have here."""
    t, nodes = q.rows.tree, q.rows.nodes
    if n < 2 or not isinstance(t, Tree) or nodes is None or "ends" not in t.until:
        return None
    useful = reachable(s, t)
    if useful is None:
        return None
    there = take(s, take(s, s.lanes(useful), _ids(nodes)), flat_index(q))
    if q.live is not None:
        there = (there.reshape(len(there), q.live.shape[1], -1) & q.live[..., None]).flatten(1)
    return (there.long().cumsum(1) - 1).clamp(min=0)


def _rows(q: Dist, k: int) -> Any:
    """The row of k draws from each distribution."""
    if isinstance(q.index, Tensor):
        return q.index[..., None].expand(*q.index.shape, k)
    return np.broadcast_to(q.index[..., None], (*q.shape, k))


@step("draw.many")
def draw_many(s: Any, op: Any, q: Any, k: Any, key: Noise) -> Draws:
    """k draws from each distribution, with replacement or without."""
    q, key = as_dist(s, q), replace(key, index=None)
    probs = _flat(s, q)
    most = counted(s, op, k, 2**31 if op.attrs["replace"] else int(probs.shape[2]))
    n, size = int(probs.shape[1]), int(probs.shape[2])
    if op.attrs["replace"]:
        second = np.arange(n * most) % max(1, most)
        where = placed(s, q)
        where = None if where is None else where.repeat_interleave(most, 1)
        rows = drafted_rows(s, q, n)
        rows = s.constant(np.arange(n * most) // max(1, most))[None] if rows is None else rows.repeat_interleave(most, 1)
        words = s.noise_words(key, n * most, where, [rows, s.constant(second)[None]])
        tokens = s.draw(probs.repeat_interleave(most, 1), words, q.live)
        out = Draws(shaped(q, tokens, most), (Law(q.rows, q.face),), _rows(q, most), at=q.at, live=q.live)
    else:
        most = min(most, size)
        keys = noise.race_keys(torch.log(probs.double()), noise.uniforms(row_words(s, q, key, n), size))
        out = _without(s, q, keys, most)
    if is_static(k):
        return out
    if q.shape:
        raise NotSteppable("a number of draws of several rows that depends on data", op)
    return replace(out, live=s.steps(int(out.tokens.shape[1])) < s.lanes(k)[:, None])


def row_words(s: Any, q: Dist, key: Noise, n: int) -> tuple[Tensor, ...]:
    """The words of the noise of n rows of a dist. int64[B, n] each."""
    rows = None if key.kind == "output" else drafted_rows(s, q, n)
    out: tuple[Tensor, ...] = s.noise_words(key, n, placed(s, q), None if rows is None else [rows])
    return out


def counted(s: Any, op: Any, k: Any, size: int) -> int:
    """The most that a number of draws or tokens can be. Raises NotSteppable where it is not known."""
    if is_static(k):
        return int(k)
    known = [n for n in (op.attrs.get("bound"), s.most(op.operands[1])) if isinstance(n, int)]
    if not known:
        raise NotSteppable("a number of draws that depends on data", op)
    return max(0, min(*known, size) if len(known) > 1 else min(known[0], size))


def _without(s: Any, q: Dist, keys: Tensor, k: int, race: bool = False) -> Draws:
    """The first k of each race float64[B, n, V]: draws without replacement."""
    values, tokens = ordered(keys, k)
    tokens = torch.where(values > -torch.inf, tokens, -1)
    n = int(tokens.shape[1])
    if isinstance(q.index, np.ndarray) and q.rows.count == n and bool((q.index.reshape(-1) == np.arange(n)).all()):
        law, row = Law(q.rows, q.face, tokens), _rows(q, k)
    else:  # the rows that were drawn from, as rows of their own
        copied = as_dist(s, dist_of(s, _flat(s, q)))
        copied.rows.positions = placed(s, q)
        if q.face == "shaped":
            copied.rows.faces["raw"] = take(s, s.lanes(s.view(q.rows, "raw")), flat_index(q))
        index = np.arange(n).reshape(q.shape)
        law, row = Law(copied.rows, q.face, tokens), np.broadcast_to(index[..., None], (*q.shape, k))
    rank = np.broadcast_to(np.arange(k), (*q.shape, k))
    keys = shaped(q, values, k) if race else None
    return Draws(shaped(q, tokens, k), (law,), row, rank, race=keys, at=q.at, live=q.live)


def ordered(keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest keys [..., k] and where they are; of equals the first comes first, and what is no number is -inf."""
    keys, size = torch.where(torch.isnan(keys), -torch.inf, keys), int(keys.shape[-1])
    if not 0 < 8 * k < size:
        values, order = torch.sort(keys, dim=-1, descending=True, stable=True)
        return values[..., :k], order[..., :k]
    # A sort of a whole vocabulary takes longer: those above the k-th, and of its equals the first, are sorted alone.
    least = keys.topk(k).values[..., -1:]
    place = torch.where(keys > least, 2 * size, torch.where(keys == least, size, 0)) - torch.arange(size, device=keys.device)
    at = place.topk(k).indices
    values, order = torch.sort(keys.gather(-1, at), dim=-1, descending=True, stable=True)
    return values, at.gather(-1, order)


@step("draw.race")
def draw_race(s: Any, op: Any, q: Any, key: Noise, under: Any = None) -> Draws:
    """Tokens of each distribution in the order of their race keys: as many as the program selects."""
    q = as_dist(s, q)
    k = min(selected(s, op), q.rows.size)
    probs = _flat(s, q)
    n, size = int(probs.shape[1]), int(probs.shape[2])
    log_q = torch.log(probs.double())
    if isinstance(q.rows.tree, Tree) and q.rows.nodes is not None:
        above = take(s, path_logs(s, q.rows.tree, q.face), _ids(q.rows.nodes))
        log_q = log_q + take(s, s.lanes(above), flat_index(q))[..., None]
    keys = noise.race_keys(log_q, noise.uniforms(row_words(s, q, key, n), size))
    if under is not None:
        ceiling = s.tensor(under)
        ceiling = ceiling.flatten(1) if ceiling.ndim > 1 else ceiling[:, None]
        keys = noise.under(keys, ceiling[..., None].expand(-1, n, -1))
    return _without(s, q, keys, k, race=True)


def _ids(nodes: Any) -> Any:
    return nodes.ids if isinstance(nodes, Nodes) else nodes


def selected(s: Any, op: Any) -> int:
    """The most draws that the program selects by race. Raises NotSteppable where they are used otherwise."""
    every = [o for o in s.function.body.walk() if o.opcode == "select.top" and o.attrs.get("by_race")]
    sizes = [s.env.get(o.operands[1], o.attrs.get("bound")) for o in every]
    if not sizes:
        return int(s.vocab_size)  # the keys themselves are used
    if not all(is_static(n) and n is not None for n in sizes):
        raise NotSteppable("a race whose whole order is used", op)
    return max(int(n) for n in sizes)


def path_logs(s: Any, tree: Tree, face: str) -> Tensor:
    """float64[B, N]: the log-probability, in a view, of the path to every node."""
    out = s.lanes(s.constant(np.zeros((1, tree.size))))
    if tree.edges is None:
        return out
    own = torch.cat([out[:, :1], torch.log(probs_of(s, tree.edges, face))], 1)
    up = s.lanes(tree.parent if isinstance(tree.parent, Tensor) else s.constant(tree.parent)[None])
    return along(own, up, tree.height)


def along(own: Tensor, up: Tensor, height: int) -> Tensor:
    """Sums [B, N] of a column along the paths from the root, each added to that of the node above, so that equal ones are equal
    to the last bit; the root's own entry must be 0."""
    total = own
    for _ in range(height - 1):
        total = total.gather(1, up) + own
    return total


@step("draw.point")
def draw_point(s: Any, op: Any, tokens: Any) -> Draws:
    """Tokens as draws that are certain."""
    live = live_of(tokens)
    return Draws(s.lanes(tokens).long(), point=True, live=live)


@step("draw.stated")
def draw_stated(s: Any, op: Any, tokens: Any, q: Any) -> Draws:
    """Tokens that were drawn elsewhere, each with its distribution."""
    q = as_dist(s, q)
    if isinstance(tokens, Path):
        n = int(tokens.tokens.shape[1])
        tokens = Vec(tokens.tokens, s.steps(n) < tokens.length[:, None])
    t = s.lanes(tokens)
    n = int(t.shape[1]) if t.ndim > 1 else 0
    if q.shape and q.shape[0] != n:
        raise NotSteppable("tokens and distributions of different lengths", op)
    return Draws(t, (Law(q.rows, q.face),), q.index, live=live_of(tokens))


@step("draw.get")
def draw_get(s: Any, op: Any, x: Any) -> Any:
    """A field of draws."""
    field = op.attrs["field"]
    if field == "token":
        return made(x.tokens, x.live) if x.shape else x.tokens
    if field == "prob":
        return made(probs_of(s, x), x.live) if x.shape else probs_of(s, x)
    if field == "race" and x.race is not None:
        return made(x.race, x.live) if x.shape else x.race
    if field == "point":
        there = x.tokens >= 0
        out = x.point & there if isinstance(x.point, Tensor) else there & bool(x.point)
        return made(out, x.live) if x.shape else out
    if field == "law":
        return law_dist(s, x)
    raise NotSteppable(f"the {field} of draws", op)


def rows_of_draws(s: Any, x: Draws) -> Tensor:
    """int64[B, n]: the row of every draw through all of its laws, -1: none."""
    n = int(np.prod(x.shape))
    if x.row is None:
        return s.lanes(s.constant(np.full((1, n), -1)))
    if isinstance(x.row, Tensor):
        return s.lanes(x.row.reshape(x.row.shape[0], n))
    return s.lanes(s.constant(np.broadcast_to(x.row, x.shape).reshape(1, n)))


def views(s: Any, x: Draws, face: str | None = None) -> Tensor:
    """[B, R, V]: all rows that draws are of, in their own views or in a given one."""
    tables = [s.lanes(s.view(law.rows, face or law.face)) for law in x.laws]
    if len(tables) == 1:
        return tables[0]
    kind = tables[0].dtype
    for t in tables:
        kind = torch.promote_types(kind, t.dtype)
    return torch.cat([t.to(kind) for t in tables], 1)


def probs_of(s: Any, x: Draws, face: str = "raw") -> Tensor:
    """float64[B, *shape]: the probability of each token in a view of the row it was drawn from; 1 for tokens of no row."""
    there = x.tokens >= 0
    if not x.laws:
        return there.double()
    if x.point is True:
        face = ""  # the score of a certain draw is read from the view that it was chosen in
    table = views(s, x, face or None)
    row = rows_of_draws(s, x).reshape(x.tokens.shape[0], -1)
    flat = row.clamp(min=0) * int(table.shape[2]) + x.tokens.clamp(min=0).flatten(1)
    out = table.flatten(1).gather(1, flat).double()
    return torch.where(there, torch.where(row < 0, 1.0, out).reshape(x.tokens.shape), 0.0)


def law_vectors(s: Any, x: Draws) -> Tensor:
    """[B, *shape, V]: the law of each draw."""
    b, size = s.frame.batch, x.laws[0].rows.size if x.laws else s.vocab_size
    tokens = x.tokens.flatten(1) if x.tokens.ndim > 1 else x.tokens[:, None]
    n = int(tokens.shape[1])
    kind = torch.float64 if s.exact else torch.float32
    out = None
    if x.laws and x.point is not True:
        row = rows_of_draws(s, x)
        table = views(s, x)
        out = take(s, table, row.clamp(min=0))
        if x.rank is not None and any(law.members is not None for law in x.laws):
            rank = x.rank if isinstance(x.rank, Tensor) else s.constant(np.broadcast_to(x.rank, x.shape))[None]
            rank = s.lanes(rank).reshape(b, n)
            out = torch.where((rank > 0)[..., None], less(out, _members(s, x, row), rank), out)
    hot = None
    if out is None or isinstance(x.point, Tensor) or x.row is None or not isinstance(x.row, np.ndarray) or (x.row < 0).any():
        hot = torch.zeros((b, n, size), dtype=kind if out is None else out.dtype, device=s.device)
        s.flag(tokens >= size)  # an undecided cell is no token
        hot = hot.scatter(2, s.lanes(tokens).clamp(0, size - 1)[..., None], 1.0)
    if out is None:
        out = hot
    elif hot is not None:
        certain = rows_of_draws(s, x) < 0
        if isinstance(x.point, Tensor):
            certain = certain | x.point.reshape(b, n)
        out = torch.where(certain[..., None], hot, out)
    assert out is not None
    return out.reshape(b, *x.shape, size)


def _members(s: Any, x: Draws, row: Tensor) -> Tensor:
    """int64[B, n, k]: the draws from the row of each draw, in order, -1 where there are none."""
    k = max(int(law.members.shape[2]) for law in x.laws if law.members is not None)
    parts = []
    for law in x.laws:
        m = law.members
        if m is None:
            m = s.constant(np.full((1, law.rows.count, k), -1))
        elif int(m.shape[2]) < k:
            m = torch.cat([m, m.new_full((*m.shape[:2], k - int(m.shape[2])), -1)], 2)
        parts.append(s.lanes(m))
    return take(s, torch.cat(parts, 1), row.clamp(min=0))


def less(rows: Tensor, members: Tensor, rank: Tensor) -> Tensor:
    """Rows [B, n, V] without the first `rank` int64[B, n] of their members int64[B, n, k], renormalised."""
    k = int(members.shape[2])
    gone = (torch.arange(k, device=rows.device) < rank[..., None]) & (members >= 0)
    keep = torch.ones_like(rows).scatter_reduce(2, members.clamp(min=0), (~gone).to(rows.dtype), "amin")
    return normalized(rows * keep)


def law_dist(s: Any, x: Draws) -> Dist:
    """The law of each draw as a distribution."""
    if (
        x.laws
        and x.rank is None
        and x.point is False
        and len(x.laws) == 1
        and isinstance(x.row, np.ndarray)
        and (np.asarray(x.row) >= 0).all()
    ):
        return Dist(x.laws[0].rows, np.broadcast_to(x.row, x.shape), x.laws[0].face, x.at, x.live)
    return replace(dist_of(s, law_vectors(s, x)), at=x.at, live=x.live)


@joins(Draws)
def join_draws(s: Any, lanes: Tensor, a: Any, b: Any) -> Any:
    """One of two draws in every lane, each with its law. lanes: bool[B]."""
    if not (isinstance(a, Draws) and isinstance(b, Draws)):
        return s.join(lanes, s.tensor(a), s.tensor(b))
    if not a.shape:
        both = one_draws(s, [_up(a), _up(b)])
        which = torch.where(lanes, 0, 1)
        return pick(s, both, which)
    n = max(a.shape[0], b.shape[0])
    if a.shape[1:] != b.shape[1:]:
        raise NotSteppable("draws of different shapes in two branches", s.place)
    both = one_draws(s, [replace(a, live=None), replace(b, live=None)])
    first = s.steps(n).clamp(max=max(0, a.shape[0] - 1))
    second = a.shape[0] + s.steps(n).clamp(max=max(0, b.shape[0] - 1))
    order = torch.where(lanes[:, None], first[None], second[None])
    lives = []
    for x in (a, b):
        live = s.steps(n)[None] < x.shape[0]
        if x.live is not None:
            live = torch.cat([x.live, x.live.new_zeros((x.live.shape[0], n - x.shape[0]))], 1)
        lives.append(s.lanes(live))
    whole = a.shape[0] == b.shape[0] and a.live is None and b.live is None
    return reordered(s, replace(both, at=None), order, None if whole else torch.where(lanes[:, None], *lives))


def _up(x: Draws) -> Draws:
    return lifted(x)


@step("topk")
def topk(s: Any, op: Any, q: Any, k: Any) -> Draws:
    """The k likeliest tokens of each distribution, as draws without randomness."""
    q = as_dist(s, q)
    most = min(counted(s, op, k, q.rows.size), q.rows.size)
    s.require_mass(q)
    source = _flat(s, q) if q.face != "raw" or q.rows.given else take(s, s.lanes(s.view(q.rows, "logits")), flat_index(q))
    _, tokens = ordered(source, most)
    out = Draws(
        shaped(q, tokens, most), (Law(q.rows, q.face),), _rows(q, most), point=True, at=q.at, live=q.live, inner=q.inner
    )
    if is_static(k):
        return out
    inside = s.steps(most) < s.lanes(k)[:, None]
    if not q.shape:
        return replace(out, live=inside)
    there = inside.reshape(-1, *([1] * len(q.shape)), most)  # of several rows those are missing that have no token
    return replace(out, tokens=torch.where(there, out.tokens, -1), rank=np.broadcast_to(np.arange(most), out.shape))


@step("bernoulli")
def bernoulli(s: Any, op: Any, p: Any, key: Noise) -> Any:
    """True with the given probability."""
    a = s.tensor(p)
    n = int(np.prod(a.shape[1:])) if a.ndim > 1 else 1
    u = noise.uniforms(s.noise_words(key, n, None, live=live_of(p)), 1)[..., 0]
    flat = s.lanes(a.reshape(a.shape[0], -1))
    s.flag(torch.isnan(flat.double()))
    out = (u < flat.double().clamp(0, 1)).reshape(s.frame.batch, *a.shape[1:])
    return made(out, live_of(p)) if a.ndim > 1 else out
