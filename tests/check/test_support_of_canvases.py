"""Claims about the support of a masked model where tokens without mass stand beside cells of which none is sure."""

from __future__ import annotations

import pytest

import decgraph

PROGRAM = """
algorithm copies(model: masked, length: int in 1..64 = 16, block: int in 1..16 = 8, tau: prob = 0.8):
    keeps support of model
    canvas c: length

    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c)
            x ~ p
            s = where(c.masked, p.raw[x], 0)
            if b.start > 0 and c.masked[b.start] and c.decided[b.start - 1] and max(s[b]) < tau:
                {then}
            unmask c[b] where rank(p.raw[x]) < 2 with x
    commit c
"""


@pytest.mark.parametrize(
    ("then", "verdict"),
    [("c[[b.start]] = c.token[b.start - 1]", "refuted"), ("s = s * 2", "holds")],
)
def test_a_copy_of_the_left_neighbour(then: str, verdict: str) -> None:
    """An outsider's program: the copied token may have no mass in the cell that it is copied to, where no cell is sure."""
    assert decgraph.parse(PROGRAM.format(then=then)).check(derive=False, seconds=60).verdict == verdict
