"""Texts of the last epoch as drafts: SPEC-RL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.watched import Watched, run

from decgraph.runtime.models.table import TableModel
from lab.recordings.copied import words

SIZE = 4


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """The last epoch's policy knows one token of the text, today's two."""
    new = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    return {"target": new, "drafter": TableModel(SIZE, case["seed"] + 1, window=1, vocab="t", name="drafter")}


def watched(case: Mapping[str, Any], backend: str) -> Watched:
    given = {"before": list(case["before"]), "lenience": case["lenience"]}
    seed = {"seed": case["seed"]}
    return run(
        "spec_rl", case["prompt"], models(case), backend, max_tokens=case["limit"], temperature=1, settings=seed, **given
    )


def spec_cut(case: Mapping[str, Any]) -> Columns:
    """The old text up to the first token whose odds, now to then, times the lenience a coin does not reach; those that reach
    one need no coin. Coins that fell are ours. Then one call for every further token."""
    new, old = models(case).values()
    fell = watched(case, "reference").calls[0].accepted
    text = list(case["prompt"])
    for i, x in enumerate(case["before"]):
        odds = case["lenience"] * after(new, text)[x] / after(old, text)[x]
        if odds < 1 and i >= fell:
            break
        text.append(x)
    kept = len(text) - len(case["prompt"])
    rest = max(0, case["limit"] - kept - 1)
    return {"kept": tuple(text), "accepted": kept, "calls": 1 + rest}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    done = watched(case, backend)
    kept = done.calls[0].accepted
    return {"kept": tuple(done.tokens[: len(case["prompt"]) + kept]), "accepted": kept, "calls": len(done.calls)}


COMPARED = [
    Compared(
        "spec_rl",
        "ShopeeLLM/Spec-RL d5a7cd61, verl/utils/speculative_decoding.py, spec_cut_with_knobs",
        spec_cut,
        ours,
        {
            f"lenience {n} seed {s}": {"seed": s, "prompt": (1, 2), "before": words(s, 9, SIZE), "limit": 16, "lenience": n}
            for s, n in ((1, 1.0), (2, 1.6487), (3, 4.0), (4, 8.0), (5, 16.0), (6, 0.5))
        },
        "lenience is e to the negative bias, the scale is one; the last epoch's probabilities are a model's",
    )
]
