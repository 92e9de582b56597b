"""Implementations of ops over the vocabulary on the device: views, draws, the best tokens, entries of distributions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.evaluate import NotCapturable, device
from decgraph.backends.triton.step.machine import take
from decgraph.backends.triton.step.values import DeviceDist, DeviceDraws, DeviceNoise, DeviceRows, Nodes


def as_dist(q: Any, op: Any) -> DeviceDist:
    """A distribution; numbers over the vocabulary float[B, *dims, V] as one."""
    if isinstance(q, DeviceDist):
        return q
    if not isinstance(q, Tensor):
        raise NotCapturable("a distribution computed on the host", op)
    return dist_of(q)


def dist_of(probs: Tensor, like: Any = None) -> DeviceDist:
    """Probabilities [B, *shape, V] as a dist with the positions and nodes of `like`, where it has them."""
    shape = tuple(probs.shape[1:-1])
    flat = probs.flatten(1, -2) if probs.ndim > 2 else probs[:, None]
    index = np.arange(int(flat.shape[1])).reshape(shape)
    rows = DeviceRows(flat, given=True)
    if isinstance(like, DeviceDist) and like.shape == shape and not isinstance(like.index, Tensor):
        where = like.index.reshape(-1)
        if like.rows.positions is not None and not isinstance(like.rows.nodes, Tensor):
            rows.positions = like.rows.positions[:, where]
    return DeviceDist(rows, index, "shaped", like.at if isinstance(like, DeviceDist) else None)


def picked(s: Any, q: DeviceDist, values: Tensor) -> Tensor:
    """Rows of values [B, R, ...] of a dist, [B, n, ...] with its shape flattened."""
    index = q.index.flatten(1) if isinstance(q.index, Tensor) else q.index.reshape(-1)
    return take(s, values, index)


def source(s: Any, q: DeviceDist) -> tuple[Tensor, bool]:
    """The input of a draw from a dist: its logits [B, n, V], or probabilities (True)."""
    if q.face == "shaped" or q.rows.given:
        return picked(s, q, q.rows.scores), q.rows.given
    return picked(s, q, s.face(q.rows, q.face)), True


def repeated(s: Any, n: int) -> Tensor:
    """int64[B * n, 2]: the seed of every row."""
    out: Tensor = s.seeds[:, None].expand(-1, n, -1).reshape(-1, 2)
    return out


def placed(s: Any, q: DeviceDist) -> Tensor | None:
    """int64[B, n]: the position of every row of a dist."""
    return None if q.rows.positions is None else picked(s, q, q.rows.positions.expand(s.frame.batch, -1))


def shaped(q: DeviceDist, tokens: Tensor, *more: int) -> Tensor:
    """[B, n, *more] in the shape of a dist."""
    return tokens.reshape(int(tokens.shape[0]), *q.shape, *more)


@device("face")
def see(s: Any, op: Any, q: DeviceDist) -> DeviceDist:
    """Another view of the same rows."""
    return replace(q, face=op.attrs["face"])


@device("draw")
def draw(s: Any, op: Any, q: Any, key: DeviceNoise) -> DeviceDraws:
    """One draw from each distribution."""
    q = as_dist(q, op)
    ones = s.points(q.rows, q.face)
    if ones is not None:
        return DeviceDraws(shaped(q, picked(s, q, ones)), q.rows, q.index, q.face, at=q.at)
    values, given = source(s, q)
    n = int(values.shape[1])
    words = s.key_words(key, n, placed(s, q))
    tokens = s.kernels.draw(values.flatten(0, 1), given, words.flatten(0, 1), repeated(s, n))
    tokens = shaped(q, tokens.unflatten(0, (s.frame.batch, n)))
    return DeviceDraws(tokens, q.rows, q.index, q.face, at=q.at)


@device("draw.many")
def draw_many(s: Any, op: Any, q: Any, k: Any, key: DeviceNoise) -> DeviceDraws:
    """k draws from each distribution."""
    q, k = as_dist(q, op), int(k)
    values, given = source(s, q)
    n = int(values.shape[1])
    flat = values.flatten(0, 1)
    row = q.index[..., None] if isinstance(q.index, Tensor) else np.broadcast_to(q.index[..., None], (*q.shape, k))
    if isinstance(row, Tensor):
        row = row.expand(*row.shape[:-1], k)
    greedy = s.points(q.rows, q.face)
    if op.attrs["replace"]:
        if greedy is not None:
            tokens = picked(s, q, greedy)[..., None].expand(-1, -1, k)
        else:
            lanes = np.stack(np.meshgrid(np.arange(n), np.arange(k), indexing="ij"), -1).reshape(-1, 2)
            positions = placed(s, q)
            if positions is not None:
                positions = positions.repeat_interleave(k, 1)
            words = s.key_words(key, n * k, positions, lanes)
            tokens = s.kernels.draw(flat.repeat_interleave(k, 0), given, words.flatten(0, 1), repeated(s, n * k))
        return DeviceDraws(shaped(q, tokens.reshape(s.frame.batch, n, k), k), q.rows, row, q.face, at=q.at)
    if greedy is not None:
        raise NotCapturable("draws without replacement of a greedy request", op)
    words = s.key_words(key, n, placed(s, q))
    tokens = s.kernels.distinct(flat, given, words.flatten(0, 1), repeated(s, n), k)
    tokens = tokens.unflatten(0, (s.frame.batch, n))
    members = tokens if q.index.ndim and int(q.rows.count) == n else None
    if members is None:
        raise NotCapturable("draws without replacement of some rows of a call", op)
    rank = np.broadcast_to(np.arange(k), (*q.shape, k))
    return DeviceDraws(shaped(q, tokens, k), q.rows, row, q.face, rank=rank, members=members, at=q.at)


@device("draw.race")
def draw_race(s: Any, op: Any, q: Any, key: DeviceNoise, under: Any = None) -> DeviceDraws:
    """Tokens of each distribution in the order of their race keys: as many as the program selects (`chosen`)."""
    q = as_dist(q, op)
    k = min(chosen(s, op), q.rows.size)
    if s.points(q.rows, q.face) is not None:
        raise NotCapturable("races of a greedy request", op)
    values, given = source(s, q)
    n = int(values.shape[1])
    words = s.key_words(key, n, placed(s, q))
    tokens, keys = s.kernels.races(values.flatten(0, 1), given, words.flatten(0, 1), repeated(s, n), k)
    tokens, keys = (a.unflatten(0, (s.frame.batch, n)) for a in (tokens, keys.double()))
    if q.rows.tree is not None:
        keys = keys + picked(s, q, path_logs(s, q))[..., None]
    if under is not None:
        keys = conditioned(keys, (under if under.ndim > 1 else under[:, None])[..., None].expand(-1, n, -1))
    if q.rows.count != n or isinstance(q.index, Tensor):
        raise NotCapturable("races of some rows of a call", op)
    row = np.broadcast_to(q.index[..., None], (*q.shape, k))
    rank = np.broadcast_to(np.arange(k), (*q.shape, k))
    return DeviceDraws(shaped(q, tokens, k), q.rows, row, q.face, rank=rank, members=tokens, race=shaped(q, keys, k), at=q.at)


def chosen(s: Any, op: Any) -> int:
    """The most draws that the program selects by race. Raises NotCapturable where they are used otherwise."""
    every = [o for o in s.function.body.walk() if o.opcode == "select.top" and o.attrs.get("by_race")]
    sizes = [s.env.get(o.operands[1], o.attrs.get("bound")) for o in every]
    if not sizes or any(n is None for n in sizes):
        raise NotCapturable("a race whose whole order is used", op)
    return max(int(n) for n in sizes)


def path_logs(s: Any, q: DeviceDist) -> Tensor:
    """float64[B, R]: the log-probability, by the dist's view, of the path to the node of each of its call's rows."""
    tree, nodes = q.rows.tree, q.rows.nodes
    known = s.constant(np.zeros((s.frame.batch, 1)))
    for g in tree.growths:
        parent = tree.parent[..., g.first : g.first + g.count]
        parent = parent if isinstance(parent, Tensor) else s.constant(parent)[None].expand(s.frame.batch, -1)
        known = torch.cat([known, known.gather(1, parent) + torch.log(probs_of(s, g.draws, q.face))], 1)
    return take(s, known, nodes.ids if isinstance(nodes, Nodes) else nodes)


def conditioned(keys: Tensor, ceiling: Tensor) -> Tensor:
    """Race keys [..., k], highest first, conditioned on the highest being `ceiling` [..., 1]: runtime/noise.py, `under`."""
    top = keys[..., :1]
    v = ceiling - keys + torch.log(-torch.expm1(keys - top))
    moved = ceiling - v.clamp(min=0) - torch.log1p(torch.exp(-v.abs()))
    moved = torch.where(keys == top, ceiling, moved)
    return torch.where(keys == -torch.inf, keys, moved)


@device("draw.point")
def draw_point(s: Any, op: Any, tokens: Any) -> DeviceDraws:
    """Certain drafts."""
    if isinstance(tokens, DeviceDraws):
        tokens = tokens.tokens
    if not isinstance(tokens, Tensor):
        tokens = s.constant(np.asarray(tokens, dtype=np.int64)[None]).expand(s.frame.batch, *np.shape(tokens))
    return DeviceDraws(tokens.long(), point=True)


@device("draw.get")
def draw_get(s: Any, op: Any, x: DeviceDraws) -> Any:
    """A field of draws."""
    field = op.attrs["field"]
    if field == "token":
        return x.tokens
    if field == "prob":
        return probs_of(s, x)
    if field == "race" and x.race is not None:
        return x.race
    raise NotCapturable(f"the {field} of draws", op)


def probs_of(s: Any, x: DeviceDraws, seen: str = "raw") -> Tensor:
    """float64[B, *shape]: the probability of each token in the raw (or another) view of the row it was drawn from; 1 for tokens
    of no row."""
    if x.rows is None:
        return (x.tokens >= 0).double()
    face = x.face if x.point else seen
    b, n = s.frame.batch, int(np.prod(x.shape))
    if isinstance(x.row, Tensor):
        row = x.row.reshape(b, n)
    else:
        row = s.constant(np.broadcast_to(x.row, x.shape).reshape(1, n)).expand(b, n)
    table = s.face(x.rows, face).flatten(1)
    out = table.gather(1, row * x.rows.size + x.tokens.clamp(min=0).reshape(b, n)).double()
    return torch.where(x.tokens >= 0, out.view(x.tokens.shape), 0.0)


@device("topk")
def topk(s: Any, op: Any, q: Any, k: Any) -> DeviceDraws:
    """The k most probable tokens of each distribution, as draws without randomness."""
    q = as_dist(q, op)
    k = min(int(k), q.rows.size)
    if q.face in ("raw", "logits") and not q.rows.given:
        values, banned = picked(s, q, q.rows.scores), True
    else:
        values, banned = picked(s, q, s.face(q.rows, q.face)), False
    tokens = s.kernels.top(values.flatten(0, 1), k, banned=banned).unflatten(0, (s.frame.batch, int(values.shape[1])))
    row = (
        q.index[..., None].expand(*q.index.shape, k)
        if isinstance(q.index, Tensor)
        else np.broadcast_to(q.index[..., None], (*q.shape, k))
    )
    return DeviceDraws(shaped(q, tokens, k), q.rows, row, q.face, point=True, at=q.at)
