"""Early ends: what the verifier wants of `break` and `verdict`, and that passes keep them in step with what they end."""

from __future__ import annotations

import pytest

from decgraph.errors import InternalError
from decgraph.ir.text import parse_module
from decgraph.ir.values import Module
from decgraph.ir.verify import verify
from decgraph.ir.walk import breaks
from decgraph.passes.dead import without_dead

LOOP = """module(main = "f", path = "")

func f(%n: int, %b: bool) {{
  body {{
    %zero: int = const(value = 0, type = !int)
    %x: int, %y: int = for(%zero, %n, %n, %zero, stops = true) (%i: int, %x.1: int, %y.1: int) {{
      %x.2: int, %stop: bool = if(%b) {{
        {inside}
        yield %i, %b
      }} {{
        yield %x.1, %b
      }}
      {after}
      yield %stop, %x.2, %y.1
    }}
    return(%x, has_tree = false)
  }}
}}
"""


def loop(inside: str = "break(%i, %y.1)", after: str = "") -> Module:
    """A loop with an early end in a branch, and what stands after the branch."""
    return parse_module(LOOP.format(inside=inside, after=after))


def test_an_early_end_reads_back() -> None:
    verify(loop(), level=2)


@pytest.mark.parametrize(
    ("inside", "after", "word"),
    [
        ("break(%i)", "", "has 1 values, not 2"),
        ("break(%b, %i)", "", "for one of type int"),
        ("break(%i, %y.1)\n%z: bool = done()", "", "at the end of a branch"),
        ("verdict(%b, %i, %b, %i)", "", "at the end of a branch"),
    ],
)
def test_the_verifier_refuses_others(inside: str, after: str, word: str) -> None:
    with pytest.raises(InternalError, match=word):
        verify(loop(inside, after))


def test_a_value_that_is_no_longer_carried_leaves_its_early_ends() -> None:
    body = without_dead(loop().functions["f"].body)
    made = next(op for op in body.ops if op.opcode == "for")
    (end,) = breaks(made.regions[0])
    assert [v.name for v in end.operands] == ["i"] and len(made.results) == 1
