"""Lowerings of ir/ops/sequences.py: indexing, slices, joining, lists, lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.data import Vector, array, dimensions, ids_of, whole
from decgraph.backends.torch.draws import Mixed, TorchDraws, joined
from decgraph.backends.torch.lowering import lowering, on_host, planned
from decgraph.backends.torch.ops.vectors import elements, on_device, plain, stacked, vector
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import TorchDist, TorchVectors, Where, ids_on, locate, on_one_device
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchPath
from decgraph.ir.ops.common import numeric, spread
from decgraph.ir.ops.limits import allowed, joined_length
from decgraph.ir.values import Op


@planned("gather")
def gather(op: Op) -> Callable[..., object]:
    """v[i]; where v covers a part, the index is the node or position of the member."""
    types = [numeric(o.type) for o in op.operands[1:]]
    want = max((t.dims for t in types), key=len)
    named = types[0].elem in ("node", "position") and len(types) == 1
    listed = op.operands[0].type.elem in ("topology", "list")
    single = len(types) == 1 and not types[0].dims
    wide = any(d.kind == "vocab" for d in op.result.type.dims)

    if op.attrs.get("axis"):

        def inner(m: Machine, v: TorchDist, b: object) -> TorchDist:
            at = array(b)
            return TorchDist(v.rows, v.index[:, np.asarray(locate(v.inner, at))], v.face, v.at, at)

        return inner

    def call(m: Machine, v: Vector, *ix: object) -> object:
        if listed or isinstance(v, list):
            return v[whole(ix[0])]
        if single:
            where: Where = whole(ix[0])
        elif len(types) == 1:
            where = array(ix[0])
        else:
            where = tuple(spread(array(i), t.dims, want) for i, t in zip(ix, types, strict=True))
        if isinstance(v, TorchDist | TorchDraws | Mixed):
            if isinstance(where, tuple) and isinstance(v, TorchDist | TorchDraws):
                where = tuple(
                    locate(at, i) if t.elem in ("node", "position") else i
                    for i, t, at in zip(where, types, (v.at, v.inner, *[None] * len(where)), strict=False)
                )
            return v.take(where) if named else v.pick(where)
        if isinstance(v, Tensor):
            at = where if isinstance(where, tuple) else (where,)
            out = v[tuple(ids_on(i, v.device) if isinstance(i, np.ndarray) else i for i in at)]
            return out if wide else plain(fetched(out))
        return plain(np.asarray(v)[where])

    return call


@lowering("slice")
def cut(m: Machine, v: Vector | TorchPath, *ends: object, has_lo: bool = False, has_hi: bool = False) -> object:
    """v[lo:hi] of the first dimension."""
    where = slice(whole(ends[0]) if has_lo else None, whole(ends[-1]) if has_hi else None)
    if isinstance(v, TorchDist | TorchDraws | Mixed):
        return v.pick(where, None if v.at is None else v.at[where])
    return v.cut(where) if isinstance(v, TorchPath) else v[where]


def _listed(x: object) -> list[object]:
    if isinstance(x, list):
        return list(x)
    return elements(x) if isinstance(x, TorchDraws | Mixed | TorchDist) else (list(array(x)) if dimensions(x) else [x])


def path_of_tokens(x: object) -> TorchPath:
    """Tokens, draws or a context as a path."""
    if isinstance(x, TorchPath):
        return x
    if isinstance(x, TorchDraws | Mixed):
        flat = x if x.shape else x.pick(np.s_[None])
        return TorchPath(tuple(flat.tokens.tolist()), uids=(-1,) * flat.shape[0], draws=tuple(flat))
    tokens = ids_of(x)
    return TorchPath(tokens, uids=(-1,) * len(tokens), draws=(None,) * len(tokens))


@lowering("concat")
def concat(m: Machine, a: object, b: object, *, op: Op) -> object:
    """a ++ b along the first dimension; single values count as vectors of one."""
    want = op.results[0].type
    allowed(joined_length(a, b), "this vector")
    if want.elem == "path":
        pa, pb = path_of_tokens(a), path_of_tokens(b)
        return TorchPath(pa.tokens + pb.tokens, uids=pa.uids + pb.uids, draws=pa.draws + pb.draws)
    if want.elem == "list":
        return _listed(a) + _listed(b)
    for one, other, n in ((a, b, 1), (b, a, 0)):
        if isinstance(one, list) and not one:
            return other if op.operands[n].type.dims else stacked(m, [other])
    if isinstance(a, TorchDraws | Mixed) and isinstance(b, TorchDraws | Mixed):
        return joined([a, b])
    if isinstance(a, TorchDist) and isinstance(b, TorchDist):
        flat = [x.pick(np.s_[None]) if x.index.ndim == 0 else x for x in (a, b)]
        if a.rows is b.rows and a.face == b.face:
            return TorchDist(a.rows, np.concatenate([x.index for x in flat]), a.face)
        return TorchDist.all(TorchVectors(torch.cat(on_one_device([x.vector() for x in flat])), m.request))
    if on_device(a) or on_device(b):
        va, vb = on_one_device([vector(a), vector(b)])
        return torch.cat([x if x.ndim == max(va.ndim, vb.ndim) else x[None] for x in (va, vb)])
    arrays = [np.atleast_1d(array(x)) for x in (a, b)]
    if 0 in (len(arrays[0]), len(arrays[1])) and arrays[0].ndim != arrays[1].ndim:
        return arrays[0] if len(arrays[0]) else arrays[1]
    return np.concatenate(arrays)


@lowering("list")
def listing(m: Machine, *items: object, op: Op) -> object:
    """[a, b, c]: a vector where the items stack, else a list."""
    return list(items) if op.results[0].type.elem == "list" or not items else stacked(m, list(items))


@lowering("len")
def length(m: Machine, x: Vector | TorchPath) -> int:
    """How many there are."""
    if isinstance(x, TorchPath):
        return len(x.tokens)
    return int(x.shape[0]) if isinstance(x, TorchDist | TorchDraws | Mixed | Tensor | np.ndarray) else len(x)


on_host("tile", why="short vectors of counters and zeros are made on the host")
