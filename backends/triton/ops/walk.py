"""Verification: a rule is its own region, evaluated level by level for all lanes at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops import canvas_trees, canvases
from decgraph.backends.triton.ops.nodes import batched, children, reachable
from decgraph.backends.triton.ops.numbers import count_of, live_of, made, packed, reordered
from decgraph.backends.triton.ops.sequences import pick, stacked
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Nodes, Path, Tree, is_static


@step("tree.walk")
def walk(s: Any, op: Any, t: Tree, evidence: Any, *rest: Any) -> Any:
    """The accepted path, or canvas."""
    if canvases.is_canvas(t.base):
        return canvas_trees.walk(s, op, t, evidence)
    if op.attrs["scope"] == "tree":
        seen = t
        if (useful := reachable(s, t)) is not None:  # the rule chooses among the nodes that the driver drafts
            seen = replace(t, live=s.lanes(useful) if t.live is None else s.lanes(useful) & s.lanes(t.live))
        has, node, emits, token = s.region(op.regions[0], (0, seen, evidence))
        end = torch.where(s.lanes(has).bool(), s.lanes(node if node is not None else 0), 0)
        return whole(s, t, end, s.lanes(emits).bool(), token)
    b = s.frame.batch
    at = torch.zeros(b, dtype=torch.int64, device=s.device)
    depth = torch.zeros_like(at)
    going = torch.ones(b, dtype=torch.bool, device=s.device)
    emitted = torch.full_like(at, -1)
    nodes = torch.full((b, t.height + 1), -1, dtype=torch.int64, device=s.device)
    useful = reachable(s, t)
    for level in range(t.height + 1):
        if level and s.idle(going):
            break
        with s.within(going):
            row = evidence_at(s, evidence, at, going, op)
            among = _level(t, level)
            ids, there = children(s, t, at, among)
            draws = drafted(s, t, ids, there, among)
            has, taken, emits, token = s.region(op.regions[0], (level, row, draws))
            has = s.lanes(has).bool() & bool(ids.shape[1])
            child = at
            if ids.shape[1] and taken is not None:
                child = torch.where(has, child_of(s, draws, ids, there, taken), at)
            else:
                has = torch.zeros_like(has)
            tested = there if useful is None or not ids.shape[1] else there & s.lanes(useful).gather(1, ids)
            s.counts.test(level + 1, tested.any(1) if ids.shape[1] else torch.zeros_like(has), has)
            says = s.lanes(emits).bool() & going
            if token is not None:
                emitted = torch.where(says, s.lanes(token).long(), emitted)
            step_on = going & has
            nodes[:, level] = torch.where(step_on, child, -1)
            at, depth = torch.where(step_on, child, at), depth + step_on.long()
            going = step_on & ~says
    return path_of(s, t, nodes[:, : max(1, t.height)], depth, at, emitted)


def _level(t: Tree, level: int) -> np.ndarray:
    """The nodes that can be children of a node of a level."""
    if isinstance(t.depth, np.ndarray):
        return np.flatnonzero(t.depth == level + 1)
    return np.arange(1, t.size)


def evidence_at(s: Any, evidence: Any, at: Tensor, going: Tensor, op: Any) -> Any:
    """The evidence at a node of every lane. at: int64[B]; going: bool[B]."""
    if not isinstance(evidence, Dist):
        if isinstance(evidence, Tensor | np.ndarray):
            return pick(s, evidence, at)
        raise NotSteppable("a verification against something else than distributions", op)
    if evidence.at is None:
        return pick(s, evidence, at.clamp(max=evidence.shape[0] - 1))
    ids = evidence.at.ids if isinstance(evidence.at, Nodes) else s.constant(np.asarray(evidence.at))[None]
    same = s.lanes(ids) == at[:, None]
    s.flag(~same.any(1) & going)  # the walk ends where the evidence is not known: rare, and the driver's
    return pick(s, evidence, same.long().argmax(1))


def drafted(s: Any, t: Tree, ids: Tensor, there: Tensor, among: np.ndarray) -> Draws:
    """The draws of nodes int64[B, K], those that are there."""
    if t.edges is None or not ids.shape[1]:
        return Draws(torch.zeros((s.frame.batch, 0), dtype=torch.int64, device=s.device), point=True)
    edges = t.edges
    if isinstance(edges.row, np.ndarray) and len(edges.laws) > 1 and edges.rank is None:
        edges = _fewer(edges, among)
    out: Draws = pick(s, edges, (ids - 1).clamp(min=0))
    tokens = torch.where(there, out.tokens, -1)
    return replace(out, tokens=tokens, live=None if bool(_full(t, among)) else there, nodes=ids)


def child_of(s: Any, draws: Draws, ids: Tensor, there: Tensor, taken: Any) -> Tensor:
    """int64[B]: the node of the draw that a rule accepted: that draw's own, else of those int64[B, K] the first with its
    token."""
    if isinstance(taken, Draws) and taken.nodes is not None:
        return taken.nodes
    same = (s.lanes(draws.tokens) == s.lanes(taken)[:, None]) & there
    return ids.gather(1, same.long().argmax(1)[:, None])[:, 0]


def _full(t: Tree, among: np.ndarray) -> bool:
    """Whether every node of the level above has as many children as there is room for: one node a level."""
    return bool(
        t.fixed and t.live is None and len(among) and t.most == len(among) and len(set(t.parent[among].tolist())) == 1
    ) and (len(np.flatnonzero(t.depth == t.depth[t.parent[among[0]]])) == 1)


def _fewer(edges: Draws, among: np.ndarray) -> Draws:
    """The same draws with the laws of some nodes alone: the tables of the others need not be joined."""
    assert isinstance(edges.row, np.ndarray)
    row = np.broadcast_to(edges.row, edges.shape).copy()
    start, kept, out = 0, [], np.full_like(row, -1)
    new = 0
    wanted = np.zeros(len(row), dtype=bool)
    wanted[among - 1] = True
    for law in edges.laws:
        n = law.rows.count
        here = (row >= start) & (row < start + n)
        if (here & wanted).any():
            out[here] = row[here] - start + new
            kept.append(law)
            new += n
        start += n
    return replace(edges, laws=tuple(kept), row=out)


def whole(s: Any, t: Tree, end: Tensor, emits: Tensor, token: Any) -> Path:
    """The path to a node int64[B], and the token behind it."""
    up, depth = batched(s, t.parent), batched(s, t.depth).gather(1, end[:, None])[:, 0]
    high = max(1, t.height)
    nodes = torch.full((s.frame.batch, high + 1), -1, dtype=torch.int64, device=s.device)
    at, d = end, depth
    for _ in range(high):
        nodes = nodes.scatter(1, torch.where(d > 0, d - 1, high)[:, None], torch.where(d > 0, at, -1)[:, None])
        at, d = up.gather(1, at[:, None])[:, 0], (d - 1).clamp(min=0)
    said = torch.full_like(end, -1) if token is None else torch.where(emits, s.lanes(token).long(), -1)
    there = torch.ones_like(up, dtype=torch.bool) if t.live is None else s.lanes(t.live).clone()
    useful = reachable(s, t)
    there = there if useful is None else there & useful
    there[:, 0] = False
    above = torch.zeros_like(up).scatter_add(1, up, there.long())  # how many children a node has
    path = torch.cat([torch.zeros_like(end)[:, None], nodes[:, :high].clamp(min=0)], 1)
    for level in range(t.height):
        s.counts.test(level + 1, (depth >= level) & (above.gather(1, path[:, level : level + 1])[:, 0] > 0), depth > level)
    return path_of(s, t, nodes[:, :high], depth, end, said)


def path_of(s: Any, t: Tree, nodes: Tensor, depth: Tensor, node: Tensor, emitted: Tensor) -> Path:
    """The tokens of accepted nodes int64[B, D], depth int64[B] of them, and of what was emitted."""
    tokens = s.lanes(t.token).gather(1, nodes.clamp(min=0))
    spare = torch.cat([torch.where(nodes >= 0, tokens, 0), torch.zeros_like(tokens[:, :1])], 1)
    out = spare.scatter(1, depth[:, None], emitted.clamp(min=0)[:, None])
    return Path(out, depth + (emitted >= 0).long(), depth, nodes, node, t, emitted)


@step("path.get")
def path_get(s: Any, op: Any, p: Path) -> Any:
    """A field of a path."""
    field = op.attrs["field"]
    if field in ("token", "path"):
        return made(p.tokens, s.steps(int(p.tokens.shape[1])) < p.length[:, None])
    if field == "length":
        return p.length
    found = {"depth": p.count, "node": p.node, "emitted": p.emitted}.get(field)
    if found is None:
        raise NotSteppable(f"the {field} of this path", op)
    return found


@joins(Path)
def join_paths(s: Any, lanes: Tensor, a: Any, b: Any) -> Path:
    """One of two paths in every lane. lanes: bool[B]."""
    if not (isinstance(a, Path) and isinstance(b, Path)):
        raise NotSteppable("a path or something else", s.place)
    n = max(int(x.tokens.shape[1]) for x in (a, b))
    tokens = [torch.cat([x.tokens, x.tokens.new_zeros((x.tokens.shape[0], n - int(x.tokens.shape[1])))], 1) for x in (a, b)]
    same = a.tree is not None and a.tree is b.tree

    def both(x: Tensor | None, y: Tensor | None) -> Tensor | None:
        return (
            None
            if x is None or y is None or x.shape != y.shape
            else torch.where(lanes.reshape(-1, *([1] * (x.ndim - 1))), x, y)
        )

    return Path(
        torch.where(lanes[:, None], s.lanes(tokens[0]), s.lanes(tokens[1])),
        torch.where(lanes, a.length, b.length), both(a.count, b.count),
        both(a.nodes, b.nodes) if same else None, both(a.node, b.node), a.tree if same else None, both(a.emitted, b.emitted),
    )  # fmt: skip


@step("level.get")
def level_get(s: Any, op: Any, level: Any) -> Any:
    """A field of a level of a topology."""
    return s.level_field(level, op.attrs["field"])


@step("each")
def each(s: Any, op: Any, xs: Any) -> Any:
    """A value for every element of a vector, list or topology."""
    if is_static(xs) or isinstance(xs, list):
        items = [xs[i] for i in range(len(xs))]
        lives = None
    else:
        xs = packed(s, xs)
        lives = live_of(xs)
        items = [pick(s, xs, np.asarray(i)) for i in range(count_of(xs))]
    out, kept = [], []
    quiet = s.quiet(op)
    for i, x in enumerate(items):
        if lives is not None and quiet and i and s.idle(lives[:, i]):
            items, lives = items[:i], lives[:, :i]
            break
        with s.within(None if lives is None else lives[:, i]):
            r = s.region(op.regions[0], (i, x))
        out.append(r[0])
        if op.attrs.get("filtered"):
            kept.append(r[1])
    if op.result.type.elem == "list":
        if kept or lives is not None:
            raise NotSteppable("a list whose length depends on data", op)
        return out
    if not out:
        return np.zeros(0, dtype=bool if op.result.type.elem == "bool" else np.int64)
    if all(is_static(x) for x in out) and all(is_static(k) for k in kept) and lives is None:
        chosen = [x for n, x in enumerate(out) if not kept or kept[n]]
        return np.stack([np.asarray(x) for x in chosen]) if chosen else np.zeros(0, dtype=np.int64)
    value = stacked(s, out, op)
    if kept or lives is not None:
        live = lives
        if kept:
            keep = torch.stack([s.lanes(k).bool() for k in kept], 1)
            live = keep if live is None else live & keep
        return packed(s, reordered(s, value, np.arange(len(out)), live))
    return value
