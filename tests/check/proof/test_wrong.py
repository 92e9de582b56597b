"""Programs that attack the kernel: each makes a claim that is false, and was derived by some kernel of ours.

The first line of each says what is wrong with it, and by that which condition of a rule refuses it. That the claims are false,
the worlds say, or where functions may remember, reading.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph
from decgraph.check.proof.claims import Open, prove

WRONG = sorted((Path(__file__).parent / "wrong").glob("*.dec"))
NO_WORLD = {
    "pruned_by_a_function": "functions of worlds do not remember",
    "function_in_a_sub_run": "functions of worlds do not remember",
    "normalized_negative": "it ends in an error",
    "cells_after_a_commit": "worlds look at cells where a canvas gets them, and these are committed without one",
    "register_of_fifteen": "its worlds are too large",
    "jacobi_ends_with_a_tree": "its worlds take minutes; with a limit of 5 tokens 12 runs in 40 end with another last token",
}


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_what_is_false_is_not_derived(path: Path) -> None:
    module = decgraph.load(path).module
    for claim in module.entry.claims:
        found = prove(module, claim)
        assert isinstance(found, Open) and found.why


@pytest.mark.nightly
@pytest.mark.parametrize("path", [path for path in WRONG if path.stem not in NO_WORLD], ids=lambda path: path.stem)
def test_what_is_called_false_is_false(path: Path) -> None:
    assert decgraph.check(path, derive=False).verdict == "refuted"


@pytest.mark.parametrize(("scores", "derived"), [(".logits", True), (".raw", False)])
def test_probabilities_are_no_scores(scores: str, derived: bool) -> None:
    """A repetition penalty shapes them differently where a model's scores are not normalised. Exact worlds have none such."""
    text = f"""algorithm a(target: causal):
    refines autoregressive(target) in distribution
    while not done:
        x ~ warp(target(ctx){scores}, at = ctx)
        commit x
"""
    module = decgraph.parse(text).module
    assert isinstance(prove(module, module.entry.claims[0]), Open) is not derived
