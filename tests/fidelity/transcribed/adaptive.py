"""vLLM's adaptive verification: how many drafts a step verifies, by what calls cost and what the last drafts were worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, by_call, verified
from fidelity.watched import run

from decgraph.runtime.models.table import TableModel
from lab.recordings import tabled

SIZE = 6
PROMPT, LIMIT, GAMMA, LEAST = (1, 2, 3), 40, 5, 2


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "target": TableModel(SIZE, case["seed"], window=1, vocab="t", name="target"),
        "drafter": TableModel(SIZE, case["seed"] + case["apart"], window=1, vocab="t", name="drafter"),
    }


def milliseconds(case: Mapping[str, Any]) -> Any:
    """Calls are padded to the next of some widths."""
    widths = {1: 10.0, 2: 10.5, 4: 13.0, 8: 19.0}
    return lambda rows, tokens: 1.5 * rows + case["scale"] * next(c for w, c in widths.items() if w >= tokens)


class Estimator:
    """A logistic curve a place, from the margin of the two best scores to the chance of acceptance."""

    def __init__(self, places: int, interval: int, least: int) -> None:
        self.weight, self.bias = np.zeros(places), np.full(places, 1.5)
        self.info, self.grad, self.counts = np.zeros((places, 2, 2)), np.zeros((places, 2)), np.zeros(places)
        self.interval, self.least, self.since, self.refits = interval, least, 0, 0

    def predict(self, margins: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-(self.weight * margins + self.bias))))

    def step(self, margins: np.ndarray, said: np.ndarray, accepted: int, admitted: int) -> None:
        for j in range(len(margins)):
            if j <= accepted and j < admitted:
                row = np.array([margins[j], 1.0])
                self.info[j] += said[j] * (1 - said[j]) * np.outer(row, row)
                self.grad[j] += ((j < accepted) - said[j]) * row
                self.counts[j] += 1
        self.since += 1
        if self.since < self.interval:
            return
        for j in range(len(margins)):
            step = np.linalg.solve(self.info[j] + 1e-3 * np.eye(2), self.grad[j])
            if self.counts[j] >= self.least and self.weight[j] + step[0] >= 0:
                self.weight[j] += step[0]
                self.bias[j] += step[1]
        self.info[:], self.grad[:], self.counts[:], self.since = 0, 0, 0, 0
        self.refits += 1


def adaptive(case: Mapping[str, Any]) -> Columns:
    both, cost, text, gamma = models(case), milliseconds(case), list(PROMPT), GAMMA
    end, curves = len(text) + LIMIT, Estimator(gamma, case["interval"], LEAST)
    stale = np.ones(gamma)
    drafted: list[list[Text]] = []
    counts: list[int] = []
    while len(text) < end:
        chain: list[int] = []
        margins = np.zeros(gamma)
        for j in range(gamma):
            row = after(both["drafter"], text + chain)
            first, second = best(row, 2)
            margins[j] = min(40.0, np.log(row[first]) - np.log(row[second]))
            chain.append(first)
        said = curves.predict(margins)
        budget = gamma
        if curves.refits >= case["warmup"]:
            scores = np.sort(np.cumprod(stale))[::-1]
            worth = np.concatenate(([1.0], 1.0 + np.cumsum(scores)))
            budget = int(np.argmax(worth / np.array([cost(1, 1 + n) for n in range(gamma + 1)])))
        stale = said
        paths = [tuple(chain[: j + 1]) for j in range(budget)]
        kept, n = verified(both["target"], text, paths)
        curves.step(margins, said, n, budget)
        text += kept
        drafted.append(sorted(paths))
        counts.append(n)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": counts}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("interval", "warmup")}
    params |= {"capacity": GAMMA, "gamma": GAMMA, "least": LEAST}
    externs = {"milliseconds": milliseconds(case)}
    return by_call(run("adaptive_verification", PROMPT, models(case), backend, max_tokens=LIMIT, externs=externs, **params))


CASES = tabled(
    "seed {seed} {apart} apart scale {scale} interval {interval} warmup {warmup}",
    "seed apart scale interval warmup",
    ((10, 16, 1.0, 4, 1), (9, 24, 1.0, 4, 1), (3, 7, 2.0, 5, 0), (4, 3, 0.2, 4, 2)),
)

COMPARED = [
    Compared(
        "adaptive_verification",
        "vllm-project/vllm 165b3663, 057929c3, v1/worker/gpu/spec_decode/{acceptance_estimator,adaptive_verification}.py",
        adaptive,
        ours,
        CASES,
        "greedy, a batch of one; capacity is max_total_logits less a token a sequence",
    )
]
