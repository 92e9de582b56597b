"""Vocabulary kernels on the device: against float64, then against the bandwidth of a copy and what eager torch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from decgraph.runtime import noise
from lab.gpu import exact, row_peers
from lab.gpu.clocks import Work, copies, launch_ms, over_copy, peer_ms
from lab.gpu.lab import Lab
from lab.gpu.poison import poisoned
from lab.gpu.pool import Check, judged
from lab.gpu.report import Items, Row

KEEP: dict[str, Any] = {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.02}
CLOSE = 2e-5  # relative margins of decisions that float32 may take otherwise
CASES = [
    (64, 128256, "bfloat16"),
    (64, 128256, "float32"),
    (2, 262144, "bfloat16"),
    (3, 32003, "float32"),
    (5, 50257, "float16"),
    (1, 3, "float32"),
    (64, 1000, "bfloat16"),
    (2, 17, "float64"),
    (1, 4096, "float32"),
    (3, 1001, "float64"),
]
TINY = [(1, 3, "float32"), (3, 50, "float32")]

Call = Callable[[Tensor], Any]


def logits_of(lab: Lab, rows: int, size: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Random logits; the last of several rows has ties, and what is banned. Never anything but numbers and -inf."""
    made = torch.Generator(lab.device).manual_seed(seed)
    x = 3 * torch.randn((rows, size), generator=made, device=lab.device)
    if rows > 1:
        x[-1] = (x[-1] / 2).round()
        x[-1, ::3] = -torch.inf
    return x.to(dtype)


def keyed(lab: Lab, rows: int, seed: int) -> tuple[list[noise.Key], Tensor, Tensor]:
    """Keys of a draw for each row, as they are and as kernels take them: int32[R, 3] and int64[R, 2]."""
    keys = [noise.Key(seed * 2**33 + 5, row, "bench:1", (seed,), (row,)) for row in range(rows)]
    words = torch.tensor([[w - 2**32 if w >= 2**31 else w for w in key.words()] for key in keys], dtype=torch.int32)
    halves = torch.tensor([[key.seed % 2**32, key.seed >> 32] for key in keys], dtype=torch.int64)
    return keys, words.to(lab.device), halves.to(lab.device)


def off(mine: Tensor, right: Tensor) -> float:
    """The largest difference over the largest entry; inf where shapes differ or anything is no number."""
    mine, right = mine.double(), right.double()
    if mine.shape != right.shape or not bool(torch.isfinite(mine).all()):
        return float("inf")
    return float((mine - right).abs().max() / right.abs().max().clamp_min(1e-30))


def unequal(mine: Tensor, right: Tensor) -> float:
    """How many entries differ; inf where shapes do."""
    return float((mine != right).sum()) if mine.shape == right.shape else float("inf")


def shaped_off(mine: Tensor, logits: Tensor) -> float:
    """As `off` for [R, V], but for rows in which a token is so close to a threshold that float32 may decide otherwise."""
    right = exact.shaped(logits, **KEEP)
    cut = exact.shaped(logits, **{**KEEP, "min_p": None})
    sums = exact.shaped(logits, KEEP["temperature"], KEEP["top_k"]).sort(-1, descending=True).values.cumsum(-1)
    near = ((sums - KEEP["top_p"]).abs() < CLOSE).any(-1)
    near |= ((cut / cut.max(-1, keepdim=True).values - KEEP["min_p"]).abs() < CLOSE).any(-1)
    return off(mine[~near], right[~near]) if bool((~near).any()) else 0.0


def late(q: Tensor, keys: list[noise.Key], tokens: Tensor) -> float:
    """How much later than its race's winner, relative to it, the latest of the drawn tokens is. q: [R, V]; tokens: [R]."""
    ran = (q > 0).any(-1)
    if unequal(tokens >= 0, ran):
        return float("inf")
    if not bool(ran.any()):
        return 0.0
    times = exact.times([key for key, some in zip(keys, ran.tolist()) if some], q.shape[1], q.device)
    return float(exact.margin(q[ran].double(), times, tokens[ran])[1].max())


def found(lab: Lab, rows: int, size: int, dtype: torch.dtype, seed: int) -> Iterator[Check]:
    """Every function of rows/functions.py on one input."""
    from decgraph.backends.triton.rows import functions as f

    x = logits_of(lab, rows, size, dtype, seed)
    keys, words, halves = keyed(lab, rows, seed)
    wide = dtype == torch.float64
    near, close = (1e-12, 0.0) if wide else (1e-5, CLOSE)
    p = exact.raw(x)
    given = p if wide else p.float()  # what functions of probabilities are given
    k, many = min(8, size), min(4, size)
    with poisoned():
        yield "softmax", off(f.softmax(x), p), near
        yield "shaped", shaped_off(f.shaped(x, **KEEP), x), near
        yield "argmax", unequal(f.argmax(x), exact.first_max(x)), 0
        yield "draw", late(given, keys, f.draw(given, words, halves)), close
        hot = exact.shaped(x, 0.7)
        yield "draw_logits", late(hot, keys, f.draw_logits(x, words, halves, temperature=0.7)), close
        tokens, values = f.topk(x, k)
        best, at = (t.contiguous() for t in exact.top(x, k))
        there = best > -torch.inf
        yield "topk", unequal(torch.where(there, tokens, -1), torch.where(there, at, -1)), 0
        yield "topk's scores", unequal(values.double()[there], best[there]), 0
        yield "entropy", off(f.entropy(given), exact.entropy(p)), 10 * near
        yield "confidence", off(f.confidence(x, at[:, 0].contiguous()), p.gather(-1, at[:, :1])[:, 0]), near
        two = exact.top(p, 2)[0]
        yield "margin", float((f.margin(given).double() - (two[:, 0] - two[:, 1])).abs().max()), near
        other = exact.raw(logits_of(lab, rows, size, torch.float32, seed + 77))
        over = (given.double() - other.to(given.dtype).double()).clamp_min(0)
        yield "residual", off(f.residual(given, other.to(given.dtype)), over / over.sum(-1, keepdim=True)), near
        count = torch.full((rows,), min(2, size - 1), dtype=torch.int64, device=lab.device)
        left = given.double().scatter(-1, at[:, : int(count[0])], 0.0)
        yield "without", off(f.without(given, at, count), left / left.sum(-1, keepdim=True)), near
        drawn = f.draw_many(given, words, halves, many)
        yield "draw_many", many_late(given, keys, drawn), close


