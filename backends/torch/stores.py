"""Suffix indexes of the torch machine, searched with NumPy. The meaning is the reference's Suffixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decgraph.backends.indexes import Continuations, Lru
from decgraph.backends.torch.draws import points
from decgraph.backends.torch.trees import Context, TorchPath
from decgraph.errors import DecError


class _Text:
    """Append-only tokens in a buffer with spare capacity: values share it up to their own length."""

    __slots__ = ("buffer", "used")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.buffer = np.empty(max(64, 2 * len(tokens)), dtype=np.int64)
        self.buffer[: len(tokens)] = tokens
        self.used = len(tokens)

    def extended(self, length: int, tokens: Sequence[int]) -> _Text:
        """The text of the first `length` tokens and these: itself where nothing was written past `length`."""
        text = self
        if self.used != length:
            text = _Text(self.buffer[:length].tolist())
        if length + len(tokens) > len(text.buffer):
            wider = np.empty(2 * (length + len(tokens)), dtype=np.int64)
            wider[:length] = text.buffer[:length]
            text.buffer = wider
        text.buffer[length : length + len(tokens)] = tokens
        text.used = length + len(tokens)
        return text


class Suffixes:
    """An index of the texts learned so far: looked up by a context's last tokens, it returns what followed them. Immutable."""

    __slots__ = ("depth", "texts")

    def __init__(self, depth: int = 64, texts: tuple[tuple[_Text, int], ...] = ()) -> None:
        self.depth, self.texts = depth, texts

    def learn(self, tokens: Sequence[int]) -> Suffixes:
        """With another text."""
        return Suffixes(self.depth, (*self.texts, (_Text(tokens), len(tokens)))) if len(tokens) else self

    def extend(self, tokens: Sequence[int]) -> Suffixes:
        """With the last text continued."""
        if not self.texts:
            return self.learn(tokens)
        text, length = self.texts[-1]
        return Suffixes(self.depth, (*self.texts[:-1], (text.extended(length, tokens), length + len(tokens))))

    def _ends(self, array: np.ndarray, key: Sequence[int]) -> np.ndarray:
        """Where an occurrence of `key` ends in a text (the index after it) that something follows."""
        ends = np.flatnonzero(array[len(key) - 1 : -1] == key[-1]) + len(key) if len(key) else np.arange(len(array))
        for back in range(2, len(key) + 1):
            if not len(ends):
                break
            ends = ends[array[ends - back] == key[-back]]
        return ends

    def arrays(self) -> list[np.ndarray]:
        return [text.buffer[:length] for text, length in self.texts]

    def find(self, key: Sequence[int], pick: str) -> tuple[int, ...] | None:
        """What follows an occurrence of `key`: the first or the last one that something follows."""
        arrays = self.arrays()
        for array in arrays if pick == "first" else reversed(arrays):
            ends = self._ends(array, key)
            if len(ends):
                return tuple(array[int(ends[0 if pick == "first" else -1]) :].tolist())
        return None

    def path(self, context: Sequence[int], at_least: int, at_most: int, pick: str = "last") -> tuple[int, ...]:
        """At most `at_most` tokens that followed the longest suffix of `context` of `at_least` to `depth` tokens."""
        key = list(context[-min(self.depth, len(context)) :])
        best: tuple[int, Any] = (at_least - 1, None)
        arrays = self.arrays()
        for array in arrays if pick == "first" else reversed(arrays):
            # the longest match in this text: ends of one token, thinned out token by token
            ends = np.flatnonzero(array[:-1] == key[-1]) + 1 if len(key) else np.zeros(0, dtype=np.int64)
            n = 1 if len(ends) else 0
            while n and n < len(key):
                longer = ends[(ends - n - 1 >= 0) & (array[np.maximum(ends - n - 1, 0)] == key[-n - 1])]
                if not len(longer):
                    break
                ends, n = longer, n + 1
            if n > best[0] and n:
                end = int(ends[0 if pick == "first" else -1])
                best = (n, array[end : end + at_most])
        return () if best[1] is None else tuple(best[1].tolist())

    def counts(self, key: Sequence[int]) -> dict[int, int]:
        """How often each token followed `key`."""
        out: dict[int, int] = {}
        for array in self.arrays():
            ends = self._ends(array, key)
            ends = ends[ends < len(array)]
            for token, count in zip(*np.unique(array[ends], return_counts=True), strict=True):
                out[int(token)] = out.get(int(token), 0) + int(count)
        return out


def ids_of(x: Any) -> tuple[int, ...]:
    """Token ids of a vector, a path or a context."""
    if isinstance(x, Context):
        return x.ids()
    if isinstance(x, TorchPath):
        return x.tokens
    if isinstance(x, list):
        return tuple(t for part in x for t in ids_of(part))
    if hasattr(x, "tokens"):
        return tuple(np.ravel(x.tokens).tolist())
    return tuple(np.ravel(np.asarray(x)).tolist())


def new_index(kind: str, sizes: Sequence[Any]) -> Any:
    """An empty index."""
    n = int(sizes[0]) if sizes else 0
    return Lru(n or 1) if kind == "lru" else Suffixes(n or 64)


def ask(m: Any, what: str, named: Sequence[str], index: Any, args: Sequence[Any]) -> Any:
    """Query an index; see the op index.ask. Raises DecError for a query that the index does not have."""
    options = dict(zip(named, args[len(args) - len(named) :]))
    plain = args[: len(args) - len(named)]
    if what == "get":
        return [np.array(e, dtype=np.int64) for e in index.get(ids_of(plain[0])[0])]
    if what == "has":
        return index.find(ids_of(plain[0]), "last") is not None
    if what == "after":
        key = plain[0]
        scalar = not hasattr(key, "tokens") and np.ndim(key) == 0
        return Continuations(index, (tuple(m.tokens[-int(key) :]) if int(key) > 0 else ()) if scalar else ids_of(key))
    if what == "path":
        context = plain[0].tokens[: plain[0].length][-index.depth :] if isinstance(plain[0], Context) else ids_of(plain[0])
        found = index.path(
            context, int(options.get("at_least", 1)), int(options.get("at_most", 16)), str(options.get("pick", "last"))
        )
        return points(np.array(found, dtype=np.int64), tag="index")
    if what == "score":
        import torch

        ids = ids_of(plain[0])
        counts: dict[int, int] = {}
        for n in range(min(len(ids), index.depth), -1, -1):
            counts = index.counts(ids[len(ids) - n :])
            if counts:
                break
        out = np.zeros(m.vocab_size)
        for token, count in counts.items():
            out[token] = count / sum(counts.values())
        return torch.from_numpy(out)
    raise DecError(f"an index has no `{what}`")


def learn(index: Any, args: Sequence[Any]) -> Any:
    """An index that has also seen this."""
    if isinstance(index, Lru):
        return index.store(ids_of(args[0])[0], ids_of(args[1]))
    return index.learn(ids_of(args[0]))


__all__ = ["Suffixes", "ask", "ids_of", "learn", "new_index"]
