"""The goals: how a run is judged, and that every goal is of something that is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lib.bench_runs import ratio, row, run_of_two

from decgraph import stdlib
from decgraph.bench.compare import candidates
from decgraph.bench.measure import MeasureSettings
from lab import decoding
from lab.decoding import ASSISTED, GENERATE, LOOKUP, PARTS, Goal, Part


def judged(goal: Goal, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setitem(PARTS, "tried", Part((), MeasureSettings(), (goal,)))
    return list(decoding.judged({"name": "tried", **run}))


def run_with_kinds() -> dict[str, Any]:
    run = run_of_two(("chat", "copy-edit"))
    for found in run["rows"]:
        found["drafted_per_call"] = 3.0
    return run


def test_processor_time_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with_kinds()
    (found,) = judged(Goal("speculative", GENERATE, 2.95, "chat"), run, monkeypatch)
    assert (found["ratio"], found["reached"], found["kind"]) == (pytest.approx(2.9), False, "chat")  # 3.0 by the wall clock
    (found,) = judged(Goal("speculative", GENERATE, 2.85, "chat"), run, monkeypatch)
    assert found["reached"] and "2.90 (" in decoding.line(found) and "goal 2.9  reached" in decoding.line(found)


def test_a_goal_for_every_kind_is_judged_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(Goal("speculative", GENERATE, 3.5, but=("chat",)), run_with_kinds(), monkeypatch)
    assert [(one["kind"], one["reached"]) for one in found] == [("copy-edit", True)]
    found = judged(Goal("speculative", GENERATE, 3.5), run_with_kinds(), monkeypatch)
    assert [(one["kind"], one["reached"]) for one in found] == [("chat", False), ("copy-edit", True)]


def test_what_failed_is_a_goal_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {**run_with_kinds(), "failed": {"eagle2": "needs a head"}}
    (found,) = judged(Goal("eagle2", GENERATE, 1.0), run, monkeypatch)
    assert not found["reached"] and "not measured: needs a head" in decoding.line(found)
    assert judged(Goal("kangaroo", GENERATE, 1.0), run, monkeypatch) == []  # nobody gave what it needs


def test_tokens_that_differ_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with_kinds()
    run["rows"].append(row("mine", "decgraph", "chat", 1.0, 9.0, {GENERATE: ratio(2, 2, 2)}, drafted_per_call=0.0,
                           tokens_equal={"same": 0, "near_ties": 0, "different": 2, "first": "token 3"}))  # fmt: skip
    (found,) = judged(Goal("mine", GENERATE, 1.0, "chat"), run, monkeypatch)
    assert "tokens 2 different" in decoding.line(found)


@pytest.mark.parametrize("name", PARTS)
def test_every_goal_is_of_an_algorithm_that_is_measured(name: str) -> None:
    part = PARTS[name]
    measured = candidates(part.algorithms, {})  # refuses a parameter that there is not, and a value outside its range
    assert {one.algorithm.name for one in measured} <= set(stdlib.names())
    assert [one.label for one in measured] == list(part.algorithms)
    assert {goal.algorithm for goal in part.goals} <= set(part.algorithms)
    assert {goal.baseline for goal in part.goals} <= {GENERATE, ASSISTED, LOOKUP}


@pytest.mark.slow
def test_a_part_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = replace(PARTS["shipped"], settings=MeasureSettings(6, 1), algorithms=("autoregressive", "speculative"), most=1)
    monkeypatch.setitem(PARTS, "shipped", small)
    decoding.command("shipped", keep=False)
    said = capsys.readouterr().out
    assert "shipped      autoregressive" in said and "against assisted" in said and "goals reached" in said


def test_a_part_with_prompts_of_its_own_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = replace(PARTS["first_token"], settings=MeasureSettings(1, 1), prompts=decoding.ids(1, 30))
    monkeypatch.setitem(PARTS, "first_token", small)
    decoding.command("first_token", keep=False)
    assert "of 1 goals reached" in capsys.readouterr().out
