"""Last step before a captured graph runs: products with constant matrices read packed copies of these (packs.py).

It is no pass over the graph that is kept, because it depends on the number of tokens, and torch.compile and the device's
steps have products of their own.

Precondition: a constant matrix that packs.py takes.

    before   mm(x, w_t); addmm(b, x, w_t); addmm(h, x, w_t)
    after    packed(x, w, None); packed(x, w, b); packed_onto(x, h, w)             w = reordered(w_t.t())
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, shape_of
from decgraph.runtime.models.packs import for_one_row, packable, streamed


def matrices(program: CapturedGraph) -> list[Tensor]:
    """The matrices [m, n] of a graph's products that can be packed."""
    used = {str(n.args[-1].target) for n in program.of("mm") + program.of("addmm") if isinstance(n.args[-1], fx.Node)}
    return [t for name, t in program.tensors.items() if name in used and packable(t)]


def pack(program: CapturedGraph, *, one_row: bool) -> None:
    """Makes every product that can be one of a packed matrix such a product; one_row: where that is the faster one."""
    large = one_row and streamed(matrices(program))
    for node in program.of("mm") + program.of("addmm"):
        *first, x, weight = node.args
        matrix = program.tensor(weight)
        if matrix is None or not packable(matrix) or (one_row and not for_one_row(matrix.t(), streamed=large)):
            continue
        assert isinstance(weight, fx.Node)
        name = f"{weight.target}_packed"
        copy = program.constant(name, program.packs.of(name, matrix.t()))
        meta: dict[str, Any] = {"shape": shape_of(node), "dtype": dtype_of(node), "layer": node.meta["layer"]}
        with program.before(node):
            if first and len(shape_of(first[0]) or ()) == 2:
                new = program.make("packed_onto", (x, first[0], copy, None, "add"), **meta)
            else:
                new = program.make("packed", (x, copy, first[0] if first else None, "none", [], ""), **meta)
        program.replace(node, new)
    program.sweep()
