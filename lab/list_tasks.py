"""Tasks on lists with a masked model that knows them exactly: what deciding several cells in one call costs.

A trained model's own errors hide those of an unmasking rule. Here the model is a table: for each cell the exact distribution
over the task's right answers given the cells that are decided. One cell a call is then always right, and all that a rule can
lose is the dependence between cells that it decides together. Nothing is sampled: every run of a program is enumerated, in
fractions (backends/exact), so the chance of a right answer and the mean number of calls are exact.

The kinds of tasks are those of ParallelBench (Kang et al., 2025: "ParallelBench: Understanding the Trade-offs of Parallel
Decoding in Diffusion LLMs"): lists that are copied, reversed, shuffled or changed in one place, and Latin squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING, Any

from decgraph import stdlib
from decgraph.backends.exact.choices import Choices, TooMany
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Unlikely, World
from decgraph.check.distributions import RunTally, distribution_of, execute
from decgraph.errors import DecError
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import Key, TableModel, _Table
from decgraph.runtime.reals.limits import NotSeparated
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params
from decgraph.runtime.trace import ModelCall

if TYPE_CHECKING:
    from decgraph.api import Algorithm

Answer = tuple[int, ...]
SIZE = 6
"""Tokens of the vocabulary: five that stand in lists, and 0, which stands in none."""
RUNS = 2_000
"""Most runs of a program on a task; one with more is left out."""
WHOLE = ("length", "block", "steps")
"""Parameters that are the number of cells where nothing else is said: one canvas, in one block, one cell a call."""


@dataclass(frozen=True)
class ListTask:
    """A task: a prompt, and its right answers, which are equally likely."""

    name: str
    prompt: Answer
    answers: tuple[Answer, ...]


def _tasks() -> tuple[ListTask, ...]:
    x, new = (1, 2, 3, 4), 5
    squares = [(a, b) for a in permutations(x[:3]) for b in permutations(x[:3])]
    latin = [a + b for a, b in squares if all(len({*column}) == 3 for column in zip(x[:3], a, b, strict=True))]
    return (
        ListTask("copy", x, (x,)),
        ListTask("reverse", x, (x[::-1],)),
        ListTask("replace at 2", x, ((*x[:2], new, x[3]),)),
        ListTask("replace one", x, tuple((*x[:i], new, *x[i + 1 :]) for i in range(4))),
        ListTask("insert", x[:2], tuple((*x[:i], new, *x[i:2]) for i in range(3))),
        ListTask("shuffle", x[:3], tuple(permutations(x[:3]))),
        ListTask("Latin square", x[:3], tuple(latin)),
    )


TASKS = _tasks()
"""Lists of three or four, and the second and third row of a Latin square whose first one is given."""


class _Counts(_Table):
    """The entries of a task's model, counted when they are first read."""

    def __init__(self, task: ListTask) -> None:
        super().__init__(SIZE, None, {}, False, 1)
        self.task = task

    def __call__(self, key: Key, name: str) -> Scores:
        if key not in self.touched:
            cells, place = key
            seen = dict(cells[1:] if cells and cells[0] == "evicted" else enumerate(cells))
            self.touched[key] = Scores(weights=self.row(seen, place))
        return self.touched[key]

    def row(self, seen: Mapping[int, Any], place: int) -> tuple[Fraction, ...]:
        """The distribution at a place of prompt and canvas, given the cells seen by their place."""
        first, answers = len(self.task.prompt), self.task.answers
        if place < first:
            return tuple(Fraction(int(t == self.task.prompt[place])) for t in range(SIZE))
        decided = {j - first: c for j, c in seen.items() if j >= first and j != place and isinstance(c, int)}
        agree = [sum(answer[j] == c for j, c in decided.items()) for answer in answers]
        left = [answer[place - first] for answer, n in zip(answers, agree, strict=True) if n == max(agree)]
        return tuple(Fraction(left.count(t), len(left)) for t in range(SIZE))


class KnownTask(TableModel):
    """A masked model that knows a task: a cell's row counts the right answers that agree with the cells decided so far (but
    the cell itself); where none agrees with all of them, those that agree with most."""

    def __init__(self, task: ListTask) -> None:
        super().__init__(SIZE, kind="masked", vocab="lists", name=task.name)
        self._table = _Counts(task)


