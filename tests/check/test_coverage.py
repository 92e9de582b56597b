"""`holds` is said only of programs of which everything ran: what is demanded, what is forced, and what the report says."""

from __future__ import annotations

import pytest

from decgraph.backends.exact.coverage import CoveredRun
from decgraph.check import check_algorithm
from decgraph.check.coverage import demanded, marked, missing
from decgraph.dsl.lower import load_text

PROGRAM = """algorithm looked_at(target: causal, drafter: causal, gamma: int in 1..2 = 1):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        {line}
        verify t by rejection against {evidence}
        commit t.accepted
"""


def program(line: str, evidence: str = "target(t)") -> str:
    return PROGRAM.format(line=line, evidence=evidence)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["n = 1 if ctx.length > 9000 else 2", "n = max(ctx.length, 9000)"])
def test_a_side_on_which_nothing_depends_need_not_be_seen(line: str) -> None:
    """No world comes to it, and nothing that is committed reads it."""
    found = check_algorithm(program(line), models=3, derive=False)
    assert (found.verdict, found.missing) == ("holds", [])


@pytest.mark.parametrize(
    "line",
    [
        "n = floor(1 / relu(9000 - ctx.length))",
        "n = ctx.parent.token if room > 9000 else ctx.token",
        "n = [1, 2][1 if ctx.length < 9000 else 2]",
    ],
)
def test_an_error_matters_even_where_nothing_reads_the_value(line: str) -> None:
    """A run that ends early commits other tokens: what an op that may fail reads must have been seen."""
    found = check_algorithm(program(line), models=3)
    assert found.verdict == "undecided" and any("line 9" in why for why in found.reasons), found.reasons


SHARED = "normalize((1 - share) * target(t) + share * drafter(t))"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("share = clamp(floor(ctx.length / 9000), 0, 1)", "line 9: this floor was 0 in every world"),
        ("share = relu(ctx.length - 9000) / 9000", "line 9: this relu was never decided by its above side"),
        ("share = where(ctx.length % 9001 == 9000, 1, 0) * where(gamma == 2, 1, 0)", "line 9: this mul was 0 in every world"),
        (
            "share = 1 if bernoulli(clamp(ctx.length - 9000, 0, 1) / 10) else 0",
            "line 9: this clamp was never decided by its inside side",
        ),
    ],
)
def test_what_is_the_same_in_every_world_is_said(line: str, said: str) -> None:
    """A claim that is wrong beyond all worlds, and no condition that says where."""
    found = check_algorithm(program(line, SHARED), models=3)
    assert found.verdict == "undecided" and said in found.reasons, found.reasons


def test_a_loop_whose_bounds_are_computed_must_run() -> None:
    line = "w = target(t)\n        repeat int(ctx.length / 9000):\n            w = normalize(w + drafter(t))"
    found = check_algorithm(program(line, "w"), models=3)
    assert found.verdict == "undecided" and any("this loop" in reason for reason in found.reasons), found.reasons


def test_draws_are_compared_by_their_tokens() -> None:
    """The smaller of two draws has another distribution, and which of them it was is watched."""
    text = """algorithm smaller(target: causal):
    refines autoregressive(target) in distribution

    while not done:
        x ~ target(ctx)
        y ~ target(ctx)
        commit min(x, y)
"""
    assert check_algorithm(text, models=3).verdict == "refuted"


def test_what_a_condition_rules_out_is_not_excused_by_other_parameters() -> None:
    """The truncation cuts with k below the condition; what it does to larger vocabularies no world says."""
    text = """algorithm wide(target: causal, k: int in 1..1000000 = 64):
    refines autoregressive(target) in distribution when k >= 100000

    while not done:
        x ~ renorm_topk(target(ctx), k)
        commit x
"""
    found = check_algorithm(text, models=3)
    assert found.verdict in ("undecided", "refuted")
    assert found.verdict == "refuted" or any("never cut a token off" in reason for reason in found.reasons)