def many_late(q: Tensor, keys: list[noise.Key], tokens: Tensor) -> float:
    """How far the arrival of each of several drawn tokens is from that of its place, relative to it. q: [R, V];
    tokens: [R, k]."""
    at = exact.arrivals(q.double(), exact.times(keys, q.shape[1], q.device))
    due = at.sort(-1).values[:, : tokens.shape[1]]
    there = due < torch.inf
    if unequal(tokens >= 0, there):
        return float("inf")
    mine = at.gather(-1, tokens.clamp_min(0))
    return float(((mine - due).abs() / due)[there].max())


def checks(lab: Lab) -> Row:
    """All functions, shapes and types against float64."""
    return judged(lab, checked, CASES if lab.cuda else TINY, empty_rows(lab))


def checked(lab: Lab, case: tuple[int, int, str]) -> list[Check]:
    """One shape and type."""
    rows, size, dtype = case
    seeds = [100 * size + seed for seed in range(2 if lab.cuda else 1)]
    each = (f for seed in seeds for f in found(lab, rows, size, getattr(torch, dtype), seed))
    return [(f"{what}, {dtype}", gap, allowed) for what, gap, allowed in each]


def empty_rows(lab: Lab) -> list[str]:
    """Rows of which nothing is left: no mass, no token, no NaN."""
    from decgraph.backends.triton.rows import functions as f

    x = torch.full((2, 37), -torch.inf, device=lab.device)
    x[1, 5] = 1.0
    _, words, halves = keyed(lab, 2, 3)
    with poisoned():
        got = {
            "softmax": f.softmax(x).sum(-1),
            "shaped": f.shaped(x, **KEEP).sum(-1),
            "draw_logits": f.draw_logits(x, words, halves, temperature=1.0),
            "draw": f.draw(f.softmax(x), words, halves),
        }
    due = {"softmax": [0.0, 1.0], "shaped": [0.0, 1.0], "draw_logits": [-1, 5], "draw": [-1, 5]}
    return [f"{name} of an empty row: {out.tolist()}" for name, out in got.items() if out.tolist() != due[name]]


def stage(lab: Lab) -> Items:
    """Timings, for the stage `kernels`."""
    rows, size = (64, 128256) if lab.sizes.name != "tiny" else (2, 100)
    for name in kernels(lab, rows, size):
        yield f"{name}, {rows} x {size}", partial(timed, lab, name, rows, size)


def kernels(lab: Lab, rows: int, size: int) -> dict[str, tuple[int, torch.dtype, Call, Call]]:
    """By name: the bytes of an entry that must be read and written, the type of the rows, ours, the peer in eager torch."""
    from decgraph.backends.triton.rows import functions as f

    bf16, f32 = torch.bfloat16, torch.float32
    _, words, halves = keyed(lab, rows, 1)
    tokens = torch.zeros(rows, dtype=torch.int64, device=lab.device)
    k = min(32, size)
    return {
        "softmax": (2 + 4, bf16, f.softmax, row_peers.softmax),
        "shaped": (2 + 4, bf16, partial(f.shaped, **KEEP), partial(row_peers.shaped, **KEEP)),
        "draw": (4, f32, lambda p: f.draw(p, words, halves), row_peers.multinomial),
        "draw_logits": (2, bf16, lambda x: f.draw_logits(x, words, halves, temperature=1.0), row_peers.softmax_multinomial),
        "top-p draw": (
            2,
            bf16,
            lambda x: f.draw(f.shaped(x, temperature=1.0, top_p=0.9), words, halves),
            partial(row_peers.top_p_sampler, top_p=0.9),
        ),
        "topk": (2, bf16, partial(f.topk, k=k), partial(row_peers.topk, k=k)),
        "entropy": (4, f32, f.entropy, lambda p: -(p * p.clamp_min(1e-30).log()).sum(-1)),
        "confidence": (2, bf16, lambda x: f.confidence(x, tokens), row_peers.confidence),
    }


def timed(lab: Lab, name: str, rows: int, size: int) -> Row:
    """One kernel over many inputs, its bandwidth, and its peer's time."""
    each, dtype, ours, peer = kernels(lab, rows, size)[name]
    moved = each * rows * size
    count = copies(lab, torch.empty((), dtype=dtype).element_size() * rows * size)
    inputs = [logits_of(lab, rows, size, torch.float32, seed) for seed in range(count)]
    inputs = [x.to(dtype) if dtype != torch.float32 else exact.raw(x).float() for x in inputs]
    mine: list[Work] = [partial(ours, x) for x in inputs]
    row: Row = over_copy(lab, moved, launch_ms(lab, mine))
    row["peer"] = peer_ms(lab, [partial(peer, x) for x in inputs[:8]])
    took = row["peer"].get("ms", {}).get("median")
    row["over_peer"] = round(took / row["ms"]["median"], 3) if took else None
    return {
        **row,
        "says": f"{1000 * row['ms']['median']:.1f} us, {row['of_copy']:.0%} of a copy; {row['over_peer']} times "
        "as fast as eager torch",
    }
