"""The lowering of ir/ops/memories.py."""

from __future__ import annotations

import numpy as np

from decgraph.backends.torch.canvas_calls import CanvasMemory
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.protocols import Machine
from decgraph.errors import DecError
from decgraph.ir.ops.memories import groups
from decgraph.runtime.models.engine.forward_call import Remembered


@lowering("memory.merged")
def merged(m: Machine, memory: Remembered | CanvasMemory, positions: object, numbers: object) -> Remembered:
    """A memory in which positions share a row. Raises DecError for that of a canvas."""
    if not isinstance(memory, Remembered):
        raise DecError("only a context's memory can be merged here", hint="m = target.memory(ctx.parent)")
    return memory.merged(groups(np.asarray(positions), np.asarray(numbers)))
