"""Keys and values of finished blocks: exact where the model is block-causal, stale where every position sees every other."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import Visibility
from decgraph.runtime.request import Request

LENGTH = 12
D2F = stdlib.text("d2f")
ALL = D2F.replace("model(c, at = fresh, given = m)", "model(c)")
"""D2F, every call of which computes the prompt and the whole canvas."""


def decided(text: str, seed: int, visibility: Visibility, backend: str, **params: Any) -> list[Any]:
    """What a program decided, in order."""
    model = FreeModel(seed, 4, visibility=visibility, kind="masked", name="model")
    session = decgraph.parse(text).session({"model": model}, backend=backend, length=LENGTH, **params)
    result = session.run(Request((1, 2, 0), max_tokens=LENGTH, temperature=0, eos=frozenset()))
    assert result.error is None and len(result.tokens) == LENGTH
    return [(e.position, e.token) for e in result.events if type(e).__name__ == "Unmasked"]


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_what_d2f_keeps_is_exact_on_a_block_causal_model(backend: str) -> None:
    assert D2F != ALL
    for seed in range(2):
        kept, all_ = (decided(text, seed, ("block", 3), backend, block=3, tau=0.5) for text in (D2F, ALL))
        assert kept == all_, seed


def test_what_d2f_keeps_is_stale_where_all_see_all() -> None:
    kept, all_ = ([decided(text, n, "full", "torch", block=3, tau=0.5) for n in range(2)] for text in (D2F, ALL))
    assert kept != all_


def test_a_sub_block_that_is_computed_alone_sees_the_rest_as_it_was() -> None:
    """Fast-dLLM v2's sub-block cache is not exact, for a block-causal model neither."""
    text = stdlib.text("fast_dllm_v2")
    held, whole = (
        [decided(text, n, ("block", 6), "torch", block=6, small=3, hold=hold) for n in range(4)] for hold in (True, False)
    )
    assert held != whole
