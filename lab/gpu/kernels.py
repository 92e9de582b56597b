"""Kernels by hand against float64, on random inputs in poisoned memory; and their times against a copy."""

from __future__ import annotations

import warnings
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton import noise
from decgraph.backends.triton.kernels.shared import PAGE, rows_of
from lab.gpu.first import Items, Row
from lab.gpu.lab import Lab

NAMES = ("attend", "race", "truncate")
attend, race, truncate = (import_module(f"decgraph.backends.triton.kernels.{name}") for name in NAMES)
NEAR = {torch.bfloat16: 3e-2, torch.float32: 2e-5}  # how far numbers of about one may be off


def attention(lab: Lab) -> Items:
    """5. The table of attention: cells by context."""
    for context in lab.sizes.contexts:
        yield f"at {context}", partial(cells, lab, context)


def vocabulary(lab: Lab) -> Items:
    """10. Rows over the vocabulary: draws and top-p."""
    yield "rows", partial(over_vocabulary, lab)


def stage(lab: Lab) -> Items:
    """11. The comparisons."""
    yield "against float64", partial(checks, lab)


def checks(lab: Lab) -> Row:
    """All comparisons, in processes of their own: most of their time is compilation."""
    types, shapes, sizes = [torch.float32], [(2, 5)], [7, 300]
    if lab.cuda:
        types, shapes, sizes = [*NEAR], [(1, 1), (3, 7), (2, 33), (1, 128)], [7, 512, 128256]
    kinds, turns, flags = ("chain", "tree", "canvas", "window", "capped"), (0.5, 0.0), (False, True)
    cases: list[Any] = [(attending, (kind, *shape, 1.0, dtype)) for kind in kinds for shape in shapes for dtype in types]
    cases += [(attending, ("chain", *shape, part, dtype)) for shape in shapes[:2] for part in turns for dtype in types]
    cases += [(drawing, (size,)) for size in sizes]
    cases += [(truncating, (size, ties)) for size in sizes for ties in flags]
    wrong = []
    for (kernel, given), found in zip(cases, lab.spread(checked, cases, 80), strict=True):
        gap, allowed = (found, 0) if isinstance(found, str) else found
        if isinstance(gap, str) or not gap <= allowed:
            wrong.append(f"{kernel.__name__} {given}: {gap}")
    return {"wrong": wrong, "right": not wrong, "says": f"{len(cases)} comparisons, {len(wrong)} wrong {'; '.join(wrong[:4])}"}


