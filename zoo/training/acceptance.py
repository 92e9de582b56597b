"""Held-out acceptance: what a chain of drafts would have brought on the target's own greedy answers.

Computed with plain forwards and none of decgraph's runtime: at temperature 0 a draft is right as far as it agrees with what
the target writes, and every target call commits one token more than were right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from decgraph.zoo.training.store import StoredRow
from decgraph.zoo.training.students import Student

# Prompts of usual kinds, written for this and never trained on.
PROMPTS = Path(__file__).parent / "prompts.jsonl"


@dataclass(frozen=True)
class Acceptance:
    """`tokens_per_call` of a chain of `gamma` drafts; the first token, which the prompt's own call gives, is not counted.

    `by_depth` is the share of places where at least 1, 2, ... drafts are right; `by_gamma` are the tokens per call of
    chains of 1, 2, ... drafts.
    """

    gamma: int
    tokens_per_call: float
    by_depth: tuple[float, ...]
    by_gamma: tuple[float, ...]
    places: int

    def record(self) -> dict[str, Any]:
        """As JSON, rounded."""
        return {
            "gamma": self.gamma,
            "tokens_per_call": round(self.tokens_per_call, 3),
            "by_depth": [round(share, 3) for share in self.by_depth],
            "tokens_per_call_by_gamma": [round(value, 3) for value in self.by_gamma],
            "places": self.places,
        }


def prompts() -> list[str]:
    """The held-out prompts that come with decgraph."""
    return [json.loads(line)["prompt"] for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


@torch.no_grad()
def measure(student: Student, texts: list[StoredRow], *, gamma: int = 5) -> Acceptance:
    """Acceptance on texts whose answers the target wrote greedily; the module is put in evaluation mode meanwhile."""
    was = student.module.training
    student.module.eval()
    gamma = min(gamma, student.gamma)
    lengths: list[list[int]] = []
    for text in texts:
        hits = []
        for step, guess in enumerate(student.guesses(text)):
            right = guess.cpu()[: max(0, len(text.ids) - step - 1)] == text.ids[step + 1 :][: len(guess)]
            hits.append(right.tolist())
        # A draft may begin at every token of the answer but the last.
        row = []
        for place in range(text.answer, len(text.ids) - 1):
            depth = 0
            while depth < len(hits) and place < len(hits[depth]) and hits[depth][place]:
                depth += 1
            row.append(depth)
        lengths.append(row)
    student.module.train(was)
    places = sum(map(len, lengths))
    deepest = student.gamma
    by_depth = tuple(sum(run > depth for row in lengths for run in row) / max(1, places) for depth in range(deepest))
    by_gamma = tuple(_tokens_per_call(lengths, count) for count in range(1, deepest + 1))
    return Acceptance(gamma, by_gamma[gamma - 1], by_depth, by_gamma, places)


def _tokens_per_call(lengths: list[list[int]], gamma: int) -> float:
    """Walk each answer call by call; an answer's end cuts its last call."""
    calls = tokens = 0
    for row in lengths:
        place = 0
        while place < len(row):
            taken = min(1 + min(row[place], gamma), len(row) - place)
            calls, tokens, place = calls + 1, tokens + taken, place + taken
    return tokens / calls if calls else 1.0
