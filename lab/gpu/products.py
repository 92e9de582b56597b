"""The products of a decoding step: cuBLAS, and what Inductor writes for one row, over the time that reading the matrix takes.

Which of them a step uses for one row, and what more rows cost, is a choice that only a GPU can make.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.gpu.clocks import copies, launch_ms, over_copy
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row

ROWS = (1, 5, 16, 64)


def stage(lab: Lab) -> Items:
    """The items of the stage `products`."""
    for name, (inner, outer) in shapes(lab).items():
        yield f"{name}, {inner} x {outer}", partial(timed, lab, inner, outer)


def shapes(lab: Lab) -> dict[str, tuple[int, int]]:
    """The matrices of a layer of the target and its output: columns and rows of each."""
    c: dict[str, Any] = lab.sizes.target
    width, inner, size = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["num_attention_heads"]
    heads = c["num_attention_heads"] + 2 * c["num_key_value_heads"]
    return {"qkv": (width, heads * size), "o": (width, width), "gate and up": (width, 2 * inner), "down": (inner, width),
            "output": (width, c["vocab_size"])}  # fmt: skip


@torch.inference_mode()
def timed(lab: Lab, inner: int, outer: int) -> Row:
    """Milliseconds of y = x W' for x [T, inner], W [outer, inner], over different matrices each time."""
    dtype = lab.sizes.dtype
    each = inner * outer * dtype.itemsize
    weights = [torch.randn(outer, inner, device=lab.device, dtype=dtype) for _ in range(copies(lab, each))]
    row: Row = {"rows": [], "right": True}
    says = []
    for count in ROWS:
        x = torch.randn(count, inner, device=lab.device, dtype=dtype)
        contenders: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cublas": F.linear}
        if count == 1 and lab.cuda:
            contenders["inductor"] = torch.compile(
                lambda a, w: (w.float() * a.float()).sum(-1, keepdim=True).to(w.dtype), dynamic=False
            )
        found: Row = {"T": count}
        for name, product in contenders.items():
            moved = each + count * (inner + outer) * dtype.itemsize
            found[name] = over_copy(lab, moved, launch_ms(lab, [partial(product, x, w) for w in weights]))
            says.append(f"T {count} {name} {found[name]['of_copy']:.0%}")
        row["rows"].append(found)
        if "inductor" in contenders:
            want = weights[0].double() @ x[0].double()
            gap = float((contenders["inductor"](x, weights[0]).view(-1).double() - want).abs().max() / want.abs().max())
            row["gap"], row["right"] = gap, gap < 1e-2
    return {**row, "says": ", ".join(says) + " of a copy"}
