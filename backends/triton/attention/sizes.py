"""How an attention is cut: rows of a tile, keys of a block, programs of the grid.

The rows of a tile are the rows of a step, rounded up: all rows that share a key/value head should be in one tile, so that
its keys are read once. The defaults keep accumulators and scores in registers without spills (`lab/gpu/specs` lists what is
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
def about(index: int | None) -> tuple[int, int]:
    """Multiprocessors of a CUDA device, and its architecture (90 for capability 9.0)."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    return int(properties.multi_processor_count), 10 * int(properties.major) + int(properties.minor)


def processors(index: int | None) -> int:
    """Multiprocessors of a CUDA device."""
    return about(index)[0]


def tile_rows(rows: int, size: int, itemsize: int, arch: int = 90) -> int:
    """Rows of a tile, for so many rows under one key/value head and heads of that (padded) size."""
    if itemsize > 2:
        return 16
    if size > 128:
        return min(max(power(rows), 16), 64) if arch >= 90 else min(max(power(rows), 16), 32)
    tile = min(max(power(rows), 16), 128)
    return 128 if tile == 64 and arch < 90 else tile


def default(rows: int, size: int, itemsize: int, programs: int, arch: int = 90) -> Config:
    """Sizes for a tile of `rows` rows when nothing was measured. `size`: the larger of the padded head sizes; programs:
    multiprocessors.

    A tile of few rows waits for memory: two programs a processor, three blocks in flight each. One of 128 rows fills a
    processor's registers alone. Hopper multiplies out of shared memory, where the others hold a query and a block of keys in
    registers and take smaller blocks; whole float32 products have no tensor cores at all.
    """
    if itemsize > 2:
        return Config(block=32, warps=4, stages=1, splits=2 * programs) if size <= 128 else Config(16, 8, 1, programs)
    if size > 128:
        if rows <= 16:
            return Config(block=32, warps=4, stages=3, splits=2 * programs)
        return Config(block=16, warps=8, stages=3 if arch >= 90 else 2, splits=programs)
    if rows <= 32:
        # Heads of 64 leave room for a third program; with three blocks in flight the canvas form spills on Hopper.
        small = size <= 64 and arch >= 90
        return Config(block=64, warps=4, stages=2 if small else 3, splits=(3 if small else 2) * programs)
    return Config(block=64 if arch >= 90 else 32, warps=8, stages=3, splits=programs)


def sizes(
    rows: int, tiles_of: int, keys: int, dk: int, dv: int, dtype: torch.dtype, device: torch.device, runs: int | None = None
) -> Sizes:
    """Sizes of a launch: `rows` under one key/value head, `tiles_of` pairs of sequence and head, at most `keys` keys.

    `runs` asks for that many programs, whatever was measured.
    """
    size = max(power(dk), power(dv), 16)
    programs, arch = about(device.index) if device.type == "cuda" else (INTERPRETED, 90)
    tile = tile_rows(rows, size, dtype.itemsize, arch)
    key = (tile, tiles_of, dk, dv, str(dtype).removeprefix("torch."), power(keys))
    c = config("attend", key, default(tile, size, dtype.itemsize, programs, arch))
    tiles = tiles_of * -(-rows // tile)
    most = tiles * max(-(-keys // c.block), 1)
    count = max(min(runs or c.splits, most), 1)
    # What one tile is cut into when all sequences are equally long, and one more for a cut at either end.
    splits = min(max(power(-(-count // tiles) + 1), 2), 32 if size <= 128 else 16)
    some = merged_rows(tile, splits, size) if device.type == "cuda" else tile
    return Sizes(tile, c.block, c.warps, c.stages, count, splits, some)


def merged_rows(rows: int, splits: int, size: int) -> int:
    """Rows of a tile of `rows` that a program of the merge takes, in that many parts: few, since each waits for its parts."""
    return min(rows, max(2048 // (splits * size), 1))
