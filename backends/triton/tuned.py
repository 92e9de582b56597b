"""Sizes of kernels (block, warps, stages, splits) by device and shape: measured once, kept on disk, else a default.

The file is a cache (`runtime/tune/kept.py`): it may be deleted, several processes may add to it, invalid
entries are skipped, and a file that cannot be read or written is ignored. `DECGRAPH_CACHE` moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from decgraph.backends.triton.placement import interpreted
from decgraph.runtime.tune import kept


@dataclass(frozen=True)
class Config:
    """Sizes of one launch. block: elements of the long axis at a time; warps, stages: of a program; splits: programs that
    share one row (or one sequence's keys)."""

    block: int
    warps: int = 4
    stages: int = 2
    splits: int = 1


@dataclass(frozen=True)
class LaunchRequest:
    """A look-up of `config`: a family, a shape, and the default."""

    family: str
    key: tuple[Any, ...]
    default: Config


@dataclass(frozen=True)
class Measured:
    """The result of measuring a family. milliseconds by candidate; `failed` those that could not be launched, and why."""

    best: Config
    milliseconds: Mapping[Config, float]
    failed: Mapping[Config, str]


def cache_file() -> Path:
    """The file of measured sizes."""
    return kept.folder() / "kernels.json"


def device_name() -> str:
    """The device's name in the cache: the current CUDA device with its multiprocessors (of a part of a device
    there are fewer), or the interpreter, also where no tensor is on a GPU; and Triton's version, which affects the code of
    given sizes."""
    compiled = torch.cuda.is_initialized() and not interpreted()
    return _name_of(torch.cuda.current_device() if compiled else -1)


@lru_cache(maxsize=16)
def _name_of(index: int) -> str:
    import triton

    what = "interpreter"
    if index >= 0:
        facts = torch.cuda.get_device_properties(index)
        what = f"{facts.name}, {facts.multi_processor_count} processors"
    return f"{what}, triton {triton.__version__}"


_KNOWN: dict[str, Config] = {}
_READ: list[Path] = []


def _known() -> dict[str, Config]:
    """The file's entries and those measured since, read once a process (and again where `DECGRAPH_CACHE` changes)."""
    path = cache_file()
    if [path] != _READ:
        _READ[:] = [path]
        _KNOWN.clear()
        for name, value in kept.read(path).items():
            found = _config_of(value)
            if found is not None:
                _KNOWN[name] = found
    return _KNOWN


def _config_of(value: Any) -> Config | None:
    """An entry's sizes, or None for an invalid entry."""
    names = {f.name for f in fields(Config)}
    if not isinstance(value, dict) or "block" not in value or not set(value) <= names:
        return None
    if not all(type(n) is int and 1 <= n <= 1 << 20 for n in value.values()):
        return None
    found = Config(**value)
    powers = (found.block, found.warps)  # Triton's blocks and numbers of warps are powers of two
    return found if all(n & (n - 1) == 0 for n in powers) and found.warps <= 32 and found.stages <= 16 else None


def config(family: str, key: Sequence[Any], default: Config) -> Config:
    """The sizes measured for a kernel family at a shape on this device, or the default."""
    for asked in _HEARING:
        asked.append(LaunchRequest(family, tuple(key), default))
    return _known().get(_spelt(family, key), default)


_HEARING: list[list[LaunchRequest]] = []


@contextmanager
def recording() -> Iterator[list[LaunchRequest]]:
    """The look-ups of `config` inside: so launches are found without knowing how their keys are built."""
    asked: list[LaunchRequest] = []
    _HEARING.append(asked)
    try:
        yield asked
    finally:
        _HEARING[:] = [other for other in _HEARING if other is not asked]  # by identity: two lists may be equal


def _spelt(family: str, key: Sequence[Any]) -> str:
    return f"{device_name()} | {family} | {' '.join(map(str, key))}"


def is_known(family: str, key: Sequence[Any]) -> bool:
    """Whether sizes were measured for a shape on this device."""
    return _spelt(family, key) in _known()


@contextmanager
def trying(family: str, key: Sequence[Any], sizes: Config) -> Iterator[None]:
    """Inside, `config` returns these sizes for this family and shape."""
    known, name = _known(), _spelt(family, key)
    before = known.get(name)
    known[name] = sizes
    try:
        yield
    finally:
        if before is None:
            known.pop(name, None)
        else:
            known[name] = before


def measured(family: str, key: Sequence[Any], candidates: Sequence[Config], run: Callable[[Config], object]) -> Config:
    """The fastest of the candidates on this device, remembered. `run` launches the kernel once; a candidate that cannot be
    launched is skipped. In the interpreter the first is returned, since the interpreter's time means nothing, and nothing
    is remembered; likewise where none can be launched."""
    return measure(family, key, candidates, run).best


def measure(
    family: str,
    key: Sequence[Any],
    candidates: Sequence[Config],
    run: Callable[[Config], object],
    clock: Callable[[Callable[[], object]], float] | None = None,
) -> Measured:
    """`measured`, with the times. clock: milliseconds of a function (default: Triton's, of the device)."""
    if clock is None:
        if interpreted():
            return Measured(candidates[0], {}, {})
        from triton.testing import do_bench

        clock = lambda launch: float(do_bench(launch, warmup=5, rep=20))
    times: dict[Config, float] = {}
    failed: dict[Config, str] = {}
    for candidate in dict.fromkeys(candidates):
        with trying(family, key, candidate):
            try:
                times[candidate] = clock(lambda c=candidate: run(c))  # type: ignore[misc]
            except Exception as error:  # out of registers or shared memory: Triton has many classes for it
                failed[candidate] = f"{type(error).__name__}: {error}".splitlines()[0]
    if not times:
        return Measured(candidates[0], times, failed)
    best = min(times, key=lambda c: times[c])
    _known()[_spelt(family, key)] = best
    kept.add(cache_file(), {_spelt(family, key): asdict(best)})
    return Measured(best, times, failed)


def around(
    default: Config,
    *,
    blocks: Sequence[int] = (),
    warps: Sequence[int] = (),
    stages: Sequence[int] = (),
    splits: Sequence[int] = (),
) -> tuple[Config, ...]:
    """Candidates: the default first, then every combination of the sizes listed; other sizes are as in the default."""
    found = dict.fromkeys([default])
    for block in blocks or (default.block,):
        for warp in warps or (default.warps,):
            for stage in stages or (default.stages,):
                for split in splits or (default.splits,):
                    found[Config(block, warp, stage, split)] = None
    return tuple(found)
