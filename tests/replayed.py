"""Captured turns without a GPU: what a turn launched is written down, and done again with the same tensors at the same places.

As in a CUDA graph nothing of the host happens again: a number that the host put into an operation stays what it was, a tensor
that was made inside is written anew where it stood, and reading a value while a turn is recorded is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten
from unread import Unread

from decgraph.backends.triton.step.canvas_graphs import Recorder


class _Tape(Unread):
    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        made = [t for t in tree_flatten(out)[0] if isinstance(t, Tensor)]
        self.done.append((func, args, kwargs or {}, made))
        return out


class TapeRecorder(Recorder):
    """See `Recorder`. `records` and `replays` count. What a recorded turn did in its recording is undone, since recording a
    CUDA graph runs nothing: `state` names the tensors that live longer than a turn."""

    def __init__(self, state: Callable[[], list[Tensor]]) -> None:
        self.state, self.records, self.replays = state, 0, 0

    def record(self, turn: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """See `Recorder`."""
        before = [(t, t.clone()) for t in self.state()]
        tape = _Tape()
        with tape:
            out = turn()
        for t, old in before:
            t.copy_(old)
        self.records += 1

        def replay() -> None:
            self.replays += 1
            for func, args, kwargs, made in tape.done:
                again = [t for t in tree_flatten(func(*args, **kwargs))[0] if isinstance(t, Tensor)]
                for old, new in zip(made, again, strict=True):
                    if old.data_ptr() != new.data_ptr():
                        old.copy_(new)

        return replay, out
