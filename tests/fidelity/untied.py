"""Table models in which no two tokens are equally likely, so that a search has no ties to break."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.text import detokenizer_of


def untied(size: int, seed: int, *, window: int = 2, sharp: float = 1.0, name: str = "target", blend: Any = None) -> TableModel:
    """A table whose weights are log-normal, the more uneven the larger `sharp` is. blend: a seed and a share of weights of its
    own, so that two tables of one seed agree on most tokens and not on all."""
    made = TableModel(size, seed, window=window, vocab="t", name=name)
    found: dict[Any, Scores] = {}

    def entry(key: Any, name: str) -> Scores:
        if key not in found:
            r = random.Random(f"{seed} {key!r}")
            weights = [int(10**4 * 2.718281828 ** (sharp * r.gauss(0, 1))) + 1 for _ in range(size)]
            if blend is not None:
                other = random.Random(f"{blend[0]} {key!r}")
                weights = [int(w * 2.718281828 ** (blend[1] * other.gauss(0, 1))) + 1 for w in weights]
            found[key] = Scores(weights=tuple(Fraction(w, sum(weights)) for w in weights))
        return found[key]

    made._table = entry  # type: ignore[assignment]
    return made


class Letters:
    """A tokenizer of one character for each token: `alphabet`, then letters."""

    def __init__(self, alphabet: str = "") -> None:
        self.pieces = [*alphabet, *(chr(i) for i in range(97, 97 + 26))]
        self.detokenizer = detokenizer_of(self.pieces)

    def decode(self, tokens: Any) -> str:
        return self.detokenizer.text(tokens)
