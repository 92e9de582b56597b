"""The torch machine's table of recent entries, `lru[...]`: storing costs a constant, whatever the table holds."""

from __future__ import annotations

from collections.abc import Sequence

Entries = tuple[tuple[int, ...], ...]


class Recent:
    """A table from a token to the last `capacity` entries stored under it, oldest first. Storing one again renews it. A value:
    the newest one has the rows, an older one knows one row that was another and the value after it (Baker, 1978)."""

    __slots__ = ("_changed", "_newer", "_rows", "capacity")

    def __init__(self, capacity: int, rows: dict[int, Entries] | None = None) -> None:
        self.capacity = capacity
        self._rows: dict[int, Entries] | None = {} if rows is None else rows
        self._changed: tuple[int, Entries] = (0, ())
        self._newer: Recent | None = None

    @property
    def rows(self) -> dict[int, Entries]:
        """The rows; what was the newest value until now leads here afterwards."""
        if self._rows is None:
            chain: list[Recent] = [self]
            while chain[-1]._newer is not None:
                chain.append(chain[-1]._newer)
            for older, newer in zip(chain[-2::-1], chain[:0:-1], strict=True):
                key, entries = older._changed
                assert newer._rows is not None
                older._rows, newer._rows = newer._rows, None
                newer._changed, newer._newer = (key, older._rows.get(key, ())), older
                older._newer = None
                older._rows[key] = entries
        assert self._rows is not None
        return self._rows

    def store(self, key: int, entry: Sequence[int]) -> Recent:
        """With an entry under a key."""
        rows, key = self.rows, int(key)
        before, item = rows.get(key, ()), tuple(int(x) for x in entry)
        rows[key] = (*(e for e in before if e != item), item)[-self.capacity :]
        newest = Recent(self.capacity, rows)
        self._rows, self._changed, self._newer = None, (key, before), newest
        return newest

    def get(self, key: int) -> Entries:
        """The entries under a key, oldest first."""
        return self.rows.get(int(key), ())


__all__ = ["Recent"]
