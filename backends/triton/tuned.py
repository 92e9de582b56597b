"""Sizes of kernels (block, warps, stages, splits) by device and shape: measured once, kept on disk, else a default.

The file is a cache: it may be deleted, and what cannot be read or written is done without. `DECGRAPH_CACHE` moves it.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Config:
    """Sizes of one launch. block: elements of the long axis at a time; warps, stages: of a program; splits: programs that
    share one row (or one sequence's keys)."""

    block: int
    warps: int = 4
    stages: int = 2
    splits: int = 1


def cache_file() -> Path:
    """Where measured sizes are kept."""
    folder = os.environ.get("DECGRAPH_CACHE")
    return (Path(folder) if folder else Path.home() / ".cache" / "decgraph") / "kernels.json"


@lru_cache(maxsize=1)
def device_name() -> str:
    """What kernels run on, as the cache names it."""
    import triton
    what = torch.cuda.get_device_name() if torch.cuda.is_available() else "interpreter"
    return f"{what}, triton {triton.__version__}"


_KNOWN: dict[str, Config] = {}
_READ: list[Path] = []


def _known() -> dict[str, Config]:
    path = cache_file()
    if [path] != _READ:
        _READ[:] = [path]
        _KNOWN.clear()
        try:
            held: dict[str, dict[str, int]] = json.loads(path.read_text())
            names = {f.name for f in fields(Config)}
            _KNOWN.update({k: Config(**v) for k, v in held.items() if set(v) <= names and "block" in v})
        except (OSError, ValueError, TypeError, AttributeError):
            pass   # a cache
    return _KNOWN


def config(family: str, key: Sequence[Any], default: Config) -> Config:
    """The sizes measured for a kernel family at a shape on this device, or the default."""
    return _known().get(_spelt(family, key), default)


def _spelt(family: str, key: Sequence[Any]) -> str:
    return f"{device_name()} | {family} | {' '.join(map(str, key))}"


def measured(family: str, key: Sequence[Any], candidates: Sequence[Config], run: Callable[[Config], None]) -> Config:
    """The fastest of the candidates on this device, remembered. `run` launches the kernel once; a candidate that cannot be
    launched is passed over. Without a CUDA device the first is taken, since the interpreter's time says nothing."""
    from triton.testing import do_bench
    if not torch.cuda.is_available():
        return candidates[0]
    times: list[tuple[float, int]] = []
    for i, c in enumerate(candidates):
        try:
            times.append((float(do_bench(lambda c=c: run(c), warmup=5, rep=20)), i))
        except Exception:  # out of registers or shared memory: Triton has many classes for it
            continue
    best = candidates[min(times)[1]] if times else candidates[0]
    _known()[_spelt(family, key)] = best
    try:
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        part = cache_file().with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({k: asdict(v) for k, v in sorted(_known().items())}, indent=1) + "\n")
        part.replace(cache_file())
    except OSError:
        pass   # a cache
    return best
