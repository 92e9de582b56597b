"""Quality against parallelism of masked models' decoders.

A decoder that decides several positions in one call draws them as if they were independent. What that costs is what
ParallelBench (Kang et al., 2025) studies on large models. Here it is measured on the shipped masked model, with canvases of 32
positions:

- tasks: shipped/tasks.py's held-out tasks, which have one right answer. The model is sure of these, so a decoder that gets one
  wrong has lost something that it was given.
- longer tasks: of more digits than the model was trained on. It is unsure of these and seldom right, so what counts is how many
  positions of the text are those that the base decoder, one token a call, decides.

One number for a decoder: kept positions per call, its agreement on longer tasks times the positions that it decides per call
there. Calls are counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import decgraph
from decgraph.bench.compare import split_spec
from decgraph.bench.measure import OnProgress, silent
from decgraph.errors import DecError
from lab.shipped import tasks
from lab.tradeoffs.masked import BASE, CANVAS, Masked


@dataclass(frozen=True)
class Point:
    """A decoder. accuracy: the share of tasks answered right, in task_calls model calls a canvas. agreement: the share of the
    base decoder's positions on longer tasks that are kept, in `calls` calls a canvas. failed: why it could not be measured.
    """

    label: str
    accuracy: float = 0.0
    task_calls: float = 0.0
    agreement: float = 0.0
    calls: float = 0.0
    failed: str = ""

    @property
    def kept_per_call(self) -> float:
        """Positions per call that are the base decoder's."""
        return self.agreement * CANVAS / self.calls if self.calls else 0.0


def measure(specs: Sequence[str], *, per_kind: int = 4, on_progress: OnProgress = silent) -> list[Point]:
    """Every decoder, with parameters as in `name:tau=0.8`, on the same prompts, greedily; the base decoder first.

    Raises DecError for a name that is no masked decoder's.
    """
    given = [BASE, *(spec for spec in specs if spec != BASE)]
    for spec in given:
        if "masked" not in decgraph.load(split_spec(spec)[0]).models.values():
            raise DecError(f"{spec} does not decode with a masked model")
    measure, points = Masked(per_kind * len(tasks.KINDS), per_kind), list[Point]()
    for number, spec in enumerate(given):
        on_progress(f"frontier: {spec}", number / len(given))
        try:
            answers, found = measure.texts(spec, asked=True), measure.texts(spec)
        except DecError as error:
            points.append(Point(spec, failed=str(error).removeprefix("error: ").splitlines()[0]))
            continue
        right = sum(task.check(word) for task, word in zip(measure.asked, answers.words, strict=True))
        base = measure.texts(BASE).texts
        same = sum(a == b for ours, theirs in zip(found.texts, base, strict=True) for a, b in zip(ours, theirs, strict=False))
        share, count = same / sum(map(len, base)), len(measure.unsure)
        calls = (answers.counts["calls"] / len(measure.asked), found.counts["calls"] / count)
        points.append(Point(spec, right / len(measure.asked), calls[0], share, calls[1]))
    return points


def frontier(points: Sequence[Point]) -> list[Point]:
    """Those that no other one beats in both agreement and calls, fewest calls first."""
    sound = [p for p in points if not p.failed]

    def beaten(p: Point) -> bool:
        return any(
            q.agreement >= p.agreement and q.calls <= p.calls and (q.agreement, q.calls) != (p.agreement, p.calls)
            for q in sound
        )

    return sorted((p for p in sound if not beaten(p)), key=lambda p: p.calls)


def table(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, best number first; `*` marks the frontier."""
    best = {p.label for p in frontier(points)}
    rows = [
        [p.label + (" *" if p.label in best else ""), f"{p.kept_per_call:.2f}", f"{p.agreement:.2f}", f"{p.calls:.1f}",
         f"{p.accuracy:.2f}", f"{p.task_calls:.1f}"]
        for p in sorted((p for p in points if not p.failed), key=lambda p: -p.kept_per_call)
    ]  # fmt: skip
    return ["decoder", "kept positions per call", "agreement on longer tasks", "calls", "tasks right", "calls on tasks"], rows


def plot(points: Sequence[Point]) -> Callable[[Any], None]:
    """Draws agreement over calls into matplotlib axes, the frontier as a line."""

    def draw(axes: Any) -> None:
        sound, line = [p for p in points if not p.failed], frontier(points)
        axes.plot([p.calls for p in line], [p.agreement for p in line], color="#0072B2", linewidth=1)
        axes.scatter([p.calls for p in sound], [p.agreement for p in sound], s=14, color="#D55E00", zorder=3)
        for p in line:
            axes.annotate(p.label, (p.calls, p.agreement), fontsize=6, xytext=(3, 3), textcoords="offset points")
        axes.set_xlabel(f"model calls for the {CANVAS} positions of a longer task")
        axes.set_ylabel(f"positions of {BASE} that are kept")
        axes.set_xscale("log", base=2)

    return draw
