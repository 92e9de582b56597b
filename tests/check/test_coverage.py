"""`holds` is said only of programs of which everything ran: what is demanded, what is forced, and what the report says."""

from __future__ import annotations

import pytest

from decgraph.backends.exact.coverage import Ran
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
def test_a_side_that_changes_nothing_is_harmless(line: str) -> None:
    """No world comes to it; forced, the claim holds all the same."""
    found = check_algorithm(program(line), mutants=False, models=3, derive=False)
    assert (found.verdict, found.missing) == ("holds", [])
    assert found.harmless


def test_a_side_that_no_world_shows_and_that_matters_is_said_with_its_line() -> None:
    text = program("wrong = ctx.length > 9000", "drafter(t) if wrong else target(t)")
    found = check_algorithm(text, mutants=False, models=3)
    assert found.verdict == "undecided"
    assert any(reason.startswith("line 9: ") and "never true" in reason for reason in found.reasons), found.reasons
    page = marked(text, found.module.entry, found.ran, found.module.path, found.harmless)
    lines = [line for line in page.splitlines() if line.startswith("!")]
    assert [line[2:5].strip() for line in lines] == ["9", "10"]


def test_the_same_side_is_refuted_where_a_world_can_be_made_for_it() -> None:
    """The length is in the program, so contexts of that length are made."""
    found = check_algorithm(program("wrong = ctx.length > 30", "drafter(t) if wrong else target(t)"), mutants=False)
    assert found.verdict == "refuted" and found.counterexample is not None
    assert len(found.counterexample.prompt) + found.counterexample.start.count(",") > 20


def test_conditions_that_lowering_made_are_not_demanded() -> None:
    module = load_text(program("n = 1"))
    ran = Ran.of(module, module.entry)
    said = {str(m) for m in missing(module.entry, ran, module.path)}
    ifs = [op for op, _ in demanded(module.entry, ran) if op.opcode == "if"]
    assert {op.loc.line for op in ifs} == {5}  # of `if bernoulli(...)` in stdlib/rules.dec
    verify = 1 + program("n = 1").splitlines().index("        verify t by rejection against target(t)")
    inside = [line for line in said if "rules.dec" in line]
    assert inside and all(line.startswith(f"line {verify} (rules.dec line ") for line in inside), inside


def test_a_missed_bug_takes_the_verdict_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.check import report as reports
    from decgraph.check.mutant import Kill

    monkeypatch.setattr(reports, "plant", lambda *a, **k: [Kill("some-bug", "of no kind", False)])
    found = check_algorithm("speculative", models=4, derive=False)
    assert found.verdict == "undecided"
    assert found.reasons == ["the mutant `some-bug` was not found: of no kind"]


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
    found = check_algorithm(COPIES, mutants=False)
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
    assert check_algorithm(SELDOM, mutants=False).verdict == "refuted"
