"""Vectors with some of their elements replaced."""

from __future__ import annotations

import numpy as np

from decgraph.ir import labels
from decgraph.ir.data.dist import Dist, box, value_row
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, OpError, Regions, Types, op
from decgraph.ir.ops.common import array, as_int, joined, need, numeric, spread
from decgraph.ir.types import Type, join, listing
from decgraph.ir.values import Op


def _where_held(
    index: list[np.ndarray], types: list[Type], shape: tuple[int, ...], values: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Indices and values where all masks among the indices hold, the masks as whole numbers."""
    masks = [(i, n) for i, t, n in zip(index, types, shape) if t.elem == "bool"]
    for mask, n in masks:
        if len(mask) != n or len(mask) != len(masks[0][0]):
            raise OpError(f"a mask of {len(mask)} as an index of a dimension of {n}")
    chosen = np.flatnonzero(np.logical_and.reduce([np.asarray(mask, dtype=bool) for mask, _ in masks]))
    size = len(masks[0][0])
    for i, t in zip(index, types):
        if t.elem != "bool" and i.ndim and len(i) != size:
            raise OpError(f"an index of {len(i)} beside a mask of {size}")
    out = [chosen if t.elem == "bool" else i[chosen] if i.ndim else i for i, t in zip(index, types)]
    return out, values[chosen] if values.ndim and len(values) == size else values


@op("scatter")
class Scatter:
    """v with v[i] set to x (mode "last": of colliding rows the last in order wins), or added to (mode "sum"). An index of bools
    is a mask over its dimension: the others and x, where they line up with it, are read where it holds."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v, x, *ix = types
        if v.elem == "list":
            return (listing(joined([v.item, x], "a list")),)
        need(len(v.dims) >= len(ix), f"{v} cannot be indexed {len(ix)} times")
        for i in ix:
            need(
                i.is_token or i.elem in ("int", "node", "position", "bool"),
                f"an index must be a whole number, a token, a node or a position, got {i}",
            )
            need(i.elem != "bool" or len(i.dims) == 1, f"a condition as an index is a mask over one dimension, got {i}")
        for i, d in zip(ix, v.dims):
            need(i.elem != "node" or d.kind != "vocab", f"{v} does not range over nodes", "a node's token: t.token[n]")
        each = max((i.dims for i in ix), key=len, default=())
        need(
            len(x.dims) <= len(each) + len(v.dims) - len(ix),
            f"{x} does not fit where {v} is set at {len(each) or 'one'} {'vector' if each else 'place'}",
        )
        need(
            x.elem != "none" and (x.elem != "dist" or v.elem == "dist"),
            f"values of {v} cannot be set to {x}",
            "an entry is one value: p[x]",
        )
        elem = (
            v.scalar
            if v.scalar == x.scalar
            else (
                join(numeric(v).scalar, numeric(x).scalar)
                or (v.scalar if {v.elem, numeric(x).elem} <= {"int", "token", "real", "prob"} else None)
            )
        )
        if elem is None:
            raise OpError(f"values of {v} cannot be set to {x}")
        return (Type(elem.elem, elem.of, v.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, v: Datum, x: Datum, *ix: Datum) -> tuple[Datum, ...]:
        if isinstance(v, list):
            out = list(v)
            out[as_int(ix[0])] = x
            return (out,)
        index = [array(m, i) for i in ix]
        types = [o.type for o in op.operands[2:]]
        a = np.array(array(m, v), dtype=object if m.num.exact else None)
        if a.dtype.kind == "i" and array(m, x).dtype.kind == "f":
            a = a.astype(np.float64)
        values = array(m, x)
        if any(t.elem == "bool" for t in types):
            index, values = _where_held(index, types, a.shape, values)
        want = max((t.dims for t in types), key=len, default=())
        flat = [
            np.broadcast_to(
                spread(i, t.dims, want), np.broadcast_shapes(*[spread(j, u.dims, want).shape for j, u in zip(index, types)])
            )
            for i, t in zip(index, types)
        ]
        shape = flat[0].shape if flat else ()
        for n in np.ndindex(shape):
            at = tuple(int(f[n]) for f in flat)
            value = values[n] if values.ndim >= len(n) and values.shape[: len(n)] == shape else values
            a[at] = a[at] + value if op.attrs["mode"] == "sum" else value
        if isinstance(v, Dist) and op.results[0].type.elem == "dist":
            rows = [value_row(a[n]) for n in np.ndindex(a.shape[:-1])]
            return (Dist(box(rows).reshape(a.shape[:-1]), str(op.results[0].type.of[1]), v.at),)
        return (a,)

    attrs = ("mode",)
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = scatter(%rs, %r, %n, mode = "last")', [0.5, 0.5, 2.0]),
        ('%z = scatter(%xs, %i, %i, mode = "sum")', [3, 1, 4]),
    )
    refusals = (
        ("int, int, int", "indexed", {"mode": "last"}),
        ("int[k], int, path<V>", "index", {"mode": "last"}),
        ("int[k], int[k], int", "does not fit", {"mode": "last"}),
    )
