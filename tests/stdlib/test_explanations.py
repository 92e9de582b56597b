"""What `explain` says of every algorithm: a drawing that is true of it, in lines that fit a terminal."""

from __future__ import annotations

import pytest

import decgraph
from decgraph import stdlib
from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.explain import explain
from decgraph.dsl.parse import parse_text

NAMES = stdlib.names()


@pytest.mark.quick("mcts", "beam", "jacobi", "eagle2", "llada", "wait_k", "speculative")
@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_tests_drafts_only_where_a_rule_does(name: str) -> None:
    algorithm = decgraph.load(name)
    drawn = "\n".join(algorithm.explanation().drawing)
    inside = [s for item in parse_text(stdlib.text(name)).items if getattr(item, "name", "") == name for s in S.walk(item)]
    for branch in (b for s in inside if isinstance(s, S.If) for b in s.branches):
        if any(isinstance(s, S.Commit | S.Remask) for s in S.walk(branch)):
            assert f"if {printer.expression(branch.cond)}"[:46] in drawn
    if "masked" in algorithm.models.values():
        assert "░" in drawn and ("✗" in drawn) == any(isinstance(s, S.Remask) for s in inside)
        return
    drafts, verifies = (any(isinstance(s, kind) for s in inside) for kind in (S.Draft, S.Verify))
    assert ("✓" in drawn) == (drafts and verifies)
    assert ("no rule verifies them" in drawn) == (drafts and not verifies)


MOODY = """algorithm moody(target: causal, drafter: causal, hot: float in 0..10 = 2.0):
    state seen: suffixes(3) per sequence = prompt
    while not done:
        draft t:
            if entropy(drafter(ctx).raw) > hot:
                grow chain(seen.path(ctx, at_least = 2, at_most = 4))
            else:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
"""
DOUBTS = """algorithm doubts(model: masked, left: int in 0..9 = 3):
    canvas c: 8
    while any(c.masked):
        p = model(c)
        x ~ p
        unmask c where sure(p.raw[x], 0.9) with x
        if left > 0:
            remask c where p.raw[c.token] < 0.3
    commit c
"""


def test_branches_and_revocations_are_drawn() -> None:
    rows = [row.strip().partition("     ") for row in explain(MOODY).drawing]
    assert [words.strip() for _, _, words in rows[:2]] == [
        "if entropy(drafter(ctx).raw) > hot: drafted from seen", "otherwise: drafted by drafter",
    ]  # fmt: skip
    assert [row.count("✗") for row in explain(DOUBTS).drawing] == [0, 0, 1, 0]
    assert "if left > 0: c is masked again where p.raw[c.token] < 0.3" in explain(DOUBTS).drawing[2]


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
