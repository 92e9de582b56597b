"""What a decoding loop asks of a masked model, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import Counted


class AnyKept(Protocol):
    """A masked model's memory, of whichever engine: immutable, given back to the engine that made it."""

    length: int

    @property
    def positions(self) -> np.ndarray:
        """int64: the positions held, in order."""
        ...

    def only(self, ps: Iterable[int]) -> Self:
        """What is held of positions `ps`."""
        ...

    def without(self, ps: Iterable[int]) -> Self:
        """What is held, positions `ps` dropped."""
        ...

    def join(self, other: Self) -> Self:
        """Both; where both hold a position, `other`'s rows."""
        ...

    def layer(self, index: int) -> Any:  # Any: a value of the engine's own, for `put`
        """One layer, which has `positions`, `only` and `without`."""
        ...

    def put(self, index: int, part: Any) -> Self:  # Any: see `layer`
        """The same memory with one layer replaced."""
        ...


@dataclass
class CanvasCall:
    """One sequence's part in a call of a masked model.

    sequence: which sequence; `MaskedEngine.close` forgets it. cells: int64[S] (or [C, S]: C candidate canvases, same
    everything else), the committed context and then the canvas, `MaskedEngine.mask` where a cell is masked.
    soft: cells that are mixtures: their positions, weights [n, V] of the tokens' embeddings, weights [n] of the
    mask's. fresh: the positions computed, seeing each other and what `given` holds; without `given` or without
    `fresh` everything is computed and sees everything that it may. rows: the positions whose scores are wanted,
    among those computed. keep: whether the call's memory is wanted. consumed: nothing that shares rows with
    `given` (what it was cut from, what was cut from it) is read after this call, which may write into it.
    name: how messages call the request; the sequence, if left out.

    Ask for the scores and the memory of one call in one ask: later they are one forward only while the engine
    remembers the call.
    """

    sequence: Hashable
    cells: Tensor
    soft: tuple[Sequence[int], Tensor, Tensor] | None = None
    fresh: Sequence[int] | None = None
    given: Any = None  # Any: an `AnyKept` of the engine that is asked
    rows: Sequence[int] = ()
    keep: bool = False
    consumed: bool = False
    name: str = ""

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
    to. The mask's own logit is -inf. memory: `given` overwritten at what was computed, if it was asked for. computed: the
    cells that were computed for it, of all canvases together; 0 where the answer was remembered."""

    logits: Tensor
    memory: Any = None  # Any: an `AnyKept`
    computed: int = 0


class MaskedEngine(Protocol):
    """Answers asks of one masked model. `mask` is the id that stands for a masked cell; `counted` only grows."""

    mask: int
    counted: Counted

    def compute(self, calls: Sequence[CanvasCall]) -> list[CanvasOutput | DecError]:
        """In order. An error concerns its own ask only."""
        ...

    def empty(self, length: int) -> Any:  # Any: an `AnyKept`
        """A memory of `length` positions that holds none."""
        ...

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence; nothing happens for one that was never seen."""
        ...

    def limit(self, budget: int) -> None:
        """Bound the rows, scores and copied memories of one forward, in bytes."""
        ...

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Put captured forwards behind torch.compile; whether there is one."""
        ...


def fresh_of(
    base: int, length: int, at: Sequence[int] | np.ndarray | None, given: Any
) -> tuple[np.ndarray | None, Any]:  # Any: an `AnyKept`, or None
    """(fresh, given) of an ask, from what a program says: `at` are cells of a canvas of `length` cells behind `base`
    tokens of context (None: all), `given` the memory it names.

    Without a memory everything is computed. With one, a call computes its cells and the context where that is not
    held: also a call that computes the whole canvas keeps the context that it was given.
    """
    if given is None:
        if at is None or (len(at) and len(np.unique(at)) == length):
            return None, None
        return np.unique(np.asarray(at, dtype=np.int64)) + base, None
    wanted = (np.arange(length) if at is None else np.unique(np.asarray(at, dtype=np.int64))) + base
    cached = np.zeros(base, bool)
    where = given.positions
    cached[where[where < base]] = True
    fresh = np.concatenate([np.flatnonzero(~cached), wanted])
    return (None, None) if len(fresh) == base + length else (fresh, given)  # where all is computed, nothing held is seen
