"""What the engines of masked modules share, whichever way they compute a canvas: remembered calls, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from decgraph.errors import DecError
from decgraph.runtime.models.engine.canvas_call import CanvasCall
from decgraph.runtime.models.engine.forward_call import Counted
from decgraph.runtime.models.engine.masked_memo import Memo
from decgraph.runtime.models.engine.masked_memory import CachedMemory, empty
from decgraph.runtime.models.interface import Model


class RememberingEngine:
    """The part of `MaskedEngine` without `compute`. budget: bytes that one forward may take; remembered: bytes that remembered
    calls may take."""

    def __init__(self, model: Model, *, budget: int, remembered: int) -> None:
        assert model.mask is not None
        self.mask: int = model.mask
        self.counted, self.budget, self.memo = Counted(), budget, Memo(remembered)
        self._of = model

    def empty(self, length: int) -> CachedMemory:
        """A memory of `length` positions with no row cached."""
        return empty(self._of.family, length)

    def limit(self, budget: int) -> None:
        """Bound what one forward may take, in bytes."""
        self.budget = budget

    def compile(self, notice: Callable[[str], None]) -> bool:
        """False: the forwards of masked models are not compiled."""
        return False

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence's calls; its memories live as long as there is a reference to them."""
        self.memo.close(sequence)

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Forget the sequence: a canvas does not go on where another one ended."""
        self.close(sequence)

    def _check_length(self, length: int) -> None:
        model = self._of
        if not length:
            raise DecError(f"{model.name!r} needs at least one token of context")
        if model.context is not None and length > model.context:
            raise DecError(f"{length} positions are past the context length of {model.name!r} ({model.context})")

    def _no_token(self, call: CanvasCall, token: int, position: int) -> DecError:
        return DecError(
            f"token {token} at {call.position(position)} is not in the vocabulary of {self._of.name!r}, which has "
            f"{self._of.vocab.size} tokens"
        )

    def _no_position(self, length: int) -> DecError:
        return DecError(f"{self._of.name!r} was asked for a position outside 0..{length - 1}")
