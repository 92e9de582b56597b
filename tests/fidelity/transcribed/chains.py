"""Chains of drafts: PARD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after, by_call, replayed, verified

from decgraph.runtime.models.table import TableModel

SIZE = 12


def pard(case: Mapping[str, Any]) -> Columns:
    """One call of the drafter over the text and masks gives every draft; the target keeps what it would have written."""
    target, drafter = models(case)["target"], models(case)["drafter"]
    text, drafted, accepted = list(case["prompt"]), [], []
    while len(text) < len(case["prompt"]) + case["limit"]:
        left = len(case["prompt"]) + case["limit"] - len(text)
        masks = [case["mask"]] * (case["gamma"] - 1)
        chain = [int(np.argmax(after(drafter, (*text, *masks[:i])))) for i in range(case["gamma"])][: left - 1]
        paths = [tuple(chain[: i + 1]) for i in range(len(chain))]
        kept, n = verified(target, text, paths)
        text += kept
        drafted.append(sorted(paths))
        accepted.append(n)
    return {"tokens": tuple(text), "drafted": drafted, "accepted": accepted}


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """Tables that agree often."""
    return {
        "target": TableModel(SIZE, case["seed"], window=2, vocab="t", name="target"),
        "drafter": TableModel(SIZE, case["seed"], window=2, vocab="t", name="drafter"),
    }


COMPARED = [
    Compared(
        "pard",
        "AMD-AIG-AIMA/PARD 5dfe8090, pard/pard_infer.py, PardInfer.generate",
        pard,
        replayed("pard", "gamma", models=models, columns=by_call),
        {f"seed{s}": {"seed": s, "prompt": (1, 2, 3, s), "limit": 14, "gamma": 4, "mask": 0} for s in (1, 2, 3)},
        "the mask is the padding token, 0 here",
    )
]
