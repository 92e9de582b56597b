"""`decgraph.testing`, as a user's tests would use it."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from hypothesis import given

import decgraph
from decgraph import testing
from decgraph.errors import DecError
from decgraph.runtime.shaping import shaped_probs

PROGRAMS = Path(__file__).parent / "programs"
GREEDY = """
algorithm greedy(target: causal):
    while not done:
        commit argmax(target(ctx))
"""


@pytest.mark.slow
def test_examples_in_docstrings() -> None:
    result = doctest.testmod(testing)
    assert result.attempted > 5
    assert result.failed == 0


def test_everything_is_public() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)


@pytest.mark.parametrize(
    "form",
    [
        str(PROGRAMS / "two_drafters.dec"),
        PROGRAMS / "two_drafters.dec",
        (PROGRAMS / "two_drafters.dec").read_text(encoding="utf-8"),
        decgraph.load("speculative"),
        decgraph.load("speculative").module,
        "speculative",
    ],
    ids=["path", "Path", "text", "loaded", "module", "name"],
)
def test_every_form_of_an_algorithm(form: object) -> None:
    assert testing.assert_claims(form, models=1).verdict == "proved"


def test_greedy_decoding_is_not_sampling() -> None:
    with pytest.raises(AssertionError) as caught:
        testing.assert_refines(GREEDY)
    text = str(caught.value)
    assert "claim      greedy refines autoregressive in distribution" in text
    assert "total variation" in text and "autoregressive" in text
    assert testing.assert_refines(GREEDY, mode="greedy", models=4).verdict == "proved"


def test_wrong_tokens_are_shown_side_by_side() -> None:
    text = "algorithm own(target: causal):\n    while not done:\n        x ~ target(ctx)\n        commit x\n"
    assert testing.assert_refines(text, models=3).verdict == "proved"
    with pytest.raises(AssertionError, match="with the same noise"):
        testing.assert_refines(text, mode="tokens")


def test_the_options_are_those_of_a_check() -> None:
    """A wrong one is refused as `decgraph check` refuses it, and a limit of time is kept."""
    assert testing.assert_refines("speculative", params={"gamma": 1}, models=1, compare=True).verdict == "proved"
    with pytest.raises(DecError, match="no parameter `gama`"):
        testing.assert_refines("speculative", params={"gama": 1})
    with pytest.raises(AssertionError, match="seconds that it was given are over"):
        testing.assert_refines("speculative", models=500, seconds=1e-9, derive=False)


def test_nothing_claimed_and_wrong_modes_are_errors_of_the_caller() -> None:
    with pytest.raises(DecError, match="claims nothing"):
        testing.assert_claims(GREEDY)
    with pytest.raises(DecError, match="mode is"):
        testing.assert_refines(GREEDY, mode="in tokens")
    with pytest.raises(DecError, match="no algorithm"):
        testing.assert_claims(3)
    with pytest.raises(DecError, match="there is no algorithm"):
        testing.assert_claims("speculativ")


def test_a_specification_that_needs_a_value() -> None:
    with pytest.raises(DecError, match="no model"):
        testing.assert_refines(GREEDY, "static_masked")


@given(testing.models(3), testing.contexts(3), testing.requests(3))
def test_shaped_rows_sum_to_one(model, context, request) -> None:
    scores = model.eval([request.prompt + context])[0]
    try:
        row = shaped_probs(scores, request.prompt + context, request)
    except DecError as error:
        assert "constraints" in str(error)
    else:
        assert sum(row) == 1


@given(testing.parameters("sequoia"))
def test_parameters_fit_the_algorithm(drawn) -> None:
    models, params = drawn
    assert set(models) == {"target", "drafter"} and set(params) == {"shape"}
