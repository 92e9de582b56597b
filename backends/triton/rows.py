"""Products of one row by the kernel that Inductor writes for a region, in the place of cuBLAS's, where that was faster.

cuBLAS cuts the sum of a product with few outputs into parts, which another launch adds. Inductor's kernel is one reduction, and
a residual sum is its last line. Which is faster depends on the shape and the device: both are measured when a shape first
comes, and what was found stays on disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, fx

from decgraph import cache
from decgraph.backends.triton.capture import aside, captured

MARGIN = 0.97
"""Of cuBLAS's time, which Inductor's kernel has to stay below: measurements differ by as much."""
_ROUNDS, _BYTES = 20, 256 << 20  # matrices of so many bytes one after the other, more than a cache holds

Compile = Callable[[fx.GraphModule, list[Tensor]], Callable[..., object]]


def is_generated(node: fx.Node, compiled: Compile) -> bool:
    """Whether an operation of a recorded step is a product of one row that is better compiled. compiled: what does that."""
    if node.target is not torch.ops.aten.mm.default:
        return False
    out, matrix = node.meta["val"], node.args[1]
    device = node.meta["device"]
    if out.shape[0] != 1 or device.type != "cuda" or not torch.cuda.is_available() or not isinstance(matrix, fx.Node):
        return False
    return generated_is_faster(out.shape[1], matrix.meta["val"].shape[0], out.dtype, device, compiled)


@lru_cache
def generated_is_faster(outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, compiled: Compile) -> bool:
    """Whether the compiled product of a row [1, inputs] with a matrix [outputs, inputs] is the faster one on a device."""
    file = cache.folder() / "rows.json"
    key = f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {outputs} x {inputs} {dtype}".replace("torch.", "")
    known = _read(file)
    if key not in known:
        known = {**_read(file), key: measured(outputs, inputs, dtype, device, compiled)}
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_suffix(".new")
        made.write_text(json.dumps(known, indent=1), encoding="utf-8")
        made.replace(file)
    times = known[key]
    return times["inductor"] < MARGIN * times["cublas"]


def _read(file: Path) -> dict[str, dict[str, float]]:
    try:
        found: dict[str, dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


@torch.no_grad()
def measured(outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, compiled: Compile) -> dict[str, float]:
    """Milliseconds of one product by each."""
    count = max(2, _BYTES // (outputs * inputs * dtype.itemsize))
    matrices = [torch.randn(outputs, inputs, device=device).to(dtype) for _ in range(count)]
    row = torch.randn(1, inputs, device=device).to(dtype)
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    graph.output((graph.call_function(torch.ops.aten.mm.default, (x, graph.call_function(torch.ops.aten.t.default, (w,)))),))
    made = compiled(fx.GraphModule({}, graph), [row, matrices[0]])
    by_each = {"cublas": lambda x, w: (torch.mm(x, w.t()),), "inductor": made}
    return {name: milliseconds(run, matrices, row) for name, run in by_each.items()}


def milliseconds(run: Callable[[Tensor, Tensor], object], matrices: list[Tensor], row: Tensor) -> float:
    """The least time of a product of a row [1, inputs] with one of some matrices [outputs, inputs], captured: launches one by
    one take longer."""

    def every() -> None:
        for matrix in matrices:
            run(row, matrix)

    aside(every, row.device)  # which also tunes the kernel
    replay, times = captured(every, row.device), []
    replay()
    for _ in range(_ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / len(matrices))
    return float(min(times))
