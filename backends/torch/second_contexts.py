"""Model calls on other tokens than the request's: each such text is a sequence of its own in the engine's KV cache.

A text that begins as one that was read before goes on with its keys and values; what is not common is computed again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decgraph.backends.drafting import calls
from decgraph.backends.torch.engines import Engines
from decgraph.backends.torch.pending import PendingCall, ResolvedCall
from decgraph.backends.torch.prefixes import Prefixes
from decgraph.backends.torch.rows import Rows, TorchDist
from decgraph.backends.torch.stores import ids_of
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.interface import Model

MOST = 8
"""How many second contexts of one model stay cached for a run."""


@dataclass
class Kept:
    """The second contexts of one model that are cached: their keys in the engine, and the tokens, the latest one last."""

    texts: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    opened: int = 0

    def key(self, run: Hashable, text: tuple[int, ...]) -> Hashable:
        """The sequence with which a text goes on: the one that has most of it, where that is at least half of what is cached
        there; else a new one, or, where there are MOST, the one that was not read for longest."""
        shared = {key: common(kept, text) for key, kept in self.texts.items()}
        best = max(shared, key=lambda key: shared[key], default=None)
        if best is None or 2 * shared[best] < len(self.texts[best]) or not shared[best]:
            if len(self.texts) < MOST:
                best = (run, "second context", self.opened)
                self.opened += 1
            else:
                best = next(iter(self.texts))
        self.texts.pop(best, None)
        self.texts[best] = text
        return best


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common beginning."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class SecondContexts(Engines):
    """Calls of a run on tokens that are not its context."""

    def start_run(self) -> None:
        super().start_run()
        self.second: dict[Model, Kept] = {}

    def release(self) -> None:
        """Free the KV cache of second contexts too, also where that of the request stays."""
        for model, kept in self.second.items():
            for key in kept.texts:
                self.engine(model).close(key)
        self.second.clear()
        super().release()

    @calls
    def read_tokens(
        self, model: Model, tokens: Any, given: Remembered | None = None, *, each: bool = False, alone: bool = False
    ) -> PendingCall | ResolvedCall:
        """The meaning of `model.read`. Raises DecError for no tokens at all."""
        text = tuple(int(t) for t in ids_of(tokens))
        if not text and each:
            none = np.zeros(0, dtype=np.int64)
            return ResolvedCall(TorchDist(Rows(empty(self.vocab_size), self.request), none, "shaped"))
        if not text:
            raise DecError(f"{model.name!r} needs at least one token of context")
        engine: Any = self.engine(model)
        key = self.second.setdefault(model, Kept()).key(self.sequence(), text[:1] if each else text)
        # The engine compares only the end of a context with what it has: texts that differ further up are told apart here.
        engine.rewind(key, text)
        n = len(text) if each else 1
        if each:  # a row is computed for drafts below a context: all but the first token are such a chain, which is not cached
            ask = ForwardCall(key, text[:1], (), text[1:], range(-1, n - 2), [-1] * (n - 1), range(-1, n - 1), name=self.title)
        else:
            ask = ForwardCall(key, text, given=given, name=self.title)
        self.count_call(model, n, len(text))
        length = len(self.tokens)
        own = self.main is None or model.vocab == self.main.vocab
        request = self.request if own else self.request.elsewhere

        def finish(scores: Any) -> TorchDist:
            rows = Rows(
                scores,
                request,
                positions=np.full(n, length),
                nodes=np.arange(n),
                label=model.name,
                path=Prefixes(self.text, length, lambda i: ()),
            )
            return TorchDist(rows, np.arange(n) if each else np.zeros((), dtype=np.int64), "shaped")

        return PendingCall(engine, key, ask, finish, alone)


def empty(size: int) -> Any:
    """Rows of no distribution."""
    import torch

    return torch.empty(0, size)
