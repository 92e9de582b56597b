"""Lowerings of ir/ops/paths.py: edits, paths, growth from an index."""

from __future__ import annotations

import heapq
from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch

from decgraph.backends.torch.canvases import Edit
from decgraph.backends.torch.data import whole
from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.ops.trees import grow
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Rows, TorchVectors
from decgraph.backends.torch.trees import TorchPath, TorchTree
from decgraph.ir.machine import Following


@lowering("edit")
def edit(m: Machine, i: object, x: object) -> object:
    """Edits of a canvas: decide a position with a token or draw; vectors make a vector of edits."""
    at = np.asarray(i)
    if at.ndim == 0:
        return Edit(int(at), x if isinstance(x, TorchDraws) else whole(x))
    out = np.empty(len(at), dtype=object)
    for n, p in enumerate(at):
        if isinstance(x, TorchDraws | Mixed):
            part = x.pick(n) if x.shape else x
            assert isinstance(part, TorchDraws)
            value: TorchDraws | int = part
        else:
            value = int(np.broadcast_to(np.asarray(x), at.shape)[n])
        out[n] = Edit(int(p), value)
    return out


@lowering("edit.get")
def edit_get(m: Machine, e: Edit, *, field: str) -> object:
    """The position or the token of an edit."""
    return e.position if field == "position" else e.token


@lowering("path.get")
def path_get(m: Machine, p: TorchPath, *, field: str) -> object:
    """A field of a path."""
    if field in ("token", "path"):
        return np.array(p.tokens, dtype=np.int64)
    if field == "prob":
        return np.array([float(d.prob()) for d in p.draws if d is not None], dtype=np.float64)
    if field == "emitted":
        return p.emitted
    return {"depth": p.depth, "length": len(p.tokens), "node": p.node}[field]


@lowering("tree.best_first")
def best_first(m: Machine, t: TorchTree, asked: Following, size: int, above: float) -> tuple[TorchTree, np.ndarray]:
    """Grow a tree under its root from the continuations of an index, the likeliest node first. The new nodes are int64[n]."""
    heap: list[tuple[Fraction, tuple[int, ...], int, Rows]] = []

    def ask(path: tuple[int, ...], node: int, mass: Fraction) -> None:
        counts = asked.counts(path)
        total = asked.total(path)
        probs = np.zeros((1, m.vocab_size))
        for token, count in counts.items():
            probs[0, token] = count / total
        rows = TorchVectors(torch.from_numpy(probs), m.request)
        for token, count in sorted(counts.items()):
            p = mass * Fraction(count, total)
            if p >= Fraction(above):
                heapq.heappush(heap, (-p, (*path, token), node, rows))

    ask((), 0, Fraction(1))
    tree, ids = t, list[int]()
    while heap and len(ids) < int(size):
        mass, path, parent, rows = heapq.heappop(heap)
        draw = TorchDraws(np.array([path[-1]]), rows, np.zeros(1, dtype=np.int64), "raw", point=True, tag="index")
        tree, new = grow(m, tree, draw, np.array([parent]), has_at=True)
        if not len(new):
            continue
        ids.append(int(new[0]))
        ask(path, ids[-1], -mass)
    found = np.array(ids, dtype=np.int64)
    return replace(tree, new=found, frontier=found), found


on_host("topology", "topology.narrow", "level.get", why="tree shapes are static")
