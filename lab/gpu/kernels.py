"""Kernels by hand against float64, on random inputs in poisoned memory; and their times against a copy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton import noise
from decgraph.backends.triton.kernels import attend, race, rope_write, truncate
from lab.gpu.first import Items, Row
from lab.gpu.lab import Lab

Found = list[tuple[str, float, float]]  # what was compared, how far it is off, how far it may be
NEAR = {torch.bfloat16: 3e-2, torch.float32: 2e-5}  # of numbers of about one


def stage(lab: Lab) -> Items:
    """4. The comparisons, then the times."""
    yield "against float64", partial(checks, lab)
    for context in lab.sizes.contexts:
        yield f"times at {context}", partial(times, lab, context)


def checks(lab: Lab) -> Row:
    """All comparisons, in processes of their own: most of their time is compilation."""
    types = [*NEAR] if lab.cuda else [torch.float32]
    shapes = [(1, 1), (3, 7), (2, 33), (1, 128)] if lab.cuda else [(2, 5)]
    sizes = [7, 512, 128256] if lab.cuda else [7, 300]
    seen = ("chain", "tree", "canvas", "window", "capped")
    cases: list[tuple[Callable[..., Found], tuple[Any, ...]]] = [
        *((attending, (kind, *shape, dtype)) for kind in seen for shape in shapes for dtype in types),
        *((writing, (*shape, part, dtype)) for shape in shapes[:2] for part in (1.0, 0.5, 0.0) for dtype in types),
        *((drawing, (size, given, wide)) for size in sizes for given in (False, True) for wide in (True, False)),
        *((truncating, (size, ties)) for size in sizes for ties in (False, True)),
    ]
    worst: dict[str, float] = {}
    wrong, count = list[str](), 0
    for (kernel, given), found in zip(cases, lab.spread(checked, cases, 80), strict=True):
        told: Found = [(f"{kernel.__name__}: {found}", torch.inf, 0)] if isinstance(found, str) else found
        count += len(told)
        worst |= {what: max(gap, worst.get(what, 0.0)) for what, gap, _ in told}
        wrong += [f"{what} of {given}: {gap:.1e}" for what, gap, allowed in told if not gap <= allowed]
    says = f"{count} comparisons, {len(wrong)} wrong" + (f": {', '.join(wrong[:4])}" if wrong else "")
    return {"worst": worst, "wrong": wrong, "right": not wrong, "says": says}


def checked(lab: Lab, case: tuple[Callable[..., Found], tuple[Any, ...]]) -> Found:
    """One comparison; unwritten memory is NaN or the largest integer, so that a place that a kernel leaves out shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # what fills torch.empty
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            return case[0](torch.Generator(lab.device).manual_seed(1), *case[1])
    finally:
        torch.use_deterministic_algorithms(False)


