"""Where the nodes of a tree of drafts stand: their tokens, positions and children, and which of them a driver would draft."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.state import Step
from decgraph.backends.triton.values import NodeSet, Tree
from decgraph.backends.triton.vectors import order_of


def children(s: Step, t: Tree, at: Tensor, among: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
    """The children of one node int64[B] of every lane in order: int64[B, K], and bool[B, K], which of them are there. among:
    the nodes that can be."""
    among = np.arange(1, t.size) if among is None else among
    k = min(t.most, len(among))
    if not k:
        none = s.lanes(np.zeros(0, dtype=np.int64))
        return none, none.bool()
    if t.fixed and t.live is None:
        table = np.full((t.size, k), 0, dtype=np.int64)
        fill = np.zeros(t.size, dtype=np.int64)
        for n in among.tolist():
            p = int(t.parent[n])
            table[p, fill[p]] = n
            fill[p] += 1
        there = np.arange(k) < fill[:, None]
        return s.constant(table)[at], s.leads(s.constant(there)[at])
    mine = s.lanes(t.parent)[:, s.constant(among)] == at[:, None]
    if t.live is not None:
        mine = mine & s.lanes(t.live)[:, s.constant(among)]
    order = order_of((~mine).to(torch.uint8))[:, :k]
    there = mine.gather(1, order)
    return torch.where(there, s.constant(among)[order], 0), s.leads(there)


def reachable(s: Step, t: Tree, last: bool = False) -> Tensor | None:
    """bool[B, N]: the nodes that a driver drafts, which ends at the request's limit and under tokens that end the text
    (ir/places.py); None: all. A step drafts further: its trees have one size. last: those of the last growth alone."""
    if "limit" not in t.until or not s.as_driver:
        return None
    place = torch.zeros_like(s.length)
    if "place" in t.until:
        place = place + 1
    elif "greedy place" in t.until:
        place = (s.settings.temperature == 0).long()
    reach = s.limit - (t.base.length - s.base) - place
    first = t.growths[-1].first if last else 0
    out = s.tensor(t.depth[:, first:] if isinstance(t.depth, Tensor) else t.depth[first:]) <= reach[:, None]
    if "ends" not in t.until:
        return out
    if t.ended:
        return out & ~(t.ended[-1] if last else s.cat(t.ended))
    parent = s.lanes(t.parent).clamp(min=0)
    behind = is_end(s, t.token).gather(1, parent)
    for _ in range(t.height - 1):
        behind = behind | behind.gather(1, parent)
    return out & ~behind[:, first:]


def below_ends(s: Step, t: Tree, parents: np.ndarray, tokens: Tensor) -> Tensor:
    """bool[B, n]: whether new nodes stand under tokens that end the text. parents: NumPy int64[n]; tokens: int64[B, n]."""
    inner = None
    if parents.max(initial=0) >= t.size:  # a chain, all below its first node
        n = np.arange(len(parents))
        inner = (is_end(s, tokens)[:, None] & s.constant(n < n[:, None])).any(2)
        parents = np.full_like(parents, parents[0])
    own, ended, first = t.token, None, 0
    for g, piece in zip(t.growths, t.ended[1:]):  # of one growth they are as it has them
        if parents.min(initial=t.size) >= g.first and parents.max(initial=0) < g.first + g.count:
            own, ended, first = g.tokens, piece, g.first
    if parents.any():
        out = s.take((s.cat(t.ended) if ended is None else ended) | is_end(s, own), parents - first)
    else:
        out = s.lanes(np.zeros(len(parents), dtype=bool))
    return out if inner is None else out | inner


def is_end(s: Step, tokens: Tensor) -> Tensor:
    """bool[B, n]: whether tokens end their lane's text."""
    return (tokens[..., None] == s.ends[:, None, :]).any(-1)


def last_token(s: Step, back: int = 1) -> Tensor:
    """int64[B]: the last committed token, or one before it."""
    return s.take(s.tokens, (s.length - back).clamp(min=0))


def positions_at(s: Step, tree: Tree | None, nodes: NodeSet | Tensor) -> Tensor:
    """int64[B, R]: the index of the token that would be drawn after each node."""
    length: Tensor = s.length[:, None]
    if tree is None:
        return length
    return length + s.tensor(s.take(tree.depth, nodes))


def node_path(s: Step, tree: Tree, nodes: NodeSet | Tensor) -> Tensor:
    """int64[B, R, D]: the nodes from the root's child down to each node, -1 behind them."""
    up, depth, at = s.lanes(tree.parent), s.lanes(tree.depth), s.lanes(nodes)
    high = max(1, tree.height)
    out = s.lanes(np.full((int(at.shape[1]), high + 1), -1))
    for _ in range(high):
        d = depth.gather(1, at)
        out = out.scatter(2, torch.where(d > 0, d - 1, high)[..., None], at[..., None])
        at = up.gather(1, at)
    return out[..., :high]


def node_tokens(s: Step, tree: Tree, nodes: NodeSet | Tensor) -> Tensor:
    """int64[B, R, D]: the tokens of `node_path`."""
    path = node_path(s, tree, nodes)
    return torch.where(path >= 0, s.take(s.lanes(tree.token), path.clamp(min=0)), -1)
