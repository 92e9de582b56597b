"""Steps from a carried memory: what a model keeps of the text is a value that a step may start from, any other is not."""

from __future__ import annotations

import pytest

from decgraph.check import check_algorithm

TEXT = """algorithm carries(target: causal):
    refines autoregressive(target) in tokens
    m = target.memory({first})
    i = 0

    while not done:
        x ~ target(ctx, given = m) as output
        m = {kept}
        i += 1
        commit x
"""
WHOLE = "target.memory(ctx, given = m)"


@pytest.mark.parametrize("first", ["ctx.parent", "prompt"])
def test_a_memory_of_the_text_is_proved_by_induction(first: str) -> None:
    found = check_algorithm(TEXT.format(first=first, kept=WHOLE), models=2, derive=False)
    assert (found.verdict, found.states, found.reasons) == ("holds", "any", [])


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        (f"{WHOLE}.without([0])", "refuted"),  # another memory, from the first step on
        (f"{WHOLE} if i < 12 else {WHOLE}.without([0])", "refuted"),  # ... from a step on that no short text has
        (f"{WHOLE} if i < 300 else {WHOLE}.without([0])", "refuted"),  # ... that long texts alone have
        (f"{WHOLE}.without([0]) if len(prompt) > 900 else {WHOLE}", "refuted"),  # ... of long prompts
        (f"{WHOLE}.without([0]) if len(prompt) > 9000 else {WHOLE}", "undecided"),  # ... of prompts that no world has
    ],
)
def test_another_memory_is_not(kept: str, verdict: str) -> None:
    """Where it is the next step's memory that is another, the claim of one step holds, and is no ground for induction."""
    found = check_algorithm(TEXT.format(first="ctx.parent", kept=kept), models=4, derive=False)
    assert found.verdict == verdict and (verdict == "refuted" or found.reasons)
