"""What each verdict rests on: a derivation, worlds, a counterexample; and what outweighs what."""

from __future__ import annotations

import time

import pytest

import decgraph
from decgraph import stdlib
from decgraph.check import Report
from decgraph.check import report as reports
from decgraph.check.algorithm import find
from decgraph.check.case import WorldPlan
from decgraph.check.proof.invariants import Step
from decgraph.check.proof_page import RULES, proof_page
from decgraph.check.verdicts import PREMISES, Proof, proof_of
from decgraph.testing import assert_claims, assert_refines

LOSSLESS = "refines autoregressive(target) in distribution"
PLAIN = """algorithm plain(target: causal, k: int in 0..4 = 1):
    refines autoregressive(target) in tokens

    while not done:
        x ~ target(ctx) as output
        commit x
"""
LATE = PLAIN.replace("        x ~", "        n = [1, 2][ctx.length]\n        x ~")
"""Its tokens are the target's, as far as it comes: the second of them is never committed."""
LOSSY = (
    PLAIN.replace("x ~ target(ctx) as output", "x ~ target(ctx)")
    .replace("tokens", "distribution")
    .replace("commit x", "commit x if k < 2 else argmax(target(ctx))")
)
LOSSLESS_TWICE = """algorithm twice(target: causal, drafter: causal, gamma: int in 3..3 = 3):
    refines autoregressive(target) in distribution
    keeps support of target

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
"""
TWO = PLAIN.replace("    while", "    ensures p[x] > 0\n\n    while").replace("\n\n    ensures", "\n    ensures")


def claims(report: Report) -> list[str]:
    return [claim["verdict"] for claim in report.to_json()["claims"]]


def test_a_derivation_is_for_all_and_is_compared_in_a_dozen_worlds() -> None:
    report = decgraph.check("speculative", compare=True)
    assert (report.verdict, claims(report)) == ("proved", ["proved"])
    assert 0 < report.models <= reports.CROSS_CHECK
    assert report.reach() == "for every vocabulary, model, context and request"
    (claim,) = report.to_json()["claims"]
    assert claim["claim"] == LOSSLESS and "errors" not in claim
    text = decgraph.load("speculative").text.splitlines()
    assert [text[step["line"] - 1].split()[0] for step in claim["proof"]] == ["verify", "commit"]
    assert [step["rule"] for step in claim["proof"]] == ["rule-lossless", "commit-drawn"]


def test_without_a_derivation_worlds_decide_and_are_counted() -> None:
    report = decgraph.check("speculative", models=4, derive=False)
    assert (report.verdict, claims(report)) == ("holds", ["holds"])
    assert report.reach().startswith(f"in {report.models} worlds: contexts up to ")
    assert "vocabularies up to " in report.reach() and "gamma 1 2 " in report.reach()