class _Counting(ExactMachine):
    """Calls of the model are part of the state: runs that come to the same canvas by different numbers of calls differ."""

    most_iterations = 500
    calls = 0

    def emit_event(self, event: Any) -> None:
        self.calls += isinstance(event, ModelCall)
        super().emit_event(event)

    def future(self) -> tuple[Any, ...]:
        return (*super().future(), self.calls)


@dataclass(frozen=True)
class ExactScore:
    """What a program makes of a task. right: the chance of a right answer; calls: their mean number; cells: of the answer."""

    right: Fraction
    calls: Fraction
    cells: int


def exactly(algorithm: Algorithm, task: ListTask, params: Mapping[str, Any] | None = None, *, limit: int = RUNS) -> ExactScore:
    """The chance that a program with one masked model, at temperature 1, gives a right answer, and its mean number of calls.

    params: those of `WHOLE` that are left out are the number of cells, others have their defaults. Raises DecError for a
    program of another kind, for parameters that do not fit, and where there are more runs than `limit` or draws whose joint
    distribution is not computed.
    """
    if list(algorithm.models.values()) != ["masked"] or algorithm.module.externs:
        raise DecError(f"{algorithm.name} does not decode with one masked model alone", hint="llada, eb_sampler, ...")
    cells = len(task.answers[0])
    whole = {name: cells for name in WHOLE if name in algorithm.params}
    values = check_params(algorithm.function, {**whole, **(params or {})})
    request, world = Request(task.prompt, max_tokens=cells, temperature=1), World(coupled=False)
    models = dict.fromkeys(algorithm.models, KnownTask(task))

    def run(choices: Choices) -> dict[Any, Fraction]:
        world.restart(choices)
        m = _Counting(algorithm.module, algorithm.name, models, values, request)
        execute(m.on(world))
        return {(tuple(m.committed_tokens()) in task.answers, m.calls): Fraction(1)}

    try:
        outcomes = distribution_of(run, limit, RunTally(), merge=True)
    except (TooMany, Unlikely, NotSeparated) as error:
        raise DecError(f"{algorithm.name} on {task.name} is not computed exactly: {error}") from error
    right = sum((w for (good, _), w in outcomes.items() if good), Fraction(0))
    return ExactScore(right, sum((calls * w for (_, calls), w in outcomes.items()), Fraction(0)), cells)


def alone() -> list[str]:
    """The programs of the standard library with one masked model and no functions of the caller."""
    from decgraph.api import load

    loaded = [load(name) for name in stdlib.names()]
    return [a.name for a in loaded if list(a.models.values()) == ["masked"] and not a.module.externs]


def row(
    algorithm: Algorithm, params: Mapping[str, Any] | None = None, tasks: Sequence[ListTask] = TASKS
) -> list[ExactScore | str]:
    """What a program makes of each task, or why that is not computed."""
    out: list[ExactScore | str] = []
    for task in tasks:
        try:
            out.append(exactly(algorithm, task, params))
        except DecError as error:
            out.append(str(error.diagnostics[0]).removeprefix("error: "))
    return out


def document(rows: Mapping[str, Sequence[ExactScore | str]]) -> dict[str, Any]:
    """Rows by label as a JSON document: fractions as texts, or the reason why there are none."""
    found = {
        label: [
            {"reason": one} if isinstance(one, str) else {"right": str(one.right), "calls": str(one.calls), "cells": one.cells}
            for one in row
        ]
        for label, row in rows.items()
    }
    return {
        "version": 1,
        "tasks": [{"name": t.name, "prompt": t.prompt, "answers": len(t.answers)} for t in TASKS],
        "rows": found,
    }


CAPTION = "By task: the chance of a right answer, and behind it how many cells a call decides; -: not computed exactly."


def table(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A document's headings and rows; what `CAPTION` says stands in them."""
    rows = [[label, *("-" if "reason" in one else _cell(one) for one in row)] for label, row in document["rows"].items()]
    return ["program", *(task["name"] for task in document["tasks"])], rows


def _cell(one: Mapping[str, Any]) -> str:
    return f"{float(Fraction(one['right'])):.3g} ({float(one['cells'] / Fraction(one['calls'])):.2f})"
