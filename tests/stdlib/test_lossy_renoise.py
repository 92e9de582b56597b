"""Entropy-bound renoising at its ends: how often it calls. What it decides is compared with recordings (tests/fidelity)."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import run, tables

SMALL = {"block": 4, "steps": 6}


@pytest.mark.parametrize(("more", "calls"), [({"calm": 0, "sure_": 10}, 2), ({"sure_": 0}, 12)])
def test_it_ends_where_it_is_calm_or_after_its_steps(more: dict[str, float], calls: int) -> None:
    for seed in range(3):
        found = run("entropy_renoise", tables(seed), SMALL | more, max_tokens=8, temperature=1, seed=seed)
        assert len(found.tokens) == 8 and found.stats.calls == {"model": calls}
