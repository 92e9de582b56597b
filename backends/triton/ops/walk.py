"""Verification: a rule is its own region, evaluated level by level for all lanes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.distributions import own_rows
from decgraph.backends.triton.ops.nodes import children, node_path, reachable
from decgraph.backends.triton.ops.sequences import stacked
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Noise, Operand, Path, Rows, RowSource, Tree, Vec, is_static
from decgraph.backends.triton.vectors import COMPARED, alike, both, count_of, fitted, live_of, mapped
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.values import Op, Value


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
    found = _everywhere(s, op, t, evidence)
    at, going = torch.zeros_like(s.length), torch.ones_like(s.done)
    if found is not None and _is_chain(t):  # a level's node is known, if its lane comes to it
        place = s.steps(t.size)
        reached = place <= torch.where(found.has & ~found.emits, t.size, place).amin(1)[:, None]
        at = torch.where(reached & found.has, found.child, 0).amax(1)
    else:
        useful = reachable(s, t) if found is None else None
        every: list[Verdict] = []
        came = []
        for level in range(t.height + 1):
            if level and s.idle(going):
                break
            came.append(going)
            if found is None:
                row, among = evidence_at(s, evidence, at, op), _level(t, level)
                ids, there = children(s, t, at, among)
                with s.within(going):
                    verdict = _verdict(s, op, level, at, row, drafted(s, t, ids, there, among), there, useful)
            else:
                verdict = Verdict(*(s.take(a, at) for a in found))
            every.append(verdict)
            at = torch.where(going & verdict.has, verdict.child, at)
            going = going & verdict.has & ~verdict.emits
        reached, found = torch.stack(came, 1), Verdict(*(torch.stack(parts, 1) for parts in zip(*every)))
    s.flag(reached & found.wrong)
    s.counts.test(reached & found.tested, found.has)
    on = reached & found.has
    nodes, emitted = torch.where(on, found.child, -1), torch.where(reached & found.emits, found.token, -1).amax(1)
    return path_of(s, t, nodes, on.sum(1), at, emitted)


class Verdict(NamedTuple):
    """What a rule says at one node of every lane: whether it accepts a child, int64 child; whether it emits, int64 token;
    whether a child was tested; whether the lane is one for the driver. [B] each, or [B, N] of all nodes."""

    has: Tensor
    child: Tensor
    emits: Tensor
    token: Tensor
    tested: Tensor
    wrong: Tensor


def _verdict(
    s: Step, op: Op, level: Operand, at: Tensor, row: Operand, draws: Draws, there: Tensor, useful: Tensor | None
) -> Verdict:
    """A rule at nodes int64[B] of a level, for their rows and children. there: bool[B, K], which children are there."""
    ids = draws.nodes
    has, taken, emits, token = s.region(op.regions[0], (level, row, draws))
    accepts = tested = torch.zeros_like(s.done)
    child, none = at, tested
    if ids is not None:
        tested = (there if useful is None else there & s.lanes(useful).gather(1, ids)).any(1)
        if taken is not None:
            accepts = s.lanes(has).bool()
            child = torch.where(accepts, child_of(s, draws, ids, there, taken), at)
    said = torch.full_like(at, -1) if token is None else s.lanes(token).long()
    return Verdict(accepts, child, s.lanes(emits).bool(), said, tested, none)


EVERYWHERE = {
    "bernoulli", "const", "draw", "draw.get", "for", "gather", "if", "len", "lookup", "map", "noise", "normalize", "segment",
    "verdict",
}  # fmt: skip
"""Operations of rules whose results do not depend on what is done at other nodes."""
MOST = 2**24
"""Comparisons by which all nodes of all lanes look for their children; with more, levels are evaluated one by one."""


def _is_chain(t: Tree) -> bool:
    return t.fixed and t.live is None and np.array_equal(t.parent, np.arange(-1, t.size - 1).clip(0))


def _everywhere(s: Step, op: Op, t: Tree, evidence: Operand) -> Verdict | None:
    """What a rule says at all nodes, [B, N] each, computed at once: noise is keyed by level and position, so that it does not
    depend on the path. None where that cannot be known, or where the rule computes vectors over the vocabulary and the tree is
    no chain, of which each node is on the path."""
    ops, chain, edges = list(op.regions[0].walk()), _is_chain(t), t.edges
    inside = {v for o in ops for v in o.results} | {
        v for r in (op.regions[0], *(r for o in ops for r in o.regions)) for v in r.args
    }
    outside = {v: s.env[v] for o in ops for v in (*o.operands, *(y for r in o.regions for y in r.yields)) if v not in inside}
    if not (
        {o.opcode for o in ops} <= EVERYWHERE
        and {o.attrs["field"] for o in ops if o.opcode == "draw.get"} <= {"law", "token"}
        and 1 < t.size <= COMPARED and s.batch * t.size**3 <= MOST
        and edges is not None
        and all(is_static(v) or isinstance(v, Tensor | Noise) for v in outside.values())
        and isinstance(evidence, Dist) and evidence.at is None and evidence.shape == (t.size,)
        and (evidence.rows.is_probs or evidence.rows.allow is None and not {"bans", "min_length"} & s.settings.features)
    ):  # fmt: skip
        return None
    if any(v.type.elem == "dist" and o.opcode not in ("draw", "segment") for o in ops for v in (*o.operands, *o.results)):
        row = edges.row
        if (
            not chain
            or not isinstance(row, np.ndarray)
            or (row < 0).any()
            or edges.rank is not None
            or edges.point is not False
        ):
            return None
        every = [s.lanes(s.view(x.rows, x.face)) for x in edges.sources]
        tables = [a[:, n : n + 1] for a in every for n in range(int(a.shape[1]))]
        table = torch.cat(alike([tables[n] for n in (*row.tolist(), row[-1])]), 1)  # the last node has no child
        source = RowSource(Rows(_spread(table), is_probs=True), "shaped")
        edges = replace(edges, sources=(source,), row=np.zeros(t.size - 1, dtype=np.int64))
    else:
        edges = replace(edges, sources=(), row=None, rank=None, point=True)
    own, n, b = own_rows(s, evidence, True), t.size, s.batch
    useful, level = reachable(s, t), s.lanes(t.depth).reshape(-1)
    rows = Rows(
        _spread(own.scores),
        is_probs=True,
        positions=None if own.positions is None else _spread(s.lanes(own.positions)),
        numbers=None if own.numbers is None else _spread(s.lanes(own.numbers)),
    )

    def repeated(a: Operand) -> Any:
        if isinstance(a, Noise):
            return replace(a, counters=tuple(repeated(c) for c in a.counters), index=repeated(a.index))
        return s.lanes(a).repeat_interleave(n, 0) if isinstance(a, Tensor) else a

    tree = replace(
        t,
        token=repeated(t.token),
        parent=repeated(t.parent),
        depth=repeated(t.depth),
        live=repeated(t.live),
        edges=mapped(edges, repeated),
    )
    useful = repeated(useful)
    with _lanes_of_nodes(s, n, {v: repeated(a) for v, a in outside.items()}):
        at, among = s.steps(n).repeat(b), np.arange(1, n)
        ids, there = children(s, tree, at, among)
        draws = replace(drafted(s, tree, ids, there, among), live=there)  # the last nodes have no child
        draws = replace(draws, row=np.zeros(draws.shape, dtype=np.int64)) if edges.sources else draws
        found = _verdict(s, op, level, at, Dist(rows, np.zeros((), dtype=np.int64)), draws, there, useful)
        found = found._replace(wrong=s.lost)
    return Verdict(*(a.reshape(b, n) for a in found))


def _spread(a: Tensor) -> Tensor:
    """[B * N, 1, ...] of [B, N, ...]."""
    return a.flatten(0, 1)[:, None]


@contextmanager
def _lanes_of_nodes(s: Step, n: int, env: Mapping[Value, Operand]) -> Iterator[None]:
    """Within it every lane is n lanes, one behind the other, that are all there; env: the values that are known."""
    settings = copy(s.settings)
    for name in ("request", "noise_id", "seed"):
        setattr(settings, name, getattr(settings, name).repeat_interleave(n, 0))
    none = torch.zeros(s.batch * n, dtype=torch.bool, device=s.device)
    now: dict[str, object] = {
        "batch": s.batch * n, "frame": replace(s.frame, batch=s.batch * n), "mask": None, "done": none, "lost": none.clone(),
        "length": s.length.repeat_interleave(n, 0), "settings": settings, "env": {**s.env, **env},
    }  # fmt: skip
    before = {name: getattr(s, name) for name in now}
    try:
        vars(s).update(now)
        yield
    finally:
        vars(s).update(before)


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
    levels, deep = s.steps(t.height), depth[:, None]
    s.counts.test((deep >= levels) & (s.take(above, path[:, : t.height]) > 0), deep > levels)
    return path_of(s, t, nodes, depth, end, said)


def path_of(s: Step, t: Tree, nodes: Tensor, depth: Tensor, node: Tensor, emitted: Tensor) -> Path:
    """The tokens of accepted nodes int64[B, D], depth int64[B] of them, and of what was emitted."""
    nodes, place, deep = fitted(nodes, t.height + 1, -1), s.steps(t.height + 1), depth[:, None]
    if _is_chain(t):
        own = s.take(t.token, np.roll(np.arange(t.size), -1))
    else:
        own = s.lanes(t.token).gather(1, nodes.clamp(min=0))
    said = torch.where(place == deep, emitted.clamp(min=0)[:, None], 0)
    nodes = nodes[:, : max(1, t.height)]
    return Path(torch.where(place < deep, own, said), depth + (emitted >= 0).long(), depth, nodes, node, t, emitted)


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


def places_of(s: Step, op: Op, xs: Operand | Topology) -> Operand | None:
    """The comprehension `[i + n for i in 0..m if all(v[i:i + n] == w)]`, or of `i`, n the length of w: all places of v are
    compared at once. None for another one."""
    made, item = {r: o for o in op.regions[0].ops for r in o.results}, op.regions[0].args[1]
    test = made.get(op.regions[0].yields[-1])
    same = made.get(test.operands[0]) if test is not None and test.opcode == "reduce" and test.attrs["fn"] == "all" else None
    part = made.get(same.operands[0]) if same is not None and same.opcode == "map" and same.attrs["fn"] == "eq" else None
    if part is None or same is None or part.opcode != "slice" or len(part.operands) != 3 or part.operands[1] is not item:
        return None
    ends = [r for r, o in made.items() if o.opcode == "map" and o.attrs["fn"] == "add" and o.operands[0] is item]
    lengths = {made[r].operands[1] for r in ends}
    whole, first = s.makers.get(next(iter(lengths), item)), s.makers.get(op.operands[0])
    text_op = made.get(part.operands[0])
    asked = text_op is not None and text_op.opcode == "request"  # the prompt, named inside
    outer = not {same.operands[1], *lengths} & {*made, item} and (asked or text_op is None)
    of = whole is not None and whole.opcode == "len" and whole.operands[0] is same.operands[1] and len(lengths) == 1
    row = first is not None and first.opcode == "tile" and first.attrs["kind"] == "iota"
    gives = op.regions[0].yields[0]
    if not (outer and of and row) or part.operands[2] not in ends or gives is not item and gives not in ends:
        return None
    if asked and text_op is not None:
        s.op(text_op)
    v, w = (s.packed(s.tokens_of(s.env[x])) for x in (part.operands[0], same.operands[1]))
    text, key, n = s.lanes(v), s.lanes(w), s.lives(w).sum(1, keepdim=True)
    size = int(text.shape[1])
    good = s.lanes(np.arange(size) < count_of(xs)) if is_static(xs) else fitted(s.lives(cast(Operand, xs)), size)
    for d in range(int(key.shape[1])):
        here = (text == key[:, d : d + 1]) | (d >= n)
        good = good & torch.nn.functional.pad(here[:, d:], (0, min(d, size)), value=True)
    places = s.lanes(s.steps(size)[None])
    return s.packed(Vec(places if gives is item else places + n, good))


@step("each")
def each(s: Step, op: Op, xs: Operand | Topology) -> Operand:
    """A value for every element of a vector, list or topology."""
    if (found := places_of(s, op, xs)) is not None:
        return found
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
