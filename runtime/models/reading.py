"""Heads whose output is no distribution: a judge, a predictor of acceptance, a router, a value (`head(target) -> prob`).

Such a head is a function of the target's last hidden state after a path, and so of the path: `Model.read` has one value for
each path. The stand-ins here need no weights. A trained one of a Hugging Face target is in hf_heads.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.free import digest, small_weights
from decgraph.runtime.models.interface import Model, Number, OfTarget, Path, Scores, Value, check_path

ROUNDING = 1e-5
"""How far beside 0..1 a probability may be."""


class Reading(OfTarget[Model]):
    """A head of `target` with one value of kind `gives` after every path."""

    def __init__(self, target: Model, gives: str, name: str) -> None:
        self.kind = "head"
        self.target, self.gives, self.name = target, gives, name
        self.vocab, self.context, self.family = target.vocab, target.context, target.family
        self.layers, self.exact = target.layers, target.exact

    def of_states(self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None) -> list[Value]:
        """The values of hidden states [n, width]. layer: whose part of the head reads them; None: the head as a whole. tokens:
        one beside each state, if the head reads tokens."""
        raise self._cannot("read hidden states of inner layers")

    def scores_of(
        self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None, joint: bool = False
    ) -> list[Scores]:
        """The scores of hidden states [n, width], of a head that gives distributions; the rest as of `of_states`. joint: each
        is a function of all of them."""
        raise self._cannot("give distributions")


class AnyScores(Reading):
    """A table of distributions, by the states and the tokens beside them, drawn from a seed."""

    def __init__(self, target: Model, seed: int = 1, *, name: str = "") -> None:
        super().__init__(target, "dist", name or f"{target.name}.head{seed}")
        self.seed, self.asked = seed, dict[str, Scores]()

    def scores_of(
        self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None, joint: bool = False
    ) -> list[Scores]:
        own = [(tuple(row), None if tokens is None else tokens[i]) for i, row in enumerate(states)]
        keys = [repr((layer, one, (i, own) if joint else ())) for i, one in enumerate(own)]
        for key in keys:
            if key not in self.asked:
                self.asked[key] = Scores(weights=small_weights(f"{self.seed}:{key}", self.vocab.size))
        return [self.asked[key] for key in keys]

    def describe(self) -> str:
        rows = [f"  {key}: {' '.join(map(str, s.weights or ()))}" for key, s in sorted(self.asked.items())]
        return "\n".join([f"head {self.name}, a distribution of every state:", *rows])


class AnyReading(Reading):
    """A function of the path drawn from a seed: one of `answers`; where `chosen`, the checker's adversary chooses instead."""

    def __init__(
        self, target: Model, gives: str, seed: int = 1, *, answers: Sequence[Any] = (), chosen: bool = False, name: str = ""
    ) -> None:
        super().__init__(target, gives, name or f"{target.name}.head{seed}")
        self.seed, self.answers, self.chosen = seed, list(answers) or _ANSWERS[gives], chosen
        self.asked: dict[Path, Value] = {}

    def read(self, paths: Sequence[Path]) -> list[Value]:
        for path in paths:
            if path not in self.asked:
                self.asked[path] = self._drawn("reading", check_path(self, path))
        return [self.asked[path] for path in paths]

    def of_states(self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None) -> list[Value]:
        beside = [()] * len(states) if tokens is None else [(t,) for t in tokens]
        return [self._drawn("state", layer, tuple(row), *x) for row, x in zip(states, beside, strict=True)]

    def _drawn(self, kind: str, *key: object) -> Value:
        return self.answers[int(digest(kind, self.seed, *key), 16) % len(self.answers)]

    def describe(self) -> str:
        rows = [f"  after {' '.join(map(str, p))}: {v}" for p, v in sorted(self.asked.items())]
        return "\n".join([f"head {self.name}, a {self.gives} after every text:", *rows])


class Confidence(Reading):
    """A stand-in for a head that was not given, which reads its value off the target's own distribution: as a probability that
    of the likeliest token (yes: at least one half), as a number the entropy in nats, as a class 0 where the likeliest token has
    at least one half and else 1."""

    def __init__(self, target: Model, gives: str, name: str = "") -> None:
        super().__init__(target, gives, name or f"confidence of {target.name}")

    def read(self, paths: Sequence[Path]) -> list[Value]:
        return [self._of([float(w) for w in _weights(s)]) for s in self.target.eval(list(paths))]

    def of_states(self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None) -> list[Value]:
        """The values of the distributions that the target's head reads off states [n, width], without the tokens."""
        rows = [self.target.read_state(row) for row in states]
        return [self._of([float(w) for w in _weights(s)]) for s in rows]

    def scores_of(
        self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None, joint: bool = False
    ) -> list[Scores]:
        """The target's own distributions for states [n, width], without the tokens."""
        return [self.target.read_state(row) for row in states]

    def _of(self, weights: list[float]) -> Value:
        if self.gives == "real":
            return -sum(w * math.log(w) for w in weights if w > 0)
        top = max(weights)
        return {"prob": top, "int": int(top < 0.5), "bool": top >= 0.5}[self.gives]


def valued(m: Any, elem: str, values: Sequence[Any], shape: tuple[int, ...]) -> Any:  # Any: a backend's machine and numbers
    """Values of a head as a machine has them: one, or an array of this shape. Raises DecError for a probability that is none;
    what rounding leaves outside of 0..1 is cut."""
    if elem == "prob":
        wrong = [x for x in values if not -ROUNDING <= x <= 1 + ROUNDING]
        if wrong:
            raise DecError(f"a head gave the probability {float(wrong[0]):g}", hint="probabilities are between 0 and 1")
        values = [min(max(x, 0), 1) for x in values]
    if elem in ("prob", "real"):
        made = m.reals([m.num.const(x) for x in values])
    else:
        made = np.array(values, dtype=bool if elem == "bool" else np.int64)
    return made.reshape(shape) if shape else made[0]


def _weights(scores: Scores) -> Sequence[Number]:
    if scores.weights is not None:
        return scores.weights
    assert scores.logits is not None, "a row has weights or logits"
    top = scores.logits.max()
    made = [math.exp(x - top) for x in scores.logits]
    total = sum(made)
    return [w / total for w in made]


_ANSWERS: dict[str, list[Value]] = {
    "prob": [Fraction(n, 8) for n in range(9)],
    "real": [Fraction(-1), Fraction(0), Fraction(1, 2), Fraction(2)],
    "int": [0, 1, 2],
    "bool": [False, True],
}
