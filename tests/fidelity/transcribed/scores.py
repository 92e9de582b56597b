"""Decoders that choose each token by a score of their own: momentum decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.transcribed.compared import Columns, Compared, after, best
from fidelity.watched import run

from decgraph.runtime.models.table import TableModel

SIZE = 9


def target(case: Mapping[str, Any]) -> TableModel:
    return TableModel(SIZE, case["seed"], window=case.get("window", 1), vocab="t", name="target")


def text_of(program: str, *names: str) -> Any:
    """Ours: the text that a program of one model writes greedily."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in names}
        done = run(program, case["prompt"], {"target": target(case)}, backend, limit=case["limit"], **params)
        return {"tokens": done.tokens, "target calls": len(done.calls)}

    return ours


def momentum(case: Mapping[str, Any]) -> Columns:
    """The graph of the text has for each token where it stands. A candidate's run is the longest of the text's ends that,
    with the candidate behind it, stands in the text already."""
    table, text = case["resistance"], list(case["prompt"])

    def run_of(candidate: int) -> int:
        if candidate not in text:
            return 0
        for length in range(len(table), 1, -1):
            wanted = [*text[-length + 1 :], candidate]
            if any(text[i : i + length] == wanted for i in range(len(text) - length + 1)):
                return length
        return 1

    for _ in range(case["limit"]):
        p = after(target(case), text)
        choices = best(p, case["k"])
        scores = [p[c] - case["alpha"] * ([0.0, *table][run_of(c)]) for c in choices]
        text.append(choices[scores.index(max(scores))])
    return {"tokens": tuple(text), "target calls": case["limit"]}


COMPARED = [
    Compared(
        "momentum",
        "gmftbyGMFTBY/MomentumDecoding 84f3d8ba, models/utlis_ngram.py, ResistanceDecodingNGram and find_max_repetition_length",
        momentum,
        text_of("momentum", "k", "alpha", "resistance"),
        {
            "usual": {"seed": 1, "prompt": (1, 2, 3), "limit": 40, "k": 5, "alpha": 0.2, "resistance": (1, 2, 3, 4, 5)},
            "light": {"seed": 2, "prompt": (4, 2, 4), "limit": 40, "k": 4, "alpha": 0.02, "resistance": (1, 3, 4, 5, 6)},
            "runs": {"seed": 3, "prompt": (0, 8), "limit": 40, "k": 5, "alpha": 0.03, "resistance": (0, 0, 0, 5)},
            "two": {"seed": 4, "prompt": (7,), "limit": 40, "k": 3, "alpha": 0.1, "window": 2, "resistance": (1, 2)},
        },
        "resistance: the code's table of the lengths from 1 on, as long as its max_length",
    ),
]
