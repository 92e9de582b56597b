"""LLaDA's sampler with classifier-free guidance: every call is made twice, the second time with masks in the prompt's place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import MASK, run, steps
from fidelity.transcribed.compared import Columns, Compared
from fidelity.transcribed.masks import rows, table


def llada(case: Mapping[str, Any]) -> Columns:
    model, prompt, length, block = table(case["seed"]), case["prompt"], case["length"], case["block"]
    x, total = [*prompt, *[MASK] * length], len(prompt) + length
    each = case["steps"] // (length // block)
    decided = []
    for start in range(len(prompt), total, block):
        for i in range(each):
            bare = [MASK if n < len(prompt) else t for n, t in enumerate(x)]
            c, u = (rows(model, dict(enumerate(seen)), total, range(total)) for seen in (x, bare))
            at = [n for n in range(start, start + block) if x[n] == MASK]
            scores = {n: np.log(u[n]) + (case["scale"] + 1) * (np.log(c[n]) - np.log(u[n])) for n in at}
            best = {n: int(np.argmax(scores[n])) for n in at}
            sure = {n: float(np.exp(scores[n][best[n]]) / np.exp(scores[n]).sum()) for n in at}
            taken = sorted(at, key=lambda n: -sure[n])[: block // each + (i < block % each)]
            for n in taken:
                x[n] = best[n]
            decided.append(sorted((n, x[n]) for n in taken))
    return {"output": tuple(x), "decided": decided}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("block", "steps", "scale")}
    done = run("llada_guided", table(case["seed"]), case["prompt"], case["length"], backend, **params)
    return {"output": done.output, "decided": [sorted(d) for d in steps(done) if d]}


COMPARED = [
    Compared(
        "llada_guided",
        "ML-GSAI/LLaDA main, generate.py, generate with cfg_scale",
        llada,
        ours,
        {
            f"scale {g} block {b} steps {n}": {"seed": s, "prompt": (1, 2, s), "length": 8, "block": b, "steps": n, "scale": g}
            for s, g, b, n in ((1, 0.5, 8, 4), (2, 2.0, 4, 8), (3, 1.0, 4, 2), (4, 3.5, 8, 8))
        },
        "greedy; the two calls are one of a batch of two there",
    )
]
