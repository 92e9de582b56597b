"""Kernels by hand against their torch forms in float64, on random inputs in poisoned memory; and their times against a copy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.kernels import attend, race, rope_write, truncate
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row

Found = list[tuple[str, float, float]]  # what was compared, how far it is off, how far it may be


def stage(lab: Lab) -> Items:
    """The comparisons, then the times."""
    yield "against float64", partial(checks, lab)
    for context in lab.sizes.contexts:
        yield f"times at {context}", partial(times, lab, context)


def cases(lab: Lab) -> list[tuple[str, Any, int]]:
    """What is compared: a kernel, its case, a seed."""
    types = [torch.bfloat16, torch.float32] if lab.cuda else [torch.float32]
    shapes = [(1, 1), (3, 7), (2, 33), (1, 128)] if lab.cuda else [(2, 5)]
    found: list[tuple[str, Any, int]] = []
    for kind in ("chain", "tree", "canvas", "window", "capped"):
        found += [("attend", (kind, *shape, dtype), n) for n, shape in enumerate(shapes) for dtype in types]
    found += [("rope_write", (*shape, part, dtype), 3) for shape in shapes[:2] for part in (1.0, 0.5, 0.0) for dtype in types]
    sizes = [7, 512, 128256] if lab.cuda else [7, 300]
    found += [("race", (size, given, wide), 4) for size in sizes for given in (False, True) for wide in (True, False)]
    found += [("truncate", (size, ties), 5) for size in sizes for ties in (False, True)]
    return found


def checks(lab: Lab) -> Row:
    """All comparisons, in processes of their own: most of their time is compilation."""
    worst: dict[str, float] = {}
    wrong, count, every = list[str](), 0, cases(lab)
    for case, found in zip(every, lab.spread(checked, every, 80), strict=True):
        if isinstance(found, str):
            wrong.append(f"{case}: {found}")
            continue
        for what, gap, allowed in found:
            worst[what], count = max(gap, worst.get(what, 0.0)), count + 1
            wrong += [f"{what} of {case}: {gap:.1e}"] if not gap <= allowed else []
    says = f"{count} comparisons, {len(wrong)} wrong" + (f": {', '.join(wrong[:4])}" if wrong else "")
    return {"worst": worst, "wrong": wrong, "right": not wrong, "says": says}


def checked(lab: Lab, case: tuple[str, Any, int]) -> Found:
    """One comparison. Unwritten memory is filled with NaN or the largest integer, so that a place that a kernel leaves out shows."""
    kernel, given, seed = case
    made = torch.Generator(lab.device).manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)  # what fills torch.empty
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            return {"attend": attending, "rope_write": writing, "race": drawing, "truncate": truncating}[kernel](made, *given)
    finally:
        torch.use_deterministic_algorithms(False)


def normal(made: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers."""
    return torch.randn(shape, generator=made, device=made.device).to(dtype)


def below(made: torch.Generator, most: int, *shape: int) -> Tensor:
    """Random integers from 0 on."""
    return torch.randint(most, shape, generator=made, device=made.device)


def apart(mine: Tensor, wanted: Tensor) -> float:
    """The largest difference; infinite for numbers that are none."""
    gap = (mine.double() - wanted.double()).abs()
    return float(torch.where(gap.isnan(), torch.inf, gap).max()) if len(gap) else 0.0


def near(dtype: torch.dtype) -> float:
    """How far numbers of about one may be off."""
    return 3e-2 if dtype == torch.bfloat16 else 2e-5


