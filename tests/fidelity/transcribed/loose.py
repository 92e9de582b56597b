"""Verification that lets more pass than the target's own tokens: TensorRT-LLM's relaxed acceptance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after, best, by_call, replayed

from decgraph.runtime.models.table import TableModel

Passed = Callable[[list[np.ndarray], list[int]], list[bool]]


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """The drafter's table is the target's after most pairs of tokens."""
    size = case["size"]
    target = TableModel(size, case["seed"], window=2, vocab="t", name="target")
    same = [(s, t) for s in range(size) for t in range(size) if (2 * s + t) % case["unlike"]]
    rows = {pair: [int(10000 * p) + 1 for p in after(target, pair)] for pair in same}
    return {"target": target, "drafter": TableModel(size, case["seed"] + 1, rows, window=2, vocab="t", name="drafter")}


def chained(
    case: Mapping[str, Any], passed: Passed, seen: Callable[[list[int]], None] = lambda new: None, cut: bool = False
) -> Columns:
    """Greedy chains, kept up to the first token that does not pass, and the target's likeliest one behind them. cut: a chain is
    no longer than the limit leaves it."""
    both, text, end = models(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    drafted, accepted = [], []
    while len(text) < end:
        chain: list[int] = []
        while len(chain) < (min(case["gamma"], end - len(text)) if cut else case["gamma"]):
            chain.append(int(np.argmax(after(both["drafter"], (*text, *chain)))))
        rows = [after(both["target"], (*text, *chain[:i])) for i in range(len(chain) + 1)]
        flags = passed(rows, chain)
        n = flags.index(False) if False in flags else len(chain)
        new = [*chain[:n], int(np.argmax(rows[n]))]
        text += new
        seen(new)
        drafted.append([tuple(chain[: i + 1]) for i in range(len(chain))])
        accepted.append(n)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def relaxed(case: Mapping[str, Any]) -> Columns:
    """Among the k likeliest tokens, the first of all, or any whose log-probability is not lower by more than a margin; it is
    zero but for the time between two tokens, the first of which may stand in the prompt."""
    margin = [case["delta"] if case["begin"] in case["prompt"] else 0.0]

    def passed(rows: list[np.ndarray], chain: list[int]) -> list[bool]:
        out = []
        for row, x in zip(rows, chain, strict=False):
            kept = best(row, case["k"])
            scores = np.log(row[kept])
            out.append(x in [t for i, t in enumerate(kept) if i == 0 or scores[i] >= scores[0] - margin[0] - 1e-12])
        return out

    def seen(new: list[int]) -> None:
        for token in new:
            margin[0] = case["delta"] if token == case["begin"] else 0.0 if token == case["end"] else margin[0]

    return chained(case, passed, seen, cut=True)


ours = partial(replayed, models=models, columns=by_call)


CASE = {"prompt": (1, 2, 3), "limit": 40, "size": 6, "unlike": 5}
SHORT = "a chain is no longer than the limit leaves it"

COMPARED = [
    Compared(
        "relaxed_acceptance",
        "NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/speculativeDecoding/mtpKernels.cu, mtpRelaxedAcceptanceKernel",
        relaxed,
        ours("relaxed_acceptance", "gamma", "k", "delta", "begin", "end"),
        {
            "thinks at once": {**CASE, "seed": 1, "gamma": 3, "k": 4, "delta": 1.0, "begin": 3, "end": 0},
            "begins to think": {**CASE, "seed": 2, "gamma": 4, "k": 6, "delta": 0.6, "begin": 0, "end": 4},
            "by rank": {**CASE, "seed": 3, "gamma": 4, "k": 2, "delta": 9.0, "begin": 1, "end": -1, "unlike": 2},
            "ends to think": {**CASE, "seed": 5, "gamma": 4, "k": 6, "delta": 1.0, "begin": 1, "end": 4, "unlike": 2},
            "never thinks": {**CASE, "seed": 4, "gamma": 4, "k": 6, "delta": 9.0, "begin": 99, "end": -1},
        },
        f"greedy; the drafts are a model's, in the place of MTP layers; {SHORT}",
    ),
]
