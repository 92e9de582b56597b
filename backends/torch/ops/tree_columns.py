"""Lowerings of ir/ops/tree_columns.py: columns, sets of nodes, sizes, folds along paths and over subtrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.data import array, real
from decgraph.backends.torch.draws import Mixed, joined, points
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.ops.trees import column_of
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, Rows, TorchDist, TorchVectors, Where, on_one_device
from decgraph.backends.torch.trees import TorchTree, canvas_at
from decgraph.errors import DecError
from decgraph.ir.data.numbers import objects
from decgraph.ir.values import Op
from decgraph.runtime.request import Request


class StoredRows(Rows):
    """The rows of a column. values: a distribution of shape () for every node, None where nothing was stored."""

    __slots__ = ("values", "column", "vocab")

    def __init__(self, values: list[TorchDist | None], request: Request, vocab: int, column: str) -> None:
        super().__init__(torch.empty(0, vocab), request)
        self.values, self.column, self.vocab = values, column, vocab

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        return self.vocab

    def value(self, i: int, face: str) -> TorchDist:
        """What was stored at node i, in a view. Raises DecError where nothing was."""
        v = self.values[i]
        if v is None:
            raise DecError(f"column {self.column} was not set at this node", hint="set it before it is read")
        return v.seen(face) if v.face == "shaped" else v

    def points(self, face: str) -> Ids | None:
        return None

    def face(self, name: str) -> Tensor:
        """Probabilities [R, V]; zeros where nothing was stored."""
        stored = [None if v is None else self.value(i, name).vector() for i, v in enumerate(self.values)]
        some = next((v for v in stored if v is not None), torch.zeros(self.vocab))
        return torch.stack([torch.zeros_like(some) if v is None else v for v in stored])


class Stored(TorchDist):
    """A column of distributions, one for each node."""

    __slots__ = ()
    rows: StoredRows

    def __init__(self, values: list[TorchDist | None], request: Request, vocab: int, column: str, face: str = "shaped") -> None:
        super().__init__(StoredRows(values, request, vocab, column), np.arange(len(values)), face)

    def seen(self, face: str) -> TorchDist:
        r = self.rows
        return Stored(r.values, r.request, r.vocab, r.column, face)

    def pick(self, where: Where, at: Ids | None = None) -> TorchDist:
        """Of one node what was stored there, as it was; of several nodes rows of the column."""
        if isinstance(where, int | np.integer) or isinstance(where, np.ndarray) and not where.ndim:
            return self.rows.value(int(where), self.face)
        return super().pick(where, at)


@lowering("tree.get")
def get(m: Machine, t: TorchTree, *, column: str, op: Op) -> object:
    """A column over all nodes."""
    c = column
    if c in ("parent", "depth"):
        return (t.parent if c == "parent" else t.depth).copy()
    if c == "logprob":
        return t.logprobs().copy()
    if c in ("masked", "decided"):
        mask = np.stack([canvas_at(t, n).masked() for n in range(len(t))])
        return mask if c == "masked" else ~mask
    last = t.base.tokens[t.base.length - 1] if not isinstance(t.base, Canvas) and t.base.length else 0
    if c == "token":
        token = t.token.copy()
        token[0] = last
        return token
    if c == "prob":
        return t.probs()
    if c == "point":
        return np.array([True] + [bool(t.draw(n).point) if t.group[n] >= 0 else True for n in range(1, len(t))], dtype=bool)
    if c in ("law", "draw"):
        root = points(np.asarray(last))
        if c == "draw":
            return joined([root, t.draws(np.arange(1, len(t)))]) if len(t) > 1 else Mixed([root])
        if len(t) == 1:
            return TorchDist.all(TorchVectors(None, m.request, ones=np.array([last]), size=m.vocab_size))
        laws = [d.law(m.request, m.vocab_size) for d in (root, *(t.draw(n) for n in range(1, len(t))))]
        return TorchDist.all(TorchVectors(torch.stack(on_one_device([d.vector() for d in laws])), m.request))
    values = t.columns.get(c, [None] * len(t))
    if op.results[0].type.elem == "list":
        return list(values)
    if op.results[0].type.elem == "dist":
        return Stored([v for v in values if v is None or isinstance(v, TorchDist)], m.request, m.vocab_size, c)
    if op.results[0].type.elem == "astate":
        return objects(values)
    zero = next((np.zeros_like(np.asarray(v)) for v in values if v is not None), 0)
    return np.array([zero if v is None else v for v in values])


@lowering("tree.set")
def put(m: Machine, t: TorchTree, ns: object, values: object, *, column: str) -> TorchTree:
    """Set a column at nodes."""
    ids = np.ravel(np.asarray(ns, dtype=np.int64))
    each = column_of(values, len(ids), np.arange(len(ids)))
    if column == "logprob":
        logprob = t.logprobs().copy()  # computed before: those of nodes below stay what they are
        logprob[ids] = [real(v) for v in each]
        tree = replace(t, logprob=logprob)
        m.now(tree)
        return tree
    wide = list(t.columns.get(column, [None] * len(t)))
    for i, v in zip(ids, each, strict=False):
        wide[int(i)] = v
    tree = replace(t, columns={**t.columns, column: wide})
    m.now(tree)
    return tree


@lowering("tree.front")
def front(m: Machine, t: TorchTree, ns: object) -> TorchTree:
    """The tree with another frontier."""
    tree = replace(t, frontier=np.ravel(np.asarray(ns, dtype=np.int64)))
    m.now(tree)
    return tree


@lowering("tree.nodes")
def nodes(m: Machine, t: TorchTree, *n: int, which: str) -> object:
    """Nodes of a tree."""
    if which == "root":
        return 0
    if which == "all":
        return np.arange(len(t))
    if which == "drafted":
        return np.arange(1, len(t))
    if which == "children":
        return t.children(int(n[0]))
    if which == "path":
        return np.array(t.path_nodes(int(n[0])), dtype=np.int64)
    return t.leaves() if which == "leaves" else (t.new if which == "new" else t.frontier).copy()


@lowering("tree.size")
def size(m: Machine, t: TorchTree, *, what: str) -> int:
    """How many drafted nodes, or how deep."""
    return len(t) - 1 if what == "size" else t.height()


_FOLDS: dict[str, np.ufunc] = {"all": np.logical_and, "any": np.logical_or, "sum": np.add, "max": np.maximum, "min": np.minimum}


@lowering("tree.down")
def down(m: Machine, t: TorchTree, v: object, *, fn: str) -> object:
    """Fold a column along each path from the root, level by level."""
    a = array(v)
    out = a.copy()
    out[0] = {"all": True, "any": False, "sum": 0.0, "max": a[0], "min": a[0]}[fn]
    for d in range(1, t.height() + 1):
        level = np.flatnonzero(t.depth == d)
        out[level] = _FOLDS[fn](out[t.parent[level]], a[level])
    return out


@lowering("tree.up")
def up(m: Machine, t: TorchTree, v: object, *, fn: str) -> object:
    """Fold a column over each node's subtree, level by level from below."""
    out = array(v).copy()
    for d in range(t.height(), 0, -1):
        level = np.flatnonzero(t.depth == d)
        _FOLDS[fn].at(out, t.parent[level], out[level])
    return out