def attending(made: torch.Generator, kind: str, lanes: int, cells: int, dtype: torch.dtype) -> Found:
    """Attention of lanes with different lengths; slots that nobody sees are no numbers."""
    heads, group, size, slots = 2, 4, 64, 400
    device, at = made.device, torch.arange(cells, device=made.device)
    q, keys = normal(made, lanes, heads * group, cells, size, dtype=dtype), normal(made, lanes, heads, slots, size, dtype=dtype)
    values = normal(made, lanes, heads, slots, size, dtype=dtype)
    length = below(made, slots - cells - 1, lanes) + 1
    under, tail, first, window = length[:, None] + at + 1, None, None, 50 if kind == "window" else None
    if kind == "tree":
        under = length[:, None].expand(-1, cells).contiguous()
        tail, first = (
            (below(made, 2, lanes, cells, cells) > 0).tril() | torch.eye(cells, dtype=torch.bool, device=device),
            length,
        )
    elif kind == "canvas":
        under = (length[:, None] + cells).expand(-1, cells).contiguous()
    unseen = torch.arange(slots, device=device) >= (length[:, None] + cells)
    for part in (keys, values):
        part.masked_fill_(unseen[:, None, :, None], torch.nan)
    positions = torch.arange(slots, device=device).expand(lanes, -1).contiguous()
    more = (under, tail, first, size**-0.5, window, length[:, None] + at, positions, 20.0 if kind == "capped" else None)
    mine = attend.launch(q, keys, values, *more)
    return [(f"attend, {kind}", apart(mine, attend.form(q.double(), keys.nan_to_num().double(), values.nan_to_num().double(), *more)),
             near(dtype))]  # fmt: skip


