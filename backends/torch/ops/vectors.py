"""Lowerings of ir/ops/vectors.py: arithmetic over the vocabulary is torch's; everything smaller is NumPy on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.data import Vector, array, every, host, ids_of, real
from decgraph.backends.torch.draws import Mixed, TorchDraws, joined
from decgraph.backends.torch.lowering import lowering, on_host, planned
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Sparse, TorchDist, TorchVectors, on_one_device
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchPath
from decgraph.ir.data.numbers import UNROUNDED, WIDE, objects
from decgraph.ir.ops.common import align, numeric
from decgraph.ir.ops.vectors import _axis
from decgraph.ir.table import lookup
from decgraph.ir.types import Dim
from decgraph.ir.values import Op


def weigh(a: Tensor, b: Tensor) -> Tensor:
    """a * b, where 0 times anything is 0. a, b: shapes that go together."""
    return torch.where((a == 0) | (b == 0), 0.0, a * b)


def mix(a: Tensor, b: Tensor) -> Tensor:
    """a + b, where -inf on either side stays. a, b: scores [..., V]."""
    return torch.where((a == -math.inf) | (b == -math.inf), -math.inf, a + b)


def contrast(a: Tensor, b: Tensor) -> Tensor:
    """a - b, where -inf on either side stays. a, b: scores [..., V]."""
    return torch.where((a == -math.inf) | (b == -math.inf), -math.inf, a - b)


def floor(a: Tensor) -> Tensor:
    """Of each number the largest whole number that is not larger. Raises OverflowError where there is none."""
    if not bool((a.abs() < WIDE).all()):
        raise OverflowError(UNROUNDED)
    return torch.floor(a).long()


_MAPS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.true_divide,
    "mod": torch.remainder,
    "pow": torch.pow,
    "weigh": weigh,
    "mix": mix,
    "contrast": contrast,
    "neg": torch.neg,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "select": torch.where,
    "exp": torch.exp,
    "log": torch.log,
    "relu": torch.relu,
    "abs": torch.abs,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "floor": floor,
    "sqrt": torch.sqrt,
    "clamp": lambda a, lo, hi: torch.minimum(torch.maximum(a, lo), hi),
}


def on_device(x: object) -> bool:
    """Whether a value holds numbers over the vocabulary."""
    return isinstance(x, TorchDist | Tensor | Sparse)


def vector(x: object, device: torch.device | None = None) -> Tensor:
    """A value as a tensor."""
    if isinstance(x, TorchDist):
        return x.vector()
    if isinstance(x, Sparse):
        return x.dense()
    if isinstance(x, Tensor):
        return x
    numbers = np.ascontiguousarray(host(x))
    return torch.as_tensor(numbers.astype(np.float64) if numbers.dtype == object else numbers, device=device)  # of fractions


def _spread(a: Tensor, have: tuple[Dim, ...], want: tuple[Dim, ...]) -> Tensor:
    if len(have) == len(want) or not have or a.ndim == 0:
        return a
    axes = align(have, want) or tuple(range(len(have)))
    shape = [1] * len(want)
    for i, axis in enumerate(axes):
        shape[axis] = int(a.shape[i])
    return a.reshape(shape)


def _divide(m: Machine, a: object, b: object) -> float:
    a, b = real(a), real(b)
    return a / b if b else math.nan if a == 0 or a != a else math.inf if a > 0 else -math.inf


@planned("map")
def elementwise(op: Op) -> Callable[..., object]:
    """An elementwise function: torch's over the vocabulary, else the NumPy meaning."""
    fn = op.attrs["fn"]
    types = [numeric(v.type) for v in op.operands]
    scalars = all(not t.dims for t in types)
    if scalars and fn == "div":
        return lambda m, a, b: _divide(m, a, b)
    if scalars and fn in ("eq", "ne") and all(t.elem in ("token", "int", "position", "node") for t in types):
        return (lambda m, a, b: host(a) == host(b)) if fn == "eq" else (lambda m, a, b: host(a) != host(b))
    want = max((t.dims for t in types), key=len, default=())
    meaning, function = lookup("map").meaning, _MAPS[fn]

    def hosted(m: Machine, *xs: object) -> object:
        if fn in ("eq", "ne") and any(isinstance(x, TorchPath | Context) for x in xs):
            same = all(ids_of(a) == ids_of(xs[0]) for a in xs)
            return same if fn == "eq" else not same
        return plain(meaning(m, op, *map(host, xs))[0])

    if not any(d.kind == "vocab" for t in types for d in t.dims):
        return hosted

    def call(m: Machine, *xs: object) -> object:
        if not any(on_device(x) for x in xs):
            return hosted(m, *xs)
        if fn in ("sub", "relu"):
            few = [Sparse.of(x) for x in xs]
            if few[0] is not None and few[-1] is not None:
                return few[0].sub(few[1]) if fn == "sub" and few[1] is not None else few[0].relu()
        # a finite coefficient other than 0 makes it the plain product, which takes one kernel
        plainly = fn == "weigh" and any(isinstance(x, int | float) and x and math.isfinite(x) for x in xs)
        known = [vector(x) if on_device(x) else x for x in xs]
        # a distribution of no model (uniform(vocab), an index's) is on the CPU: it is copied to the device of the others
        device = max((v.device for v in known if isinstance(v, Tensor)), key=lambda d: d.type != "cpu")
        apply = torch.mul if plainly else function
        return apply(*[_spread(vector(v, device).to(device), t.dims, want) for v, t in zip(known, types, strict=True)])

    return call