def normal(made: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers."""
    return torch.randn(shape, generator=made, device=made.device).to(dtype)


def below(made: torch.Generator, most: int, *shape: int) -> Tensor:
    """Random integers from 0 on."""
    return torch.randint(most, shape, generator=made, device=made.device)


def apart(mine: Tensor, wanted: Tensor) -> float:
    """The largest difference; infinite where there are numbers that are none."""
    return float((mine.double() - wanted.double()).abs().nan_to_num(torch.inf).max())


def attending(made: torch.Generator, kind: str, lanes: int, cells: int, dtype: torch.dtype) -> Found:
    """Attention of lanes of different lengths; slots that nobody sees are NaN."""
    heads, group, size, slots, at = 2, 4, 64, 400, torch.arange(cells, device=made.device)
    q = normal(made, lanes, heads * group, cells, size, dtype=dtype)
    keys, values = (normal(made, lanes, heads, slots, size, dtype=dtype) for _ in range(2))
    length, tail, first = below(made, slots - cells - 1, lanes) + 1, None, None
    under = length[:, None] + at + 1
    if kind == "tree":
        under, first = length[:, None].repeat(1, cells), length
        tail = (below(made, 2, lanes, cells, cells) > 0).tril() | torch.eye(cells, dtype=torch.bool, device=made.device)
    elif kind == "canvas":
        under = (length[:, None] + cells).repeat(1, cells)
    positions = torch.arange(slots, device=made.device).repeat(lanes, 1)
    for part in (keys, values):
        part.masked_fill_((positions >= length[:, None] + cells)[:, None, :, None], torch.nan)
    window, cap = 50 if kind == "window" else None, 20.0 if kind == "capped" else None
    more = (under, tail, first, size**-0.5, window, length[:, None] + at, positions, cap)
    want = attend.form(*(t.nan_to_num().double() for t in (q, keys, values)), *more)
    return [(f"attend, {kind}", apart(attend.launch(q, keys, values, *more), want), NEAR[dtype])]


def writing(made: torch.Generator, lanes: int, cells: int, part: float, dtype: torch.dtype) -> Found:
    """Rotated queries, keys and values at random slots, and nothing elsewhere."""
    heads, group, size, slots = 2, 3, 64, 150
    q, k, v = (normal(made, lanes, n, cells, size, dtype=dtype) for n in (heads * group, heads, heads))
    kept = [normal(made, lanes, heads, slots, size, dtype=dtype) for _ in range(2)]
    angles = normal(made, lanes, cells, int(size * part) // 2).repeat(1, 1, 2)
    turn = (angles.cos(), angles.sin()) if part else (None, None)
    where = normal(made, lanes, slots).argsort(-1)[:, :cells].contiguous()
    at = where[:, None, :, None].expand(-1, heads, -1, size)
    wide = [t.double() if t is not None else None for t in (q, k, *turn)]
    wanted = [kept[0].double().scatter(2, at, rope_write.rotated(wide[1], *wide[2:])), kept[1].scatter(2, at, v)]  # type: ignore[arg-type]
    wanted += [rope_write.rotated(wide[0], *wide[2:])]  # type: ignore[arg-type]
    mine = rope_write.launch(q, k, v, *turn, where, *kept)
    return [("rope_write", max(apart(a, b) for a, b in zip((*kept, mine), wanted, strict=True)), NEAR[dtype])]


def drawing(made: torch.Generator, size: int, given: bool, wide: bool) -> Found:
    """The token of a race is as good as the best one by float64."""
    logits, words = 3 * normal(made, 3, 5, size), [below(made, 2**32, 3, 5) for _ in range(5)]
    probs = torch.where(below(made, 3, 3, 5, size) > 0, logits.softmax(-1), 0.0)
    heat = torch.tensor([0.0, 0.7, 1.0], device=made.device, dtype=torch.float64)[:, None].repeat(1, 5)
    mine = race.launch(probs if given else logits, None if given else heat, *words, given, wide)
    late = -(-noise.uniforms(words, size).log()).log()
    hot = heat[..., None].clamp(min=1e-9)
    merits = probs.double().log() + late if given else torch.where(heat[..., None] > 0, logits / hot + late, logits.double())
    gap = apart(merits.gather(-1, mine[..., None])[..., 0], merits.amax(-1))
    return [("race, float64" if wide else "race, float32", gap, 1e-12 if wide else 1e-4)]


def truncating(made: torch.Generator, size: int, ties: bool) -> Found:
    """Rows with their own numbers, some neutral. Sums in another order may move the end of a nucleus by one entry."""
    logits = 3 * normal(made, 4, 3, size)
    probs = (logits.round() if ties else logits).softmax(-1)
    rows: list[Any] = [[0, 3, 40, 0], [1.0, 1.0, 0.9, 0.8], [0.0, 0.0, 0.05, 0.1]]
    cuts = [torch.tensor(row, device=made.device)[:, None].repeat(1, 3) for row in rows]
    mine, want = truncate.launch(probs, *cuts), truncate.form(probs.double(), *cuts)
    count = ((mine > 0).sum(-1) - (want > 0).sum(-1)).abs().max()
    return [("truncate", apart(mine, want) / float(want.max()), 1e-4), ("truncate, entries", float(count), 1.0)]


@torch.no_grad()
def times(lab: Lab, context: int) -> Row:
    """Microseconds of launches over fresh memory, and the share of a copy's bandwidth that they have."""
    made, config, dtype = torch.Generator(lab.device).manual_seed(1), lab.sizes.target, lab.sizes.dtype
    heads, queries, size = config["num_key_value_heads"], config["num_attention_heads"], 128 if lab.cuda else 16
    found: dict[str, Any] = {}

    def timed(name: str, moved: int, works: Sequence[Any]) -> None:
        us = 1000 * lab.launch_ms(works).median
        found[name] = {"us": us, "of_copy": moved / (us / 1e6) / lab.copy_bandwidth()}

    each = 2 * heads * context * size * dtype.itemsize
    caches = [[normal(made, 1, heads, context + 128, size, dtype=dtype) for _ in range(2)] for _ in lab.copies(each)]
    for cells in (1, 8, 64) if lab.cuda else (1,):
        q, k, v = (normal(made, 1, n, cells, size, dtype=dtype) for n in (queries, heads, heads))
        at, turn = torch.arange(cells, device=lab.device)[None], normal(made, 1, cells, size)
        first, tail = at[:, 0] + context, torch.ones(1, cells, cells, dtype=torch.bool, device=lab.device).tril()
        more = (first[:, None].expand(1, cells), tail, first, size**-0.5, None, None, None, None)
        timed(f"attend {cells}", each, [partial(attend.launch, q, *kept, *more) for kept in caches])
        rest = [(turn, turn, at + context, *kept) for kept in caches]
        moved = 2 * dtype.itemsize * (q.numel() + k.numel() + v.numel())
        timed(f"rope_write {cells}", moved, [partial(rope_write.launch, q, k, v, *given) for given in rest])
    for rows in (1, 64) if lab.cuda else (1,):
        read = 4 * rows * config["vocab_size"]
        logits = [normal(made, rows, 1, config["vocab_size"]) for _ in lab.copies(read)]
        k, words = torch.full((rows, 1), 40, device=lab.device), [below(made, 2**32, rows, 1) for _ in range(5)]
        timed(f"race {rows}", read, [partial(race.launch, row, k.double(), *words, False, True) for row in logits])
        probs = [row.softmax(-1) for row in logits]
        timed(f"truncate {rows}", 2 * read, [partial(truncate.launch, row, k, k * 0.01 + 0.5, k * 0.0) for row in probs])
    return {**found, "says": ", ".join(f"{name} {at['us']:.1f} us ({at['of_copy']:.0%})" for name, at in found.items())}
