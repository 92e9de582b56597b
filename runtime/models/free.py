"""The free model: every state is a hash of exactly the inputs that it was computed from.

Keys and values at (layer, position) are a hash of the layer, the position and the state; the next state is a
hash of the state and the rows it sees; a distribution is a handful of small fractions drawn from the last
state's hash. Two computations agree on it if and only if they computed from the same things, so a wrong reuse
of K/V, features or positions always shows, without rounding and without tolerance.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from decgraph.runtime.models.features import Features
from decgraph.runtime.models.interface import Cell, Model, Row, Scores, SoftCell, Visibility, Vocab
from decgraph.runtime.models.layered import Layered


def digest(*parts: object) -> str:
    """A hash of `parts`: sixteen hexadecimal digits."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=100_000)
def small_weights(key: str, size: int, *, zeros: bool = False, power: int = 1, top: int = 9) -> tuple[Fraction, ...]:
    """`size` fractions drawn from `key`: whole weights up to `top` ** `power`, divided by their sum.

    With `zeros` about a quarter of the tokens have no mass. With power 4 temperature 2 and 1/2 stay rational.
    """
    rng = random.Random(key)
    raw = [0 if zeros and rng.random() < 0.25 else rng.randint(1, top) ** power for _ in range(size)]
    if not any(raw):
        raw[rng.randrange(size)] = 1
    total = sum(raw)
    return tuple(Fraction(w, total) for w in raw)


class FreeModel(Layered):
    """A free model of `size` tokens and `layers` layers.

    visibility "causal" makes it a causal model, "full" or ("block", b) a masked one; `kind` overrides that.
    `heads` is how many Medusa heads it has. Rows are exact.
    """

    def __init__(
        self,
        seed: int,
        size: int = 3,
        layers: int = 3,
        *,
        visibility: Visibility = "causal",
        kind: Literal["causal", "masked"] | None = None,
        heads: int = 0,
        zeros: bool = False,
        power: int = 1,
        vocab: str = "free",
        name: str = "",
        context: int | None = None,
    ) -> None:
        self.seed, self.vocab, self.layers = seed, Vocab(vocab, size), layers
        self.visibility, self.context, self.exact = visibility, context, True
        self.kind = kind or ("causal" if visibility == "causal" else "masked")
        self.name = name or f"free{seed}"
        self.family = f"free({seed}, {size}, {layers}, {visibility})"
        self.heads_count = heads
        self._zeros, self._power, self._grain = zeros, power, 0
        self._setup()

    def _embed(self, cell: Cell, position: int) -> Row:
        return digest(self.seed, self._grain, "embedding", cell)

    def _keys_values(self, layer: int, position: int, state: Row) -> Row:
        return digest(self.seed, self._grain, layer, "kv", position, state)

    def _attention_logit(self, layer: int, position: int, state: Row, row: Row) -> Fraction:
        return Fraction(int(digest(self.seed, self._grain, layer, "look", position, state, row), 16) % 97, 97)

    def _attend(self, layer: int, position: int, state: Row, rows: Sequence[Row], asks: Row | None = None) -> Row:
        return digest(self.seed, self._grain, layer, "state", position, state, tuple(rows), *([] if asks is None else [asks]))

    def _attention(self, layer: int, position: int, state: Row, rows: Sequence[Row], asks: Row | None = None) -> Row:
        return digest(
            self.seed, self._grain, layer, "attention", position, state, tuple(rows), *([] if asks is None else [asks])
        )

    def _weights(self, layer: int, position: int, state: Row, rows: Sequence[Row]) -> Sequence[Fraction]:
        return small_weights(digest(self.seed, self._grain, layer, "weights", position, state, tuple(rows)), len(rows))

    def _mlp(self, layer: int, position: int, state: Row) -> Row:
        return digest(self.seed, self._grain, layer, "mlp", position, state)

    def _coarse(self, bits: int) -> None:
        self._grain = bits

    def read_state(self, state: np.ndarray) -> Scores:
        return self.read_out(state[0] if state.dtype == object else digest("numbers", *state.tolist()))

    def normed(self, state: Row) -> Row:
        return digest("normed", state)

    def read_bare(self, state: Row) -> Scores:
        return self.read_out(digest("bare", state))

    def derive(self, how: str, *args: object) -> Model:
        match how, args:
            case "expert", (int(rank),) if rank >= 1:
                made = self._copy(f"expert({rank})")
                made._grain = -rank
                return made
        return super().derive(how, *args)

    def read_out(self, state: Row, head: int | None = None) -> Scores:
        key = state if head is None else digest(self.seed, "head", head, state)
        return Scores(weights=small_weights(key, self.vocab.size, zeros=self._zeros, power=self._power, top=97))


class FreeFeatures(Features):
    """An EAGLE head for a free target: its features are hashes too, and the target reads them out."""

    def __init__(self, target: FreeModel, seed: int = 1) -> None:
        super().__init__(target, f"{target.name}.features{seed}")
        self.seed = seed

    def _feature(self, pairs: Sequence[tuple[Row, int | SoftCell]]) -> Row:
        return digest("feature", self.seed, tuple(pairs))


class FreeAdapter(Model):
    """A model from states to states, to stand between a free target's layers and its head (Kangaroo)."""

    def __init__(self, target: FreeModel, seed: int = 1) -> None:
        self.kind = "layers"
        self.seed, self.vocab, self.layers, self.exact = seed, target.vocab, 1, True
        self.name = f"{target.name}.adapter{seed}"
        self.family = f"free adapter({seed}, 1) of {target.family}"

    def apply(self, states: Mapping[int, Row]) -> dict[int, Row]:
        """The state at every position, from the states of the positions up to it."""
        rows = {i: digest("adapter", self.seed, 0, i, state) for i, state in states.items()}
        below = lambda i: tuple(rows[j] for j in sorted(rows) if j <= i)
        return {i: digest("adapter", self.seed, 0, state, below(i)) for i, state in states.items()}