def plain(x: object) -> object:
    """A NumPy scalar as a Python number; other values as they are."""
    return x.item() if isinstance(x, np.generic) or isinstance(x, np.ndarray) and x.ndim == 0 else x


def _folded(name: str, a: Tensor, axis: int) -> Tensor:
    if name in ("max", "min"):
        return a.amax(axis) if name == "max" else a.amin(axis)
    if name == "logsumexp":
        return torch.logsumexp(a, axis)
    if name == "count":
        return a.long().sum(axis)
    if name == "mean" and a.dtype == torch.bool:
        a = a.double()
    folds: dict[str, Callable[..., Tensor]] = {
        "sum": torch.sum,
        "any": torch.any,
        "all": torch.all,
        "mean": torch.mean,
        "prod": torch.prod,
    }
    out: Tensor = folds[name](a, axis)
    return out


@lowering("reduce")
def reduce(m: Machine, x: object, *, op: Op) -> object:
    """Fold one dimension; a result without a vocabulary axis is copied to the host."""
    t = numeric(op.operands[0].type)
    if not on_device(x):
        return plain(lookup("reduce").meaning(m, op, host(x))[0])
    axis = _axis(op.attrs.get("over", ""), t)
    if op.attrs["fn"] == "max" and isinstance(x, TorchDist) and t.dims[axis].kind == "vocab" and x.points() is not None:
        return plain(np.ones(x.shape))
    out = _folded(op.attrs["fn"], vector(x), axis)
    return out if any(d.kind == "vocab" for d in op.result.type.dims) else plain(fetched(out))


@lowering("scan")
def scan(m: Machine, x: object, *, op: Op) -> object:
    """Running folds along the last dimension."""
    if not on_device(x):
        return plain(lookup("scan").meaning(m, op, host(x))[0])
    a, fn = vector(x), op.attrs["fn"]
    if fn == "leading":
        return plain(fetched(torch.cumprod(a.long(), -1).sum(-1)))
    return torch.cummax(a, -1).values if fn == "cummax" else (torch.cumsum if fn == "cumsum" else torch.cumprod)(a, -1)


def elements(xs: Vector) -> list[object]:
    """The elements of a vector, list or topology."""
    if isinstance(xs, TorchDist | TorchDraws | Mixed):
        return [xs.pick(i) for i in range(xs.shape[0])]
    if isinstance(xs, np.ndarray) and xs.ndim == 1:
        return xs.tolist()
    return [xs[i] for i in range(len(xs))]


def stacked(m: Machine, items: Sequence[object]) -> object:
    """Equal-shaped values as one vector."""
    if not items:
        return np.zeros(0, dtype=np.int64)
    if every(items, TorchDist):
        first = items[0]
        if all(x.rows is first.rows and x.face == first.face for x in items):
            return TorchDist(first.rows, np.stack([x.index for x in items]), first.face)
        probs = torch.stack(on_one_device([x.vector() for x in items]))
        shape = tuple(probs.shape[:-1])
        flat = probs.reshape(-1, probs.shape[-1])
        return TorchDist(TorchVectors(flat, m.request), np.arange(len(flat)).reshape(shape))
    if every(items, TorchDraws) and not any(x.shape for x in items):
        return joined(items)
    if any(isinstance(x, Tensor) for x in items):
        return torch.stack(on_one_device([vector(x) for x in items]))
    if all(isinstance(x, bool | int | float | np.generic | np.ndarray | TorchDraws | Mixed) for x in items):
        return np.stack([array(x) for x in items])
    return objects(items)


on_host("as_int", "contains", why="they read a few host values")


on_host("scatter", why="it writes to a short vector in place")
