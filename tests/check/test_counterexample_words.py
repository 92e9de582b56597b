"""What a counterexample says: where a token stands and what the models give it, and where two distributions part."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

import decgraph
from decgraph.check.counterexample import first_apart

LEAST_ON_A_CANVAS = '''algorithm least(model: masked, length: int in 1..8 = 3):
    """The least likely token of every cell."""
    keeps support of model

    canvas c: length
    while any(c.masked):
        p = model(c)
        unmask c with argmin(p)
    commit c
'''
LEAST = '''algorithm least(target: causal):
    """The least likely token."""
    {claim}

    while not done:
        commit argmin(target(ctx))
'''


def words(text: str) -> str:
    report = decgraph.parse(text).check()
    assert report.verdict == "refuted"
    assert report.counterexample is not None
    return report.counterexample.words


def test_a_token_on_a_canvas_has_a_position_a_line_and_a_row() -> None:
    said = words(LEAST_ON_A_CANVAS)
    assert "of the canvas, line 8, where model gives " in said
    assert "from cells " in said


def test_a_committed_token_has_its_context_and_probability() -> None:
    said = words(LEAST.format(claim="keeps support of target"))
    assert said.endswith("where target gives it probability 0")
    assert "was committed after [0" in said  # the prompt is part of the context
    assert "where target gives it probability 1/" in words(LEAST.format(claim="ensures p[x] > 0.4"))


DOUBTFUL = """algorithm doubtful(model: masked, length: int in 1..4 = 3, budget: int in 0..4 = 2):
    at most budget remasked

    canvas c: length
    left = budget
    while any(c.masked):
        x ~ model(c)
        unmask c with x
        if left > 0:
            remask c where model(c).raw[c.token] < 1/2
            left = left - 1
    commit c
"""


def test_a_run_on_a_canvas_can_be_followed_by_hand() -> None:
    report = decgraph.parse(DOUBTFUL).check(models=3)
    assert report.counterexample is not None
    told = report.counterexample.render().splitlines()
    assert any("MASK" in line and "p(. |" in line for line in told)  # the rows of that run, not the model's name alone
    assert any("cell 0)" in line for line in told) and not any("lane" in line for line in told)
    again = sum("is masked again, line 10" in line for line in told)
    assert f"    {again} cells masked again ({again} in line 10), and at most" in "\n".join(told)


Text = tuple[tuple[int, ...], bool]
texts = st.dictionaries(
    st.tuples(st.lists(st.integers(0, 2), min_size=2, max_size=2).map(tuple), st.booleans()), st.integers(1, 9)
)


def normal(weights: dict[Text, int]) -> dict[Text, Fraction]:
    total = sum(weights.values())
    return {k: Fraction(v, total) for k, v in weights.items()}


@given(texts.filter(bool), texts.filter(bool))
def test_first_apart_is_the_shortest_text_after_which_they_differ(a: dict[Text, int], b: dict[Text, int]) -> None:
    ours, theirs = normal(a), normal(b)
    found = first_apart(ours, theirs)
    assert (found is None) == (ours == theirs)
    if found is None:
        return
    n = len(found.after)
    for d in (ours, theirs):  # nothing before it differs
        assert sum(p for (t, _), p in d.items() if t[:n] == found.after) == found.share
    for side, d in enumerate((ours, theirs), 1):
        for row in found.rows:
            key = [(t, over) for t, over in d if t[:n] == found.after]
            match = [k for k in key if (str(k[0][n]) if len(k[0]) > n else "end" if k[1] else "no end") == row[0]]
            assert row[side] * found.share == sum(d[k] for k in match)
    assert any(a != b for _, a, b in found.rows)


def test_the_table_ends_with_what_differs() -> None:
    text = decgraph.parse('''algorithm late(target: causal, drafter: causal):
    """The third token is the drafter's."""
    refines autoregressive(target) in distribution

    i = 0
    while not done:
        i = i + 1
        p = target(ctx)
        if i == 3:
            p = drafter(ctx)
        y ~ p
        commit y
''')
    report = text.check()
    assert report.counterexample is not None
    shown = report.counterexample.render()
    if "distribution of the first tokens" in shown:
        table = shown.split("distribution of the first tokens")[1].split("apart first after")[0]
        equal = [line for line in table.splitlines() if "/" in line and "<-" not in line]
        assert len(equal) <= 4, shown


def test_the_other_claims_of_a_refuted_program_are_named() -> None:
    report = decgraph.parse('''algorithm two(target: causal, drafter: causal):
    """The drafter's draws."""
    keeps support of target or drafter
    refines autoregressive(target) in distribution
    keeps support of drafter

    while not done:
        x ~ drafter(ctx)
        commit x
''').check()
    assert report.counterexample is not None and report.counterexample.claim.startswith("refines")
    assert report.reasons == [
        "`keeps support of target or drafter` held in every world before that",
        "`keeps support of drafter` was not looked at yet",
    ]
