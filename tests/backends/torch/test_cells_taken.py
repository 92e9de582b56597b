"""`c[ps where m] = x[ps where m]` is what `c[k] = x[k]` is for k = ps where m, on the reference and on torch."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import tables

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request

TEXT = """
algorithm takes_some(model: masked, n: int in 1..8 = 4):
    while not done:
        canvas w: n
        p = model(w)
        x ~ p
        sure_ = max(p.raw) > 0.35
        w[w.all] = argmax(p.raw)
        {}
        commit w
"""


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_draws_are_read_at_the_cells_that_are_taken(backend: str) -> None:
    found = []
    for line in ("w[w.all where sure_] = x[w.all where sure_]", "k = w.all where sure_\n        w[k] = x[k]"):
        session = decgraph.parse(TEXT.format(line)).session({"model": tables(1)["model"]}, plan=Plan(backend=backend))
        results = [session.run(Request((0, 1), max_tokens=8, temperature=1, seed=seed)) for seed in range(4)]
        assert all(r.error is None for r in results), results[0].error
        found.append([r.tokens for r in results])
    assert found[0] == found[1] and len(set(found[0])) > 1
