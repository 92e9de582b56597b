"""Lowerings of ir/ops/selection.py: choosing. Stable: of equals the first comes first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.data import Vector, array, host
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.ops.distributions import tensor_of
from decgraph.backends.torch.ops.draws import as_dist
from decgraph.backends.torch.ops.vectors import on_device
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import TorchDist, TorchVectors, ids_on, take
from decgraph.backends.torch.shaping import first_argmax
from decgraph.backends.torch.transfer import HOST, fetched
from decgraph.ir.opdef import OpError
from decgraph.ir.values import Op


def nans_last(a: Tensor, worst: float = -np.inf) -> Tensor:
    """Numbers [..., V] with those that are none as the worst, since that is how all are ordered (ir/data/numbers.py)."""
    return torch.where(a.isnan(), worst, a) if a.is_floating_point() else a


def best_tokens(a: Tensor, k: int) -> np.ndarray:
    """The k largest entries of each row [R, V], largest first, ties to the lowest index: int64[R, k] on the host."""
    n, size = a.shape
    k = max(0, min(k, int(size)))
    if a.dtype == torch.bool:  # torch has no order of conditions
        a = a.byte()
    if k == 0 or n == 0:
        return np.zeros((int(n), k), dtype=np.int64)
    if k == 1:
        return first_argmax(a)[:, None]
    found = torch.topk(a, min(k + 1, int(size)), dim=-1)
    if a.device.type != HOST:  # one synchronisation for both: float64 holds every index and every float32
        both = fetched(torch.stack((found.indices.double(), found.values.double())))
        got, values = both[0].astype(np.int64), both[1]
    else:
        got, values = fetched(found.indices), fetched(found.values)
    tied = np.flatnonzero((values[:, 1:] == values[:, :-1]).any(-1))
    if len(tied):  # torch.topk keeps no order among equals
        got[tied] = fetched(torch.sort(a[ids_on(tied, a.device)], descending=True, stable=True).indices[:, : got.shape[1]])
    return got[:, :k]


@lowering("topk")
def topk(m: Machine, q: object, k: int) -> TorchDraws:
    """The k most probable tokens of each distribution, as draws without randomness."""
    if not isinstance(q, TorchDist):
        q = as_dist(m, q)
    # The order of probabilities is that of the logits; where those are float32, equal ones alone are equal.
    by_logits = q.face in ("raw", "logits") and not isinstance(q.rows, TorchVectors)
    vectors = take(q.rows.constrained(), q.index) if by_logits else q.vector()
    q.rows.require_mass(q.index, q.face)
    if isinstance(q.rows, TorchVectors):  # a program's own numbers
        vectors = nans_last(vectors)
    tokens = best_tokens(vectors.reshape(-1, vectors.shape[-1]), int(k))
    shape = (*q.index.shape, tokens.shape[1])
    rows = q.index.repeat(shape[-1]).reshape(shape)
    return TorchDraws(tokens.reshape(shape), q.rows, rows, q.face, point=True, at=q.at, inner=q.inner)


def element(xs: Vector, i: int) -> object:
    """Element i of a vector or list."""
    return (
        xs.pick(i)
        if isinstance(xs, TorchDist | TorchDraws | Mixed)
        else (xs[i].item() if isinstance(xs, np.ndarray) and xs.ndim == 1 and xs.dtype != object else xs[i])
    )


def keys_of(by: Sequence[object]) -> list[np.ndarray]:
    """Sort keys as flat float arrays [n] on the host."""
    found: list[np.ndarray] = []
    for b in by:
        for key in b if isinstance(b, list | tuple) else (b,):
            found.append(np.asarray(key if isinstance(key, np.ndarray) else host(key), dtype=np.float64).ravel())
    return found


@lowering("arg")
def arg(m: Machine, x: Vector, *by: object, fn: str, op: Op) -> object:
    """The element with the largest (or smallest) key; with one operand the best token of each distribution."""
    down = fn == "max"
    if not by:
        if isinstance(x, TorchDist) and down and x.points() is not None:
            ones = x.points()
            return int(ones) if ones is not None and ones.ndim == 0 else ones
        if on_device(x):
            a = nans_last(tensor_of(x), -np.inf if down else np.inf)
            if a.dtype == torch.bool:  # torch has no order of conditions
                a = a.byte()
            got = first_argmax(a) if down else fetched(a.argmin(-1))
            return got if got.ndim else int(got)
        a = array(x)
        a = np.where(np.isnan(a), -np.inf if down else np.inf, a) if a.dtype.kind == "f" else a
        out = a.argmax(-1) if down else a.argmin(-1)
        return out if np.ndim(out) else int(out)
    keys = keys_of(by)
    if not len(keys[0]):
        raise OpError("argmax of nothing", "make sure that there is at least one candidate")
    return element(x, int(m.num.order(keys, down)[0]))


def ranked(
    m: Machine, x: object, by: Sequence[object]
) -> tuple[Draws | list[object] | np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """The candidates in one row, where those that are there stand in it, their order int64[n], best first, and each key [n]."""
    flat = x.ravel() if isinstance(x, TorchDraws | Mixed | np.ndarray) else x if isinstance(x, list) else np.ravel(array(x))
    n = len(flat)
    live = np.flatnonzero(flat.tokens >= 0) if isinstance(flat, TorchDraws | Mixed) else np.arange(n)
    keys = keys_of(by or [x])
    if len(keys[0]) == n:
        picked = keys if len(live) == n else [key[live] for key in keys]
    elif len(keys[0]) == len(live):
        picked = keys
    else:  # keys over the whole tree (or canvas) for candidates that are part of it
        ids = np.asarray(host(flat), dtype=np.int64)
        picked = [key[ids[live]] for key in keys]
    return flat, live, np.asarray(m.num.order(picked, True), dtype=np.int64), picked


@lowering("select.top")
def top(m: Machine, x: object, k: int, *by: object, order: str = "best", by_race: bool = False) -> object:
    """The k candidates with the largest keys, best first (or in their own order)."""
    flat, live, places, _ = ranked(m, x, by)
    chosen = live[places[: max(0, int(k))]]
    if order == "kept":
        chosen = np.sort(chosen)
    if isinstance(flat, TorchDraws | Mixed):
        return flat.pick(chosen)
    return [flat[int(i)] for i in chosen] if isinstance(flat, list) else np.asarray(flat)[chosen]


@lowering("pairs.top")
def pairs(m: Machine, s: object, k: int) -> object:
    """The k best of rows x vocabulary: rows, tokens, values, best first."""
    a = tensor_of(s)
    width = int(a.shape[-1])
    flat = a.reshape(1, -1)
    order = best_tokens(flat, int(k))[0]
    values = fetched(flat[0, ids_on(order, flat.device)].double())
    live = values > -np.inf
    order, values = order[live], values[live]
    return order // width, order % width, values
