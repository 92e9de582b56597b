# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Small kernels of a forward: the heads of new tokens go to the cache, and new tokens to their slots, one launch each.

On a GPU a decoding step reads every weight once, and each of the small operations between the products costs as much as
reading about ten million of them: six launches a layer instead of eleven are a tenth of an 8B model's step.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.attention.sizes import power

CELLS_BLOCK = 64


@triton.jit
def normed(x, weight, eps, SIZE: tl.constexpr):
    """One head after root-mean-square normalisation; x is 0 past SIZE."""
    return x * tl.rsqrt(tl.sum(x * x, 0) / SIZE + eps) * weight


@triton.jit(do_not_specialize=["cells"])
def heads_kernel(
    rows,
    cos,
    sin,
    write,
    keys,
    values,
    queries,
    query_norm,
    key_norm,
    eps,
    cells,
    width,
    query_at,
    key_at,
    value_at,
    key_batch,
    key_head,
    key_slot,
    value_batch,
    value_head,
    value_slot,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SIZE: tl.constexpr,
    PAD: tl.constexpr,
    ROTARY: tl.constexpr,
    NORM: tl.constexpr,
):
    """One head of one token, out of the row [width] of the projections: queries go to `queries`, keys and values to the
    token's slot of the caches; queries and keys normalised and rotated first."""
    cell, head = tl.program_id(0), tl.program_id(1)
    b = cell // cells
    is_query, is_key = head < QUERIES, (head >= QUERIES) & (head < QUERIES + KEYS)
    # The head's destination: one of the three.
    of_query, of_key = tl.where(is_query, SIZE, 0), tl.where(is_key, SIZE, 0)
    of_value = SIZE - of_query - of_key
    column = tl.where(
        is_query,
        query_at + head * SIZE,
        tl.where(is_key, key_at + (head - QUERIES) * SIZE, value_at + (head - QUERIES - KEYS) * SIZE),
    )
    line = rows + cell.to(tl.int64) * width + column
    d = tl.arange(0, PAD)
    inside = d < SIZE
    plain = tl.load(line + d, mask=inside, other=0.0).to(tl.float32)
    x = plain
    if NORM:
        scale = tl.load(query_norm + d, mask=d < of_query, other=0.0).to(tl.float32)
        scale += tl.load(key_norm + d, mask=d < of_key, other=0.0).to(tl.float32)
        x = normed(plain, scale, eps, SIZE)
    if ROTARY:
        # The sines have rotate_half's signs.
        other = (d + SIZE // 2) % SIZE
        y = tl.load(line + other, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            scale = tl.load(query_norm + other, mask=d < of_query, other=0.0).to(tl.float32)
            scale += tl.load(key_norm + other, mask=d < of_key, other=0.0).to(tl.float32)
            y = normed(y, scale, eps, SIZE)
        c = tl.load(cos + cell.to(tl.int64) * SIZE + d, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + cell.to(tl.int64) * SIZE + d, mask=inside, other=0.0).to(tl.float32)
        x = x * c + y * s
    slot = tl.load(write + cell)
    lane = b.to(tl.int64)
    tl.store(queries + (cell.to(tl.int64) * QUERIES + head) * SIZE + d, x.to(queries.dtype.element_ty), mask=d < of_query)
    tl.store(
        keys + lane * key_batch + (head - QUERIES).to(tl.int64) * key_head + slot * key_slot + d,
        x.to(keys.dtype.element_ty),
        mask=d < of_key,
    )
    tl.store(
        values + lane * value_batch + (head - QUERIES - KEYS).to(tl.int64) * value_head + slot * value_slot + d,
        plain.to(values.dtype.element_ty),
        mask=d < of_value,
    )


@triton.jit(do_not_specialize=["cells", "words", "first"])
def cells_kernel(
    tokens,
    positions,
    bits,
    cached,
    tokens_out,
    positions_out,
    write,
    tail_positions,
    cells,
    words,
    first,
    tail,
    spare,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):
    """BLOCK new tokens of one sequence: their slots, tokens and positions; padding is token 0 at position 0 in the slot
    `spare`. Their positions are stored as the tail's."""
    b, t = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word, there = tl.arange(0, WORDS), t < cells
    place = b * cells + t
    named = tl.load(bits + place[:, None] * words + word[None, :], mask=there[:, None] & (word < words)[None, :], other=0)
    real = tl.max((named != 0).to(tl.int32), 1) != 0
    at = tl.where(real, tl.load(positions + place, mask=there, other=0), 0)
    tl.store(positions_out + place, at, mask=there)
    tl.store(tokens_out + place, tl.where(real, tl.load(tokens + place, mask=there, other=0), 0), mask=there)
    tl.store(write + place, tl.where(real, tl.load(cached + b) + first + t, spare).to(tl.int64), mask=there)
    tl.store(tail_positions + b * tail + first + t, at, mask=there)


def place_cells(
    tokens: Tensor, positions: Tensor, first: int, cached: Tensor, bits: Tensor, tail_positions: Tensor, spare: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, positions and slots, int64[B, T], of new tokens (see `Cells.place`); writes tail_positions int64[B, tail]."""
    batch, cells, words = bits.shape
    made = [torch.empty((batch, cells), dtype=torch.int64, device=bits.device) for _ in range(3)]
    block = min(power(cells), CELLS_BLOCK)
    cells_kernel[(batch, -(-cells // block))](
        tokens.contiguous(), positions.contiguous(), bits.contiguous(), cached, *made, tail_positions, cells, words, first,
        tail_positions.shape[1], spare, BLOCK=block, WORDS=power(words), num_warps=1,
    )  # fmt: skip
    return made[0], made[1], made[2]


def place_heads(
    rows: Tensor,
    write: Tensor,
    keys: Tensor,
    values: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    query_norm: Tensor | None,
    key_norm: Tensor | None,
    counts: tuple[int, int],
    columns: tuple[int, int, int],
    size: int,
    eps: float,
) -> Tensor:
    """Queries [B, T, Hq, size] out of rows [B * T, width]; keys and values go to slots `write` int64[B, T] of the caches
    [B, H, S, size].

    counts: Hq and H. columns: where in a row the queries, keys and values begin. cos, sin: [B, T, size], the sines with the
    sign of rotate_half; None: no rotation. query_norm, key_norm: [size], weights of root-mean-square norms; None: no norm.
    """
    batch, cells = write.shape
    rows = rows.reshape(batch * cells, -1)
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    out = torch.empty((batch, cells, counts[0], size), dtype=keys.dtype, device=rows.device)
    none = rows
    heads_kernel[(batch * cells, counts[0] + 2 * counts[1])](
        rows, none if cos is None else cos.contiguous(), none if sin is None else sin.contiguous(), write.contiguous(),
        keys, values, out, none if query_norm is None else query_norm, none if key_norm is None else key_norm, eps,
        cells, rows.stride(0), *columns, *keys.stride()[:3], *values.stride()[:3],
        QUERIES=counts[0], KEYS=counts[1], SIZE=size, PAD=power(size), ROTARY=cos is not None, NORM=query_norm is not None,
        num_warps=1)  # fmt: skip
    return out
