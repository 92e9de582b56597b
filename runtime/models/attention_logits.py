"""How much the queries of some positions look at every other: what `memory.scores` reads of a memory that holds queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.interface import Cell, Model, Number

AttentionLogits = Callable[[tuple[int, ...]], Sequence[Sequence[Number]]]
"""From absolute positions to, by layer, the mean over their queries and the heads of q . k for every position."""


def logits_of_queries(model: Model, cells: tuple[Cell, ...]) -> AttentionLogits:
    """Of a canvas behind its context. It is asked for layer after layer, and computed once."""
    return lru_cache(maxsize=1)(lambda queries: model.attention_logits(cells, queries))


def check_layer(index: int, layers: int, which: int | None) -> None:
    """Raises DecError for a layer that a memory of so many does not have, and where the memory is the layer `which` itself."""
    hint = "for l in model.layers: m[l] = m[l].without(ps)"
    if which is not None:
        raise DecError("a layer of a memory has no layers", hint=hint)
    if not 0 <= index < layers:
        raise DecError(f"there is no layer {index}: the memory has {layers}, from 0 on", hint=hint)


def read_logits(
    attention_logits: AttentionLogits | None, layer: int | None, base: int, queries: object, at: object
) -> list[Number]:
    """The meaning of `memory.scores`: of a layer, or the mean over layers; of the canvas's cells, or of the positions `at`, in
    both of which `base` is 0. Raises DecError for a memory without queries, and for positions that it does not have."""
    if attention_logits is None:
        raise DecError("the memory holds no queries", hint="m = model.memory(c, queries = yes)")
    rows = attention_logits(tuple(base + int(i) for i in np.ravel(np.asarray(queries))))
    row = rows[layer] if layer is not None else [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    where = range(base, len(row)) if at is None else [base + int(i) for i in np.ravel(np.asarray(at))]
    wrong = next((i for i in where if not 0 <= i < len(row)), None)
    if wrong is not None:
        raise DecError(f"there is no position {wrong - base} here", hint=f"positions go from {-base} to {len(row) - base - 1}")
    return [row[i] for i in where]
