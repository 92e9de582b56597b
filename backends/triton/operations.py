"""Which kernels implement an op: the triton backend's four tables in one view. Ops in none of them run as on torch, between the
kernels."""

from __future__ import annotations

from decgraph.backends.torch import lowering
from decgraph.backends.triton.rows.build import HANDLERS
from decgraph.backends.triton.rules.emit_columns import Columns
from decgraph.backends.triton.step import canvas_run, evaluate
from decgraph.backends.triton.step.canvas_step import CANVAS
from decgraph.ir.table import lookup


def kernels(opcode: str) -> tuple[str, ...]:
    """The kinds of device code of an op: "rows" (a segment over the vocabulary as one kernel), "rules" (a verification rule as
    one kernel), "trees" and "canvases" (a whole decoding step on the device)."""
    evaluate.load()
    kinds = {
        "rows": opcode in HANDLERS,
        "rules": hasattr(Columns, "op_" + opcode.replace(".", "_")),
        "trees": opcode in evaluate.DEVICE,
        "canvases": opcode in CANVAS or opcode in canvas_run.FLOW,
    }
    return tuple(kind for kind, has in kinds.items() if has)


def supports(opcode: str) -> str | None:
    """None for an op that some kernel implements; else what happens instead, in a sentence. Raises OpError for a name that is
    no op."""
    if kernels(opcode):
        return None
    return lookup(opcode).unavailable or lowering.supports(opcode) or "it runs as on torch, between the kernels"
