"""A small transformer in NumPy float64 with random weights: for numerics, where the free model is for
identity.

Pre-norm, rotary positions, one matrix each for query, key, value and output, a two-layer perceptron, tied
embeddings. One position at a time and one layer after the other, so what a call computes is what the skeleton
says and nothing else. Not trained and not fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from decgraph.runtime.models.features import Features
from decgraph.runtime.models.interface import Cell, Row, Scores, SoftCell, Visibility, Vocab
from decgraph.runtime.models.layered import Layered
from decgraph.runtime.models.rounding import rounded


class TinyModel(Layered):
    """A transformer of `size` tokens, `layers` layers and `dim` dimensions in `heads_per_layer` attention
    heads.

    visibility "causal" makes it a causal model, "full" or ("block", b) a masked one; `kind` overrides that.
    `sharp` scales the logits: 1 is nearly uniform, 8 nearly greedy. Rows are float64 logits; a K/V row is a
    pair of float64[dim].
    """

    def __init__(
        self,
        seed: int,
        size: int = 8,
        layers: int = 2,
        *,
        dim: int = 8,
        heads_per_layer: int = 2,
        visibility: Visibility = "causal",
        kind: Literal["causal", "masked"] | None = None,
        heads: int = 0,
        sharp: float = 3.0,
        vocab: str = "tiny",
        name: str = "",
        context: int | None = None,
    ) -> None:
        self.seed, self.vocab, self.layers = seed, Vocab(vocab, size), layers
        self.visibility, self.context = visibility, context
        self.kind = kind or ("causal" if visibility == "causal" else "masked")
        self.name = name or f"tiny{seed}"
        self.family = f"tiny({seed}, {size}, {layers}, {dim}, {heads_per_layer}, {visibility})"
        self.heads_count, self._dim, self._split, self._sharp = heads, dim, heads_per_layer, sharp
        rng = np.random.default_rng(seed)
        self._table = rng.normal(size=(size + 1, dim))  # the last row is the mask's
        scale = 1 / np.sqrt(dim)
        self._blocks = [
            {
                "q": rng.normal(size=(dim, dim)) * 2 * scale,
                "k": rng.normal(size=(dim, dim)) * scale,
                "v": rng.normal(size=(dim, dim)) * scale,
                "o": rng.normal(size=(dim, dim)) * scale,
                "up": rng.normal(size=(dim, 2 * dim)) * scale,
                "down": rng.normal(size=(2 * dim, dim)) * scale / 2,
            }
            for _ in range(layers)
        ]
        self._medusa = [rng.normal(size=(dim, dim)) * scale for _ in range(heads)]
        self._setup()

    def _embed(self, cell: Cell, position: int) -> Row:
        if isinstance(cell, SoftCell):
            mix = np.array([float(w) for w in cell.weights] + [float(cell.mask)])
            return mix @ self._table
        return self._table[cell if isinstance(cell, int) else -1]

    def _keys_values(self, layer: int, position: int, state: Row) -> Row:
        block, x = self._blocks[layer], _norm(state)
        return _rotate(x @ block["k"], position, self._split), x @ block["v"]

    def _attention_logit(self, layer: int, position: int, state: Row, row: Row) -> float:
        query = _rotate(_norm(state) @ self._blocks[layer]["q"], position, self._split)
        return float(query @ row[0]) / self._split

    def _attend(self, layer: int, position: int, state: Row, rows: Sequence[Row], asks: Row | None = None) -> Row:
        return self._mlp(layer, position, self._attention(layer, position, state, rows, asks))

    def _attention(self, layer: int, position: int, state: Row, rows: Sequence[Row], asks: Row | None = None) -> Row:
        values = np.stack([row[1] for row in rows]).reshape(len(rows), self._split, -1)
        weights = self._by_head(layer, position, state if asks is None else asks, rows)
        return state + np.einsum("hn,nhd->hd", weights, values).reshape(-1) @ self._blocks[layer]["o"]

    def _weights(self, layer: int, position: int, state: Row, rows: Sequence[Row]) -> Sequence[float]:
        return [float(w) for w in self._by_head(layer, position, state, rows).mean(0)]

    def _by_head(self, layer: int, position: int, state: Row, rows: Sequence[Row]) -> np.ndarray:
        """Attention weights [heads, rows]."""
        query = _rotate(_norm(state) @ self._blocks[layer]["q"], position, self._split).reshape(self._split, -1)
        keys = np.stack([row[0] for row in rows]).reshape(len(rows), self._split, -1)
        scores = np.einsum("hd,nhd->hn", query, keys) / np.sqrt(query.shape[-1])
        weights: np.ndarray = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def _mlp(self, layer: int, position: int, state: Row) -> Row:
        block = self._blocks[layer]
        return state + np.maximum(_norm(state) @ block["up"], 0) @ block["down"]

    def _coarse(self, bits: int) -> None:
        self._blocks = [{name: rounded(w.T, bits).T for name, w in block.items()} for block in self._blocks]

    def read_out(self, state: Row, head: int | None = None) -> Scores:
        if head is not None:
            state = state + np.tanh(_norm(state) @ self._medusa[head])
        return self.read_bare(_norm(state))

    def normed(self, state: Row) -> Row:
        return _norm(state)

    def read_bare(self, state: Row) -> Scores:
        return Scores(logits=state @ self._table[:-1].T * self._sharp / np.sqrt(self._dim))


class TinyFeatures(Features):
    """An EAGLE head for a tiny target: one random causal layer over (feature, token) pairs."""

    def __init__(self, target: TinyModel, seed: int = 1, name: str = "") -> None:
        super().__init__(target, name or f"{target.name}.features{seed}")
        self._embed, dim = target._embed, target._dim
        rng = np.random.default_rng((seed, dim))
        self._in = rng.normal(size=(2 * dim, dim)) / np.sqrt(2 * dim)
        self._mix = rng.normal(size=(dim, dim)) / np.sqrt(dim)
        self._dim = dim

    def _feature(self, pairs: Sequence[tuple[Row, int | SoftCell]]) -> Row:
        zero = np.zeros(self._dim)
        x = np.stack([np.concatenate([zero if f is None else f, self._embed(t, 0)]) for f, t in pairs]) @ self._in
        scores = x @ x[-1] / np.sqrt(self._dim)
        weights = np.exp(scores - scores.max())
        return x[-1] + (weights / weights.sum()) @ x @ self._mix


def _norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean() + 1e-6)


def _rotate(x: np.ndarray, position: int, split: int) -> np.ndarray:
    """Rotary position embedding of float64[dim], head by head (Su et al., RoFormer, 2021)."""
    x = x.reshape(split, -1)
    half = x.shape[1] // 2
    angle = position * 100.0 ** (-np.arange(half) / half)
    a, b = x[:, :half], x[:, half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=1).reshape(-1)
