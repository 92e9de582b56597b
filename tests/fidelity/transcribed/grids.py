"""Decoders of images and actions: which cells of a grid a call decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import MASK
from fidelity.transcribed.compared import Columns, Compared
from fidelity.transcribed.masks import SIZE, Watch, drawn, masked, rows, table, uniforms


def gumbel(u: float) -> float:
    """Of a uniform number."""
    return float(-np.log(-np.log(u)))


def recap(case: Mapping[str, Any]) -> Columns:
    """A full call ranks the masked cells by a draw's confidence; the first of that order are decided by fresh draws of the full
    call, the next ones by those of each call of the group alone, in which all other cells are as the full call saw them."""
    seed, steps, length = case["seed"], case["steps"], case["length"]
    model, w = table(seed), Watch(case["prompt"], length)
    total = len(w.cells)
    kept = [int(np.floor((1 - (i / steps) ** 2.5) * length)) for i in range(steps)]
    counts = [a - b for a, b in zip(kept, kept[1:], strict=False)]
    counts.append(length - sum(counts))
    for i, n in enumerate(counts):
        if n == 0:
            counts[i], counts[-1] = 1, counts[-1] - 1
    warm = [case["cool"] + (1 - np.sqrt(i / (steps - 1))) * (1 - case["cool"]) for i in range(steps)]
    groups, i = [], 0
    while i < steps:
        many = 1 if i < case["alone"] else 1 + case["cheap"]
        groups.append(list(zip(counts[i : i + many], warm[i : i + many], strict=True)))
        i += many
    for g, group in enumerate(groups):
        seen = {i: w.cells[i] for i in range(total)}
        w.call(range(total))
        p = rows(model, seen, total, [i for i in range(w.start, total) if w.cells[i] == MASK])
        call, heat, confidence = len(w.computed) - 1, case["heat"] * (1 - (g + 1) / len(groups)), {}
        for lane, i in enumerate(p):
            x = drawn(p[i], uniforms(seed, call, (lane,), SIZE, "guess"))
            confidence[i] = np.log(p[i][x]) + heat * gumbel(uniforms(seed, call, (lane,), SIZE, "choice")[x])
        order = sorted(p, key=lambda i: -confidence[i])[: sum(n for n, _ in group)]
        done = 0
        for n, heat in group:
            if done:
                seen.update({i: w.cells[i] for i in order})
                w.call(order)
                p = rows(model, seen, total, order)
            for lane, i in enumerate(order[done : done + n]):
                q = p[i] ** (1 / heat)
                w.cells[i] = drawn(q / q.sum(), uniforms(seed, len(w.computed) - 1, (lane,), SIZE, "token"))
            done += n
    return w.done()


def secondary_remask(case: Mapping[str, Any]) -> Columns:
    """Of all cells the least probable are masked next; those decided before count less and less, or never."""
    seed, steps = case["seed"], case["steps"]
    model, w = table(seed), Watch(case["prompt"], case["length"])
    total = len(w.cells)
    for step in range(steps):
        w.call(range(total))
        ratio = (step + 1) / steps
        p = rows(model, dict(enumerate(w.cells)), total, range(w.start, total))
        again = min(max(int(case["length"] * np.cos(np.pi / 2 * ratio)), 1), case["length"] - 1)
        tokens, confidence = {}, {}
        for lane, i in enumerate(p):
            x = drawn(p[i], uniforms(seed, step, (lane,), SIZE, "token"))
            noise = case["heat"] * (1 - ratio) * gumbel(uniforms(seed, step, (lane,), SIZE, "choice")[x])
            known = w.cells[i] != MASK
            tokens[i] = w.cells[i] if known else x
            s = p[i][tokens[i]] * (1 - ratio if known else 1)
            confidence[i] = np.inf if known and not case["again"] else np.log(s + 1e-20) + noise
        least = sorted(confidence.values())[again]
        for i, x in tokens.items():
            w.cells[i] = MASK if confidence[i] < least and step < steps - 1 else x
    return w.done()


SHAPED = ((1, 8, 4, 0, 1), (2, 12, 5, 1, 1), (3, 16, 8, 2, 2), (4, 16, 6, 6, 1), (5, 12, 6, 0, 3))

COMPARED = [
    Compared(
        "recap",
        "liebenxj/ReCAP 4d1da38, examples/MaskGIT+ReCAP/cache_decoding.py, decode",
        recap,
        masked(
            "recap",
            *("steps", "alone", "cheap", "heat", "cool"),
            sites={"recap.1": "guess", "recap.2": "choice", "recap.6": "token"},
        ),
        {
            f"seed{s} alone{alone} cheap{cheap}": {
                "seed": s, "prompt": (1, s), "length": length, "steps": steps, "alone": alone, "cheap": cheap,
                "heat": 5.5 if s % 2 else 0.7, "cool": 0.75, "sampled": True,
            }
            for s, length, steps, alone, cheap in SHAPED
        },
        "gen_step is steps, pre_full_iters alone, num_cache_iters cheap, conf_temp heat, samp_temp cool; without guidance",
    ),
    Compared(
        "secondary_remask",
        "Liang-ZX/DiscreteDiffusionVLA f87c72f, prismatic/discrete_flow/parallel_decode.py, decode",
        secondary_remask,
        masked(
            "secondary_remask",
            *("steps", "heat", "again"),
            sites={"secondary_remask.1": "token", "secondary_remask.2": "choice"},
        ),
        {
            f"seed{s} {'again' if again else 'once'}": {
                "seed": s, "prompt": (1, s), "length": 9, "steps": steps, "heat": heat, "again": again, "sampled": True,
            }
            for s, steps, heat in ((1, 4, 1.0), (2, 7, 1.0), (3, 12, 0.3), (4, 5, 2.0))
            for again in (True, False)
        },
        "use_remask is again, choice_temperature heat; without the trained critic",
    ),
]  # fmt: skip
