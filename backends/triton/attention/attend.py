"""Attention of new positions over cached keys and values: trees (`attend`) and canvases (`attend_canvas`).

Nothing is read back, and only the kernels depend on the values of lengths and masks, so both can be captured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from decgraph.backends.triton.attention.runs import attend_runs, merge_runs
from decgraph.backends.triton.attention.sizes import Sizes, power, sizes
from decgraph.errors import DecError

MERGE_WARPS = 4
Prefix = tuple[Tensor, Tensor, Tensor]
"""Keys [Hkv, P, Dk], values [Hkv, P, Dv] and how many of their slots are used, int32[1]."""


def attend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    cached: Tensor,
    bits: Tensor,
    first: int,
    *,
    scale: float,
    window: int | None = None,
    positions: Tensor | None = None,
    tail_positions: Tensor | None = None,
    softcap: float | None = None,
    prefix: Prefix | None = None,
    splits: int | None = None,
) -> Tensor:
    """Attention of the cells first .. first+T-1 of a step's tail, whose keys and values are in the cache already.

    q: [B, T, Hq, Dk], any strides but the last. keys, values: [B, Hkv, S, Dk], [B, Hkv, S, Dv]. cached: int32[B]. bits:
    int32[B, T, W], bit j % 32 of word j // 32: the row sees tail cell j, which has slot cached[b] + j; W * 32 >= first + T.
    Slots after cached[b] + first + T and tail cells that no row sees may have any value.
    window: a row at position p sees positions above p - window only; then `positions` int64[B, T] are the rows', each at
    least cached[b] (plus the prefix's length), and `tail_positions` int64[B, >= first+T] the tail's.
    prefix: keys and values that all sequences share, before their own slots, and how many, int32[1]. They are read once, not
    once a sequence. Slot i of a sequence then has position length + i.
    splits: programs to spread the work over. Returns [B, T, Hq, Dv] of q's type; rows that see nothing are zeros.
    Raises DecError for shapes that do not fit together.
    """
    batch, cells = q.shape[:2]
    _check(q, keys, values, cached)
    if bits.shape[:2] != (batch, cells) or bits.dtype != torch.int32 or bits.shape[2] * 32 < first + cells:
        raise DecError(f"bits {tuple(bits.shape)} of {bits.dtype} do not name {first + cells} tail cells for {batch} x {cells}")
    if window is not None and (positions is None or tail_positions is None):
        raise DecError("a window needs the positions of the rows and of the tail")
    if tail_positions is not None and tail_positions.shape[1] < first + cells:
        raise DecError(f"{tail_positions.shape[1]} tail positions are given for {first + cells} cells")
    mine = _Launch(
        q,
        keys,
        values,
        cached,
        extra=first + cells,
        scale=scale,
        softcap=softcap or 0.0,
        window=window or 0,
        bits=bits.contiguous(),
        positions=_contiguous(positions),
        tail_positions=_contiguous(tail_positions),
        runs=splits,
    )
    if prefix is None:
        out, _ = mine.finish(mine.run(q.dtype))
        return out
    shared_keys, shared_values, length = prefix
    if shared_keys.ndim != 3 or shared_keys.shape[0] != keys.shape[1] or length.dtype != torch.int32:
        raise DecError(f"a shared prefix is keys and values [{keys.shape[1]}, P, D] and int32[1]")
    # All rows of all sequences are the cells of one.
    shared = _Launch(
        q.reshape(1, batch * cells, *q.shape[2:]),
        shared_keys[None],
        shared_values[None],
        length,
        extra=0,
        scale=scale,
        softcap=softcap or 0.0,
        window=window or 0,
        positions=None if positions is None else positions.reshape(1, -1).contiguous(),
        runs=splits,
    )
    seen = shared.finish(shared.run(torch.float32, logs=True))
    mine.offset = length
    return mine.join(mine.run(torch.float32, logs=True), seen)


def attend_canvas(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    length: Tensor,
    *,
    scale: float,
    hidden: Tensor | None = None,
    row_blocks: Tensor | None = None,
    slot_blocks: Tensor | None = None,
    softcap: float | None = None,
    splits: int | None = None,
) -> Tensor:
    """Attention of canvas positions over a cache of the whole canvas, where the rows' own keys and values are already.

    q: [B, T, Hq, Dk]; keys, values: [B, Hkv, S, D]; length: int32[B], slots in use. hidden: bool[B, S], slots that no row
    sees (evicted ones, which may have any value). row_blocks int32[B, T] and slot_blocks int32[B, S]: a row sees slots of its
    own block and of those before. Returns [B, T, Hq, Dv]; rows that see nothing are zeros. Raises DecError for shapes that
    do not fit together.
    """
    _check(q, keys, values, length)
    if (row_blocks is None) != (slot_blocks is None):
        raise DecError("blocks are given for rows and for slots, or for neither")
    for name, given, want in (
        ("hidden", hidden, keys.shape[2]),
        ("slot_blocks", slot_blocks, keys.shape[2]),
        ("row_blocks", row_blocks, q.shape[1]),
    ):
        if given is not None and tuple(given.shape) != (q.shape[0], want):
            raise DecError(f"{name} is {tuple(given.shape)}, not {(q.shape[0], want)}")
    launch = _Launch(
        q,
        keys,
        values,
        length,
        extra=0,
        scale=scale,
        softcap=softcap or 0.0,
        hidden=None if hidden is None else hidden.contiguous().view(torch.uint8),
        row_blocks=_contiguous(row_blocks),
        slot_blocks=_contiguous(slot_blocks),
        runs=splits,
    )
    out, _ = launch.finish(launch.run(q.dtype))
    return out


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _check(q: Tensor, keys: Tensor, values: Tensor, cached: Tensor) -> None:
    batch, _, heads, size = q.shape
    if keys.shape[0] != batch or values.shape[:3] != keys.shape[:3] or keys.shape[3] != size or heads % keys.shape[1]:
        raise DecError(
            f"queries {tuple(q.shape)}, keys {tuple(keys.shape)} and values {tuple(values.shape)}: they do not fit together"
        )
    if cached.shape != (batch,) or cached.dtype != torch.int32:
        raise DecError(f"the lengths of {batch} sequences are int32[{batch}], not {cached.dtype} {tuple(cached.shape)}")
    if not q.dtype == keys.dtype == values.dtype or q.dtype.itemsize > 4:
        raise DecError(f"queries, keys, values have one type of at most 32 bits, not {q.dtype}, {keys.dtype}, {values.dtype}")
    if any(t.stride(-1) != 1 for t in (q, keys, values)):
        raise DecError("the last axis of queries, keys and values is contiguous")


@dataclass
class _Ran:
    """The results of a launch: finished tiles, their logs (or nothing), and the parts of the others."""

    out: Tensor
    logs: Tensor
    parts: Tensor
    stats: Tensor


@dataclass
class _Launch:
    """One attention: its operands, and the kernels in order. `extra`: slots after the cached ones that a row may see."""

    q: Tensor
    keys: Tensor
    values: Tensor
    cached: Tensor
    extra: int
    scale: float
    softcap: float
    window: int = 0
    bits: Tensor | None = None
    positions: Tensor | None = None
    tail_positions: Tensor | None = None
    offset: Tensor | None = None
    hidden: Tensor | None = None
    row_blocks: Tensor | None = None
    slot_blocks: Tensor | None = None
    runs: int | None = None
    sizes: Sizes = field(init=False)

    def __post_init__(self) -> None:
        self.batch, self.cells, self.wide, self.dk = self.q.shape
        self.heads, self.capacity, self.dv = self.keys.shape[1], self.keys.shape[2], self.values.shape[3]
        self.group = self.wide // self.heads
        rows = self.cells * self.group
        self.sizes = sizes(
            rows, self.batch * self.heads, self.capacity, self.dk, self.dv, self.q.dtype, self.q.device, self.runs
        )
        self.tiles = -(-rows // self.sizes.rows)
        self.pad = max(power(self.dv), 16)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.q.device)

    def run(self, dtype: torch.dtype, logs: bool = False) -> _Ran:
        """All runs. Tiles that one run finished are in `out`, of that type."""
        c, none = self.sizes, self.cached
        ran = _Ran(
            self.empty(self.batch, self.cells, self.wide, self.dv, dtype=dtype),
            self.empty(self.batch, self.cells, self.wide) if logs else self.empty(1),
            self.empty(c.runs, 2, c.rows, self.dv),
            self.empty(c.runs, 2, 2, c.rows),
        )
        given = [
            none if t is None else t
            for t in (
                self.bits,
                self.positions,
                self.tail_positions,
                self.offset,
                self.hidden,
                self.row_blocks,
                self.slot_blocks,
            )
        ]
        attend_runs[(c.runs,)](
            self.q,
            self.keys,
            self.values,
            self.cached,
            *given,
            ran.out,
            ran.logs,
            ran.parts,
            ran.stats,
            self.batch,
            self.heads,
            self.tiles,
            self.cells,
            self.extra,
            1 if self.bits is None else self.bits.shape[2],
            self.capacity,
            1 if self.tail_positions is None else self.tail_positions.shape[1],
            self.scale,
            self.softcap,
            *self.q.stride()[:3],
            *self.keys.stride()[:3],
            *self.values.stride()[:3],
            BATCH=power(self.batch),
            GROUP=self.group,
            ROWS=c.rows,
            BLOCK=c.block,
            DK=self.dk,
            DV=self.dv,
            DK_PAD=max(power(self.dk), 16),
            DV_PAD=self.pad,
            TAIL=self.bits is not None,
            WINDOW=self.window,
            SHIFTED=self.offset is not None,
            HIDDEN=self.hidden is not None,
            CAUSAL=self.row_blocks is not None,
            CAP=self.softcap != 0.0,
            LOGS=logs,
            num_warps=c.warps,
            num_stages=c.stages,
        )
        return ran

    def finish(self, ran: _Ran) -> tuple[Tensor, Tensor]:
        """Merge the tiles that several runs share. Returns the output, and the logs where the runs wrote them."""
        logs = ran.logs.ndim > 1
        if self.sizes.runs > 1:
            self._merge(ran, ran, ran.out, ran.logs, join=False, logs=logs)
        return ran.out, ran.logs

    def join(self, ran: _Ran, other: tuple[Tensor, Tensor]) -> Tensor:
        """The merge, joined with the attention of the same rows to `other`."""
        out = self.empty(self.batch, self.cells, self.wide, self.dv, dtype=self.q.dtype)
        self._merge(ran, _Ran(other[0], other[1], ran.parts, ran.stats), out, ran.logs, join=True, logs=False)
        return out

    def _merge(self, ran: _Ran, other: _Ran, out: Tensor, logs_out: Tensor, join: bool, logs: bool) -> None:
        c = self.sizes
        merge_runs[(self.batch * self.heads * self.tiles * (c.rows // c.some),)](
            self.cached,
            ran.parts,
            ran.stats,
            ran.out,
            ran.logs,
            other.out,
            other.logs,
            out,
            logs_out,
            self.batch,
            self.heads,
            self.tiles,
            self.cells,
            self.extra,
            c.runs,
            BATCH=power(self.batch),
            GROUP=self.group,
            ROWS=c.rows,
            BLOCK=c.block,
            WINDOW=self.window,
            DV=self.dv,
            DV_PAD=self.pad,
            SPLITS=c.splits,
            SOME=c.some,
            JOIN=join,
            LOGS=logs,
            num_warps=MERGE_WARPS,
        )
