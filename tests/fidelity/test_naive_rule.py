"""A rule that no recording here has: naive sampling, one draw of the target that a candidate may be."""

from __future__ import annotations

import pytest
from fidelity.rules_chains import BACKENDS, level


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("drawn, candidates, at", [(1, [0, 1], 1), (0, [1, 2], None), (0, [0, 2], 0)])
def test_naive_sampling(drawn: int, candidates: list[int], at: int | None, backend: str) -> None:
    case = {"rule": "naive", "V": 3, "p": ["1/4", "1/4", "1/2"], "q": ["1/2", "1/4", "1/4"], "candidates": candidates}
    case |= {"target_draw": drawn, "accepted_index": at, "uniforms": [], "uniforms_used": 0, "residual_distribution": None}
    assert level(case, backend).differing == ()
    assert level({**case, "accepted_index": None if at is not None else 0}, backend).differing == ("accepted",)
