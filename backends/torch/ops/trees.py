"""Lowerings of ir/ops/trees.py: trees as columns."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from decgraph.backends.torch.canvases import Canvas, Edit
from decgraph.backends.torch.data import dimensions, host, real
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.events import grew, grew_edits, pruned
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.ops.request import context
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, TorchDist
from decgraph.backends.torch.trees import Edge, TorchPath, TorchTree, among, filled
from decgraph.ir.data.dist import Soft
from decgraph.ir.ops.limits import room_for_nodes

Grown = Draws | Edge | np.ndarray | list[Edge]
"""What can be grown: draws, edits, embeddings or steps."""


def is_embedding(what: object) -> bool:
    """Whether what is grown is an embedding, float[vocabulary + 1], and no draws, edits or steps."""
    return isinstance(what, np.ndarray) and what.dtype.kind == "f"


def bounds(m: Machine, until: tuple[str, ...] = (), unread: bool = False) -> tuple[int, frozenset[int]]:
    """The longest text that a tree drafts, with the prompt, and the tokens below which it drafts nothing. unread: it may hold
    the token behind the context window, which no model reads."""
    extent, closes = m.bounds(until)
    end = 1 << 30 if extent is None else extent
    return end if m.window is None else min(end, m.window + unread), closes


def full(m: Machine, tree: TorchTree | None, which: str) -> bool:
    """Whether nothing fits under the leaves, the frontier or the new nodes of a tree."""
    if tree is None or not isinstance(tree.base, Context):
        return False
    nodes = {"frontier": tree.frontier, "new": tree.new}.get(which)
    if nodes is not None and not len(nodes):
        return True
    deep = tree.end - tree.base.length
    if not tree.closes and len(tree.parent) <= deep:  # not even a chain is that deep
        return False
    nodes = tree.leaves() if nodes is None else nodes
    open_ = tree.depth[nodes] < deep
    if tree.closes:
        open_ &= ~tree.closed(nodes)
    return not bool(open_.any())


@lowering("tree.new")
def new(m: Machine, base: Context | Canvas | None = None, *, until: tuple[str, ...] = (), unread: bool = False) -> TorchTree:
    """A tree of a root alone."""
    return TorchTree.start(context(m) if base is None else base, *bounds(m, until, unread))


@lowering("tree.continue")
def resume(m: Machine, t: TorchTree | None, *, until: tuple[str, ...] = ()) -> TorchTree:
    """A carried tree, on the context as it is now."""
    end, closes = bounds(m, until)
    if t is None:
        return TorchTree.start(context(m), end, closes)
    leaves = t.leaves()
    return replace(t, base=context(m), frontier=leaves, new=leaves, end=end, closes=closes)


@lowering("tree.grow")
def grow(
    m: Machine,
    t: TorchTree,
    what: Grown,
    *rest: object,
    has_at: bool = False,
    columns: tuple[str, ...] = (),
    chain: bool = False,
) -> tuple[TorchTree, Ids]:
    """The tree with the draws (edits, steps) grown into it, and the new nodes."""
    at, values = (rest[0], rest[1:]) if has_at else (None, rest)
    if isinstance(what, TorchDraws | Mixed):
        flat = what.ravel()
        room_for_nodes(len(t.parent), len(flat.tokens))
        parents, leading = _parents(t, what, flat, at, chain)
        tokens = flat.tokens
        edges: list[Edge] = []
        draw: Draws | None = flat
    else:
        if is_embedding(what):
            what = Soft(tuple(np.asarray(what, dtype=np.float64).tolist()))
        edges, parents, leading = _attached(t, what, at)
        room_for_nodes(len(t), len(edges))
        tokens, draw = np.array([_edge_token(e) for e in edges], dtype=np.int64), None
    ok = tokens >= 0 if draw is not None else np.array([e is not None for e in edges], dtype=bool)
    places = ok.nonzero()[0]
    if not isinstance(t.base, Canvas):
        room = t.end - t.base.length
        if chain:
            places = places[: max(0, room - int(t.depth[parents[0]]))] if len(places) else places
            if t.closes and len(places):
                places = until_closed(t, int(parents[0]), places, tokens)
        elif len(places):
            places = places[t.depth[parents[places]] + 1 <= room]
            if t.closes:
                places = places[~t.closed(parents[places])]
    if chain and len(places):
        first = int(parents[0])
        ups = np.concatenate(([first], np.arange(len(t), len(t) + len(places) - 1)))
        depths = int(t.depth[first]) + 1 + np.arange(len(places))
    else:
        ups = parents[places]
        depths = t.depth[ups] + 1
    cols: dict[str, list[object]] = {}
    logprob = np.empty(len(places))
    logprob.fill(np.nan)
    for name, value in zip(columns, values, strict=True):
        each = column_of(value, len(parents), leading)
        if name == "logprob":
            logprob = np.array([real(each[int(i)]) for i in places])
        else:
            cols[name] = [each[int(i)] for i in places]
    if draw is None:
        unscored = np.isnan(logprob)
        logs = np.array([_edge_log(edges[int(i)]) for i in places]) if len(places) else np.zeros(0)
        logprob = np.where(unscored, t.logprobs()[ups] + logs, logprob) if len(places) else logprob
    tree = t.grow(
        draw,
        places,
        tokens[places],
        ups,
        depths,
        m.next_uids(len(places)),
        logprob,
        cols,
        [] if draw is not None else [edges[int(i)] for i in places],
    )
    if draw is not None or isinstance(t.base, Canvas):
        m.tally.drafted += len(places)
    if draw is None and isinstance(t.base, Canvas) and m.listener is not None:
        grew_edits(m, tree, tree.new)
    if draw is not None and m.listener is not None:
        grew(m, tree, tree.new, draw, places)
    m.now(tree)
    return tree, tree.new


def until_closed(t: TorchTree, parent: int, places: Ids, tokens: Ids) -> Ids:
    """The beginning of a chain that ends with the first token that ends the text."""
    if bool(t.closed(np.array([parent]))[0]):
        return places[:0]
    ends = np.flatnonzero(among(tokens[places], t.closes))
    return places[: int(ends[0]) + 1] if len(ends) else places


def _edge_token(e: Edge) -> int:
    if isinstance(e, TorchPath):
        return e.tokens[-1] if e.tokens else 0
    if isinstance(e, Soft):
        return -1
    return e.token if isinstance(e, Edit) else 0


def _edge_log(e: Edge) -> float:
    if not isinstance(e, Edit) or not isinstance(e.value, TorchDraws):
        return 0.0
    with np.errstate(divide="ignore"):
        return float(np.log(e.value.prob()))


def _parents(t: TorchTree, what: Draws, flat: Draws, at: object, chain: bool) -> tuple[Ids, Ids]:
    """The parent of every draw, and the leading row each stands in."""
    n = len(flat.tokens)
    if chain:
        start = int(np.asarray(at).reshape(-1)[0]) if at is not None else 0
        return filled(max(n, 1), start), np.arange(n)
    shape = what.tokens.shape
    width = prod(shape[1:])
    leading = np.arange(n) // width if shape else np.zeros(n, dtype=np.int64)
    if at is not None:
        given = np.asarray(at, dtype=np.int64)
        ids = given.reshape(-1)
        if len(ids) == 1:
            return filled(n, int(ids[0])), leading
        if n == 1 and not shape:  # one draw under several nodes: under each
            return ids[:1], leading
        return (ids if given.shape == shape else ids[leading]), leading
    nodes = flat.nodes()
    if nodes is not None:
        return np.asarray(nodes, dtype=np.int64), leading
    front = t.frontier
    if len(front) > 1 and shape and len(front) == shape[0]:
        return front[leading], leading
    return filled(n, int(front[0]) if len(front) else 0), leading


def _attached(t: TorchTree, what: Edge | np.ndarray | list[Edge], at: object) -> tuple[list[Edge], Ids, Ids]:
    """Steps, edits and soft cells with their parents."""
    items: list[Edge] = list(what) if isinstance(what, list | np.ndarray) else [what]
    if not isinstance(what, list | np.ndarray):
        node = int(np.asarray(at).reshape(-1)[0]) if at is not None else int(t.frontier[0])
        return items, np.array([node]), np.zeros(1, dtype=np.int64)
    if isinstance(what, list):
        ids = np.atleast_1d(np.asarray(at)) if at is not None else np.full(len(items), t.frontier[0])
        parents = np.array([int(ids[i if len(ids) > 1 else 0]) for i in range(len(items))], dtype=np.int64)
    else:
        ids = np.atleast_1d(np.asarray(at)) if at is not None else t.frontier
        parents = np.array([int(ids[i if len(ids) == len(items) else 0]) for i in range(len(items))], dtype=np.int64)
    return items, parents, np.arange(len(items))


def column_of(value: object, n: int, rows: Ids) -> list[object]:
    """A column's values, one per edge: elementwise, by row, or the same for all."""
    value = host(value) if isinstance(value, TorchDraws | Mixed) else value
    if isinstance(value, TorchDist):  # a distribution each, which stays on the device
        each: list[object] = [value.pick(i) for i in np.ndindex(value.shape)] if value.shape else [value]
        value = each if len(each) != 1 else each * n
    if isinstance(value, list | tuple) or dimensions(value):
        flat: list[object] = list(value) if isinstance(value, list | tuple) else list(np.ravel(np.asarray(value)))
        return flat if len(flat) == n else [flat[int(r)] for r in rows]
    return [value] * n


@lowering("tree.keep")
def keep(m: Machine, t: TorchTree, ns: object) -> TorchTree:
    """Prune to nodes."""
    kept = t.closed_under_parents(np.ravel(np.asarray(ns, dtype=np.int64)))
    pruned(m, t, kept.tolist())
    tree = t.only(kept)
    m.now(tree)
    return tree


@lowering("tree.reroot")
def reroot(m: Machine, t: TorchTree, path: TorchPath) -> TorchTree:
    """After a commit: the tree below the accepted node; nothing where a token was emitted instead."""
    if path.emitted is not None or m.done():
        return TorchTree.start(context(m), *bounds(m))
    return t.below(path.node, context(m))
