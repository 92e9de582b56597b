"""One token a call from scores of several models, or among tokens that are left: proxy-tuning, PE-Rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after, replayed, tokens

from decgraph.runtime.models.table import TableModel

NAMES = ("target", "expert", "plain")


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TableModel(6, case["seed"] + i, window=2, vocab="t", name=name) for i, name in enumerate(NAMES)}


def proxy_tuning(case: Mapping[str, Any]) -> Columns:
    """The base model's scores and alpha times what tuning changed in the expert's; greedy."""
    base, expert, plain = models(case).values()
    text = list(case["prompt"])
    for _ in range(case["limit"]):
        scores = np.log(after(base, text)) + case["alpha"] * (np.log(after(expert, text)) - np.log(after(plain, text)))
        text.append(int(np.argmax(scores)))
    return {"tokens": tuple(text)}


def pe_rank(case: Mapping[str, Any]) -> Columns:
    """The likeliest of the passages that are not named yet, until all are."""
    target, text = models(case)["target"], list(case["prompt"])
    while left := [x for x in case["items"] if x not in text[len(case["prompt"]) :]]:
        row = after(target, text)
        text.append(max(sorted(left), key=lambda x: row[x]))
    return {"tokens": tuple(text)}


def ours(program: str, using: tuple[str, ...], *names: str) -> Any:
    """A program with its parameters, and what it writes."""
    return replayed(program, *names, models=models, columns=tokens, using=using)


COMPARED = [
    Compared(
        "proxy_tuning",
        "alisawuffles/proxy-tuning e60de542, modeling/dexperts.py, generate",
        proxy_tuning,
        ours("proxy_tuning", NAMES, "alpha"),
        {f"alpha {a}": {"seed": s, "prompt": (1, 2, s), "limit": 12, "alpha": a} for s, a in ((1, 1.0), (2, 0.4), (3, 3.0))},
        "greedy; the chat template around the expert's prompt is the caller's",
    ),
    Compared(
        "pe_rank",
        "liuqi6777/pe_rank 13e51078, src/ranker.py, prefix_allowed_tokens_fn",
        pe_rank,
        ours("pe_rank", ("target",), "items"),
        {
            f"seed{s}": {"seed": s, "prompt": (1, 2, 0), "limit": 12, "items": items}
            for s, items in ((1, [0, 1, 2, 3, 4, 5]), (2, [5, 1, 3]), (3, [2]))
        },
        "the beginning token that their models need before the first passage and the end behind the last are left out",
    ),
]
