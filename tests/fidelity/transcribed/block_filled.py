"""Drafts that a masked model fills in at once: generalized aggressive decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after, by_call
from fidelity.watched import run

from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel

SIZE = 6


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "target": TableModel(SIZE, case["seed"], window=2, vocab="t", name="target"),
        "drafter": TableModel(SIZE, case["seed"] + 7, kind="masked", vocab="t", name="drafter"),
    }


def filled(model: Any, text: list[int], block: int) -> list[int]:
    """The likeliest token at each of the masked places behind a text, all from one call."""
    places = range(len(text), len(text) + block)
    rows = model.eval_canvas((*text, *[MASK] * block), list(places))
    return [int(np.argmax([float(w) for w in row.weights])) for row in rows]


def near(p: np.ndarray, token: int, beta: int, tau: float) -> bool:
    """Whether a token is among the beta best scores, and not more than tau below the best."""
    kept = np.argsort(-p, kind="stable")[:beta]
    return any(token == t and np.log(p[kept[0]]) - np.log(p[t]) <= tau for t in kept)


def gad(case: Mapping[str, Any]) -> Columns:
    """A block, up to its first token that the target does not let pass, and the target's best one in its place."""
    both, text, end = models(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    drafted, accepted = [], []
    while len(text) < end:
        block = filled(both["drafter"], text, min(case["block"], end - len(text)))
        rows = [after(both["target"], (*text, *block[:i])) for i in range(len(block) + 1)]
        passed = [near(rows[i], x, case["beta"], case["tau"]) for i, x in enumerate(block)]
        n = passed.index(False) if False in passed else len(block)
        text += [*block[:n], int(np.argmax(rows[n]))]
        drafted.append([tuple(block[: i + 1]) for i in range(len(block))])
        accepted.append(n)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("block", "beta", "tau")}
    return by_call(run("generalized_aggressive", case["prompt"], models(case), backend, max_tokens=case["limit"], **params))


COMPARED = [
    Compared(
        "generalized_aggressive",
        "microsoft/unilm 768a3c87, decoding/GAD/inference.py, gad_forward",
        gad,
        ours,
        {
            "exact": {"seed": 1, "prompt": (1, 2, 3), "limit": 12, "block": 4, "beta": 1, "tau": 0.0},
            "relaxed": {"seed": 2, "prompt": (1, 2, 3), "limit": 12, "block": 4, "beta": 3, "tau": 1.0},
            "by rank": {"seed": 3, "prompt": (4, 2), "limit": 14, "block": 3, "beta": 2, "tau": 9.0},
            "by score": {"seed": 4, "prompt": (5,), "limit": 14, "block": 6, "beta": 6, "tau": 0.5},
        },
        "the input is the prompt, in the place of an encoder's source; a block is no longer than the limit leaves it",
    )
]
