"""Lowerings of ir/ops/distributions.py: views, softmax, warp, normalize, information, lookup of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch import shaping
from decgraph.backends.torch.calls import paths_of
from decgraph.backends.torch.data import array, host
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows, Sparse, TorchDist, TorchVectors, entries, on_one_device
from decgraph.backends.torch.transfer import fetched
from decgraph.ir.ops.common import numeric, spread
from decgraph.ir.values import Op


def tensor_of(x: object) -> Tensor:
    """A value over the vocabulary as a tensor of probabilities (or numbers) [..., V]."""
    if isinstance(x, TorchDist):
        return x.vector()
    if isinstance(x, Sparse):
        return x.dense()
    if isinstance(x, Tensor):
        return x
    return torch.from_numpy(np.ascontiguousarray(host(x)))


def dist_of(m: Machine, probs: Tensor, like: object = None) -> TorchDist:
    """Probabilities [*shape, V] as a dist with the positions and nodes of `like`, where it has them."""
    shape = tuple(probs.shape[:-1])
    flat = probs.reshape(prod(probs.shape[:-1]), probs.shape[-1])
    index = np.arange(flat.shape[0]).reshape(shape)
    if isinstance(like, TorchDist) and like.shape == shape:
        rows = TorchVectors(flat, m.request, like=like.rows, index=like.index.reshape(-1))
        return TorchDist(rows, index, "shaped", like.at, like.inner)
    return TorchDist(TorchVectors(flat, m.request), index)


@lowering("face")
def see(m: Machine, q: TorchDist, *, face: str) -> TorchDist:
    """Another view of the same rows."""
    return q.seen(face)


@lowering("softmax")
def softmax(m: Machine, s: object, *, op: Op) -> object:
    """Scores to probabilities over the last axis."""
    a = shaping.softmax(shaping.working(tensor_of(s)))
    return dist_of(m, a, s) if op.results[0].type.elem == "dist" else fetched(a)


@lowering("normalize")
def normalize(m: Machine, w: object) -> TorchDist:
    """Weights over their sum; zeros where that is 0, infinite or no number: from those nothing is drawn."""
    if isinstance(w, Sparse):
        if len(w.entries) == 1:
            token = next(iter(w.entries))
            return TorchDist(TorchVectors(None, m.request, ones=np.array([token]), size=w.size), np.zeros((), dtype=np.int64))
        w = w.dense()
    a = tensor_of(w)
    mass = shaping.total(a)
    return dist_of(m, torch.where(mass.isfinite() & (mass > 0), a / mass, 0.0), w)


@lowering("warp")
def warp(m: Machine, s: object, *at: object) -> TorchDist:
    """The request's constraints and shaping over scores or a mixed distribution, at its place."""
    dist = s if isinstance(s, TorchDist) else None
    a = tensor_of(s)
    shape = tuple(a.shape[:-1])
    flat = shaping.working(a.reshape(-1, a.shape[-1]))
    logits = torch.log(flat) if dist is not None and dist.face != "logits" else flat
    paths = paths_of(m, at, int(flat.shape[0])) if at else None

    def path(i: int) -> Sequence[int]:
        if paths is not None:
            return paths[i]
        if dist is not None and dist.rows.path is not None:
            return dist.rows.path(int(dist.index.reshape(-1)[i]))
        return tuple(m.tokens)

    rows = Rows(
        logits,
        m.request,
        path=path,
        label="warp",
        positions=np.array([len(path(i)) for i in range(int(flat.shape[0]))], dtype=np.int64),
        stated=True,
    )
    if dist is not None and dist.rows.nodes is not None:
        rows.nodes = dist.rows.nodes[dist.index.reshape(-1)]
    index = np.arange(int(flat.shape[0])).reshape(shape)
    return TorchDist(rows, index, "shaped", dist.at, dist.inner) if dist is not None else TorchDist(rows, index)


@lowering("adjust")
def adjust(m: Machine, s: object, *at: object) -> torch.Tensor:
    """Scores [..., V] after constraints, processors, penalties and bias, at their places."""
    a = tensor_of(s)
    flat = shaping.working(a.reshape(-1, a.shape[-1]))
    paths = paths_of(m, at, int(flat.shape[0]))
    return Rows(flat, m.request, path=paths.__getitem__, label="adjust").adjusted().reshape(a.shape)


def probability(p: object, x: object) -> np.ndarray | float:
    """p[x] for what ranges over the vocabulary and a token, or for as many tokens as rows: float64 on the host."""
    tokens = array(x)
    if isinstance(p, TorchDist):
        return p.probability(tokens)
    table = tensor_of(p)
    rows, tokens = np.broadcast_arrays(np.arange(table.shape[:-1].numel()).reshape(table.shape[:-1]), tokens)
    return entries(table, rows.reshape(-1), tokens.reshape(-1)).reshape(rows.shape)[()]


@lowering("lookup")
def lookup(m: Machine, p: object, x: object, *, op: Op) -> object:
    """p[x]: the entry of a token in each distribution, on the host. Dimensions over the same things are lined up."""
    tokens = array(x).astype(np.int64, copy=False)
    if isinstance(p, TorchDist) and p.index.ndim == 0 and tokens.ndim == 0:
        return p.probability(tokens)
    tp, tx = op.operands[0].type, op.operands[1].type
    table = p if isinstance(p, TorchDist) else tensor_of(p)
    front = tp.dims if tp.elem in ("dist", "scores") else numeric(tp).dims[:-1]
    shape = table.shape if isinstance(table, TorchDist) else tuple(table.shape[:-1])
    rows = np.arange(prod(shape)).reshape(shape)
    if shape != tokens.shape:
        long = front if len(front) >= len(tx.dims) else tx.dims
        tokens = spread(tokens, tx.dims, long) if tokens.ndim else tokens
        rows = spread(rows, front, long) if front else rows
        rows, tokens = np.broadcast_arrays(rows, tokens)
    out = entries(table, rows.reshape(-1), tokens.reshape(-1)).reshape(rows.shape)
    if op.result.type.elem == "token":  # an entry of a table of tokens, which may have begun as zeros
        return out.astype(np.int64) if out.ndim else int(out)
    return out if out.ndim else float(out)


@lowering("info")
def info(m: Machine, *ps: object, kind: str) -> object:
    """Entropy of each distribution, or kl(p, q), in nats, on the host."""
    a = on_one_device([shaping.working(tensor_of(p)) for p in ps])
    if kind == "entropy":
        out = torch.special.entr(a[0].clamp(min=0)).sum(-1)  # as on the reference: entries that are not positive add nothing
    else:
        out = torch.where(a[0] > 0, a[0] * (torch.log(a[0]) - torch.log(a[1])), 0.0).sum(-1)
    got = fetched(out)
    return got if got.ndim else float(got)


@lowering("renorm")
def renorm(m: Machine, p: object, k: float, *, kind: str) -> TorchDist:
    """The k most probable tokens, or the smallest prefix with mass k, renormalised."""
    a = tensor_of(p)
    order = torch.sort(a, dim=-1, descending=True, stable=True).indices
    if kind == "topk":
        keep = torch.arange(a.shape[-1], device=a.device) < int(k)
        keep = keep.expand(a.shape)
    else:
        inside = torch.cumsum(a.gather(-1, order), -1)
        keep = torch.cat([torch.ones_like(inside[..., :1], dtype=torch.bool), inside[..., :-1] < float(k)], -1)
    mask = torch.zeros_like(a, dtype=torch.bool).scatter_(-1, order, keep)
    kept = torch.where(mask, a, 0.0)
    return dist_of(m, kept / shaping.total(kept), p)
