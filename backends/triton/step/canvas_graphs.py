"""Loops on the device: capture of iterations, writing back of carried values, and properties of their regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from decgraph.backends.triton.step import captured
from decgraph.backends.triton.step.canvas_kernels import launch
from decgraph.backends.triton.step.canvas_symbols import Symbol, plain
from decgraph.ir.values import Op, Region, Value

MODEL_OPS = ("model.eval", "model.memory", "model.evals", "model.heads", "model.hidden")
"""Ops that call a model."""


class Recorder(Protocol):
    """Captures iterations (not on the CPU). `record(iteration)` returns a function that replays what `iteration` launched."""

    def record(self, iteration: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """(a function that replays the iteration, its return value). The iteration itself is not run."""
        ...


class CudaRecorder(Recorder):
    """Iterations as CUDA graphs of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, iteration: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """See `Recorder`."""
        return captured.captured(iteration, self.device)


@dataclass
class CapturedIteration:
    """A captured iteration: its replay, and the static part of the carried values after it (serials aside)."""

    replay: Callable[[], None]
    after: tuple[Any, ...]


def write_back(wanted: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write carried values back to the loop's own tensors, as (value, destination) of equal shape: symbols by one kernel, the
    rest by copies. A value that is itself one of the destinations is copied before that is written."""
    own = {buffer.untyped_storage().data_ptr() for _, buffer in wanted}
    later = [(t, buffer) for t, buffer in wanted if isinstance(t, Symbol) and t.value is None]
    rest = [(plain(t), buffer) for t, buffer in wanted if not isinstance(t, Symbol) or t.value is not None]
    rest = [(t.clone() if t.untyped_storage().data_ptr() in own else t, buffer) for t, buffer in rest if t is not buffer]
    if later:
        launch(later)
    for t, buffer in rest:
        buffer.copy_(t)


def asks(op: Op) -> bool:
    """Whether an op's regions call a model."""
    return any(o.opcode in MODEL_OPS for r in op.regions for o in r.walk())


def accumulates(value: Any, body: Region, arg: Value, after: Value) -> bool:
    """Whether a loop updates a number that is static now: its next value depends on its last."""
    if not isinstance(value, bool | int | float) or after is arg:
        return False
    made = {r: op for op in body.walk() for r in op.results}
    left, seen = [after], set()
    while left:
        v = left.pop()
        if v is arg:
            return True
        if v not in seen and v in made:
            seen.add(v)
            op = made[v]
            left += [*op.operands, *(y for r in op.regions for y in r.yields)]
    return False


def kept_calls(body: Region) -> frozenset[Op]:
    """The calls whose memory is read too: `model.memory` of the same operands."""
    memories = {(o.operands, tuple(o.attrs["with"])) for o in body.walk() if o.opcode == "model.memory"}
    return frozenset(o for o in body.walk() if o.opcode == "model.eval" and (o.operands, tuple(o.attrs["with"])) in memories)
