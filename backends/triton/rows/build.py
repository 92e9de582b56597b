"""Builders of row programs, by op. A builder returns None for an op that no kernel implements, or whose operands are one-hot
(tokens, which need no row): torch's lowering computes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.draws import TorchDraws
from decgraph.backends.torch.lowering import host
from decgraph.backends.torch.ops.draws import _Keys
from decgraph.backends.torch.rows import Sparse, TorchDist, TorchVectors
from decgraph.backends.triton.rows import inputs
from decgraph.backends.triton.rows.emit import MAPS
from decgraph.backends.triton.rows.program import Node
from decgraph.backends.triton.rows.trace import Group, Numbers, Trace, Vector
from decgraph.ir.ops.common import align, numeric, spread
from decgraph.ir.values import Op

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
MOST = 64
"""The most entries of a row that a kernel keeps sorted."""


def handler(*opcodes: str) -> Callable[[Handler], Handler]:
    """Register the builder of ops: f(trace, op, name, *operands) -> a waiting value, or None for torch's lowering."""

    def register(f: Handler) -> Handler:
        for name in opcodes:
            HANDLERS[name] = f
        return f

    return register


def wide_axis(op: Op, n: int = 0) -> bool:
    """Whether operand n has a vocabulary as its last axis."""
    dims = numeric(op.operands[n].type).dims
    return bool(dims) and dims[-1].kind == "vocab"


def certain(x: Any) -> bool:
    """Whether every row of a value is one-hot by construction."""
    return isinstance(x, Sparse) or isinstance(x, TorchDist) and inputs.points_of(x.rows, x.face) is not None


def empty(x: Any) -> bool:
    """Whether there are no rows."""
    shape = getattr(x, "shape", (1,))
    return not isinstance(x, Sparse) and 0 in tuple(shape)


def idle(*xs: Any) -> bool:
    """Whether there is nothing for a kernel: no rows, one-hot rows only, or nothing on the kernels' device."""
    return any(empty(x) for x in xs) or all(certain(x) for x in xs) or not any(reachable(x) for x in xs)


def reachable(x: Any) -> bool:
    """Whether a value's rows are on the kernels' device. Values of the host (an index's, positions of a canvas) stay there."""
    if isinstance(x, Vector):
        return True
    t = x.rows.scores if isinstance(x, TorchDist) else x
    return isinstance(t, Tensor) and (t.device.type != "cpu" or os.environ.get("TRITON_INTERPRET") == "1")


def plain(a: Any) -> Any:
    """A single number of the host as Python's."""
    return a.item() if isinstance(a, np.ndarray | np.generic) and np.ndim(a) == 0 else a


# -- numbers of rows ---------------------------------------------------------------------------------------------------


@handler("lookup")
def lookup(t: Trace, op: Op, name: str, p: Any, x: Any) -> Any:
    """p[x], on the host."""
    if not wide_axis(op):
        return None
    if isinstance(x, Numbers):
        if not isinstance(p, Vector) and p.shape == x.shape and [n.shape for n in x.nodes] == ["number"] and not idle(p):
            g, node = t.vector(p, name)
            if g is x.group:
                return t.numbers(g, _number, g.program.lookup(node, x.nodes[0]))
        return None
    if idle(p):
        return None
    tokens = np.asarray(host(x))
    shape = tuple(p.shape[:-1]) if isinstance(p, Tensor) else tuple(p.shape)  # of the rows
    if shape != tokens.shape:
        if isinstance(p, Vector):
            return None
        tp, tx = op.operands[0].type, op.operands[1].type
        front = tp.dims if tp.elem in ("dist", "scores") else numeric(tp).dims[:-1]
        long = front if len(front) >= len(tx.dims) else tx.dims
        rows = np.arange(int(np.prod(shape))).reshape(shape)
        tokens = spread(tokens, tx.dims, long) if tokens.ndim else tokens
        rows = spread(rows, front, long) if front else rows
        rows, tokens = np.broadcast_arrays(rows, tokens)
        if isinstance(p, TorchDist):
            p = TorchDist(p.rows, p.index.reshape(-1)[rows], p.face)
        else:
            p = p.reshape(-1, p.shape[-1])[torch.from_numpy(np.array(rows.reshape(-1)))].reshape(*rows.shape, p.shape[-1])
    g, node = t.vector(p, name)
    if tuple(tokens.shape) != g.shape or not tokens.size:
        return None
    if int(tokens.min()) < -g.size or int(tokens.max()) >= g.size:
        raise IndexError(f"token {int(tokens.max())} is outside a vocabulary of {g.size}")
    at = t.column(g, tokens % g.size, f"{name}_token", ints=True)
    return t.numbers(g, _number, g.program.lookup(node, at))


def _number(a: np.ndarray) -> Any:
    return a.astype(np.float64) if a.ndim else float(a)


