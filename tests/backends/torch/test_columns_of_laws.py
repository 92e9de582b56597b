"""A column of distributions has each node's whole one, on the reference and on torch."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import tables

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request

TEXT = """
algorithm reads_a_law(target: causal, drafter: causal):
    while not done:
        draft t:
            repeat 2:
                q = softmax(drafter(t.leaves).logits * 2)
                grow topk(q, 2) with seen = q
        tip = t.leaves[3]
        x ~ normalize(t.seen[tip] + 3 * t.seen[t.parent[tip]])
        commit x
"""
ASKED = {"t.seen[tip]": "softmax(drafter(t.parent[tip]).logits * 2)"}
ASKED["t.seen[t.parent[tip]]"] = "softmax(drafter(root).logits * 2)"


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_column_of_distributions_is_what_was_grown_from(backend: str) -> None:
    direct = TEXT
    for column, call in ASKED.items():
        direct = direct.replace(column, call)
    models = {k: v for k, v in tables(3).items() if k in ("target", "drafter")}
    for seed in range(4):
        runs = [
            decgraph.parse(text).session(models, plan=Plan(backend=backend)).run(Request((0, 1), max_tokens=6, seed=seed))
            for text in (TEXT, direct)
        ]
        assert runs[0].error is None and runs[1].error is None, (runs[0].error, runs[1].error)
        assert runs[0].tokens == runs[1].tokens and len(runs[0].tokens) == 6
