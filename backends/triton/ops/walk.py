"""Verification: a rule is its own region, evaluated level by level for all lanes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.nodes import children, node_path, reachable
from decgraph.backends.triton.ops.sequences import stacked
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Operand, Path, RowSource, Tree, is_static
from decgraph.backends.triton.vectors import both, count_of, live_of, with_at
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.values import Op


@step("tree.walk")
def walk(s: Step, op: Op, t: Tree, evidence: Operand, *rest: Operand) -> Operand:
    """The accepted path."""
    if op.attrs["scope"] == "tree":
        seen = t
        if (useful := reachable(s, t)) is not None:  # the rule chooses among the nodes that the driver drafts
            seen = replace(t, live=both(s.lanes(useful), t.live))
        has, node, emits, token = s.region(op.regions[0], (0, seen, evidence))
        end = torch.where(s.lanes(has).bool(), s.lanes(node if node is not None else 0), 0)
        return whole(s, t, end, s.lanes(emits).bool(), token)
    at = depth = torch.zeros_like(s.length)
    going, emitted = torch.ones_like(s.done), torch.full_like(at, -1)
    nodes = torch.full((s.frame.batch, t.height + 1), -1, dtype=torch.int64, device=s.device)
    useful = reachable(s, t)
    for level in range(t.height + 1):
        if level and s.idle(going):
            break
        with s.within(going):
            row = evidence_at(s, evidence, at, op)
            among = _level(t, level)
            ids, there = children(s, t, at, among)
            draws = drafted(s, t, ids, there, among)
            has, taken, emits, token = s.region(op.regions[0], (level, row, draws))
            child, has = at, s.lanes(has).bool() if ids.shape[1] and taken is not None else torch.zeros_like(s.done)
            if ids.shape[1] and taken is not None:
                child = torch.where(has, child_of(s, draws, ids, there, taken), at)
            if ids.shape[1]:
                tested = there if useful is None else there & s.lanes(useful).gather(1, ids)
                s.counts.test(level + 1, tested.any(1), has)
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


def evidence_at(s: Step, evidence: Operand, at: Tensor, op: Op) -> Operand:
    """The evidence at a node int64[B] of every lane."""
    if not isinstance(evidence, Dist) or evidence.at is not None:
        raise NotSteppable("a verification against something else than distributions at all nodes", op)
    return s.pick(evidence, at.clamp(max=evidence.shape[0] - 1))


def drafted(s: Step, t: Tree, ids: Tensor, there: Tensor, among: np.ndarray) -> Draws:
    """The draws of nodes int64[B, K], those that are there."""
    if t.edges is None or not ids.shape[1]:
        return Draws(s.lanes(np.zeros(0, dtype=np.int64)), point=True)
    edges = t.edges
    if isinstance(edges.row, np.ndarray) and len(edges.sources) > 1 and edges.rank is None:
        edges = _fewer(edges, edges.row, among)
    out: Draws = s.pick(edges, (ids - 1).clamp(min=0))
    return replace(out, tokens=torch.where(there, out.tokens, -1), live=None if _full(t, among) else there, nodes=ids)


def child_of(s: Step, draws: Draws, ids: Tensor, there: Tensor, taken: Operand) -> Tensor:
    """int64[B]: the node of the draw that a rule accepted: that draw's own, else of those int64[B, K] the first with its
    token."""
    if isinstance(taken, Draws) and taken.nodes is not None:
        return taken.nodes
    same = (s.lanes(draws.tokens) == s.lanes(taken)[:, None]) & there
    return s.take(ids, same.long().argmax(1))


def _full(t: Tree, among: np.ndarray) -> bool:
    """Whether every node of the level above has as many children as there is room for: one node a level."""
    if not (t.fixed and t.live is None and len(among) and t.most == len(among) and len(set(t.parent[among].tolist())) == 1):
        return False
    return int((t.depth == t.depth[t.parent[among[0]]]).sum()) == 1


def _fewer(edges: Draws, row: np.ndarray, among: np.ndarray) -> Draws:
    """The same draws with the sources of some nodes alone: the tables of the others need not be joined."""
    some: list[RowSource] = []
    start, out = 0, np.full_like(row, -1)
    wanted = np.isin(np.arange(len(row)), among - 1)
    for source in edges.sources:
        here = (row >= start) & (row < start + source.rows.count)
        if (here & wanted).any():
            out[here] = row[here] - start + sum(x.rows.count for x in some)
            some.append(source)
        start += source.rows.count
    return replace(edges, sources=tuple(some), row=out)


def whole(s: Step, t: Tree, end: Tensor, emits: Tensor, token: Operand) -> Path:
    """The path to a node int64[B], and the token behind it."""
    up, depth = s.lanes(t.parent), s.take(s.lanes(t.depth), end)
    nodes = node_path(s, t, end[:, None])[:, 0]
    said = torch.full_like(end, -1) if token is None else torch.where(emits, s.lanes(token).long(), -1)
    there = s.lives(t) & s.lanes(np.arange(t.size) > 0)
    useful = reachable(s, t)
    there = there if useful is None else there & useful
    above = torch.zeros_like(up).scatter_add(1, up, there.long())  # how many children a node has
    path = torch.cat([torch.zeros_like(end)[:, None], nodes.clamp(min=0)], 1)
    for level in range(t.height):
        s.counts.test(level + 1, (depth >= level) & (s.take(above, path[:, level]) > 0), depth > level)
    return path_of(s, t, nodes, depth, end, said)


def path_of(s: Step, t: Tree, nodes: Tensor, depth: Tensor, node: Tensor, emitted: Tensor) -> Path:
    """The tokens of accepted nodes int64[B, D], depth int64[B] of them, and of what was emitted."""
    tokens = s.lanes(t.token).gather(1, nodes.clamp(min=0))
    spare = torch.cat([torch.where(nodes >= 0, tokens, 0), torch.zeros_like(tokens[:, :1])], 1)
    out = with_at(spare, depth[:, None], emitted.clamp(min=0)[:, None])
    return Path(out, depth + (emitted >= 0).long(), depth, nodes, node, t, emitted)


@step("path.get")
def path_get(s: Step, op: Op, p: Path) -> Operand:
    """A field of a path."""
    field = op.attrs["field"]
    if field in ("token", "path"):
        return s.tokens_of(p)
    if field == "length":
        return p.length
    if field not in ("depth", "node", "emitted"):
        raise NotSteppable(f"the {field} of a path", op)
    return {"depth": p.count, "node": p.node, "emitted": p.emitted}[field]


@step("level.get")
def level_get(s: Step, op: Op, level: Level | Topology) -> Operand:
    """A field of a level of a topology."""
    return s.level_field(level, op.attrs["field"])


@step("each")
def each(s: Step, op: Op, xs: Operand | Topology) -> Operand:
    """A value for every element of a vector, list or topology."""
    if isinstance(xs, np.ndarray | Sequence | Topology):
        items, there = [cast(Operand, xs[i]) for i in range(len(xs))], None
    else:
        xs = s.packed(xs)
        items, there = [s.pick(xs, np.asarray(i)) for i in range(count_of(xs))], live_of(xs)
    out, chosen = [], []
    quiet = s.quiet(op)
    for i, x in enumerate(items):
        if there is not None and quiet and i and s.idle(there[:, i]):
            there = there[:, :i]
            break
        with s.within(None if there is None else there[:, i]):
            r = s.region(op.regions[0], (i, x))
        out.append(r[0])
        if op.attrs.get("filtered"):
            chosen.append(r[1])
    if op.result.type.elem == "list":
        if chosen or there is not None:
            raise NotSteppable("a list whose length depends on data", op)
        return out
    if not out:
        return np.zeros(0, dtype=bool if op.result.type.elem == "bool" else np.int64)
    if all(is_static(x) for x in (*out, *chosen)) and there is None:
        some = [np.asarray(x) for n, x in enumerate(out) if not chosen or chosen[n]]
        return np.stack(some) if some else np.zeros(0, dtype=np.int64)
    value = stacked(s, out, op)
    live = both(torch.stack([s.lanes(k).bool() for k in chosen], 1) if chosen else None, there)
    return value if live is None else s.packed(s.reordered(value, np.arange(len(out)), live))
