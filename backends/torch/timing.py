"""The seconds that a recorded run's model calls take."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
import torch

from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.pending import Call, DraftLoopCall, MeetingCall
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, TorchDist
from decgraph.backends.torch.trees import TorchTree
from decgraph.backends.torch.watched import watched
from decgraph.ir.values import Op
from decgraph.runtime.recording import Timing


def timed_call(recorder: Timing, call: Call) -> object:
    """The value of a call, computed by itself, with the recorder told when it was computed. On a GPU the call is waited for."""
    if isinstance(call, MeetingCall):
        return call.compute_alone()
    start = time.perf_counter()
    try:
        value = call.compute_alone()
        if torch.cuda.is_initialized():  # something of this process lies on a GPU
            torch.cuda.synchronize()
        return value
    finally:
        recorder.computed(start, max(0, len(call.chosen) - 1) if isinstance(call, DraftLoopCall) else 0)


def recorded(driver: Driver, recorder: Timing) -> Driver:
    """A driver that tells a recorder the lines that run: of each statement, and of what it computes within."""
    parts = {n: tuple(dict.fromkeys(part.loc for part in parts_of(op) if part.loc.line)) for n, op in driver.lines.items()}

    def at(line: int) -> None:
        for loc in parts.get(line, ()):
            recorder.ran(loc)

    return watched(driver, at)


def parts_of(op: Op) -> Iterable[Op]:
    """The operations that a statement computes whenever it runs."""
    return (op, *op.regions[0].walk()) if op.opcode == "segment" else (op,)


def offer(m: Machine, t: TorchTree, row: object, children: Ids, draws: Draws | np.ndarray | tuple[()]) -> None:
    """Tell the recorder of a run the probabilities of the drafts, children int64[n] of one node, that a rule tests."""
    assert m.recorder is not None
    for i, c in enumerate(children):
        token = int(t.token[c])
        p, raw = probabilities(row, token)
        m.recorder.offer(int(c), p, law_of(m, draws, i, token), raw)


def law_of(m: Machine, draws: Draws | np.ndarray | tuple[()], i: int, token: int) -> float | None:
    """The probability of draft i of several [n] under the distribution that it was drawn from."""
    return float(draws.pick(i).law_prob(m.request, m.vocab_size)) if isinstance(draws, TorchDraws | Mixed) else None


def probabilities(row: object, token: int) -> tuple[float | None, float | None]:
    """The probability of a token where the evidence at a node is a distribution, and that before the request's shaping."""
    if not isinstance(row, TorchDist) or row.shape != () or not 0 <= token < row.rows.size:
        return None, None
    return float(row.probability(np.asarray(token))), float(row.raw.probability(np.asarray(token)))
