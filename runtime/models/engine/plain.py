"""The engine of models that are pure functions of whole paths (table, free, tiny): it has no cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import Counted, ForwardCall, Output, Uncached
from decgraph.runtime.models.interface import Model, Scores, check_size

_log = logging.getLogger("decgraph.engine")


class PlainEngine(Uncached):
    """Calls of a model of kind causal, features or heads, computed path by path through `Model.eval` and
    `Model.heads`. Rows are float64: logits, or the logarithms of exact weights (-inf where a weight is 0)."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.counted = Counted()

    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Float64 [rows, V], or [rows * heads, V] for the part "heads"; in its place the DecError of a call that fails."""
        self.counted.calls += 1
        outputs: list[Output] = []
        for call in calls:
            self.counted.sequence_calls += 1
            length = len(call.context) + len(call.tokens)
            self.counted.requested += length
            self.counted.computed += length
            try:
                rows = stacked(self._scores(call), self.model.vocab.size, self.model.name)
                self.counted.rows += len(rows)
                outputs.append(rows)
            except DecError as error:
                outputs.append(error)
        return outputs

    def _scores(self, call: ForwardCall) -> list[Scores]:
        paths = call.paths()
        if call.part == "heads":
            return [row for path in paths for row in self.model.heads(path)]
        return self.model.eval(paths, memory=None if call.memory is None else call.memory.value)


def build_engine(model: Model) -> PlainEngine:
    """The engine of a model that has no other."""
    return PlainEngine(model)


def uncached(model: Model) -> PlainEngine:
    """The engine of a model of transformers that no engine with a cache knows."""
    _log.warning("%r has no cached engine: each of its calls computes whole paths", model.name)
    return PlainEngine(model)


def stacked(scores: Sequence[Scores], size: int, name: str = "a model") -> Tensor:
    """Rows of scores as float64 [n, V]. Raises DecError for rows of another size."""
    out = np.empty((len(scores), size))
    for row, score in zip(out, scores, strict=True):
        check_size(name, score.size, size)
        row[:] = score.to_float().logits
    return torch.from_numpy(out)
