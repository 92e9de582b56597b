"""Indexes that hold tokens and no distribution, the same in all backends: tables of recent entries, and an index looked up by a
key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Lru:
    """A table from a token to the last `capacity` entries stored under it, oldest first. Storing one again renews it."""

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
    """The continuations of a key in an index: `best_first` grows a tree from them."""

    index: Any  # Any: the backend's own index of text
    key: tuple[int, ...]
