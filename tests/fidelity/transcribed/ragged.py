"""Batches whose sequences wait for one another: EQSPEC, whose drafts are as long as the fullest sequence allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.causal_batches import steps
from fidelity.transcribed.compared import Columns, Compared, after

import decgraph
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

SIZE = 8


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """A table that has seen more text than the drafter's; they agree often."""
    target = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    other = TableModel(SIZE, case["seed"] + 1, window=1, vocab="t", name="drafter")
    return {"target": target, "drafter": target if case["agree"] else other}


def eqspec(case: Mapping[str, Any]) -> Columns:
    """Rows that are not finished draft min(gamma, the least that one of them has left); the target's row behind the last draft
    is not read, so the last draft is never kept."""
    target, drafter = models(case)["target"], models(case)["drafter"]
    texts = [list(p) for p in case["prompts"]]
    left = list(case["limits"])
    counts: list[list[tuple[int, int]]] = [[] for _ in texts]
    while any(left):
        active = [i for i, n in enumerate(left) if n > 0]
        length = min(case["gamma"], min(left[i] for i in active))
        for i in active:
            draft: list[int] = []
            for _ in range(length):
                draft.append(int(np.argmax(after(drafter, (*texts[i], *draft)))))
            said = [int(np.argmax(after(target, (*texts[i], *draft[:j])))) for j in range(length)]
            first = next((j for j in range(length) if said[j] != draft[j]), length - 1)
            texts[i] += [*draft[:first], said[first]]
            left[i] -= first + 1
            counts[i].append((length - 1, first))
    return {"texts": texts, "verified and accepted": counts}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    session = decgraph.load("exspec").session(models(case), backend=backend, gamma=case["gamma"])
    pairs = zip(case["prompts"], case["limits"], strict=True)
    requests = [Request(prompt=tuple(p), max_tokens=n, temperature=0, request_id=i) for i, (p, n) in enumerate(pairs)]
    got = session.generate(requests, batch=len(requests), keep_events=True)
    texts = [[*q.prompt, *r.tokens] for q, r in zip(requests, got, strict=True)]
    return {"texts": texts, "verified and accepted": [steps(r) for r in got]}


PROMPTS = ((1, 2, 3), (4,), (5, 6, 7, 1, 2))

COMPARED = [
    Compared(
        "exspec",
        "eBay/spec_dec 96e1d128, src/custom/batch_speculative.py and verification.py",
        eqspec,
        ours,
        {
            "unlike": {"seed": 1, "agree": False, "prompts": PROMPTS, "limits": (12, 12, 12), "gamma": 5},
            "alike": {"seed": 2, "agree": True, "prompts": PROMPTS, "limits": (13, 13, 13), "gamma": 5},
            "unlike limits": {"seed": 3, "agree": False, "prompts": PROMPTS, "limits": (4, 9, 15), "gamma": 4},
            "alone": {"seed": 4, "agree": False, "prompts": PROMPTS[:1], "limits": (11,), "gamma": 2},
        },
        "of EXSPEC the batches of equal lengths are left out: which sequences make a batch is the caller's",
    )
]
