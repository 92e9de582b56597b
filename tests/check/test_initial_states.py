"""Steps from states that earlier steps left: noise that was read before, and texts long enough to show a later step."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.check.constants import prompt_lengths
from decgraph.dsl.lower import load_text

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
    assert decgraph.check(once).verdict == "refuted"


def test_noise_of_each_step_is_its_own() -> None:
    anew = PROGRAM.format(before="", inside="        noise g[vocab]: race\n")
    assert decgraph.check(anew, derive=False).verdict == "holds"


CELLS = """algorithm draws_cells(model: masked, length: int in 1..8 = 2, block: int in 1..4 = 2):
    refines static_masked(model, length, block) in distribution

    canvas c: length
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c)
            if length > 4:
                x ~ p{late}
            else:
                x ~ p
            unmask c[b] where first_max(p.raw[x]) with x
    commit c
"""


@pytest.mark.slow
def test_a_large_canvas_draws_again_with_noise_of_its_own() -> None:
    """With the noise of the output, which is that of the cell, a cell that waits is drawn with the same noise again."""
    assert decgraph.check(CELLS.format(late=" as output")).verdict == "refuted"
    assert decgraph.check(CELLS.format(late=""), derive=False).verdict == "holds"


def test_the_prompts_length_is_that_of_the_whole_context_before_anything_is_committed() -> None:
    text = (
        "algorithm a(target: causal):\n    n = ctx.length\n    k = ctx.parent.length\n    x ~ target(ctx)\n    commit x\n"
        "    m = ctx.length\n    while not done:\n        y ~ target(ctx)\n        commit y if n + k + m > 0 else point(0)\n"
    )
    assert [v.name for v in prompt_lengths(load_text(text).entry)] == ["n"]
