"""What ranges over a part of a canvas, indexed by a position: distributions and draws know their places, numbers do not."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.errors import DecError
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

HEAD = """algorithm looks(model: masked, length: int in 1..64 = 8, block: int in 1..8 = 4):
    canvas c: length
    for b in blocks(c, block):
        p = model(c, at = b)
        x ~ p
        s = p.raw[x]
        t = cumsum(s * 2.0)
        for k in 0..len(b):
            i = b[k]
"""
TAIL = "\n    commit c\n"


@pytest.mark.parametrize("look", ["s[i]", "t[i]", "s[b][k]", "sort(s)[i]"])
def test_a_position_is_no_place_among_numbers(look: str) -> None:
    """It would be taken for a count: right in the first block alone, and elsewhere another cell's number."""
    text = f"{HEAD}            if {look} > 0.1:\n                c[i] = x[i]{TAIL}"
    with pytest.raises(DecError, match=r"E210.*position.* cannot look into") as error:
        decgraph.parse(text)
    assert "p.raw[i][x[i]]" in str(error.value)


@pytest.mark.parametrize("backend", ["reference", "torch", "triton"])
@pytest.mark.parametrize("least", [0.15, 0.25, 0.4])
def test_positions_and_counts_name_the_same_cells(least: float, backend: str) -> None:
    """p.raw[i][x[i]] at a position, s[k] at its count, the whole canvas's number at the position: in every block."""
    model = TableModel(7, 3, kind="masked", name="model")
    found = []
    for look in ("p.raw[i][x[i]]", "s[k]", "q.raw[z][i]"):
        text = HEAD.replace("        x ~ p\n", "        x ~ p\n        q = model(c)\n        z ~ q\n")
        text += f"            if {look} > {least}:\n                c[i] = x[i]\n            else:\n                c[i] = 6\n"
        session = decgraph.parse(text + TAIL).session({"model": model}, plan=Plan(backend=backend), length=8, block=3)
        result = session.run(Request((1, 2), max_tokens=8, eos=frozenset(), temperature=0))
        assert result.error is None, result.error
        found.append(result.tokens)
    assert found[0] == found[1] == found[2] and len(found[0]) == 8