def writing(made: torch.Generator, lanes: int, cells: int, part: float, dtype: torch.dtype) -> Found:
    """Rotated queries, keys and values at random slots, and nothing elsewhere."""
    heads, group, size, slots = 2, 3, 64, 150
    q, k, v = (normal(made, lanes, n, cells, size, dtype=dtype) for n in (heads * group, heads, heads))
    angles = normal(made, lanes, cells, int(size * part) // 2).repeat(1, 1, 2)
    turn = (angles.cos(), angles.sin()) if part else (None, None)
    where = torch.stack([torch.randperm(slots, generator=made, device=made.device)[:cells] for _ in range(lanes)])
    places, marks = below(made, 999, lanes, cells), below(made, 999, lanes, slots)
    kept = [normal(made, lanes, heads, slots, size, dtype=dtype) for _ in range(2)]
    want = [t.double() for t in kept]
    marks_wanted = marks.clone()
    mine = rope_write.launch(q, k, v, *turn, where, *kept, places, marks)
    wide = [None if t is None else t.double() for t in turn]
    form: Any = rope_write.rotated
    at = where[:, None, :, None].expand(-1, heads, -1, size)
    want[0].scatter_(2, at, form(k.double(), *wide))
    want[1].scatter_(2, at, v.double())
    marks_wanted.scatter_(1, where, places)
    gaps = [apart(mine, form(q.double(), *wide)), apart(kept[0], want[0]), apart(kept[1], want[1])]
    return [("rope_write", max(gaps), near(dtype)), ("rope_write, positions", apart(marks, marks_wanted), 0.0)]


def drawing(made: torch.Generator, size: int, given: bool, wide: bool) -> Found:
    """Tokens of races: in float64 the same ones; in float32 ones that are as good."""
    from decgraph.backends.triton import noise

    lanes, rows = 3, 5
    logits = 3 * normal(made, lanes, rows, size)
    probs = torch.where(below(made, 3, lanes, rows, size) > 0, logits.softmax(-1), 0.0)
    heat = torch.tensor([0.0, 0.7, 1.0], device=made.device, dtype=torch.float64)[:, None].expand(-1, rows)
    words = [below(made, 2**32, lanes, rows) for _ in range(5)]
    scores = probs if given else logits
    mine = race.launch(scores, None if given else heat, *words, given, wide)
    u = noise.uniforms(words, size)
    gumbel = -(-u.double().log()).log()
    if given:
        merits = probs.double().log() + gumbel
    else:
        hot = heat[..., None] > 0
        merits = torch.where(hot, logits.double() / torch.where(hot, heat[..., None], 1.0) + gumbel, logits.double())
    best = merits.max(-1)
    gap = apart(merits.gather(-1, mine[..., None])[..., 0], best.values)
    return [("race, float64" if wide else "race, float32", gap, 1e-12 if wide else 1e-4)]


def truncating(made: torch.Generator, size: int, ties: bool) -> Found:
    """Rows with their own numbers, neutral ones among them."""
    lanes, rows = 4, 3
    logits = (3 * normal(made, lanes, rows, size)).round() if ties else 3 * normal(made, lanes, rows, size)
    probs = logits.softmax(-1)
    k = torch.tensor([0, 3, 40, 0], device=made.device)[:, None].expand(-1, rows)
    p, least = (
        torch.tensor(x, device=made.device)[:, None].expand(-1, rows) for x in ([1.0, 1.0, 0.9, 0.8], [0.0, 0.0, 0.05, 0.1])
    )
    mine, want = truncate.launch(probs, k, p, least), truncate.form(probs.double(), k, p, least)
    # Sums in another order may leave out one of the entries at the end of a nucleus.
    count = ((mine > 0).sum(-1) - (want > 0).sum(-1)).abs().max()
    return [("truncate", apart(mine, want) / float(want.max()), 1e-4), ("truncate, entries", float(count), 1.0)]


def times(lab: Lab, context: int) -> Row:
    """Milliseconds of launches, and for what reads much memory the share of a copy's bandwidth."""
    made = torch.Generator(lab.device).manual_seed(1)
    config, dtype = lab.sizes.target, lab.sizes.dtype
    heads, queries, size = config["num_key_value_heads"], config["num_attention_heads"], 128 if lab.cuda else 16
    found: dict[str, Any] = {}

    def timed(name: str, moved: int, works: Sequence[Any]) -> None:
        took = lab.launch_ms(works)
        found[name] = {"ms": took.to_json(), "of_copy": round(moved / (took.median / 1000) / lab.copy_bandwidth(), 3)}

    with torch.no_grad():
        each = 2 * heads * context * size * dtype.itemsize
        caches = [[normal(made, 1, heads, context + 128, size, dtype=dtype) for _ in range(2)] for _ in range(lab.copies(each))]
        for cells in (1, 8, 64) if lab.cuda else (1,):
            q, at = normal(made, 1, queries, cells, size, dtype=dtype), torch.arange(cells, device=lab.device)[None]
            first = torch.full((1,), context, device=lab.device)
            tail = torch.ones(1, cells, cells, dtype=torch.bool, device=lab.device).tril()
            more = (first[:, None].expand(1, cells), tail, first, size**-0.5, None, None, None, None)
            timed(f"attend, {cells} cells", each, [partial(attend.launch, q, *kept, *more) for kept in caches])
            k, v = (normal(made, 1, heads, cells, size, dtype=dtype) for _ in range(2))
            turn = normal(made, 1, cells, size)
            timed(f"rope_write, {cells} cells", 2 * cells * size * dtype.itemsize * (queries + 2 * heads),
                  [partial(rope_write.launch, q, k, v, turn, turn, at + context, *kept, None, None) for kept in caches])  # fmt: skip
        for rows in (1, 64) if lab.cuda else (1,):
            logits = [normal(made, rows, 1, config["vocab_size"]) for _ in range(lab.copies(4 * rows * config["vocab_size"]))]
            heat, words = (
                torch.ones(rows, 1, dtype=torch.float64, device=lab.device),
                [below(made, 2**32, rows, 1) for _ in range(5)],
            )
            read = 4 * rows * config["vocab_size"]
            timed(f"race, {rows} rows", read, [partial(race.launch, row, heat, *words, False, True) for row in logits])
            k, p = torch.full((rows, 1), 40, device=lab.device), torch.full((rows, 1), 0.9, device=lab.device)
            cut = [partial(truncate.launch, row.softmax(-1), k, p, 0 * p) for row in logits]
            timed(f"truncate, {rows} rows, with a softmax", 2 * read, [lambda w=w: w.func(*w.args) for w in cut])
    return {
        **found,
        "says": ", ".join(f"{name} {1000 * row['ms']['median']:.1f} us ({row['of_copy']:.0%})" for name, row in found.items()),
    }
