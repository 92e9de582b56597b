"""The seconds that a recorded run's model calls take."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from decgraph.backends.torch.pending import DraftLoopCall, FoldCall, Pending, ResolvedCall
from decgraph.backends.torch.rows import TorchDist
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.recording import Timing


def timed_call(m: Any, recorder: Timing, call: Pending[Any]) -> Any:
    """The value of a call, computed by itself, with the recorder told when it was computed. On a GPU the call is waited for."""
    if isinstance(call, ResolvedCall | FoldCall):
        return call.compute_alone()
    start = time.perf_counter()
    try:
        value = call.compute_alone()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return value
    finally:
        name = next((model.name for model in m.models.values() if engine_for(m, model) is call.engine), "derived model")
        calls = len(call.chosen) if isinstance(call, DraftLoopCall) else 1
        recorder.computed(name, start, calls)


def engine_for(m: Any, model: Any) -> Any:
    """The engine of a model that has one of its own, else None."""
    return m.engines.get(model) or (engine_of(model) if model.kind not in ("layers", "head") else None)


def offer(m: Any, t: Any, row: Any, children: Any, draws: Any) -> None:
    """Tell the recorder of a run the probabilities of the drafts, children of one node, that a rule tests."""
    for i, c in enumerate(children):
        m.recorder.offer(int(c), probability(row, int(t.token[c])), law_of(m, draws, i, int(t.token[c])))


def law_of(m: Any, draws: Any, i: int, token: int) -> float | None:
    """The probability of draft i of several under the law that it was drawn from."""
    return probability(draws.pick(i).law(m.request, m.vocab_size), token) if hasattr(draws, "law") else None


def probability(row: Any, token: int) -> float | None:
    """The probability of a token where the evidence at a node is a distribution."""
    if not isinstance(row, TorchDist) or row.shape != () or not 0 <= token < row.rows.size:
        return None
    return float(row.probability(np.asarray(token)))
