"""Pass: values that depend on positions alone are looked up, not computed.

Why: cosines and sines of a call's positions are nine small operations a call (25 us on a CPU), always of the same
numbers. With a table, a call takes one row per token.

Precondition: every input of the computation is `positions` or a constant, and it has a row [B, T, ...] per position.
The module's config has a number of positions, and the tables are small beside its weights; else the values are
computed as before, once a call. Past the table's end (512 positions after the model's) the lookup fails: the caller
keeps to the model's context.

    before   (positions[..., None].float() * inv_freq) ... .cos()
    after    embedding(positions, table)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from decgraph.runtime.models.capture.ops import VIEWS, run
from decgraph.runtime.models.capture.program import CapturedGraph, dependants, dtype_of, shape_of

_SHARE = 32  # tables take at most this part of the weights' bytes, ...
_ALWAYS = 4 << 20  # ... or this many
_MARGIN = 512  # positions past the end: drafts of a sequence that is about to end reach beyond it


def tables(program: CapturedGraph) -> None:
    """Replaces what depends on positions alone by table lookups, if the tables are small enough."""
    positions = program.input("positions")
    inside = dependants(program, [positions, *_sizes(program)])
    asked = [n for n in program.graph.nodes if n in inside and _worth(program, n, inside)]
    if not asked or program.reach <= 0:
        return
    weights = sum(t.numel() * t.element_size() for t in program.tensors.values())
    rows = program.reach + _MARGIN
    if sum(_row(n) for n in asked) * rows > max(weights // _SHARE, _ALWAYS):
        return
    try:
        computed = _computed(program, asked, inside, rows)
    except (IndexError, RuntimeError):  # the module has a table of its own, that ends with its positions
        rows = program.reach
        computed = _computed(program, asked, inside, rows)
    for number, (node, table) in enumerate(zip(asked, computed, strict=True)):
        shape = shape_of(node)
        assert shape is not None
        flat = table.reshape(rows, -1).contiguous()
        with program.before(node):
            made: fx.Node = program.make(
                "embedding",
                (positions, program.constant(f"table_{number}", flat)),
                shape=("B", "T", flat.shape[1]),
                dtype=dtype_of(node),
            )
            if len(shape) > 3:
                made = program.make("view", (made, program.sizes(shape)), shape=shape, dtype=dtype_of(node))
        program.replace(node, made)
    program.sweep()


def _sizes(program: CapturedGraph) -> list[fx.Node]:
    return [n for dim, n in program.dims.items() if dim != "S"]


def _worth(program: CapturedGraph, node: fx.Node, inside: set[fx.Node]) -> bool:
    """Whether this is the last step, views aside, of a computation of several steps that others read."""
    shape = shape_of(node)
    dtype = dtype_of(node)
    if node.meta["op"] in VIEWS or node.meta["op"] == "embedding" or dtype is None or not dtype.is_floating_point:
        return False
    if shape is None or len(shape) < 3 or shape[:2] != ("B", "T") or any(not isinstance(s, int) for s in shape[2:]):
        return False
    steps = {n for n in _behind(node, inside) if n.meta["op"] not in VIEWS}
    return len(steps) > 1 and all(n.meta["op"] != "embedding" for n in steps) and any(_leaves(u, inside) for u in node.users)


def _leaves(user: fx.Node, inside: set[fx.Node]) -> bool:
    """Whether this use, seen through views, is outside of what depends on positions alone."""
    if user not in inside:
        return True
    return user.meta["op"] in VIEWS and any(_leaves(u, inside) for u in user.users)


def _behind(node: fx.Node, inside: set[fx.Node]) -> set[fx.Node]:
    found, todo = set(), [node]
    while todo:
        n = todo.pop()
        if n in inside and n not in found and n.op != "placeholder" and n.meta["op"] not in ("size", "numel"):
            found.add(n)
            todo += n.all_input_nodes
    return found


def _row(node: fx.Node) -> int:
    dtype, shape = dtype_of(node), shape_of(node)
    assert dtype is not None and shape is not None
    size = dtype.itemsize
    for s in shape[2:]:
        size *= int(s)
    return size


def _computed(program: CapturedGraph, asked: list[fx.Node], inside: set[fx.Node], rows: int) -> list[Tensor]:
    """Their values at positions 0 .. rows - 1 of one sequence."""
    known: dict[fx.Node, Any] = {
        program.input("positions"): torch.arange(rows, device=program.device)[None],
        **{n: {"B": 1, "T": rows, "BT": rows}[dim] for dim, n in program.dims.items() if dim != "S"},
    }
    wanted = set().union(*(_behind(n, inside) for n in asked))
    with torch.no_grad():
        for node in program.graph.nodes:
            if node in wanted:
                args, kwargs = fx.map_arg(
                    (node.args, node.kwargs), lambda n: known[n] if n in known else program.tensors[n.target]
                )
                known[node] = run(node, args, kwargs)
    return [known[n] for n in asked]
