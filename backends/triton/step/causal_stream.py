# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Products of few rows with a large matrix: what a decoding step does nearly all of its time, and reads each weight once for.

Which is faster, the vendor's product or this one, depends on device and shape, and only measuring says. Until that was done
(`CANDIDATES`), it is torch's.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.attention.runs import product
from decgraph.backends.triton.attention.sizes import power
from decgraph.backends.triton.tuned import Config, config
from decgraph.runtime.models.capture.program import Program

FAMILY = "product"
TORCH = Config(block=1, warps=1, stages=1)
"""Stands for torch's own product."""
CANDIDATES = (TORCH, *(Config(block, warps, stages) for block in (16, 32, 64) for warps in (4, 8) for stages in (3, 4, 5)))
MOST = 64
"""Rows; more of them are no longer free beside the reading."""


@triton.jit(do_not_specialize=["rows"])
def stream_kernel(x, weight, out, rows, columns, inner, x_row, weight_row,
                  ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr):
    """BLOCK columns of out [rows, columns] = x [rows, inner] @ weight [columns, inner].T, summed in float32. EVEN: STEP
    divides inner."""
    column, row, step = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROWS), tl.arange(0, STEP)
    # Columns past the end read the last one's weights: their products are not stored.
    lines = weight + tl.minimum(column, columns - 1).to(tl.int64)[None, :] * weight_row
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for at in range(0, inner, STEP):
        d = at + step
        if EVEN:
            left = tl.load(x + row[:, None] * x_row + d[None, :], mask=(row < rows)[:, None], other=0.0)
            right = tl.load(lines + d[:, None], eviction_policy="evict_first")
        else:
            left = tl.load(x + row[:, None] * x_row + d[None, :], mask=(row < rows)[:, None] & (d < inner)[None, :], other=0.0)
            right = tl.load(lines + d[:, None], mask=(d < inner)[:, None], other=0.0, eviction_policy="evict_first")
        total = product(left, right, total)
    tl.store(out + row[:, None] * columns + column[None, :], total.to(out.dtype.element_ty),
             mask=(row < rows)[:, None] & (column < columns)[None, :])


def streamed(x: Tensor, matrix: Tensor) -> Tensor:
    """x [n, k] @ matrix [k, m], by what was measured to be fastest for such a product on this device."""
    rows, inner = x.shape
    sizes = config(FAMILY, key_of(rows, matrix), TORCH) if suits(rows, matrix) else TORCH
    if sizes.block == TORCH.block:
        return torch.mm(x, matrix)
    columns = matrix.shape[1]
    if x.stride(1) != 1:
        x = x.contiguous()
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    step = step_of(sizes.block)
    stream_kernel[(-(-columns // sizes.block),)](
        x, matrix, out, rows, columns, inner, x.stride(0), matrix.stride(1), ROWS=rows_of_tile(rows), BLOCK=sizes.block,
        STEP=step, EVEN=inner % step == 0, num_warps=sizes.warps, num_stages=sizes.stages,
    )  # fmt: skip
    return out


def suits(rows: int, matrix: Tensor) -> bool:
    """Whether the kernel takes a product: 16 bits, few rows, and a matrix that is stored by columns."""
    return rows <= MOST and matrix.dtype.itemsize == 2 and matrix.stride(0) == 1


def rows_of_tile(rows: int) -> int:
    """Rows as tensor cores have them."""
    return max(power(rows), 16)


def step_of(block: int) -> int:
    """How much of the inner axis is read at once."""
    return 256 if block <= 32 else 128


def key_of(rows: int, matrix: Tensor) -> tuple[int, int, int, str]:
    """What a measurement is remembered by."""
    return rows_of_tile(rows), matrix.shape[1], matrix.shape[0], str(matrix.dtype).removeprefix("torch.")


def stream(program: Program) -> None:
    """Pass: products with a matrix of the model's are asked of `streamed`."""
    for node in program.of("mm"):
        matrix = program.tensor(node.args[1])
        if matrix is not None and suits(1, matrix):
            node.target = streamed


def launch(rows: int, inner: int, columns: int, dtype: torch.dtype) -> Callable[[torch.device], Callable[[], Tensor]]:
    """What measuring a product takes: a device to a function that launches it once."""

    def make(device: torch.device) -> Callable[[], Tensor]:
        # Small whole numbers: short sums of them are the same in any order.
        x = torch.randint(-1, 2, (rows, inner), device=device).to(dtype)
        matrix = torch.randint(-1, 2, (columns, inner), device=device).to(dtype).t()
        return lambda: streamed(x, matrix)

    return make
