"""`x ~ mixture as output`: what is computed from a model's distribution stands where the next token does, so a mixture that
changes nothing draws what the model draws, on every backend and in a check."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.runtime.models.table import TableModel

TEXT = """
algorithm mixes(target: causal, k: int in 0..4 = 0):
    refines autoregressive(target) in tokens
    while not done:
        p = target(ctx)
{}
        x ~ p as output
        commit x
"""
FORMS = {
    "normalize": ["p = normalize(where(p > 0, p, 0))"],
    "softmax": ["p = softmax(log(p))"],
    "renorm": ["p = renorm_topp(normalize(2 * p), 1)"],
    "numbers": ["p = 1 * p"],
    "sometimes": ["if p[0] > 0.4 or k > 1:", "    p = normalize(3 * p)"],
    "nested": ["if k < 2:", "    if p[0] > 0.4:", "        p = normalize(3 * p)", "else:", "    p = normalize(p)"],
    "choice": ["p = normalize(2 * p) if p[0] > 0.4 else p"],
}


def program(form: str) -> decgraph.Algorithm:
    return decgraph.parse(TEXT.format("\n".join("        " + line for line in FORMS[form])))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["normalize", "numbers", "nested"])
def test_the_claim_is_proved(form: str) -> None:
    assert program(form).check(models=1, seconds=60).verdict in ("proved", "holds")


@pytest.mark.parametrize("form", FORMS)
def test_a_mixture_that_changes_nothing_draws_the_models_tokens(form: str) -> None:
    algorithm = program(form)
    model = TableModel(5, seed=3, window=2)
    request = decgraph.Request((1, 2), max_tokens=12, temperature=0.9, seed=4)
    expected = decgraph.load("autoregressive").session(target=model).run(request).tokens
    assert len(set(expected)) > 2
    for backend in ("reference", "torch"):
        assert algorithm.session(target=model, backend=backend).run(request).tokens == expected


def test_inside_a_draft_a_mixture_needs_its_place() -> None:
    text = """
algorithm drafts(target: causal, drafter: causal):
    while not done:
        draft t:
            repeat 2:
                x ~ normalize(1 * drafter(t.leaves)) as output
                grow x at t.leaves
        verify t by match against target(t)
        commit t.accepted
"""
    session = decgraph.parse(text).session(target=TableModel(5, seed=3), drafter=TableModel(5, seed=4))
    error = session.run(decgraph.Request((1, 2), max_tokens=4, temperature=0.9, strict=True)).error
    assert "has no place of its own" in str(error) and "warp(mixture, at = n)" in str(error)
