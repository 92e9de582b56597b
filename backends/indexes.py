"""Indexes that hold tokens and no distribution, the same in all backends: tables of recent entries, and an index looked up by a
key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ROOM = 65_536
"""How many tokens an index of text keeps where its program does not say."""


def forgotten(total: int, room: int) -> int:
    """How many tokens an index of `total` tokens forgets, from its oldest text on: parts of half its room, so that what is
    built over the rest is built anew once in so many tokens."""
    part = max(1, room - room // 2)
    return 0 if total <= room else part * -(-(total - room) // part)


@dataclass(frozen=True)
class Lru:
    """A table from a token to the last `capacity` entries stored under it, oldest first. Storing one again renews it. This is
    the meaning, and the reference's table; torch has backends/torch/stores.py."""

    capacity: int
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def store(self, key: int, entry: Sequence[int]) -> Lru:
        item = tuple(int(x) for x in entry)
        kept = tuple(e for e in self.rows.get(int(key), ()) if e != item)
        return replace(self, rows={**self.rows, int(key): (*kept, item)[-self.capacity :]})

    def get(self, key: int) -> tuple[tuple[int, ...], ...]:
        return self.rows.get(int(key), ())


@dataclass(frozen=True)
class Continuations:
    """The continuations of a key in an index, of at most so many tokens: `best_first` grows a tree from them."""

    index: Any  # Any: the backend's own index of text
    key: tuple[int, ...]
    at_most: int | None = None

    def counts(self, path: tuple[int, ...]) -> dict[int, int]:
        """How often each token followed the key and a path below it."""
        if self.at_most is not None and len(path) >= self.at_most:
            return {}
        found: dict[int, int] = self.index.counts(self.key + path)
        return found

    def total(self, path: tuple[int, ...]) -> int:
        """How often the key and a path below it occur, also where nothing follows."""
        return int(self.index.occurs(self.key + path))
