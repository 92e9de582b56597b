# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Products of few rows with a large matrix, which take nearly all of a decoding step's time and read each weight once.

Whether this kernel is faster than the vendor's depends on device and shape. Until it was measured (`CANDIDATES`), torch's is
used.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor, fx

from decgraph.backends.triton.attention.runs import product
from decgraph.backends.triton.attention.sizes import power
from decgraph.backends.triton.step.causal_kernels import ACTIVATIONS, activated, gated, sum_norm
from decgraph.backends.triton.tuned import Config, config
from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, is_op, shape_of

FAMILY = "product"
TORCH = Config(block=1, warps=1, stages=1)
"""Stands for torch's own product."""
CANDIDATES = (TORCH, *(Config(block, 4, stages) for block in (32, 64) for stages in (2, 3, 4)))
MOST = 64
"""The most rows: more take longer than reading the matrix."""


PLAIN, NORMED, GATED = 0, 1, 2


@triton.jit(do_not_specialize=["rows"])
def stream_kernel(
    x,
    more,
    scale,
    total,
    weight,
    out,
    rows,
    columns,
    inner,
    x_row,
    weight_row,
    gate_at,
    up_at,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    EVEN: tl.constexpr,
    FORM: tl.constexpr,
    ACT: tl.constexpr,
):
    """BLOCK columns of out [rows, columns] = left [rows, inner] @ weight [columns, inner].T, summed in float32. EVEN: STEP
    divides inner. What the left side is, by FORM:

    PLAIN: x. NORMED: the root-mean-square norm of x + more times `scale`; the first program writes x + more to `total`. The
    root mean square is known after the row was read, and divides the sums. GATED: act(x[:, gate_at:]) * x[:, up_at:].
    """
    column, row, step = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROWS), tl.arange(0, STEP)
    # Columns past the end read the last one's weights: their products are not stored.
    lines = weight + tl.minimum(column, columns - 1).to(tl.int64)[None, :] * weight_row
    sums, squares = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS,), tl.float32)
    for at in range(0, inner, STEP):
        d = at + step
        if EVEN:
            mask = (row < rows)[:, None] & (step >= 0)[None, :]
            right = tl.load(lines + d[:, None], eviction_policy="evict_first")
        else:
            mask = (row < rows)[:, None] & (d < inner)[None, :]
            right = tl.load(lines + d[:, None], mask=(d < inner)[:, None], other=0.0, eviction_policy="evict_first")
        place = row[:, None] * x_row + d[None, :]
        if FORM == 0:
            left = tl.load(x + place, mask=mask, other=0.0)
        elif FORM == 1:
            whole = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
            whole += tl.load(more + place, mask=mask, other=0.0).to(tl.float32)
            if tl.program_id(0) == 0:
                tl.store(total + place, whole.to(total.dtype.element_ty), mask=mask)
            squares += tl.sum(whole * whole, 1)
            times = tl.load(scale + d, mask=d < inner, other=0.0).to(tl.float32)
            left = (whole * times[None, :]).to(weight.dtype.element_ty)
        else:
            gate = tl.load(x + place + gate_at, mask=mask, other=0.0).to(tl.float32)
            up = tl.load(x + place + up_at, mask=mask, other=0.0).to(tl.float32)
            left = (activated(gate, ACT) * up).to(weight.dtype.element_ty)
        sums = product(left, right, sums)
    if FORM == 1:
        sums = sums * tl.rsqrt(squares / inner + eps)[:, None]
    tl.store(
        out + row[:, None] * columns + column[None, :],
        sums.to(out.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < columns)[None, :],
    )


def streamed(x: Tensor, matrix: Tensor) -> Tensor:
    """x [n, k] @ matrix [k, m], by the implementation measured to be fastest for its shape on this device."""
    sizes = sizes_of(x, matrix)
    return torch.mm(x, matrix) if sizes is None else _launched(sizes, x, matrix, PLAIN)


