"""Pass: a boolean mask becomes an additive one once a call, not once a layer.

Why: `scaled_dot_product_attention` converts a boolean mask to a floating one in every layer.

Precondition: masks are boolean, and used by attention alone. Hidden positions get the dtype's lowest number rather
than minus infinity: their weight is exactly 0 as long as the row attends to anything, and a row that attends to nothing
(padding) is a mean of finite numbers instead of NaN, which would spread through the caches.

    before   scaled_dot_product_attention(q, k, v, attn_mask=mask)                     mask: bool
    after    added = where(mask, 0.0, lowest); scaled_dot_product_attention(q, k, v, attn_mask=added)
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, is_op, shape_of


def masks(program: CapturedGraph) -> None:
    """Converts every boolean mask to an additive one, once a call."""
    found = program.input("masks")
    for mask in list(found.users):
        dtypes = {dtype_of(u.args[0]) for u in mask.users}
        dtype = next(iter(dtypes))
        if not all(is_op(u, "attention", "plain_attention") for u in mask.users) or len(dtypes) != 1 or dtype is None:
            continue
        shown, hidden = _number(program, "shown", 0.0, dtype), _number(program, "hidden", torch.finfo(dtype).min, dtype)
        with program.before(mask.next):
            added = program.make("where", (mask, shown, hidden), shape=shape_of(mask), dtype=dtype)
        mask.replace_all_uses_with(added, delete_user_cb=lambda user, made=added: user is not made)


def unmask(program: CapturedGraph, kinds: Collection[object]) -> None:
    """Attention without masks where those of these kinds hide nothing."""
    if not kinds:
        return
    for node in [*program.of("attention"), *program.of("plain_attention")]:
        mask = node.kwargs.get("attn_mask")
        while isinstance(mask, fx.Node) and not is_op(mask, "input"):
            mask = mask.args[0]
        if isinstance(mask, fx.Node) and mask.args[1] in kinds:
            node.kwargs = {**node.kwargs, "attn_mask": None}
    for node in program.of("where"):  # a module that adds masks itself adds zeros
        mask = node.args[0]
        if is_op(mask, "input") and mask.args[0] is program.input("masks") and mask.args[1] in kinds:
            program.replace(node, node.args[1])
    program.sweep()


def addable(program: CapturedGraph) -> bool:
    """Whether `masks` converted every mask of a graph."""
    given = [u for u in program.input("masks").users if u.users]
    return bool(given) and all(is_op(use, "where") and use.args[0] is mask for mask in given for use in mask.users)


def added(program: CapturedGraph) -> None:
    """Masks that are numbers to add already are not converted. Precondition: `addable`."""
    for mask in program.input("masks").users:
        for use in list(mask.users):
            program.replace(use, mask)
            mask.meta["dtype"] = dtype_of(use)
    program.sweep()


def _number(program: CapturedGraph, name: str, value: float, dtype: torch.dtype) -> fx.Node:
    name = f"mask_{name}_{str(dtype).removeprefix('torch.')}"
    if name in program.named:
        return program.named[name]
    return program.constant(name, torch.tensor(value, dtype=dtype, device=program.device))