@handler("info")
def info(t: Trace, op: Op, name: str, *ps: Any) -> Any:
    """Entropy, or kl(p, q), in nats."""
    if idle(*ps) or not same_shapes(ps):
        return None
    pairs = [t.vector(p, name) for p in ps]
    g, r = pairs[0][0], pairs[0][0].program
    if op.attrs["kind"] == "entropy":
        return t.numbers(g, plain, r.entropy(pairs[0][1]))
    p, q = pairs[0][1], pairs[1][1]
    term = r.map("mul", p, r.map("sub", r.map("log", p), r.map("log", q)))
    return t.numbers(g, plain, r.fold("sum", r.map("select", r.map("gt", p, r.literal(0.0)), term, r.literal(0.0)))[0])


def same_shapes(xs: Any) -> bool:
    """Whether values have the same rows."""
    return (
        len({(tuple(x.shape[:-1]) if isinstance(x, Tensor) else () if isinstance(x, Sparse) else tuple(x.shape)) for x in xs})
        == 1
    )


@handler("reduce")
def reduce(t: Trace, op: Op, name: str, x: Any) -> Any:
    """A fold over the vocabulary."""
    from decgraph.ir.ops.vectors import _axis

    kind = numeric(op.operands[0].type)
    fn = op.attrs["fn"]
    if not wide_axis(op) or _axis(op.attrs, kind) not in (-1, len(kind.dims) - 1):
        return None
    if fn not in ("max", "min", "sum", "any", "all", "count", "mean") or idle(x):
        return None
    g, node = t.vector(x, name)
    r = g.program
    if fn == "max":
        return t.numbers(g, plain, r.max(node)) if node.type == "real" else None
    if fn == "mean":
        return t.numbers(g, plain, r.map("div", r.fold("sum", node)[0], r.literal(float(g.size))))
    if (node.type == "bool") != (fn in ("any", "all", "count")):
        return None
    return t.numbers(g, plain, r.fold(fn, node)[0])


@handler("arg")
def arg(t: Trace, op: Op, name: str, x: Any, *by: Any) -> Any:
    """The likeliest token."""
    if by or not wide_axis(op) or idle(x):
        return None
    g, node = t.vector(x, name)
    if node.type != "real":
        return None
    r = g.program
    return t.numbers(g, plain, r.argmax(node) if op.attrs["fn"] == "max" else r.fold("argmin", node)[1])


# -- draws -------------------------------------------------------------------------------------------------------------


def _noise(t: Trace, g: Group, keys: Any, name: str) -> Node:
    name = t.fresh(g, name)
    g.given[name] = inputs.noise_of(keys, "cpu")
    return g.program.noise(name)


@handler("draw")
def draw(t: Trace, op: Op, name: str, q: Any, key: Any) -> Any:
    """One draw from each distribution."""
    if not isinstance(q, TorchDist) or idle(q):
        return None
    keys = _Keys(t.m, q, key)
    g, node = t.dist(q, name)
    found = [keys[i] for i in range(q.index.size)]
    token = g.program.race(node, _noise(t, g, found, f"{name}_noise"))

    def finish(tokens: np.ndarray) -> TorchDraws:
        if (tokens < 0).any():
            raise ValueError("a draw from a distribution without mass")
        return TorchDraws(tokens, q.rows, q.index, q.face, at=q.at, inner=q.inner)

    return t.numbers(g, finish, token)


@handler("draw.many")
def draw_many(t: Trace, op: Op, name: str, q: Any, k: Any, key: Any) -> Any:
    """k draws from each distribution."""
    k = int(host(k))
    if not isinstance(q, TorchDist) or idle(q) or not 0 < k <= MOST:
        return None
    n = int(q.index.size)
    shape = (*q.shape, k)
    row = np.broadcast_to(q.index[..., None], shape)
    keys = _Keys(t.m, q, key)
    if op.attrs["replace"]:
        from decgraph.backends.torch.ops.draws import place_of

        g, node = t.dist(TorchDist(q.rows, row, q.face), name)
        found = [t.m.key(key, (i, j), *place_of(q, i)) for i in range(n) for j in range(k)]
        token = g.program.race(node, _noise(t, g, found, f"{name}_noise"))
        return t.numbers(g, lambda tokens: TorchDraws(_some(tokens), q.rows, row, q.face, at=q.at, inner=q.inner), token)
    g, node = t.dist(q, name)
    r = g.program
    logs = r.map("log", node)
    values, tokens = r.fold("best", r.race_key(logs, _noise(t, g, [keys[i] for i in range(n)], f"{name}_noise")), k=k)

    def finish(times: np.ndarray, found: np.ndarray) -> TorchDraws:
        got = np.where(times > -np.inf, found, -1)
        group = np.broadcast_to(np.arange(n).reshape(q.shape)[..., None], shape)
        return TorchDraws(
            got,
            q.rows,
            row,
            q.face,
            rank=np.broadcast_to(np.arange(k), shape),
            group=group,
            members=got.reshape(n, k),
            at=q.at,
            inner=q.inner,
        )

    return t.numbers(g, finish, values, tokens)