def normed_product(states: Tensor, more: Tensor, weight: Tensor, eps: float, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """states + more [n, k], and the product of its root-mean-square norm times `weight` [k] with a matrix [k, m]."""
    sizes = sizes_of(states, matrix)
    if sizes is None or not states.is_contiguous() or not more.is_contiguous():
        total, normed = sum_norm(states, more, weight, eps)
        return total, torch.mm(normed, matrix)
    total = torch.empty_like(states)
    return total, _launched(sizes, states, matrix, NORMED, (more, weight, total), eps=eps)


def gated_product(rows: Tensor, gate_at: int, up_at: int, size: int, act: str, matrix: Tensor) -> Tensor:
    """The product of act(rows[:, gate_at:][:, :size]) * rows[:, up_at:][:, :size] with a matrix [size, m]."""
    sizes = sizes_of(rows, matrix)
    if sizes is None:
        return torch.mm(gated(rows, gate_at, up_at, size, act), matrix)
    return _launched(sizes, rows, matrix, GATED, at=(gate_at, up_at), act=ACTIVATIONS[act])


def _launched(
    sizes: Config,
    x: Tensor,
    matrix: Tensor,
    form: int,
    norm: tuple[Tensor, Tensor, Tensor] | None = None,
    *,
    eps: float = 0.0,
    at: tuple[int, int] = (0, 0),
    act: int = 0,
) -> Tensor:
    inner, columns = matrix.shape
    if x.stride(1) != 1:
        x = x.contiguous()
    out = torch.empty((x.shape[0], columns), dtype=x.dtype, device=x.device)
    tile = rows_of_tile(x.shape[0])
    step = step_of(tile)
    stream_kernel[(-(-columns // sizes.block),)](
        x, *(norm or (x, x, out)), matrix, out, x.shape[0], columns, inner, x.stride(0), matrix.stride(1), *at, eps,
        ROWS=tile, BLOCK=sizes.block, STEP=step, EVEN=inner % step == 0, FORM=form, ACT=act,
        num_warps=sizes.warps, num_stages=sizes.stages,
    )  # fmt: skip
    return out


def sizes_of(x: Tensor, matrix: Tensor) -> Config | None:
    """The sizes measured for a product of rows x [n, k] with a matrix [k, m]; None for torch's own."""
    rows = x.shape[0]
    if not suits(rows, matrix):
        return None
    sizes = config(FAMILY, key_of(rows, matrix), TORCH)
    return None if sizes.block == TORCH.block else sizes


def suits(rows: int, matrix: Tensor) -> bool:
    """Whether the kernel supports a product: 16 bits, few rows, and a matrix that is stored by columns."""
    return rows <= MOST and matrix.dtype.itemsize == 2 and matrix.stride(0) == 1


def rows_of_tile(rows: int) -> int:
    """Rows rounded up to a tile of the tensor cores."""
    return max(power(rows), 16)


def step_of(rows: int) -> int:
    """Elements of the inner axis read at once, for a tile of `rows`: as many as fit into registers without spills."""
    return 256 if rows <= 16 else 64


def key_of(rows: int, matrix: Tensor) -> tuple[int, int, int, str]:
    """The key of a measurement."""
    return rows_of_tile(rows), matrix.shape[1], matrix.shape[0], str(matrix.dtype).removeprefix("torch.")


def stream(program: CapturedGraph) -> None:
    """Pass: products with a matrix of the model call `streamed`, fused with the norm or the gate before them.

    before   h, y = sum_norm(h, more, weight, eps); mm(y, w)          mm(gated(rows, ...), w)
    after    h, z = normed_product(h, more, weight, eps, w)           gated_product(rows, ..., w)
    """
    for node in program.of("mm"):
        left, right = node.args
        matrix = program.tensor(right)
        if matrix is None or not isinstance(left, fx.Node) or not suits(1, matrix):
            continue
        node.target = streamed
        if len(left.users) > 1:
            continue
        if is_op(left, "gated"):
            node.target, node.args = gated_product, (*left.args, right)
            node.meta["op"] = "gated_product"
        elif is_op(left, "getitem") and left.args[1] == 1 and is_op(left.args[0], "sum_norm"):
            _normed(program, node, left.args[0], right)
    program.sweep()


def _normed(program: CapturedGraph, node: fx.Node, both: fx.Node, matrix: fx.Node) -> None:
    with program.before(both):
        made = program.graph.call_function(normed_product, (*both.args, matrix))
        made.meta.update(both.meta, op="normed_product")
    for old in list(both.users):
        if old.args[1] == 0:
            old.args = (made, 0)
    with program.before(node):
        new = program.make("getitem", (made, 1), shape=shape_of(node), dtype=dtype_of(node), layer=node.meta["layer"])
    program.replace(node, new)


def launch(rows: int, inner: int, columns: int, dtype: torch.dtype) -> Callable[[torch.device], Callable[[], Tensor]]:
    """For measuring a product [rows, inner] @ [inner, columns]: for a device, a function that launches it once."""

    def make(device: torch.device) -> Callable[[], Tensor]:
        # Small whole numbers: short sums of them are the same in any order.
        x = torch.randint(-1, 2, (rows, inner), device=device).to(dtype)
        matrix = torch.randint(-1, 2, (columns, inner), device=device).to(dtype).t()
        return lambda: streamed(x, matrix)

    return make
