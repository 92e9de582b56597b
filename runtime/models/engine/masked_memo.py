"""Calls that were answered, by what they were asked for."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from decgraph.runtime.models.engine.masked_batch import Recorded
from decgraph.runtime.models.engine.masked_memory import CachedMemory

_CALLS = 2  # a sequence's last asks that are remembered: FreeDave asks for a canvas, then for a tree of canvases
Key = tuple[Any, ...]  # Any: bytes and numbers that say what was computed from


@dataclass
class Entry:
    """What one canvas's forward gave. hidden: [n, width] of its fresh cells. rows: int64, the fresh cells whose
    scores are rows `start`, `start` + 1, ... of `block` [m, vocabulary]. kept: its memory, if that was recorded.
    good: bool[rows], which scores are numbers, or None: all. holding: what the key names by address and so must
    live as long."""

    hidden: Tensor
    rows: np.ndarray
    block: Tensor
    start: int
    kept: CachedMemory | Recorded | None
    good: np.ndarray | None = None
    holding: Any = None  # Any: soft weights

    @property
    def logits(self) -> Tensor:
        """[rows, vocabulary]."""
        return self.block[self.start : self.start + len(self.rows)]

    @property
    def nbytes(self) -> int:
        """What it keeps alive, at least."""
        kept = 0 if self.kept is None else self.kept.store.nbytes if isinstance(self.kept, CachedMemory) else self.kept.nbytes
        return self.hidden.nbytes + self.block[:1].nbytes * len(self.rows) + kept


class Memo:
    """The entries of every sequence's last asks, up to so many bytes."""

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
        """Remembers an ask of a sequence, and forgets what is too old or too much."""
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
        """Forgets the asks of a sequence."""
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
