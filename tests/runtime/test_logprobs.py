"""Log-probabilities of committed tokens: those of one forward of the module itself over the whole text."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lib.models import hf_models

import decgraph
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

PROMPT = (3, 5, 8, 4)


@pytest.fixture(scope="module")
def target() -> Any:
    return hf_models.llama(1)


def expected(module: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    """Log-probabilities float64[n, V] before each token, by the module's own forward."""
    with torch.no_grad():
        logits = module(torch.tensor([[*PROMPT, *tokens]])).logits[0, len(PROMPT) - 1 : -1]
    return logits.double().log_softmax(-1)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", ["autoregressive", "speculative", "prompt_lookup"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_they_are_the_modules(target: Any, name: str, backend: str, temperature: float) -> None:
    drafter = {"drafter": hf_models.noisy(hf_models.llama(1), 0.03)} if name == "speculative" else {}
    session = decgraph.load(name).session({"target": target, **drafter}, backend=backend)
    request = Request(PROMPT, max_tokens=70, temperature=temperature, seed=1, repetition_penalty=1.1, logprobs=3)
    result = session.run(request)
    assert result.error is None and result.logprobs is not None and len(result.tokens) == 70
    rows = expected(target, result.tokens)
    got = torch.tensor(result.logprobs.tokens, dtype=torch.float64)
    assert torch.allclose(got, rows[range(70), list(result.tokens)], atol=2e-4)
    assert [list(best) for best in result.logprobs.top] == rows.topk(3).indices.tolist()
    for best, row in zip(result.logprobs.top, rows, strict=True):
        assert torch.allclose(torch.tensor(list(best.values()), dtype=torch.float64), row.topk(3).values, atol=2e-4)


def test_asking_for_them_changes_nothing_else(target: Any) -> None:
    session = decgraph.load("prompt_lookup").session(target=target)
    asked = session.generate([PROMPT, (9, 9, 2)], max_tokens=20, logprobs=0)
    plain = session.generate([PROMPT, (9, 9, 2)], max_tokens=20)
    assert [r.tokens for r in asked] == [r.tokens for r in plain] and [r.stats for r in asked] == [r.stats for r in plain]
    assert all(r.logprobs is None for r in plain)
    for result in asked:
        assert (
            result.logprobs is not None and len(result.logprobs.tokens) == len(result.tokens) and not any(result.logprobs.top)
        )


def test_a_table_with_zeros() -> None:
    table = TableModel(3, seed=1, zeros=True)
    result = decgraph.load("autoregressive").session(target=table).run(Request((0,), max_tokens=12, logprobs=3))
    assert result.logprobs is not None
    assert -math.inf in {p for best in result.logprobs.top for p in best.values()}, "no zero was met"
    for best in result.logprobs.top:
        assert math.isclose(sum(map(math.exp, best.values())), 1, abs_tol=1e-9)


def test_what_has_none_is_refused() -> None:
    with pytest.raises(decgraph.DecError, match="llada has no log-probabilities"):
        decgraph.run("llada", (1, 2, 3), max_tokens=4, logprobs=1)
    with pytest.raises(decgraph.DecError, match="logprobs is -1"):
        Request((1,), logprobs=-1)
