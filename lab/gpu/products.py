"""Products of few rows with a large matrix, most of a step: against float64, then over the bandwidth of a copy and cuBLAS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lab.gpu import exact
from lab.gpu.clocks import copies, launch_ms, over_copy
from lab.gpu.lab import Lab
from lab.gpu.poison import poisoned
from lab.gpu.pool import Check, judged
from lab.gpu.report import Items, Row

ALLOWED = 1.5e-2  # of the norm: results are bfloat16, and so is what a norm or a gate puts into the product
Case = tuple[int, int, int]  # rows, inner size, columns
CASES: list[Case] = [
    (1, 4096, 6144),
    (1, 1000, 72),
    (5, 4096, 4096),
    (8, 14336, 4096),
    (65, 4096, 1024),
    (3, 96, 130),
    (17, 520, 64),
]
TINY: list[Case] = [(1, 40, 24), (3, 32, 17)]
FORMS = ("plain", "normed", "gated")


def random(lab: Lab, seed: int, *shape: int) -> Tensor:
    """bfloat16, from a generator of the device."""
    made = torch.Generator(lab.device).manual_seed(seed)
    return torch.randn(shape, generator=made, device=lab.device).to(torch.bfloat16)


def sizes_tried(rows: int) -> list[Any]:
    """Sizes of the kernel, whatever is measured to be best."""
    from decgraph.backends.triton.step.causal_stream import CANDIDATES, TORCH

    return [c for c in CANDIDATES if c.block != TORCH.block][:: 1 if rows == 1 else 3]


def checked(lab: Lab, case: Case) -> list[Check]:
    """Every form of the kernel, by its sizes: how far from float64."""
    from decgraph.backends.triton.step import causal_stream as stream
    from decgraph.backends.triton.tuned import trying

    rows, inner, columns = case
    matrix = random(lab, 1, columns, inner).t()
    x, more, weight = random(lab, 2, rows, inner), random(lab, 3, rows, inner), random(lab, 4, inner)
    both = random(lab, 5, rows, 2 * inner)
    total = (x + more).double()
    normed = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-5) * weight.double()
    gate, up = both[:, :inner].double(), both[:, inner:].double()
    due = {"plain": x.double(), "normed": normed.to(torch.bfloat16).double(), "gated": (torch.nn.functional.silu(gate) * up)}
    out: dict[str, float] = {}
    for sizes in sizes_tried(rows)[: None if lab.cuda else 1]:
        try:
            with trying(stream.FAMILY, stream.key_of(rows, matrix), sizes), poisoned():
                got = {
                    "plain": stream.streamed(x, matrix),
                    "normed": stream.normed_product(x, more, weight, 1e-5, matrix)[1],
                    "gated": stream.gated_product(both, 0, inner, inner, "silu", matrix),
                }
        except Exception as error:
            if "out of resource" not in str(error):  # sizes that the device has no room for are never chosen
                raise
            continue
        for form, mine in got.items():
            out[form] = max(out.get(form, 0.0), exact.apart(mine, due[form] @ matrix.double()))
    if not out:
        raise RuntimeError("none of the sizes could be launched")
    return [(form, gap, ALLOWED) for form, gap in out.items()]


def checks(lab: Lab) -> Row:
    """Every shape and form."""
    return judged(lab, checked, CASES if lab.cuda else TINY)


def stage(lab: Lab) -> Items:
    """Timings, for the stage `timings`."""
    large = [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096), (4096, 128256)]
    for inner, columns in large if lab.sizes.name != "tiny" else [(64, 32)]:
        yield f"product {inner} x {columns}", partial(timed, lab, inner, columns)


def timed(lab: Lab, inner: int, columns: int) -> Row:
    """One, 8 and 65 rows, as a step launches it, and torch's own product."""
    from decgraph.backends.triton.step.causal_stream import sizes_of, streamed

    row: Row = {"products": []}
    says = []
    each = 2 * inner * columns
    matrices = [random(lab, n, columns, inner).t() for n in range(copies(lab, each))]
    for rows in (1, 8, 65) if lab.cuda else (1,):
        x = random(lab, 7, rows, inner)
        calls: dict[str, Callable[[Tensor], Tensor]] = {"ours": partial(streamed, x), "torch": partial(torch.mm, x)}
        moved = each + 2 * rows * (inner + columns)
        found = {
            name: over_copy(lab, moved, launch_ms(lab, [partial(call, m) for m in matrices])) for name, call in calls.items()
        }
        kernel = sizes_of(x, matrices[0]) is not None
        row["products"].append({"rows": rows, "kernel": kernel, **found})
        says.append(
            f"{rows}: {found['ours']['of_copy']:.0%} of a copy ({'ours' if kernel else 'cuBLAS'}), torch "
            f"{found['torch']['of_copy']:.0%}"
        )
    return {**row, "says": "; ".join(says)}
