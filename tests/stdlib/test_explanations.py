"""What `explain` says of every algorithm: a drawing that is true of it, in lines that fit a terminal."""

from __future__ import annotations

import pytest

import decgraph
from decgraph import stdlib
from decgraph.dsl import syntax as S
from decgraph.dsl.parse import parse_text

NAMES = stdlib.names()


@pytest.mark.quick("mcts", "beam", "jacobi", "eagle2", "llada", "wait_k", "speculative")
@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_tests_drafts_only_where_a_rule_does(name: str) -> None:
    algorithm = decgraph.load(name)
    drawn = "\n".join(algorithm.explanation().drawing)
    if "masked" in algorithm.models.values():
        assert "░" in drawn
        return
    inside = [s for item in parse_text(stdlib.text(name)).items if getattr(item, "name", "") == name for s in S.walk(item)]
    drafts, verifies = (any(isinstance(s, kind) for s in inside) for kind in (S.Draft, S.Verify))
    assert ("✓" in drawn) == (drafts and verifies)
    assert ("no rule verifies them" in drawn) == (drafts and not verifies)


@pytest.mark.quick("mcts", "lookahead", "dyspec", "hydra")
@pytest.mark.parametrize("name", NAMES)
def test_an_explanation_fits_a_narrow_terminal(name: str) -> None:
    """Its text and its lines are wrapped; claims, parameters and the drawing stay as they are."""
    explanation = decgraph.load(name).explanation()
    text = explanation.text(80)
    assert "".join(text.split()) == "".join(explanation.text().split()), "the same words"
    doc, rest = text.split("\n\nclaims\n")
    lines = rest.split("\n\nline by line\n")[1].split("\n\na step, drawn\n")[0]
    for line in (doc + "\n" + lines).splitlines():
        assert len(line) <= 80 or len(line[7:].split()) == 1, line
