"""Branches of one text that do not see each other: each is what the target writes alone, after what the branch does see.

The expected texts are put together here from runs of `autoregressive`, one branch after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from lib.stdlib.letters import Letters
from lib.stdlib.table_models import module, run

from decgraph.backends.registry import machine
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.session import Session


def after(model: Model, tokens: Sequence[int]) -> int:
    """The likeliest token after a text."""
    return run("autoregressive", {"target": model}, {}, prompt=tuple(tokens), max_tokens=1, temperature=0).tokens[0]


def until(model: Model, tokens: Sequence[int], stops: set[int], most: int) -> list[int]:
    """What a model writes greedily after a text, up to one of `stops`."""
    out: list[int] = []
    while len(out) < most and not (out and out[-1] in stops):
        out.append(after(model, [*tokens, *out]))
    return out


LETTERS = ["a", "b", "c", "\n", "."]
LINE = 3


NEEDED = {"a": 2, "b": 3}
"""A line with an a says that its point needs the second one, with a b the third: so lines may need each other."""


def needs(line: str, point: int) -> bool:
    return any(letter in line and point == n for letter, n in NEEDED.items())


def hard(line: str) -> bool:
    return "c" in line


def answers(target: Model, drafter: Model, prompt: Sequence[int], points: int, reach: int) -> list[list[int]]:
    """The answers in the skeleton's order, written one after the other."""
    base = [*prompt, 1]
    lines: list[list[int]] = []
    for _ in range(points):
        lines.append(until(target, [*base, *sum(lines, [])], {LINE}, reach))
    said = ["".join(LETTERS[t] for t in line) for line in lines]
    made: dict[int, list[int]] = {}
    while len(made) < points:
        left = [n for n in range(points) if n not in made]
        free = [n for n in left if not any(needs(said[n], other + 1) for other in left if other != n)] or left[:1]
        before = dict(made)
        for n in free:
            known = [t for other in range(points) if other in before and needs(said[n], other + 1) for t in before[other]]
            model = target if hard(said[n]) else drafter
            made[n] = until(model, [*base, *sum(lines, []), *known, *lines[n]], {LINE}, reach)
    return [made[n] for n in range(points)]


def skeleton(target: Model, drafter: Model, points: int, reach: int) -> Result:
    session = Session(
        module("skeleton_graph"),
        {"target": target, "drafter": drafter},
        {"ask": [1], "points": points, "mark": "\n", "reach": reach},
        machine=machine("reference"),
        tokenizer=Letters(LETTERS),
        externs={"needs": needs, "hard": hard},
    )
    result = session.run(Request(prompt=(0, 2), max_tokens=100, temperature=0))
    assert result.error is None, result.error
    return result


def test_a_point_sees_the_answers_that_it_needs_and_no_others() -> None:
    for seed in range(10):
        target, drafter = TableModel(5, seed, name="target"), TableModel(5, seed + 90, name="drafter")
        for points, reach in ((4, 3), (3, 6)):
            want = sum(answers(target, drafter, (0, 2), points, reach), [])
            assert list(skeleton(target, drafter, points, reach).tokens) == want, seed
