"""Quality against parallelism of masked models' decoders.

A decoder that decides several positions in one call draws them as if they were independent. What that costs is what
ParallelBench (Kang et al., 2025) studies on large models. Here it is measured on the shipped masked model, with canvases of 32
positions:

- tasks: zoo/tasks.py's held-out tasks, which have one right answer. The model is sure of these, so a decoder that gets one
  wrong has lost something that it was given.
- longer tasks: of more digits than the model was trained on. It is unsure of these and seldom right, so what counts is how many
  positions of the text are those that the base decoder, one token a call, decides.

One number for a decoder: kept positions per call, its agreement on longer tasks times the positions that it decides per call
there. Calls are counted, not timed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import decgraph
from decgraph.bench.measure import Told, silent
from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.models import request_for, shipped
from decgraph.zoo import tasks

CANVAS = 32
"""Positions of a canvas: what the shipped masked model was trained on."""
BASE = "llada"
"""The decoder of one token a call."""
SETTINGS = {"length": CANVAS, "block": CANVAS, "steps": CANVAS}
"""Parameters of those that have them: one canvas, in one block, one token a step."""


def longer(each: int) -> list[str]:
    """Prompts of tasks with more digits than in training, `each` of every kind; always the same ones."""
    rng = random.Random("decgraph frontier")

    def digits(count: int) -> str:
        return "".join(rng.choice("0123456789") for _ in range(count))

    kinds = (("copy", 7), ("reverse", 6), ("sort", 6), ("sort", 7))
    words = [f"{kind} {digits(count)} =" for _ in range(each) for kind, count in kinds]
    return words + [f"add {rng.randint(100, 999)} {rng.randint(10, 99)} =" for _ in range(each)]


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


def measure(specs: Sequence[str], *, per_kind: int = 4, told: Told = silent) -> list[Point]:
    """Every decoder, with parameters as in `name:tau=0.8`, on the same prompts, greedily; the base decoder first.

    Raises DecError for a name that is no masked decoder's.
    """
    from decgraph.bench.compare import split_spec

    given = [BASE, *(spec for spec in specs if spec != BASE)]
    asked = list(islice(tasks.stream(7, held=True), per_kind * len(tasks.KINDS)))
    unsure = longer(per_kind)
    for spec in given:
        if "masked" not in decgraph.load(split_spec(spec)[0]).models.values():
            raise DecError(f"{spec} does not decode with a masked model")
    points: list[Point] = []
    base: list[tuple[int, ...]] = []
    for number, spec in enumerate(given):
        told(f"frontier: {spec}", number / len(given))
        name, own = split_spec(spec)
        algorithm = decgraph.load(name)
        params = settings_of(algorithm.function) | own
        try:
            session = session_of(algorithm, params)
            answers, task_calls = decoded(session, [task.prompt for task in asked])
            texts, calls = decoded(session, unsure)
        except DecError as error:
            points.append(Point(spec, failed=str(error).removeprefix("error: ").splitlines()[0]))
            continue
        base = base or texts
        right = [task.check(str(session.tokenizer.decode(tokens))) for task, tokens in zip(asked, answers, strict=True)]
        same = sum(a == b for ours, theirs in zip(texts, base, strict=True) for a, b in zip(ours, theirs, strict=False))
        points.append(
            Point(spec, sum(right) / len(right), task_calls / len(asked), same / sum(map(len, base)), calls / len(unsure))
        )
    return points


def settings_of(function: Function) -> dict[str, str]:
    """`SETTINGS` of a decoder's parameters; where its range does not reach so far, its own default stays."""
    high = {p.name: p.high for p in function.params}
    return {k: str(v) for k, v in SETTINGS.items() if k in high and (high[k] is None or Fraction(str(high[k])) >= v)}


def session_of(algorithm: Any, params: dict[str, str]) -> Any:
    """A session on the shipped models. Raises DecError for a decoder that needs what is not shipped."""
    from decgraph.bench.contenders import params_for

    return algorithm.session(shipped(algorithm.function), **params_for(algorithm, params))


def decoded(session: Any, prompts: Sequence[str]) -> tuple[list[tuple[int, ...]], int]:
    """The tokens of every canvas up to the end of its text, and the model calls of all. Raises what a run raised."""
    texts, calls = [], 0
    for prompt in prompts:
        request = request_for(session, prompt, max_tokens=CANVAS, temperature=0)
        result = session.run(request, keep_events=False)
        if result.error is not None:
            raise result.error
        calls += result.stats.target_calls
        tokens = tuple(result.tokens)
        # What lies behind the end of the text is filling.
        texts.append(tokens[: next((place for place, token in enumerate(tokens) if token in request.eos), len(tokens))])
    return texts, calls


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