def test_what_is_derived_is_said_at_once_and_compared_for_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all claims together: without an end the second world alone takes minutes."""
    monkeypatch.setattr(reports, "CROSS_RUNS", 10**9)
    slow = [WorldPlan(vocab=6, length=6, limit=8, runs=10**9)] * 12
    monkeypatch.setattr(reports, "first_plans", lambda *_: slow)
    said: list[float] = []
    began = time.process_time()
    program = LOSSLESS_TWICE
    report = decgraph.check(program, derived_first=lambda told: said.append(time.process_time() - began))
    took = time.process_time() - began
    assert (report.verdict, report.faults, claims(report)) == ("proved", [], ["proved", "proved"])
    assert len(said) == 1 and said[0] < 0.5 < took < 2


def test_where_a_derivation_stops_is_said_with_its_line() -> None:
    report = decgraph.check(PLAIN.replace("commit x", "commit argmax(onehot(x))"), models=2)
    (claim,) = report.to_json()["claims"]
    assert claim["verdict"] == report.verdict == "holds" and "proof" not in claim
    assert claim["stopped"]["line"] == 6 and claim["stopped"]["why"] in report.stopped()[0]


def test_one_claim_with_a_derivation_and_one_without() -> None:
    report = decgraph.check(TWO, models=2)
    assert (report.verdict, claims(report)) == ("holds", ["proved", "holds"])
    assert report.stopped() == [f"`ensures p[x] > 0`: {report.proofs[1].stopped()}"]


def test_a_run_that_ends_in_an_error_is_a_counterexample() -> None:
    report = decgraph.check(LATE)
    assert not report.proofs[0].derived and report.proofs[0].line == 5
    assert (report.verdict, claims(report), report.faults) == ("refuted", ["refuted"], [])
    assert report.counterexample is not None and report.counterexample.kind == "error"
    assert "plain ends with an error where autoregressive goes on" in report.counterexample.render()


def test_a_counterexample_outweighs_a_derivation_and_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = decgraph.check(LOSSY)
    assert (honest.verdict, claims(honest), honest.faults) == ("refuted", ["refuted"], [])
    false = Proof("", (Step(5, "commits a token", "commit-drawn"),), "target", "drawn")
    monkeypatch.setattr(reports, "proof_of", lambda *_: false)
    report = decgraph.check(LOSSY, compare=True)
    assert (report.verdict, claims(report)) == ("refuted", ["refuted"])
    assert report.faults == [f"the derivation of `{LOSSLESS}` and a world disagree"]


def test_a_prover_that_fails_is_a_fault_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.check import verdicts

    monkeypatch.setattr(verdicts, "prove", lambda *_: [][0])
    report = decgraph.check(PLAIN, models=2)
    assert report.verdict == "undecided" and report.faults[0].startswith("IndexError")


def test_time_and_interruption_leave_a_derivation_as_it_is() -> None:
    assert decgraph.check("medusa_match", seconds=1e-6).verdict == "proved"
    assert decgraph.check("medusa_match", seconds=1e-6, derive=False).verdict == "undecided"


def test_assertions_ask_for_as_much_as_is_required() -> None:
    assert assert_claims(PLAIN, models=2, require="proved").verdict == "proved"
    assert assert_refines(PLAIN, mode="tokens", models=2, require="proved").verdict == "proved"
    assert assert_claims(TWO, models=2).verdict == "holds"
    with pytest.raises(AssertionError, match=r"plain: holds\n.*no derivation"):
        assert_claims(TWO, models=2, require="proved")
    for asserted in (assert_claims, assert_refines):
        with pytest.raises(decgraph.DecError, match="require is 'tested'"):
            asserted(PLAIN, models=2, require="tested")  # type: ignore[arg-type]


def test_every_derivation_of_the_library_can_be_shown() -> None:
    shown = set()
    for name in stdlib.names():
        algorithm = decgraph.load(name)
        for claim in algorithm.claims:
            proof = proof_of(algorithm.module, claim, faults := [])
            assert not faults
            report = Report(name, "proved", [claim.text], 0, 0, 0.0, proofs=[proof], text=algorithm.text)
            page = proof_page(report)
            assert all(step.rule in page for step in proof.steps) and (proof.derived or proof.why[:20] in page)
            shown |= {step.rule for step in proof.steps}
    assert shown <= set(RULES)


RAW = PLAIN.replace("x ~ target(ctx)", "p = target(ctx)\n        x ~ warp(log(p.raw), at = ctx)")
"""Its tokens are the target's but where something looks at the scores themselves, and these are no logarithms."""


@pytest.mark.parametrize(
    ("program", "codes"),
    [
        (RAW, ["log-probabilities"]),
        (RAW.replace("log(p.raw)", "p.logits"), []),
        (RAW.replace("log(p.raw)", "where(k > 1, log(p.raw), p.logits)"), ["log-probabilities"]),
        (RAW.replace("x ~ warp(log(p.raw)", "y = max(log(p.raw))\n        x ~ warp(p.logits"), []),
        ("dllm_self_speculative", ["no-errors"]),
        ("fast_dllm_uncached", ["no-errors"]),
    ],
    ids=["raw", "scores", "either", "beside", "canvas", "uncached"],
)
def test_premises_are_those_of_the_derivation(program: str, codes: list[str]) -> None:
    """And not of the program's text: a row that nothing committed is drawn from asks for none."""
    module = find(program)[0]
    proof = proof_of(module, module.entry.claims[0], [])
    assert proof.derived and [premise.code for premise in proof.premises] == codes
    told = Report("", "proved", [proof.claim], 0, 0, 0.0, proofs=[proof])
    data = told.to_json()
    assert data["premises"] == data["claims"][0]["premises"] == [{"code": c, "says": PREMISES[c]} for c in codes]
    assert all(PREMISES[code] in told.reach() for code in codes)
    assert (told.suffices("proved"), told.suffices("holds")) == (not codes, True)


def test_scores_and_logarithms_side_by_side_in_one_row_are_neither() -> None:
    """They differ by one number, which tells the entries apart: this was proved for all models."""
    module = find(RAW.replace("log(p.raw)", "where(p.raw > 0.3, log(p.raw), p.logits)"))[0]
    assert not proof_of(module, module.entry.claims[0], []).derived
