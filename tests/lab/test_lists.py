"""Masked programs on list tasks: chances that can be computed by hand, the same by sampling, and the page."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.request import Request
from lab import list_tasks as lists
from lab import lists as lab
from lab import pages

TASKS = {task.name: task for task in lists.TASKS}


def right(name: str, task: str, **params: object) -> Fraction:
    return lists.exactly(decgraph.load(name), TASKS[task], params).right


@pytest.mark.parametrize("task", TASKS)
def test_one_cell_a_call_is_always_right(task: str) -> None:
    found = lists.exactly(decgraph.load("llada"), TASKS[task])
    assert found.right == 1 and found.calls == found.cells == len(TASKS[task].answers[0])


@pytest.mark.parametrize(
    ("task", "chance"),
    [
        ("copy", Fraction(1)),
        ("reverse", Fraction(1)),
        ("replace at 2", Fraction(1)),
        ("replace one", 4 * Fraction(1, 4) * Fraction(3, 4) ** 3),  # each cell is replaced with a chance of 1/4
        ("insert", Fraction(2 + 4 + 2, 27)),
        ("shuffle", Fraction(6, 27)),
        ("Latin square", Fraction(2, 2**6)),
    ],
)
def test_all_cells_in_one_call_are_right_by_chance(task: str, chance: Fraction) -> None:
    """Each cell is drawn from its own distribution; an answer's chance is the product."""
    by_hand = Fraction(0)
    for answer in TASKS[task].answers:
        share = Fraction(1)
        for place, token in enumerate(answer):
            column = [a[place] for a in TASKS[task].answers]
            share *= Fraction(column.count(token), len(column))
        by_hand += share
    found = lists.exactly(decgraph.load("llada"), TASKS[task], {"steps": 1})
    assert found.right == by_hand and found.calls == 1
    assert by_hand == chance


def test_two_calls_are_between_one_and_as_many_as_cells() -> None:
    assert right("llada", "shuffle", steps=2) == Fraction(2, 3)  # two of three cells at once differ in two of three cases
    assert right("llada", "shuffle", steps=1) < right("llada", "shuffle", steps=2) < right("llada", "shuffle")


def test_sampled_runs_agree() -> None:
    """150 runs of the reference interpreter, with other noise each."""
    algorithm, task = decgraph.load("eb_sampler"), TASKS["shuffle"]
    params: dict[str, Any] = {n: v for n, v in {"length": 3, "block": 3, "gamma": 1}.items() if n in algorithm.params}
    exact = lists.exactly(algorithm, task, {"gamma": 1})
    session = algorithm.session({"model": lists.KnownTask(task)}, backend="reference", **params)
    runs = [session.run(Request(task.prompt, max_tokens=3, temperature=1, seed=n)) for n in range(150)]
    share = sum(tuple(r.tokens) in task.answers for r in runs) / len(runs)
    assert abs(share - float(exact.right)) < 4 * (0.25 / len(runs)) ** 0.5
    calls = sum(r.stats.target_calls for r in runs) / len(runs)
    assert abs(calls - float(exact.calls)) < 0.2


def test_what_is_not_computed_is_said() -> None:
    with pytest.raises(DecError, match="speculative does not decode with one masked model alone"):
        lists.exactly(decgraph.load("speculative"), TASKS["copy"])
    with pytest.raises(DecError, match="maskgit on shuffle is not computed exactly"):
        lists.exactly(decgraph.load("maskgit"), TASKS["shuffle"], {"steps": 2})
    with pytest.raises(DecError, match="more than 10 runs"):
        lists.exactly(decgraph.load("llada"), TASKS["shuffle"], limit=10)


def test_the_command_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    lab.command(["llada:steps=1", "zipar"])
    head, _, *rows = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    found = {row[0].strip("| "): dict(zip(head[1:], row[1:])) for row in rows}
    assert found["llada:steps=1"]["shuffle"] == "0.222 (3.00)" and "zipar" in found


@pytest.mark.budget(5)
def test_the_page_is_that_of_the_results_and_these_are_computed_again() -> None:
    document = pages.result("lists")
    assert lab.PAGE.read_text("utf-8") == lab.page(document), "python -m lab lists --page-only"
    assert {label.partition(":")[0] for label in document["rows"]} == set(lists.alone())
    again = lab.measured(["eb_sampler", "zipar"])
    assert document["tasks"] == json.loads(json.dumps(again["tasks"]))
    for label, row in again["rows"].items():
        assert document["rows"][label] == row, label
