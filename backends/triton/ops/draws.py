"""Noise and draws: races over rows, and which rows draws are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton import noise
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.distributions import as_dist, dist_of, every_row, normalized, numbered, own_rows, placed
from decgraph.backends.triton.ops.nodes import reachable
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Array, Dist, Draws, Noise, Number, Operand, RowSource, Tree, is_static
from decgraph.backends.triton.vectors import alike, flat, live_of, vec_of
from decgraph.ir.values import Op


@step("noise")
def key(s: Step, op: Op, *counters: Number) -> Noise:
    """A noise key; nothing is drawn yet."""
    if op.attrs["kind"] == "output":
        return Noise("output", "output", (), counters[0] if counters else None)
    return Noise(op.attrs["kind"], op.attrs["site"], tuple(counters))


def _flat(s: Step, q: Dist) -> Tensor:
    """Probabilities [B, n, V] of the rows of a dist, in its view."""
    s.require_mass(q)
    return s.take(s.lanes(s.view(q.rows, q.face)), flat(q.index))


def drawn(
    q: Dist, tokens: Tensor, *more: int, members: Tensor | None = None, rank: Array | None = None,
    point: Tensor | bool = False, race: Tensor | None = None,
) -> Draws:  # fmt: skip
    """Tokens int64[B, n, *more] that were drawn from the rows of a dist, as many from each. members: as for Source."""
    row = q.index
    for n in more:
        shape = (*row.shape, n)
        row = row[..., None].expand(shape) if isinstance(row, Tensor) else np.broadcast_to(row[..., None], shape)
    source = RowSource(q.rows, q.face, members)
    shaped = tokens.reshape(len(tokens), *q.shape, *more)
    return Draws(shaped, (source,), row, rank, point, race, q.at, q.live)


def some_of(s: Step, k: Operand, most: int, x: Draws) -> Draws:
    """The first k of `most` draws from each row; of several rows those that are too many have no token."""
    if is_static(k):
        return x
    inside = s.steps(most) < s.lanes(k)[:, None]
    if len(x.shape) == 1:
        return replace(x, live=inside)
    there = inside.reshape(-1, *([1] * (len(x.shape) - 1)), most)
    return replace(x, tokens=torch.where(there, x.tokens, -1), rank=np.broadcast_to(np.arange(most), x.shape))


@step("draw")
def draw(s: Step, op: Op, q: Operand, key: Noise) -> Draws:
    """One draw from each distribution."""
    q = as_dist(s, q)
    probs = _flat(s, q)
    n, where, numbers = int(probs.shape[1]), None, None
    if key.kind != "output":
        numbers = drafted_rows(s, q, n)
    elif key.index is None:
        where = placed(s, q)
    else:
        numbers = numbered(s, q)
    words = s.noise_words(key, n, where, None if numbers is None else [numbers], q.live)
    return drawn(q, s.draw(probs, words, q.live))


def drafted_rows(s: Step, q: Dist, n: int) -> Tensor | None:
    """int64[B, n]: rows by the numbers that they have in a driver's draws, where nodes that it does not draft have none; None:
    those that they have here."""
    t, nodes = q.rows.tree, q.rows.nodes
    if n < 2 or not isinstance(t, Tree) or nodes is None or "ends" not in t.until:
        return None
    useful = reachable(s, t)
    if useful is None:
        return None
    there = s.take(s.take(s.lanes(useful), nodes), flat(q.index))
    if q.live is not None:
        there = (there.reshape(len(there), q.live.shape[1], -1) & q.live[..., None]).flatten(1)
    return (there.long().cumsum(1) - 1).clamp(min=0)


@step("draw.many")
def draw_many(s: Step, op: Op, q: Operand, k: Operand, key: Noise) -> Draws:
    """k draws from each distribution, with replacement or without."""
    q, key = as_dist(s, q), replace(key, index=None)
    probs = _flat(s, q)
    most = counted(s, op, k, 2**31 if op.attrs["replace"] else int(probs.shape[2]))
    n, size = int(probs.shape[1]), int(probs.shape[2])
    if q.shape and not is_static(k):
        raise NotSteppable("a number of draws of several rows that depends on data", op)
    if not op.attrs["replace"]:
        keys = noise.race_keys(torch.log(probs.double()), noise.uniforms(row_words(s, q, key, n), size))
        return some_of(s, k, min(most, size), without(s, q, keys, min(most, size)))
    where, rows = placed(s, q), drafted_rows(s, q, n)
    where = None if where is None else where.repeat_interleave(most, 1)
    rows = s.constant(np.repeat(np.arange(n), most))[None] if rows is None else rows.repeat_interleave(most, 1)
    words = s.noise_words(key, n * most, where, [rows, s.constant(np.tile(np.arange(most), n))[None]])
    return some_of(s, k, most, drawn(q, s.draw(probs.repeat_interleave(most, 1), words, q.live), most))


def row_words(s: Step, q: Dist, key: Noise, n: int) -> tuple[Tensor, ...]:
    """The words of the noise of n rows of a dist. int64[B, n] each."""
    rows = None if key.kind == "output" else drafted_rows(s, q, n)
    out: tuple[Tensor, ...] = s.noise_words(key, n, placed(s, q), None if rows is None else [rows])
    return out


def counted(s: Step, op: Op, k: Operand, size: int) -> int:
    """The most that a number of draws or tokens can be. Raises NotSteppable where it is not known."""
    if is_static(k):
        return int(k)
    known = [n for n in (op.attrs.get("bound"), s.most(op.operands[1])) if isinstance(n, int)]
    if not known:
        raise NotSteppable("a number of draws that depends on data", op)
    return max(0, min(*known, size))


def without(s: Step, q: Dist, keys: Tensor, k: int, race: bool = False) -> Draws:
    """The first k of each race float64[B, n, V]: draws without replacement."""
    values, tokens = ordered(keys, k)
    tokens = torch.where(values > -torch.inf, tokens, -1)
    if isinstance(q.index, Tensor) or not np.array_equal(q.index.reshape(-1), np.arange(q.rows.count)):
        rows = own_rows(s, q, True)  # the rows that were drawn from, as rows of their own
        if q.face == "shaped":
            rows.faces["raw"] = s.take(s.lanes(s.view(q.rows, "raw")), flat(q.index))
        q = replace(q, rows=rows, index=every_row(rows, q.shape))
    out = drawn(q, tokens, k, members=tokens)
    values = values.reshape(out.tokens.shape)
    return replace(out, rank=np.broadcast_to(np.arange(k), out.shape), race=values if race else None)


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
def draw_race(s: Step, op: Op, q: Operand, key: Noise, under: Operand = None) -> Draws:
    """Tokens of each distribution in the order of their race keys."""
    q = as_dist(s, q)
    if under is not None or q.rows.tree is not None:
        raise NotSteppable("a race below nodes of a tree", op)
    probs = _flat(s, q)
    n, size = int(probs.shape[1]), int(probs.shape[2])
    log_q = torch.log(probs.double())
    keys = noise.race_keys(log_q, noise.uniforms(row_words(s, q, key, n), size))
    return without(s, q, keys, size, race=True)


def path_logs(s: Step, tree: Tree, face: str) -> Tensor:
    """float64[B, N]: the log-probability, in a view, of the path to every node."""
    if tree.edges is None:
        return s.lanes(np.zeros(tree.size))
    own, up = s.lanes(s.cat([np.zeros(1), torch.log(probs_of(s, tree.edges, face))])), s.lanes(tree.parent)
    total = own
    for _ in range(tree.height - 1):  # each is added to that of the node above, so that equal ones are equal to the last bit
        total = total.gather(1, up) + own
    return total


@step("draw.point")
def draw_point(s: Step, op: Op, tokens: Operand) -> Draws:
    """Tokens as draws that are certain."""
    found, live = s.lanes(tokens).long(), live_of(tokens)
    if op.operands[0].type.elem == "int":
        s.no_tokens(found, live)
    return Draws(found, point=True, live=live)


@step("draw.get")
def draw_get(s: Step, op: Op, x: Draws) -> Operand:
    """A field of draws."""
    field = op.attrs["field"]
    if field == "law":
        return sources_of(s, x)
    if field == "token":
        out = x.tokens
    elif field == "prob":
        out = probs_of(s, x)
    elif field == "race" and x.race is not None:
        out = x.race
    elif field == "point":
        out = (x.tokens >= 0) & x.point
    else:
        raise NotSteppable(f"the {field} of draws", op)
    return vec_of(out, x.live) if x.shape else out


def rows_of_draws(s: Step, x: Draws) -> Tensor:
    """int64[B, n]: the row of every draw through all of its sources, -1: none."""
    return s.lanes(flat(s.tensor(np.full(x.shape, -1) if x.row is None else x.row)))


def views(s: Step, x: Draws, face: str | None = None) -> Tensor:
    """[B, R, V]: all rows that draws are of, in their own views or in a given one."""
    tables = alike([s.lanes(s.view(source.rows, face or source.face)) for source in x.sources])
    return tables[0] if len(tables) == 1 else torch.cat(tables, 1)


def probs_of(s: Step, x: Draws, face: str = "raw") -> Tensor:
    """float64[B, *shape]: the probability of each token in a view of the row it was drawn from; 1 for tokens of no row."""
    there = x.tokens >= 0
    if not x.sources:
        return there.double()
    # The score of a certain draw is read from the view that it was chosen in.
    table, row = views(s, x, None if x.point is True else face), rows_of_draws(s, x)
    entry = row.clamp(min=0) * int(table.shape[2]) + flat(x.tokens).clamp(min=0)
    out = torch.where(row < 0, 1.0, table.flatten(1).gather(1, entry).double())
    return torch.where(there, out.reshape(x.tokens.shape), 0.0)


def source_vectors(s: Step, x: Draws) -> Tensor:
    """[B, *shape, V]: the distribution that each draw is from."""
    b, size = s.frame.batch, x.sources[0].rows.size if x.sources else s.vocab_size
    tokens, out = flat(x.tokens), None
    n, row = int(tokens.shape[1]), rows_of_draws(s, x)
    if x.sources and x.point is not True:
        out = s.take(views(s, x), row.clamp(min=0))
        if x.rank is not None and any(source.members is not None for source in x.sources):
            rank = s.lanes(flat(s.tensor(x.rank)))
            out = torch.where((rank > 0)[..., None], less(out, _members(s, x, row), rank), out)
        if isinstance(x.row, np.ndarray) and not isinstance(x.point, Tensor) and not (x.row < 0).any():
            return out.reshape(b, *x.shape, size)
    kind = out.dtype if out is not None else torch.float64 if s.exact else torch.float32
    is_token = s.lanes(tokens < size)  # an undecided cell has none, and zeros
    hot = torch.zeros((b, n, size), dtype=kind, device=s.device)
    hot = hot.scatter(2, s.lanes(tokens).clamp(0, size - 1)[..., None], is_token.to(kind)[..., None])
    if out is not None:
        certain = row < 0
        if isinstance(x.point, Tensor):
            certain = certain | x.point.reshape(b, n)
        hot = torch.where(certain[..., None], hot, out)
    return hot.reshape(b, *x.shape, size)


def _members(s: Step, x: Draws, row: Tensor) -> Tensor:
    """int64[B, n, k]: the draws from the row of each draw, in order, -1 where there are none."""
    every = [np.full((source.rows.count, 0), -1) if source.members is None else source.members for source in x.sources]
    k = max(int(m.shape[-1]) for m in every)
    pad = torch.nn.functional.pad
    parts = [m if m.shape[-1] == k else pad(s.lanes(m), (0, k - int(m.shape[-1])), value=-1) for m in every]
    return s.take(s.cat(parts), row.clamp(min=0))


def less(rows: Tensor, members: Tensor, rank: Tensor) -> Tensor:
    """Rows [B, n, V] without the first `rank` int64[B, n] of their members int64[B, n, k], renormalised."""
    k = int(members.shape[2])
    gone = (torch.arange(k, device=rows.device) < rank[..., None]) & (members >= 0)
    keep = torch.ones_like(rows).scatter_reduce(2, members.clamp(min=0), (~gone).to(rows.dtype), "amin")
    return normalized(rows * keep)


def sources_of(s: Step, x: Draws) -> Dist:
    """What each draw is from, as a distribution."""
    plain = x.rank is None and x.point is False and len(x.sources) == 1
    if plain and isinstance(x.row, np.ndarray) and (x.row >= 0).all():
        return Dist(x.sources[0].rows, x.row, x.sources[0].face, x.at, x.live)
    return replace(dist_of(s, source_vectors(s, x)), at=x.at, live=x.live)


@joins(Draws)
def join_draws(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Operand:
    """One of two draws in every lane, each with the row that it was drawn from. lanes: bool[B]."""
    if not (isinstance(a, Draws) and isinstance(b, Draws)):
        return s.join(lanes, s.tensor(a), s.tensor(b))
    if a.shape[1:] != b.shape[1:]:
        raise NotSteppable("draws of different shapes in two branches", s.place)

    def put(parts: Sequence[Array]) -> Array:
        first, second = parts
        if is_static(first) and is_static(second) and np.array_equal(first, second):
            return first
        return s.either(lanes, first, second, -1)  # no token and no row behind the shorter one

    out = s.one_draws([replace(x, live=None) for x in (a, b)], put)
    return replace(out, live=s.either_live(lanes, a, b) if a.shape else None)


@step("topk")
def topk(s: Step, op: Op, q: Operand, k: Operand) -> Draws:
    """The k likeliest tokens of each distribution, as draws without randomness."""
    q = as_dist(s, q)
    most = min(counted(s, op, k, q.rows.size), q.rows.size)
    s.require_mass(q)
    by = _flat(s, q) if q.face != "raw" or q.rows.is_probs else s.take(s.lanes(s.view(q.rows, "logits")), flat(q.index))
    _, tokens = ordered(by, most)
    return some_of(s, k, most, drawn(q, tokens, most, point=True))


@step("bernoulli")
def bernoulli(s: Step, op: Op, p: Operand, key: Noise) -> Operand:
    """True with the given probability."""
    a = s.tensor(p)
    n = int(np.prod(a.shape[1:])) if a.ndim > 1 else 1
    u = noise.uniforms(s.noise_words(key, n, None, live=live_of(p)), 1)[..., 0]
    chance = s.lanes(a.reshape(a.shape[0], -1)).double()
    s.flag(torch.isnan(chance))
    out = (u < chance.clamp(0, 1)).reshape(s.frame.batch, *a.shape[1:])
    return vec_of(out, live_of(p)) if a.ndim > 1 else out
