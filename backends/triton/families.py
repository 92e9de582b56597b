"""The launches that `decgraph tune --kernels` measures: attention and vocabulary kernels at real models' shapes.

A launch does not state its key: it is run once while `tuned.recording` records its look-ups, so that exactly the looked-up keys
are measured. Sizes of kernels that cost microseconds are not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from decgraph.backends.triton import tuned
from decgraph.backends.triton.tuned import Config, LaunchRequest, Measured

Run = Callable[[], object]


@dataclass(frozen=True)
class Launch:
    """title: for display. family: of its look-ups the one that is measured. make: for a device, a function that launches
    once."""

    title: str
    family: str
    make: Callable[[torch.device], Run]


@dataclass(frozen=True)
class Shapes:
    """The shapes to measure. models: (query heads, key/value heads, head size) by name; positions of a step; tokens cached;
    vocabularies; rows of scores; dtype of keys and logits."""

    models: tuple[tuple[str, int, int, int], ...] = (("8B", 32, 8, 128), ("1B", 32, 8, 64))
    cells: tuple[int, ...] = (1, 8, 64)
    cached: tuple[int, ...] = (1024, 8192)
    vocabularies: tuple[int, ...] = (32000, 128256)
    rows: tuple[int, ...] = (1, 8, 64)
    dtype: torch.dtype = torch.bfloat16


def launches(shapes: Shapes | None = None) -> Iterator[Launch]:
    """Every launch that is measured."""
    s = shapes or Shapes()
    for name, heads, groups, size in s.models:
        for cells in s.cells:
            for cached in s.cached:
                title = f"attention, {name}, {cells} cells after {cached}"
                yield Launch(title, "attend", _attention(heads, groups, size, cells, cached, s.dtype))
    for vocabulary in s.vocabularies:
        for rows in s.rows:
            for what in ("softmax", "argmax", "draw", "topk", "entropy", "residual"):
                yield Launch(f"{what}, {rows} rows of {vocabulary}", "rows", _vocabulary(what, rows, vocabulary, s.dtype))


def candidates(asked: LaunchRequest) -> tuple[Config, ...]:
    """Sizes to try for a launch, its default first: block and warps together, stages and splits by themselves, since every
    one of them is compiled, which takes longer than to measure it."""
    d = asked.default
    blocks = (d.block // 2, d.block, 2 * d.block) if asked.family == "attend" else (d.block // 4, d.block // 2, d.block)
    found = [
        *tuned.around(d, blocks=[max(16, n) for n in blocks], warps=(max(1, d.warps // 2), d.warps, min(16, 2 * d.warps))),
        *tuned.around(d, splits=(max(1, d.splits // 2), 2 * d.splits)),
    ]
    if asked.family == "attend":  # loops over keys load ahead; row kernels read each entry once
        found += tuned.around(d, stages=(1, 2, 3, 4))
    return tuple(dict.fromkeys(found))


def questions(launch: Launch, device: torch.device) -> tuple[Run, list[LaunchRequest]]:
    """A launch on a device, and the look-ups of its family that it makes."""
    run = launch.make(device)
    with tuned.recording() as heard:
        run()
    return run, list(dict.fromkeys(asked for asked in heard if asked.family == launch.family))


def measure(
    launch: Launch, device: torch.device, *, fresh: bool = False, clock: Callable[[Run], float] | None = None
) -> list[tuple[LaunchRequest, Measured | None]]:
    """Measure a launch's candidates and keep the best; None for a key that was measured before, unless `fresh`."""
    run, asked = questions(launch, device)
    out: list[tuple[LaunchRequest, Measured | None]] = []
    for question in asked:
        if tuned.is_known(question.family, question.key) and not fresh:
            out.append((question, None))
            continue
        out.append((question, tuned.measure(question.family, question.key, candidates(question), lambda _: run(), clock)))
    return out


def _attention(
    heads: int, groups: int, size: int, cells: int, cached: int, dtype: torch.dtype
) -> Callable[[torch.device], Run]:
    def make(device: torch.device) -> Run:
        from decgraph.backends.triton.attention.attend import attend

        noise = torch.Generator().manual_seed(0)
        made = lambda *shape: torch.randn(shape, generator=noise, dtype=torch.float32).to(device=device, dtype=dtype)
        q, keys, values = (
            made(1, cells, heads, size),
            made(1, groups, cached + cells, size),
            made(1, groups, cached + cells, size),
        )
        # A chain: every position sees itself and those before. The mask does not change the time.
        words = -(-cells // 32)
        seen = torch.tensor([[((1 << (i + 1)) - 1) >> (32 * w) & 0xFFFFFFFF for w in range(words)] for i in range(cells)])
        bits = torch.where(seen >= 1 << 31, seen - (1 << 32), seen).to(torch.int32).to(device)[None]
        length = torch.tensor([cached], dtype=torch.int32, device=device)
        return lambda: attend(q, keys, values, length, bits, 0, scale=size**-0.5)

    return make


def _vocabulary(what: str, rows: int, size: int, dtype: torch.dtype) -> Callable[[torch.device], Run]:
    def make(device: torch.device) -> Run:
        from decgraph.backends.triton.rows import functions as f

        logits = torch.randn((rows, size), generator=torch.Generator().manual_seed(0)).to(device=device, dtype=dtype)
        probs = logits.float().softmax(-1)
        words = torch.arange(3 * rows, dtype=torch.int32, device=device).reshape(rows, 3)
        seeds = torch.ones((rows, 2), dtype=torch.int64, device=device)
        runs: dict[str, Run] = {
            "softmax": lambda: f.softmax(logits),
            "argmax": lambda: f.argmax(logits),
            "entropy": lambda: f.entropy(probs),
            "draw": lambda: f.draw_logits(logits, words, seeds, temperature=0.7),
            "topk": lambda: f.topk(logits, min(10, size)),
            "residual": lambda: f.residual(probs, probs.flip(0)),
        }
        return runs[what]

    return make