def _some(tokens: np.ndarray) -> np.ndarray:
    if (tokens < 0).any():
        raise ValueError("a draw from a distribution without mass")
    return tokens


@handler("topk")
def topk(t: Trace, op: Op, name: str, q: Any, k: Any) -> Any:
    """The k most probable tokens, as draws without randomness. The scores decide where there are scores."""
    if not isinstance(q, TorchDist) or idle(q):
        return None
    k = min(int(host(k)), q.rows.size)
    if not 0 < k <= MOST:
        return None
    q = q.seen("logits") if q.face == "raw" and not isinstance(q.rows, TorchVectors) else q
    g, node = t.dist(q, name)
    if node.kind == "softmax" and not g.program.wide:
        node = node.args[0]
    if k == 1:
        nodes: tuple[Node, ...] = (g.program.argmax(node),)
    else:
        nodes = (g.program.fold("best", node, k=k)[1],)
    shape = (*q.shape, k)
    face = op.operands[0].type.of[1] if op.operands[0].type.elem == "dist" else q.face
    seen = "raw" if face == "raw" else q.face
    return t.numbers(
        g,
        lambda tokens: TorchDraws(
            tokens.reshape(shape), q.rows, np.broadcast_to(q.index[..., None], shape), seen, point=True, at=q.at, inner=q.inner
        ),
        *nodes,
    )


@handler("pairs.top")
def pairs(t: Trace, op: Op, name: str, s: Any, k: Any) -> Any:
    """The k best of rows x vocabulary: the best k of each row, merged on the host."""
    k = int(host(k))
    if not 0 < k <= MOST or idle(s):
        return None
    g, node = t.vector(s, name)
    if len(g.shape) != 1:
        return None
    values, tokens = g.program.fold("best", node, k=min(k, g.size))

    def finish(v: np.ndarray, x: np.ndarray) -> Any:
        flat, token = v.astype(np.float64).ravel(), x.ravel()
        row = np.repeat(np.arange(v.shape[0]), v.shape[1])
        best = np.lexsort((token, row, -flat))[:k]
        best = best[flat[best] > -np.inf]
        return row[best], token[best], flat[best]

    return t.numbers(g, finish, values, tokens)


# -- vectors -----------------------------------------------------------------------------------------------------------


@handler("map")
def elementwise(t: Trace, op: Op, name: str, *xs: Any) -> Any:
    """An elementwise function of vectors of the same rows, and of numbers of those rows."""
    types = [numeric(v.type) for v in op.operands]
    over = [bool(k.dims) and k.dims[-1].kind == "vocab" for k in types]
    if op.attrs["fn"] not in MAPS or not any(over):
        return None
    vectors = [x for x, wide in zip(xs, over, strict=True) if wide]
    if idle(*vectors) or not same_shapes(vectors):
        return None
    want = max((k.dims for k in types), key=len)
    known = [t.vector(x, name) for x in vectors]
    g = known[0][0]
    nodes: list[Node] = []
    for x, kind, wide in zip(xs, types, over, strict=True):
        if wide:
            nodes.append(known.pop(0)[1])
            continue
        if kind.dims and align(kind.dims, want[:-1]) is None:
            return None
        a = np.asarray(host(x))
        if a.dtype.kind == "b" and a.ndim:
            return None
        if a.dtype.kind == "b":
            nodes.append(g.program.literal(bool(a)))
        else:
            nodes.append(t.column(g, spread(a, kind.dims, want[:-1]) if a.ndim else a, f"{name}_by"))
    return t.rows(g, g.program.map(op.attrs["fn"], *nodes))


@handler("normalize")
def normalize(t: Trace, op: Op, name: str, w: Any) -> Any:
    """Weights over their sum."""
    if idle(w):
        return None
    g, node = t.vector(w, name)
    return t.rows(g, g.program.normalized(node), dist=True, like=w if isinstance(w, TorchDist) else None)


@handler("softmax")
def softmax(t: Trace, op: Op, name: str, s: Any) -> Any:
    """Scores to a distribution."""
    if op.results[0].type.elem != "dist" or idle(s):
        return None
    g, node = t.vector(s, name)
    if node.kind == "row" and not node.attrs["scores"]:  # entries past the end must have no weight
        node = g.program.map("add", node, g.program.literal(0.0))
    return t.rows(g, g.program.softmax(node), dist=True, like=s if isinstance(s, TorchDist) else None)


def law(t: Trace, op: Op, x: Any) -> Any:
    """draw.get(x, "law"): rows of the call, or for later draws without replacement a kernel's."""
    return inputs.law_of(t.m, x)


__all__ = ["HANDLERS", "law", "wide_axis"]
