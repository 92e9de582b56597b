"""How an attention is cut: rows of a tile, keys of a block, programs of the grid.

The rows of a tile are what a step asks for, rounded up: all rows that share a key/value head are wanted in one tile, so that
its keys are read once. The defaults keep accumulators and scores in registers without spills (`specs.py` lists what is
compiled to see it) and the blocks in flight within the shared memory of the smallest device; measured sizes take their place.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from decgraph.backends.triton.tuned import Config, config

INTERPRETED = 3
"""Programs where there is no device: few, since the interpreter runs them one after the other."""


@dataclass(frozen=True)
class Sizes:
    """rows: query rows of a tile; block: keys at a time; runs: programs; splits, some: parts and rows that a program of
    the merge reads at once."""

    rows: int
    block: int
    warps: int
    stages: int
    runs: int
    splits: int
    some: int


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


@lru_cache(maxsize=8)
def processors(index: int | None) -> int:
    """Multiprocessors of a CUDA device."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index).multi_processor_count)


def tile_rows(rows: int, size: int, itemsize: int) -> int:
    """Rows of a tile, for so many rows under one key/value head and heads of that (padded) size."""
    most = 32 if itemsize > 2 else 128 if size <= 128 else 64
    return min(max(power(rows), 16), most)


def default(rows: int, size: int, itemsize: int, programs: int) -> Config:
    """Sizes for a tile of `rows` rows when nothing was measured. `size`: the larger of the padded head sizes."""
    if itemsize > 2:
        # No tensor cores for whole float32 products: operands lie in registers.
        return Config(block=32 if size <= 128 else 16, warps=4 if size <= 128 else 8, stages=1, splits=programs)
    block = 64 if size <= 128 else 32
    if rows <= 32:
        return Config(block=block, warps=4, stages=3, splits=2 * programs)
    return Config(block=block, warps=4 if rows <= 64 and size <= 128 else 8, stages=2, splits=programs)


def sizes(rows: int, tiles_of: int, keys: int, dk: int, dv: int, dtype: torch.dtype, device: torch.device,
          runs: int | None = None) -> Sizes:
    """Sizes of a launch: `rows` under one key/value head, `tiles_of` pairs of sequence and head, at most `keys` keys.

    `runs` asks for that many programs, whatever was measured.
    """
    size = max(power(dk), power(dv), 16)
    tile = tile_rows(rows, size, dtype.itemsize)
    programs = processors(device.index) if device.type == "cuda" else INTERPRETED
    key = (tile, tiles_of, dk, dv, str(dtype).removeprefix("torch."), power(keys))
    c = config("attend", key, default(tile, size, dtype.itemsize, programs))
    tiles = tiles_of * -(-rows // tile)
    most = tiles * max(-(-keys // c.block), 1)
    count = max(min(runs or c.splits, most), 1)
    # What one tile is cut into when all sequences are equally long, and one more for a cut at either end.
    splits = min(max(power(-(-count // tiles) + 1), 2), 32 if size <= 128 else 16)
    some = min(tile, max(4096 // (splits * size), 1)) if device.type == "cuda" else tile
    return Sizes(tile, c.block, c.warps, c.stages, count, splits, some)
