"""Indexes and tables of recent entries as the torch machine makes and asks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsInt

import numpy as np

from decgraph.backends.indexes import ROOM, Continuations
from decgraph.backends.torch.data import dimensions, ids_of, whole
from decgraph.backends.torch.draws import Mixed, TorchDraws, points
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.suffixes import Suffixes
from decgraph.backends.torch.trees import TorchPath
from decgraph.errors import DecError

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


def last_of(x: object, depth: int) -> Sequence[int]:
    """The last `depth` token ids of a vector, a path or a context."""
    if isinstance(x, Context):
        return x.tokens[: x.length][-depth:]
    return ids_of(x)[-depth:]


def new_index(kind: str, sizes: Sequence[SupportsInt]) -> Recent | Suffixes:
    """An empty index."""
    n = int(sizes[0]) if sizes else 0
    return Recent(n or 1) if kind == "lru" else Suffixes(n or 64, int(sizes[1]) if len(sizes) > 1 else ROOM)


def ask(m: Machine, what: str, named: Sequence[str], index: Recent | Suffixes, args: Sequence[object]) -> object:
    """Query an index; see the op index.ask. Raises DecError for a query that the index does not have."""
    options = dict(zip(named, args[len(args) - len(named) :]))
    plain = args[: len(args) - len(named)]
    if isinstance(index, Recent):
        if what != "get":
            raise DecError(f"a table has no `{what}`")
        return [np.array(e, dtype=np.int64) for e in index.get(ids_of(plain[0])[0])]
    if what == "has":
        return index.has(ids_of(plain[0]))
    if what == "matched":
        return index.matched(last_of(plain[0], index.depth))
    if what == "after":
        key = plain[0]
        if not isinstance(key, Context | TorchPath | TorchDraws | Mixed) and dimensions(key) == 0:
            count = whole(key)
            found = tuple(m.tokens[-count:]) if count > 0 else ()
        else:
            found = ids_of(key)
        at_most = options.get("at_most")
        return Continuations(index, found, None if at_most is None else whole(at_most))
    if what == "path":
        path = index.path(
            last_of(plain[0], index.depth),
            whole(options.get("at_least", 1)),
            whole(options.get("at_most", 16)),
            str(options.get("pick", "last")),
        )
        return points(np.array(path, dtype=np.int64), tag="index")
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


def learn(index: Recent | Suffixes, args: Sequence[object]) -> Recent | Suffixes:
    """An index that has also seen this."""
    if isinstance(index, Recent):
        return index.store(ids_of(args[0])[0], ids_of(args[1]))
    return index.learn(ids_of(args[0]))
