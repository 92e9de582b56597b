"""Passes over a captured forward for a GPU: the operations between its matrix products become one kernel each.

    before   view, split, (rms_norm,) roll, mul, addcmul, put, put; attention reads the caches
    after    q = place_heads(rows, write, keys, values, cos, sin, ...); attention reads the caches

    before   h = addmm(h, x, w); rms_norm(h, (n,), weight, eps)
    after    h, y = sum_norm(h, mm(x, w), weight, eps)

    before   a, b = rows.split((n, n), -1); silu(a) * b
    after    gated(rows, 0, n, n, "silu")

Precondition: queries, keys and values are columns of one matrix of rows, in heads of one size, rotated as a whole or not
at all. Other patterns stay as they are. Roundings between the operations are left out, as everything is computed in
float32 and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from decgraph.backends.triton.step.causal_kernels import gated, place_heads, sum_norm
from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, either, is_op, shape_of

_CASTS = ("type_as", "to", "float", "contiguous")


@dataclass(frozen=True)
class Heads:
    """Some heads: columns column .. column + count * size - 1 of `rows`, and the operations on them."""

    rows: fx.Node
    column: int
    count: int
    size: int
    norm: tuple[fx.Node, float] | None = None
    rotary: tuple[fx.Node, fx.Node] | None = None


def fuse(program: CapturedGraph) -> None:
    """All passes."""
    for node in program.of("attention"):
        _placed(program, node)
    for node in program.of("rms_norm"):
        _summed(program, node)
    for node in program.of("mul"):
        _gated(program, node)
    program.sweep()


def _placed(program: CapturedGraph, node: fx.Node) -> None:
    query, key, value = node.args[:3]
    if not is_op(key, "put") or not is_op(value, "put") or not isinstance(query, fx.Node):
        return
    assert isinstance(key, fx.Node) and isinstance(value, fx.Node)
    if len(key.users) > 1 or len(value.users) > 1:  # others read the cache after this write
        return
    dtype = dtype_of(key.args[1])
    q, k, v = _heads(query), _heads(key.args[1]), _heads(value.args[1])
    if q is None or k is None or v is None or len({dtype, *map(dtype_of, (query, value.args[1], q.rows))}) != 1:
        return
    alike = q.rows is k.rows is v.rows and q.size == k.size == v.size and k.count == v.count and q.rotary == k.rotary
    if not alike or v.norm or v.rotary or (q.norm is None) != (k.norm is None):
        return
    if q.norm and k.norm and q.norm[1] != k.norm[1]:
        return
    cos, sin = q.rotary or (None, None)
    norms, eps = ((q.norm[0], k.norm[0]), q.norm[1]) if q.norm and k.norm else ((None, None), 0.0)
    shape, layer = shape_of(query), node.meta["layer"]
    assert shape is not None
    caches = (key.args[0], value.args[0])
    with program.before(node):
        made = program.graph.call_function(
            place_heads,
            (q.rows, program.input("write"), *caches, cos, sin, *norms, (q.count, k.count), (q.column, k.column, v.column),
             q.size, eps),
        )  # fmt: skip
        made.meta.update(op="place_heads", shape=(shape[0], shape[2], shape[1], shape[3]), dtype=dtype, layer=layer)
        turned = program.make("transpose", (made, 1, 2), shape=shape, dtype=dtype, layer=layer)
    node.args = (turned, *caches)
    for old in (key, value):
        program.graph.erase_node(old)


def _heads(node: Any) -> Heads | None:
    """The heads that a node of [B, T, H, D] or [B, H, T, D] reads."""
    if is_op(node, "transpose", *_CASTS) and len(shape_of(node) or ()) == 4:
        return _heads(node.args[0]) if not is_op(node, "transpose") or set(node.args[1:]) == {1, 2} else None
    if is_op(node, "view", "reshape"):
        return _viewed(node)
    if is_op(node, "item"):
        split, place = node.args
        inner = _heads(split.args[0]) if is_op(split, "split") and argument(split, 2, "dim", 0) == 2 else None
        if inner is None or inner.norm or not isinstance(split.args[1], tuple | list):
            return None  # a norm of heads side by side has a weight for each
        counts = [int(c) for c in split.args[1]]
        return replace(inner, column=inner.column + sum(counts[:place]) * inner.size, count=counts[place])
    if is_op(node, "rms_norm"):
        inner, weight = _heads(node.args[0]), node.args[2]
        good = inner is not None and not inner.norm and not inner.rotary and isinstance(weight, fx.Node)
        good = good and shape_of(weight) == (inner.size,) and tuple(node.args[1]) == (inner.size,)  # type: ignore[union-attr]
        return replace(inner, norm=(weight, float(node.args[3]))) if good and inner is not None else None
    if is_op(node, "addcmul"):
        return _rotated(node)
    return None


def _viewed(node: fx.Node) -> Heads | None:
    """A view of rows, or of a part of them, as heads."""
    shape, rows = shape_of(node), node.args[0]
    if shape is None or len(shape) != 4 or shape[:2] != ("B", "T") or not isinstance(rows, fx.Node):
        return None
    column, count, size = 0, int(shape[2]), int(shape[3])
    split = rows.args[0] if is_op(rows, "item") else None
    if is_op(split, "split") and argument(split, 2, "dim", 0) == -1 and isinstance(split.args[1], tuple | list):  # type: ignore[union-attr]
        column = sum(int(c) for c in split.args[1][: rows.args[1]])  # type: ignore[union-attr,misc]
        rows = split.args[0]  # type: ignore[union-attr]
    whole = shape_of(rows)
    if whole is None or whole[:-1] not in (("BT",), ("B", "T")) or not isinstance(whole[-1], int):
        return None
    return Heads(rows, column, count, size)


def _rotated(node: fx.Node) -> Heads | None:
    """addcmul(x * cos, roll(x, half, -1), sin), the sines with their signs (capture/rotary.py)."""
    plain, turned, sin = node.args[:3]
    if node.kwargs or not is_op(plain, "mul") or not is_op(turned, "roll"):
        return None
    x = turned.args[0]
    pair = either(plain, lambda a: a is x)
    inner = _heads(x)
    if pair is None or inner is None or inner.rotary or turned.args[1:] != (inner.size // 2, -1) or inner.size % 2:
        return None
    tables = _rows_of_table(pair[1], inner.size), _rows_of_table(sin, inner.size)
    return replace(inner, rotary=tables) if tables[0] is not None and tables[1] is not None else None


def _rows_of_table(node: Any, size: int) -> fx.Node | None:
    """The rows [B, T, D] that are broadcast over heads here."""
    if not is_op(node, "unsqueeze") or node.args[1] not in (1, 2):
        return None
    rows = node.args[0]
    return rows if shape_of(rows) == ("B", "T", size) else None


def _summed(program: CapturedGraph, node: fx.Node) -> None:
    """Take the residual sum before a norm out of the product that it was fused into, since addmm starts with a copy of it."""
    product, sizes, weight, eps = node.args
    shape, layer = shape_of(node), node.meta["layer"]
    if not is_op(product, "addmm") or not isinstance(product, fx.Node) or product.kwargs or program.tensor(weight) is None:
        return
    states, x, matrix = product.args
    if shape_of(states) != shape or shape is None or len(shape) != 2 or tuple(sizes) != shape[1:]:
        return
    dtype = dtype_of(node)
    if not dtype_of(states) == dtype_of(product) == dtype_of(weight) == dtype:
        return
    with program.before(product):
        more = program.make("mm", (x, matrix), shape=shape, dtype=dtype, layer=product.meta["layer"])
        both = program.graph.call_function(sum_norm, (states, more, weight, eps))
        both.meta.update(op="sum_norm", shape=None, dtype=None, layer=layer)
        total, normed = (program.make("getitem", (both, n), shape=shape, dtype=dtype, layer=layer) for n in range(2))
    program.replace(product, total)
    program.replace(node, normed)


def _gated(program: CapturedGraph, node: fx.Node) -> None:
    if len(node.args) != 2:
        return
    pair = either(node, lambda a: is_op(a, "silu", "gelu"))
    if pair is None or len(pair[0].users) > 1:
        return
    act, up = pair
    gate = act.args[0]
    shape = shape_of(node)
    if not is_op(gate, "item") or not is_op(up, "item") or gate.args[0] is not up.args[0] or shape is None or len(shape) != 2:
        return
    split = gate.args[0]
    rows, sizes = split.args[0], split.args[1]
    if not is_op(split, "split") or argument(split, 2, "dim", 0) not in (-1, 1) or not isinstance(sizes, tuple | list):
        return
    starts = [sum(int(s) for s in sizes[:n]) for n in range(len(sizes))]
    if shape[0] != "BT" or len(shape_of(rows) or ()) != 2 or int(sizes[gate.args[1]]) != int(sizes[up.args[1]]):
        return
    kind = "silu" if is_op(act, "silu") else "gelu_tanh" if act.kwargs.get("approximate") == "tanh" else "gelu"
    with program.before(node):
        made = program.graph.call_function(gated, (rows, starts[gate.args[1]], starts[up.args[1]], int(shape[1]), kind))
        made.meta.update(op="gated", shape=shape, dtype=dtype_of(node), layer=node.meta["layer"])
    program.replace(node, made)
