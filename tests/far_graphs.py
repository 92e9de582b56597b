"""CUDA graphs on a GPU that there is not (far_gpu.py): an iteration is recorded once and done again as it was recorded.

As in a CUDA graph nothing of the host happens again: a number that the host put into an operation stays what it was, kernels
are launched on the same tensors, and a tensor made inside is written anew where it stood. Reading a value while a graph is
recorded, copying one from the host, and shapes that depend on data are errors. Unlike there, recording runs the iteration, so
that the first replay, which always follows, is that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from far import Elsewhere, Launched
from far_gpu import one_gpu
from torch import Tensor
from torch.utils._pytree import tree_flatten
from unread import Unread


class Tape(Unread):
    """What an iteration did, in order: each call, and the tensors that it made."""

    def __init__(self) -> None:
        super().__init__(copies=False)
        self.done: list[tuple[Callable[[], Any], list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self.done.append((lambda: func(*args, **(kwargs or {})), tensors(out)))
        return out


def tensors(out: Any) -> list[Tensor]:
    return [t for t in tree_flatten(out)[0] if isinstance(t, Tensor)]


class Graphs(Launched):
    """Inside it kernels are launched on tensors of the GPU, and iterations recorded. `recorded` and `replayed` count."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = self.replayed = 0
        self.tape: Tape | None = None

    def launch(self, run: Callable[[], Any]) -> Any:
        tape = self.tape
        if tape is None:
            return run()
        tape.done.append((run, []))
        refused, tape.refused = tape.refused, set()  # the interpreter reads what it computes with
        kept, length = tape.done, len(tape.done)
        try:
            return run()
        finally:
            tape.refused = refused
            del kept[length:]

    def captured(self, iteration: Callable[[], Any], device: torch.device) -> tuple[Callable[[], None], Any]:
        """Stands for `captured.captured`."""
        self.tape = tape = Tape()
        self.recorded += 1
        Elsewhere.recording = True
        try:
            with tape:
                out = iteration()
        finally:
            self.tape, Elsewhere.recording = None, False
        ran = True

        def replay() -> None:
            nonlocal ran
            self.replayed += 1
            if ran:
                ran = False
                return
            for call, made in tape.done:
                for old, new in zip(made, tensors(call()), strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)

        return replay, out


@contextmanager
def gpu_with_graphs() -> Iterator[Graphs]:
    """A machine with one GPU (`far_gpu.one_gpu`), on which backend triton launches kernels and captures iterations."""
    from decgraph.backends.triton.step import canvas_run, captured, program

    with one_gpu(), pytest.MonkeyPatch.context() as patch, Graphs() as graphs:
        for module in (canvas_run, program):
            patch.setattr(module, "captures", lambda device: device.type == "cuda")
        patch.setattr(program, "EVERY", 1)  # the interpreter is slow: no iterations after the end
        patch.setattr(captured, "captured", graphs.captured)
        patch.setattr(captured, "warm", lambda iteration, _: iteration())
        yield graphs
