"""What each verdict rests on: a derivation, worlds, a counterexample; and what outweighs what."""

from __future__ import annotations

import pytest

import decgraph
from decgraph import stdlib
from decgraph.check import Report
from decgraph.check import report as reports
from decgraph.check.proof.invariants import Step
from decgraph.check.proof_page import RULES, proof_page
from decgraph.check.verdicts import Proof, proof_of
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
TWO = PLAIN.replace("    while", "    ensures p[x] > 0\n\n    while").replace("\n\n    ensures", "\n    ensures")


def claims(report: Report) -> list[str]:
    return [claim["verdict"] for claim in report.to_json()["claims"]]


def test_a_derivation_is_for_all_and_is_compared_in_a_dozen_worlds() -> None:
    report = decgraph.check("speculative")
    assert (report.verdict, claims(report)) == ("proved", ["proved"])
    assert 0 < report.models <= reports.CROSS_CHECK
    assert report.planted == 0 and not report.challenged
    assert report.reach() == "for every vocabulary, model, context and request"
    (claim,) = report.to_json()["claims"]
    assert claim["claim"] == LOSSLESS and "errors" not in claim
    text = decgraph.load("speculative").text.splitlines()
    assert [text[step["line"] - 1].split()[0] for step in claim["proof"]] == ["verify", "commit"]
    assert [step["rule"] for step in claim["proof"]] == ["rule-lossless", "commit-drawn"]


def test_without_a_derivation_worlds_decide_and_are_counted() -> None:
    report = decgraph.check("speculative", models=4, mutants=False, derive=False)
    assert (report.verdict, claims(report)) == ("holds", ["holds"])
    assert report.reach().startswith(f"in {report.models} worlds: contexts up to ")
    assert "vocabularies up to " in report.reach() and "gamma 1 2 " in report.reach()


def test_where_a_derivation_stops_is_said_with_its_line() -> None:
    report = decgraph.check(PLAIN.replace("commit x", "commit argmax(onehot(x))"), models=2, mutants=False)
    (claim,) = report.to_json()["claims"]
    assert claim["verdict"] == report.verdict == "holds" and "proof" not in claim
    assert claim["stopped"]["line"] == 6 and claim["stopped"]["why"] in report.stopped()[0]


def test_one_claim_with_a_derivation_and_one_without() -> None:
    report = decgraph.check(TWO, models=2, mutants=False)
    assert (report.verdict, claims(report)) == ("holds", ["proved", "holds"])
    assert report.stopped() == [f"`ensures p[x] > 0`: {report.proofs[1].stopped()}"]


def test_a_run_that_ends_in_an_error_is_a_counterexample() -> None:
    report = decgraph.check(LATE, mutants=False)
    assert not report.proofs[0].found and report.proofs[0].line == 5
    assert (report.verdict, claims(report), report.faults) == ("refuted", ["refuted"], [])
    assert report.counterexample is not None and report.counterexample.kind == "error"
    assert "plain ends with an error where autoregressive goes on" in report.counterexample.render()


def test_a_counterexample_outweighs_a_derivation_and_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = decgraph.check(LOSSY, mutants=False)
    assert (honest.verdict, claims(honest), honest.faults) == ("refuted", ["refuted"], [])
    false = Proof("", (Step(5, "commits a token", "commit-drawn"),), "target", "drawn")
    monkeypatch.setattr(reports, "proof_of", lambda *_: false)
    report = decgraph.check(LOSSY, mutants=False)
    assert (report.verdict, claims(report)) == ("refuted", ["refuted"])
    assert report.faults == [f"the derivation of `{LOSSLESS}` and a world disagree"]


def test_a_prover_that_fails_is_a_fault_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.check import verdicts

    monkeypatch.setattr(verdicts, "prove", lambda *_: [][0])
    report = decgraph.check(PLAIN, models=2, mutants=False)
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
            assert all(step.rule in page for step in proof.steps) and (proof.found or proof.why[:20] in page)
            shown |= {step.rule for step in proof.steps}
    assert shown <= set(RULES)


@pytest.mark.parametrize("name", ["freedave", "fast_dllm_uncached"])
def test_of_canvases_errors_are_not_derived(name: str) -> None:
    module = decgraph.load(name).module
    proof = proof_of(module, module.entry.claims[0], [])
    assert proof.found and not proof.ends
    assert proof.to_json("proved")["errors"] == "not derived"
