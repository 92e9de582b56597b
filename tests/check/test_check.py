"""What a check says: verdicts, notes, counterexamples that can be read, and who is told what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decgraph.check import check_algorithm, exploration
from decgraph.check.algorithm import find
from decgraph.check.distributions import RunTally
from decgraph.errors import DecError

WIDE = """
algorithm wide(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    state ones: int per sequence = 0

    while not done:
        draft t:
            repeat 5:
                x ~ drafter(t.leaves)
                grow x
        ones += count(t.token[t.drafted] == 1)
        verify t by rejection against target(t)
        commit t.accepted
"""
PLAIN = """
algorithm plain(target: causal):
    refines autoregressive(target) in distribution
    while not done:
        x ~ target(ctx)
        commit x
"""
FORGETS = """
rule forgets(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
    y ~ p
    emit y

algorithm broken(target: causal, drafter: causal, gamma: int in 1..32 = 4):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by forgets against target(t)
        commit t.accepted
"""


def few_runs(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    made = exploration.world
    monkeypatch.setattr(exploration, "world", lambda *a, **k: replace(made(*a, **k), limit=limit))


def test_nothing_decided_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    few_runs(monkeypatch, 0)
    found = check_algorithm(WIDE, models=6, derive=False)
    assert (found.verdict, found.models) == ("undecided", 0)
    assert found.notes[0] == "world 1 (base) was not decided: more than 0 runs"
    assert found.reasons[0] == "the first 6 worlds could not be decided and the others were not tried"


def test_a_world_that_is_too_large_is_decided_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    few_runs(monkeypatch, 20)
    found = check_algorithm("speculative", models=6, derive=False)
    assert (found.verdict, found.reasons) == ("holds", []) and 0 < found.shrunk < found.models


def test_nothing_claimed() -> None:
    assert check_algorithm("autoregressive").verdict == "none"


def test_a_counterexample_can_be_read() -> None:
    found = check_algorithm(FORGETS)
    assert found.verdict == "refuted" and found.counterexample is not None
    text = found.counterexample.render()
    assert "parameters gamma = 1" in text
    assert "causal table target, 2 tokens:" in text
    line = FORGETS.splitlines().index("                x ~ drafter(t.leaves)") + 1
    assert f"    x, line {line} (iteration 1, inner 1): token 0\n" in text
    assert "with probability 7/9: no" in text  # the way goes through the fault: what was refused is drawn again
    assert "distribution of the first tokens: total variation 1/14 = 0.0714" in text
    rows = [line.split() for line in text.splitlines()[-3:]]
    assert rows == [["tokens", "broken", "autoregressive"], ["0", "4/7", "1/2", "<-"], ["1", "3/7", "1/2", "<-"]]
    plain = found.to_json()
    assert plain["verdict"] == "refuted"
    assert plain["counterexample"]["total_variation"] == "1/14"
    assert plain["counterexample"]["ours"] == {"0": "4/7", "1": "3/7"}


def test_given_parameters_are_kept() -> None:
    found = check_algorithm(FORGETS, params={"gamma": 2})
    assert found.counterexample is not None and found.counterexample.params == {"gamma": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": {"gama": 2}}, "has no parameter `gama`"),
        ({"params": {"gamma": 99}}, "gamma"),
        ({"vocab": 1}, "at least 2 tokens"),
        ({"models": 0}, "at least 2 tokens and 1 model"),
    ],
)
def test_options_are_checked(options: dict, message: str) -> None:
    with pytest.raises(DecError, match=message):
        check_algorithm("speculative", **options)


def test_an_unknown_name_has_a_suggestion() -> None:
    with pytest.raises(DecError, match="did you mean speculative"):
        find("speculativ")


def test_progress_is_reported() -> None:
    said: list[tuple[str, int, int]] = []
    found = check_algorithm("speculative", models=2, derive=False, progress=lambda *what: said.append(what))
    claim = [s for s in said if s[0] == "refines autoregressive(target) in distribution"]
    assert [s[1] for s in claim] == list(range(len(claim))) and {s[2] for s in claim} == {len(claim)}
    assert found.models >= len(claim) - 3


def test_the_time_is_kept_and_said() -> None:
    found = check_algorithm(WIDE, seconds=0.5, derive=False)
    assert found.verdict == "undecided" and found.seconds < 20
    assert found.reasons == ["the 0.5 seconds that it was given are over"]


def test_an_interruption_keeps_what_is_known() -> None:
    def press(what: str, done: int, of: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    found = check_algorithm("speculative", models=2, derive=False, progress=press)
    assert found.interrupted and found.verdict == "undecided" and found.reasons == ["interrupted"] and found.runs > 0


@pytest.mark.parametrize(("text", "carries"), [(WIDE, True), (FORGETS, False)])
def test_without_a_step_from_any_value_there_is_no_induction(text: str, carries: bool) -> None:
    """Where something is carried and no world from arbitrary values was decided, only real starts count."""
    module, _ = find(text)
    seen = exploration.Exploration(module, module.entry.claims[0], RunTally(), None, exploration.DecidedSettings())
    assert seen.inductive is not carries
    seen.arbitrary = 1
    assert seen.inductive
    seen.seen_draws = True
    assert not seen.inductive


def test_a_check_that_is_interrupted_says_what_it_has_decided() -> None:
    def progress(claim: str, done: int, of: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    report = check_algorithm(PLAIN, progress=progress)
    assert report.interrupted and report.models >= 3 and report.verdict == "undecided"
