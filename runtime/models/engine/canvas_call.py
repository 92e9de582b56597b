"""The interface of masked models' engines: a call, its output, and the memory that calls pass on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import Counted

SoftCells: TypeAlias = tuple[Sequence[int], Tensor, Tensor]
"""Cells that are mixtures: their positions, weights [n, V] of the tokens' embeddings, weights [n] of the mask's."""


class KeptMemory(Protocol):
    """A masked model's memory, of any engine: immutable, read by the engine that created it."""

    @property
    def length(self) -> int:
        """How many positions it covers."""
        ...

    @property
    def positions(self) -> Iterable[int]:
        """The positions that are cached in any layer."""
        ...

    def only(self, ps: Iterable[int]) -> Self:
        """The memory restricted to positions `ps`."""
        ...

    def without(self, ps: Iterable[int]) -> Self:
        """The memory without positions `ps`."""
        ...

    def join(self, other: Self) -> Self:
        """Both; where both have a position, `other`'s rows."""
        ...

    def __getitem__(self, layer: int) -> Any:  # a value of the engine's own, for `with_layer`
        """One layer, which has `positions`, `only` and `without`."""
        ...

    def with_layer(self, index: int, layer: Any) -> Self:
        """The same memory with one layer replaced."""
        ...


@dataclass
class CanvasCall:
    """One sequence's part in a call of a masked model.

    sequence: which sequence; `MaskedEngine.close` forgets it. cells: int64[S] (or [C, S]: C candidate canvases, same
    everything else), the committed context and then the canvas, `MaskedEngine.mask` where a cell is masked.
    soft: cells that are mixtures: their positions, weights [n, V] of the tokens' embeddings, weights [n] of the
    mask's. fresh: the positions to compute, which attend to each other and to `memory`; without `memory` or without
    `fresh` all positions are computed. rows: the positions whose scores are wanted, among those computed. keep:
    whether the call's memory is wanted. name: how messages call the request; the sequence, if left out. prompt: how many of
    the cells are the committed context; only ("prompt+block", n) models depend on it.

    Request the scores and the memory in one call: in two they share a forward only while the engine remembers the
    first.
    """

    sequence: Hashable
    cells: Tensor
    soft: SoftCells | None = None
    fresh: Sequence[int] | None = None
    memory: KeptMemory | None = None  # of the engine that computes the call
    rows: Sequence[int] = ()
    keep: bool = False
    name: str = ""
    prompt: int = 0

    @property
    def request(self) -> str:
        """What messages call the sequence."""
        return self.name or f"request {self.sequence}"

    def position(self, i: int) -> str:
        """What messages call a position."""
        return f"position {i} of {self.request}"


@dataclass(frozen=True)
class CanvasOutput:
    """logits: [rows, V] or [C, rows, V], float32 (Hugging Face) or float64, on the model's device, not to be written
    to. The mask's own logit is -inf. memory: `memory` overwritten at the computed positions, if `keep` was set.
    computed: how many positions were computed for it, of all canvases together; 0 where the output was remembered."""

    logits: Tensor
    memory: KeptMemory | None = None
    computed: int = 0


class MaskedEngine(Protocol):
    """Computes calls of one masked model. `mask` is the id of a masked cell; `counted` only grows."""

    mask: int
    counted: Counted

    def compute(self, calls: Sequence[CanvasCall]) -> list[CanvasOutput | DecError]:
        """The calls' outputs, in order. An error concerns its own call only."""
        ...

    def empty(self, length: int) -> KeptMemory:
        """A memory of `length` positions with no row cached."""
        ...

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence; nothing happens for one that was never seen."""
        ...

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Before a new request goes on with a sequence: forget what does not hold for it."""
        ...

    def limit(self, budget: int) -> None:
        """Bound the rows, scores and copied memories of one forward, in bytes."""
        ...

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Compile decoders with torch.compile; returns whether there is one."""
        ...


def fresh_of(
    base: int, length: int, at: Sequence[int] | np.ndarray | None, memory: KeptMemory | None
) -> tuple[np.ndarray | None, KeptMemory | None]:
    """(fresh int64[n], memory) of a call, from the arguments in a program: `at` are cells of a canvas of `length` cells
    after `base` tokens of context (None: all), `memory` the memory it names.

    Without a memory everything is computed. With one, a call computes its cells and those context positions that are
    not cached: also a call that computes the whole canvas reuses the context of its memory.
    """
    if memory is None:
        if at is None or (len(at) and len(np.unique(at)) == length):
            return None, None
        return np.unique(np.asarray(at, dtype=np.int64)) + base, None
    wanted = (np.arange(length) if at is None else np.unique(np.asarray(at, dtype=np.int64))) + base
    cached = np.zeros(base, bool)
    where = np.fromiter(memory.positions, np.int64)
    cached[where[where < base]] = True
    fresh = np.concatenate([np.flatnonzero(~cached), wanted])
    if len(fresh) == base + length:  # a call that computes all positions reads no cached one
        return None, None
    return fresh, memory
