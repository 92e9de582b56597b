"""Steps from states that earlier steps left: noise that was read before, and texts long enough to show a later step."""

from __future__ import annotations

import decgraph

PROGRAM = """algorithm two_commits(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

{before}    while not done:
{inside}        draft t:
            x ~ drafter(t.leaves) using g
            grow x
        verify t by rejection against target(t)
        commit t.accepted
        y ~ target(ctx)
        commit y
"""


def test_noise_that_an_earlier_step_has_read() -> None:
    """The first step commits two tokens or more: only a longer text shows that the second one drafts with the same noise."""
    once = PROGRAM.format(before="    noise g[vocab]: race\n", inside="")
    assert decgraph.check(once, mutants=False).verdict == "refuted"


def test_noise_of_each_step_is_its_own() -> None:
    anew = PROGRAM.format(before="", inside="        noise g[vocab]: race\n")
    assert decgraph.check(anew, mutants=False).verdict == "proved"