def checked(lab: Lab, case: Any) -> tuple[float, float]:
    """How far one comparison is off, and how far it may be. Unwritten memory is NaN or the largest integer, so that a place
    that a kernel leaves out shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # what fills torch.empty
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            made: tuple[float, float] = case[0](torch.Generator(lab.device).manual_seed(1), *case[1])
            return made
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


def attending(made: torch.Generator, kind: str, lanes: int, cells: int, part: float, dtype: torch.dtype) -> tuple[float, float]:
    """Attention of lanes of different lengths, in pages in any order; slots that nobody sees are NaN, and so are those of the
    cells, whose keys and values are written. part: how much of a head is rotated."""
    heads, group, size, slots, at = 2, 4, 64, 7 * PAGE, torch.arange(cells, device=made.device)
    q, k, v = (normal(made, lanes, n, cells, size, dtype=dtype) for n in (heads * group, heads, heads))
    keys, values = (normal(made, heads, lanes * slots, size, dtype=dtype) for _ in range(2))
    pages = torch.randperm(lanes * slots // PAGE, generator=made, device=made.device).int().view(lanes, -1)
    length, tail, first = below(made, slots - cells - 1, lanes) + 1, None, None
    under = length[:, None] + (at + 1 if kind != "canvas" else at * 0 + cells)
    if kind == "tree":
        under, first = length[:, None].repeat(1, cells), length
        tail = (below(made, 2, lanes, cells, cells) > 0).tril() | torch.eye(cells, dtype=torch.bool, device=made.device)
    positions = torch.arange(slots, device=made.device).repeat(lanes, 1)
    for pool in (keys, values):
        pool[:, rows_of(pages, positions)[positions >= length[:, None]]] = torch.nan
    angles = normal(made, lanes, cells, int(size * part) // 2).repeat(1, 1, 2)
    new = (k, v, length[:, None] + at, *((angles.cos(), angles.sin()) if part else (None, None)))
    window, cap = 50 if kind == "window" else None, 20.0 if kind == "capped" else None
    more = (pages, under, tail, first, size**-0.5, window, length[:, None] + at, positions, cap)
    wide = [None if t is None else t if t.dtype == torch.int64 else t.double() for t in new]
    pools = [pool.nan_to_num().double() for pool in (keys, values)]
    want, got = attend.form(q.double(), *pools, *more, *wide), attend.launch(q, keys, values, *more, *new)
    gaps = [apart(mine.nan_to_num(), right) for mine, right in zip((keys, values), pools, strict=True)]
    return max(apart(got, want), *gaps), NEAR[dtype]


def drawing(made: torch.Generator, size: int) -> tuple[float, float]:
    """The token of a race is as good as the best one by float64."""
    words = [below(made, 2**32, 3, 5) for _ in range(5)]
    probs = torch.where(below(made, 3, 3, 5, size) > 0, (3 * normal(made, 3, 5, size)).softmax(-1), 0.0)
    merits = probs.double().log() - (-noise.uniforms(words, size).log()).log()
    return apart(merits.gather(-1, race.launch(probs, *words)[..., None])[..., 0], merits.amax(-1)), 1e-12


def truncating(made: torch.Generator, size: int, ties: bool) -> tuple[float, float]:
    """Rows with their own numbers, some neutral. Sums in another order may move the end of a nucleus by one entry."""
    logits, rows = 3 * normal(made, 4, 3, size), ([0, 3, 40, 0], [1.0, 1.0, 0.9, 0.8], [0.0, 0.0, 0.05, 0.1])
    probs, cuts = (logits.round() if ties else logits).softmax(-1), [torch.tensor(row, device=made.device) for row in rows]
    cuts = [cut[:, None].repeat(1, 3) for cut in cuts]
    mine, want = truncate.launch(probs, *cuts), truncate.form(probs.double(), *cuts)
    entries = float(((mine > 0).sum(-1) - (want > 0).sum(-1)).abs().max())
    return apart(mine, want) / float(want.max()) if entries <= 1 else entries, 1e-4


def told(lab: Lab, works: dict[str, tuple[int, list[Any]]]) -> Row:
    """Microseconds of launches over fresh memory, and their floors: what the bytes that they move take by a copy."""
    row: Row = {
        name: {"us": 1000 * lab.launch_ms(every), "floor_us": 1e6 * moved / lab.bandwidth}
        for name, (moved, every) in works.items()
    }
    return {**row, "says": ", ".join(f"{name} {at['us']:.1f} us (floor {at['floor_us']:.1f})" for name, at in row.items())}


@torch.no_grad()
def cells(lab: Lab, context: int) -> Row:
    """Attention of 1, 8 and 64 cells over a text, and the writing of their keys and values."""
    made, config, dtype = torch.Generator(lab.device).manual_seed(1), lab.sizes.target, lab.sizes.dtype
    heads, queries, size = config["num_key_value_heads"], config["num_attention_heads"], 128 if lab.cuda else 16
    works: dict[str, tuple[int, list[Any]]] = {}
    each = 2 * heads * context * size * dtype.itemsize
    caches = [[normal(made, heads, context + 128, size, dtype=dtype) for _ in range(2)] for _ in lab.copies(each)]
    pages = torch.arange(context // PAGE + 2, device=lab.device, dtype=torch.int32)[None]
    for count in (1, 8, 64) if lab.cuda else (1,):
        q, k, v = (normal(made, 1, n, count, size, dtype=dtype) for n in (queries, heads, heads))
        at, turn = torch.arange(count, device=lab.device)[None] + context, normal(made, 1, count, size)
        tail = torch.ones(1, count, count, dtype=torch.bool, device=lab.device).tril()
        more = (pages, at[:, :1].expand(1, count), tail, at[:, 0], size**-0.5, None, None, None, None, k, v, at, turn, turn)
        works[f"attend {count}"] = each, [partial(attend.launch, q, *kept, *more) for kept in caches]
    return told(lab, works)


@torch.no_grad()
def over_vocabulary(lab: Lab) -> Row:
    """A race and a truncation, of one row and of 64."""
    made, size = torch.Generator(lab.device).manual_seed(1), lab.sizes.target["vocab_size"]
    works: dict[str, tuple[int, list[Any]]] = {}
    for rows in (1, 64) if lab.cuda else (1,):
        read = 4 * rows * size
        probs = [normal(made, rows, 1, size).softmax(-1) for _ in lab.copies(read)]
        k, words = torch.full((rows, 1), 40, device=lab.device), [below(made, 2**32, rows, 1) for _ in range(5)]
        works[f"race {rows}"] = read, [partial(race.launch, row, *words) for row in probs]
        works[f"top-p {rows}"] = 2 * read, [partial(truncate.launch, row, k * 0, k * 0.01 + 0.5, k * 0.0) for row in probs]
    return told(lab, works)
