"""A memo of computed calls, by their content."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from decgraph.runtime.models.engine.masked_batch import Recorded
from decgraph.runtime.models.engine.masked_memory import CachedMemory

_CALLS = 2  # a sequence's last calls that are remembered: FreeDave reads a canvas, then a tree of canvases
Key = tuple[Any, ...]  # Any: bytes and numbers that say what was computed from


@dataclass
class Entry:
    """The result of one canvas's forward.

    hidden: [n, width], the states that its fresh positions are predicted from. rows: int64, the fresh positions whose scores
    are rows `start`, `start` + 1, ... of `block` [m, vocabulary]. kept: its memory, if that was recorded. good: bool[rows],
    which scores are not NaN, or None: all. holding: objects whose addresses are in the key, which must live as long as the
    entry. own: [n, width], the states of the fresh positions, of a model with a shift.
    """

    hidden: Tensor
    rows: np.ndarray
    block: Tensor
    start: int
    kept: CachedMemory | Recorded | None
    good: np.ndarray | None = None
    holding: Any = None  # Any: soft weights
    own: Tensor | None = None

    @property
    def logits(self) -> Tensor:
        """[rows, vocabulary]."""
        return self.block[self.start : self.start + len(self.rows)]

    @property
    def nbytes(self) -> int:
        """A lower bound of the bytes that it keeps alive."""
        kept = 0 if self.kept is None else self.kept.store.nbytes if isinstance(self.kept, CachedMemory) else self.kept.nbytes
        return self.hidden.nbytes + self.block[:1].nbytes * len(self.rows) + kept


class Memo:
    """The entries of every sequence's last calls, `limit` bytes at most."""

    def __init__(self, limit: int) -> None:
        self.limit, self.nbytes = limit, 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._users: dict[Key, int] = {}
        self._calls: dict[Hashable, deque[tuple[Key, ...]]] = {}

    def get(self, key: Key) -> Entry | None:
        """The entry of a key, if it is still there."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, sequence: Hashable, entries: Sequence[tuple[Key, Entry]]) -> None:
        """Remembers a call of a sequence, and evicts old entries above the limit."""
        keys, last = tuple(key for key, _ in entries), self._calls.setdefault(sequence, deque())
        for key, entry in entries:
            size = entry.nbytes
            self.nbytes += size - self._sizes.get(key, 0)
            self._entries[key], self._sizes[key] = entry, size
        if not last or last[-1] != keys:
            for key in keys:
                self._users[key] = self._users.get(key, 0) + 1
            last.append(keys)
            while len(last) > _CALLS:
                self._release(last.popleft())
        while self.nbytes > self.limit and self._entries:
            self._drop(next(iter(self._entries)))

    def close(self, sequence: Hashable) -> None:
        """Forgets the calls of a sequence."""
        for keys in self._calls.pop(sequence, ()):
            self._release(keys)

    def __len__(self) -> int:
        return len(self._entries)

    def _release(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._drop(key)

    def _drop(self, key: Key) -> None:
        if self._entries.pop(key, None) is not None:
            self.nbytes -= self._sizes.pop(key)