def test_a_side_that_no_world_shows_and_that_matters_is_said_with_its_line() -> None:
    text = program("wrong = ctx.length > 9000", "drafter(t) if wrong else target(t)")
    found = check_algorithm(text, models=3)
    assert found.verdict == "undecided"
    assert any(reason.startswith("line 9: ") and "never true" in reason for reason in found.reasons), found.reasons
    page = marked(text, found.module.entry, found.ran, found.module.path, found.harmless)
    lines = [line for line in page.splitlines() if line.startswith("!")]
    assert [line[2:5].strip() for line in lines] == ["9", "10"]


def test_the_same_side_is_refuted_where_a_world_can_be_made_for_it() -> None:
    """The length is in the program, so contexts of that length are made."""
    found = check_algorithm(program("wrong = ctx.length > 30", "drafter(t) if wrong else target(t)"))
    assert found.verdict == "refuted" and found.counterexample is not None
    assert len(found.counterexample.prompt) + found.counterexample.start.count(",") > 20


def test_conditions_that_lowering_made_are_not_demanded() -> None:
    module = load_text(program("n = 1"))
    ran = CoveredRun.of(module, module.entry)
    said = {str(m) for m in missing(module.entry, ran, module.path)}
    ifs = [op for op, _ in demanded(module.entry, ran) if op.opcode == "if"]
    assert {op.loc.line for op in ifs} == {5}  # of `if bernoulli(...)` in stdlib/rules.dec
    verify = 1 + program("n = 1").splitlines().index("        verify t by rejection against target(t)")
    inside = [line for line in said if "rules.dec" in line]
    assert inside and all(line.startswith(f"line {verify} (rules.dec line ") for line in inside), inside


FAILS = """algorithm fails(target: causal, k: int in 1..4 = 2):
    refines autoregressive(target) in tokens

    while not done:
        draft t:
            xs = [0, 1]
            for i in 0..k:
                grow point(xs[i]) at root
        verify t by match against target(t)
        commit t.accepted
"""


@pytest.mark.budget(8)
def test_whether_an_error_ends_a_draft_is_no_condition_of_the_program() -> None:
    """Such a draft stands in a branch that lowering makes, of which no run says whether it is taken."""
    module = load_text(FAILS)
    assert any("draft" in op.attrs for op in module.entry.body.walk())
    assert check_algorithm(FAILS, models=4, derive=False).verdict == "holds"


COPIES = """algorithm copies(target: causal, k: int in 1..6 = 3):
    refines autoregressive(target) in tokens
    state seen: suffixes(2) per sequence = prompt

    while not done:
        draft t:
            grow chain(seen.path(ctx, at_least = 1, at_most = k, pick = "first"))
        verify t by match against target(t)
        if t.height > 3:
            z ~ target(ctx)
            commit z
        else:
            commit t.accepted
"""


def test_a_draw_that_was_certain_in_every_world_proves_nothing() -> None:
    """The last draw has noise of its own, which only a row that is open can show, and long copies come from certain rows."""
    found = check_algorithm(COPIES)
    assert found.verdict not in ("proved", "holds")
    assert found.verdict == "refuted" or any("could never have been another token" in r for r in found.reasons), found.reasons


SELDOM = """rule reject(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
        if p[0] > p[1]:
            p = normalize(relu(p - x.law * 2))
        else:
            p = normalize(relu(p - x.law))
    y ~ p
    emit y

algorithm seldom(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            x ~ drafter(t.leaves)
            if ctx.token == 3:
                grow x at root
        verify t by reject against target(t)
        commit t.accepted
"""


def test_what_few_worlds_show_is_looked_at_with_other_tables() -> None:
    """Drafts behind one token only, and a residual that is wrong for half of the rows: where one row hides it another does
    not."""
    assert check_algorithm(SELDOM).verdict == "refuted"
