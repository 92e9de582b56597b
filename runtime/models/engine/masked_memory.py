"""A masked model's memory on its device: keys and values by layer and position, as an immutable value.

The rows of a sequence are in one preallocated tensor (a slot of a `CanvasStore`), where a row's index is its position.
A mask says which of them are cached, so cutting a memory copies nothing. A call overwrites a few rows of a memory and
returns the result. To make that cheap it writes in place and saves the old rows with the old value (Baker's persistent
arrays, 1978): the newest value reads its slot directly, an older one is rebuilt if it is read again. The saved rows
live as long as a value that needs them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError

_SERIAL = count()


class Version:
    """A state of a slot's rows, which memories refer to. next: the state that overwrote it, or None: it is the slot's
    present one. undo: the positions int64[n] that `next` overwrote and their old rows [layers, 2, heads, n, dim]. last: the
    last hidden states [positions, width], of a model with a shift (`masked_forward.moved`); never written to."""

    __slots__ = ("last", "next", "serial", "undo")

    def __init__(self) -> None:
        self.next: Version | None = None
        self.undo: tuple[np.ndarray, Tensor] | None = None
        self.last: Tensor | None = None
        self.serial = next(_SERIAL)


class CanvasStore:
    """Keys and values of some sequences, `block` [layers, 2, slots, heads, room, dim] with room for positions
    0..room-1, or None: room for none. newest: by slot its present state. nbytes: of one slot."""

    __slots__ = ("_rows", "block", "nbytes", "newest", "room", "slots")

    def __init__(self, block: Tensor | None) -> None:
        self.block = block
        self.slots: int = 1 if block is None else block.shape[2]
        self.room: int = 0 if block is None else block.shape[4]
        self.nbytes = 0 if block is None else block.nbytes // self.slots
        self.newest = [Version() for _ in range(self.slots)]
        self._rows: tuple[Tensor, ...] | None = None

    def rows(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and the values [slots, heads, room, dim] of a layer."""
        if self._rows is None:
            assert self.block is not None
            self._rows = self.block.flatten(0, 1).unbind(0)
        return self._rows[2 * layer], self._rows[2 * layer + 1]

    def overwrite(self, slot: int, undo: tuple[np.ndarray, Tensor]) -> Version:
        """A new state of a slot, which the caller writes now. undo: the positions int64[n] to be overwritten and their rows
        [layers, 2, heads, n, dim]."""
        old, new = self.newest[slot], Version()
        old.next, old.undo = new, undo
        self.newest[slot] = new
        return new


class CachedMemory:
    """A memory of a masked Hugging Face model: the cached rows of one sequence, `runtime.models.interface.Memory`
    with its rows on the device. Immutable; `only` and `without` share the rows.

    family: models of one family may read each other's memory. length: the number of positions covered. cached:
    bool[length], the positions cached. parts: by layer, where that differs from `cached`.
    """

    __slots__ = ("cached", "family", "length", "parts", "slot", "store", "version")

    def __init__(
        self,
        family: str,
        store: CanvasStore,
        slot: int,
        cached: np.ndarray,
        parts: dict[int, np.ndarray] | None = None,
        version: Version | None = None,
    ) -> None:
        self.family, self.store, self.slot, self.cached, self.parts = family, store, slot, cached, parts or {}
        self.length = len(cached)
        self.version = version or store.newest[slot]

    @property
    def newest(self) -> bool:
        """Whether the store's rows are this memory's."""
        return self.version.next is None

    def _overwritten(self) -> Iterator[Version]:
        """The states from this memory's on that were overwritten."""
        version = self.version
        while version.next is not None:
            yield version
            version = version.next

    @property
    def positions(self) -> np.ndarray:
        """int64[n]: the positions cached in any layer, in order."""
        cached = self.cached
        for mask in self.parts.values():
            cached = cached | mask
        return np.flatnonzero(cached)

    def mask(self, layer: int) -> np.ndarray:
        """bool[length]: the positions cached in a layer."""
        return self.parts.get(layer, self.cached)

    def key(self, fresh: np.ndarray) -> tuple[object, ...]:
        """A key, equal for memories with the same cached rows of the same store, apart from positions `fresh` int64[n]."""
        masks = []
        for mask in (self.cached, *(self.parts[layer] for layer in sorted(self.parts))):
            rest = mask.copy()
            rest[fresh[: fresh.searchsorted(self.length)]] = False
            masks.append(rest.tobytes())
        return (self.version.serial, self.slot, self.length, tuple(sorted(self.parts)), *masks)

    def only(self, ps: Iterable[int]) -> CachedMemory:
        """The memory restricted to positions `ps`, in every layer."""
        return self._within(_marks(ps, self.length))

    def without(self, ps: Iterable[int]) -> CachedMemory:
        """The memory without positions `ps`, in every layer."""
        return self._within(~_marks(ps, self.length))

    def join(self, other: CachedMemory) -> CachedMemory:
        """Both; where both have a position, `other`'s rows. Raises DecError for memories of different families."""
        if self.family != other.family:
            raise DecError(f"cannot join memories of {self.family!r} and {other.family!r}: different models made them")
        length, layers = max(self.length, other.length), {*self.parts, *other.parts}
        cached = _padded(self.cached, length) | _padded(other.cached, length)
        parts = {layer: _padded(self.mask(layer), length) | _padded(other.mask(layer), length) for layer in layers}
        if self.version is other.version or not len(other.positions):
            return CachedMemory(self.family, self.store, self.slot, cached, parts, self.version)
        if not len(self.positions):
            return CachedMemory(self.family, other.store, other.slot, cached, parts, other.version)
        made = gathered([self], max(length, self.store.room, other.store.room))
        assert made.block is not None
        source, into = other.block(), made.block[:, :, 0]
        if not layers:
            _copy(source, into, np.flatnonzero(other.cached))
        else:
            for layer in range(len(into)):
                _copy(source[layer], into[layer], np.flatnonzero(other.mask(layer)))
        made.newest[0].last = _joined_states(self, other)
        return CachedMemory(self.family, made, 0, cached, parts)

    def __getitem__(self, layer: int) -> KeptLayer:
        return KeptLayer(self, layer, self.mask(layer))

    def with_layer(self, index: int, part: KeptLayer) -> CachedMemory:
        """The same memory with one layer replaced (eviction per layer: `m[l] = m[l].only(ps)`). Raises DecError for a
        layer of another family's memory."""
        if part.of.family != self.family:
            raise DecError(f"cannot put a layer of {part.of.family!r} into a memory of {self.family!r}")
        length = max(self.length, len(part.cached))
        parts = {layer: _padded(mask, length) for layer, mask in self.parts.items()}
        parts[index] = _padded(part.cached, length)
        cached = _padded(self.cached, length)
        if (part.of.version is self.version and part.index == index) or not part.cached.any():
            return CachedMemory(self.family, self.store, self.slot, cached, parts, self.version)
        made = gathered([self], max(length, self.store.room, part.of.store.room), like=part.of.store.block)
        assert made.block is not None
        _copy(part.of.block()[part.index], made.block[index, :, 0], np.flatnonzero(part.cached))
        made.newest[0].last = self.version.last
        return CachedMemory(self.family, made, 0, cached, parts)

    def block(self) -> Tensor:
        """The rows [layers, 2, heads, room, dim], cached or not."""
        store, slot = (self.store, self.slot) if self.newest else (gathered([self], self.store.room), 0)
        assert store.block is not None
        return store.block[:, :, slot]

    def rows(self, layer: int) -> dict[int, tuple[Tensor, Tensor]]:
        """By position the key and the value row [heads, dim] of a layer, for inspection."""
        if self.store.block is None:
            return {}
        keys, values = self.block()[layer]
        return {int(i): (keys[:, i], values[:, i]) for i in np.flatnonzero(self.mask(layer))}

    def overwritten(self, fresh: np.ndarray, length: int, store: CanvasStore, slot: int) -> CachedMemory:
        """This memory after a call of `length` positions that computed `fresh` int64[n]: the newest state of a slot."""
        length = max(length, self.length)
        marks = _marks(fresh, length)
        parts = {layer: _padded(mask, length) | marks for layer, mask in self.parts.items()}
        return CachedMemory(self.family, store, slot, _padded(self.cached, length) | marks, parts)

    def _within(self, keep: np.ndarray) -> CachedMemory:
        parts = {layer: mask & keep for layer, mask in self.parts.items()}
        return CachedMemory(self.family, self.store, self.slot, self.cached & keep, parts, self.version)

    def __repr__(self) -> str:
        return f"<Kept {self.family} {int(self.cached.sum())} of {self.length} positions>"


@dataclass(frozen=True, eq=False)
class KeptLayer:
    """One layer of a memory. cached: bool[length], the positions cached in it."""

    of: CachedMemory
    index: int
    cached: np.ndarray

    @property
    def positions(self) -> np.ndarray:
        """int64[n]: the cached positions, in order."""
        return np.flatnonzero(self.cached)

    def only(self, ps: Iterable[int]) -> KeptLayer:
        """The layer restricted to positions `ps`."""
        return replace(self, cached=self.cached & _marks(ps, len(self.cached)))

    def without(self, ps: Iterable[int]) -> KeptLayer:
        """The layer without positions `ps`."""
        return replace(self, cached=self.cached & ~_marks(ps, len(self.cached)))


def empty(family: str, length: int) -> CachedMemory:
    """A memory of `length` positions with no row cached."""
    return CachedMemory(family, CanvasStore(None), 0, np.zeros(length, bool))


def gathered(memories: Sequence[CachedMemory], room: int, like: Tensor | None = None) -> CanvasStore:
    """A new store with a slot for each memory, in order, and room for positions 0..room-1 (at least each one's cached ones).

    Rows that are not cached stay finite, so that a weight of zero hides them. `like`: a block
    [layers, 2, slots, heads, room, dim] whose shape memories without rows take.
    """
    old = next((k.store.block for k in memories if k.store.block is not None), like)
    if old is None:
        return CanvasStore(None)
    store, slots = memories[0].store, [k.slot for k in memories]
    if all(k.store is store for k in memories) and store.block is not None and store.room == room:
        if slots == list(range(slots[0], slots[0] + len(slots))):
            made = store.block[:, :, slots[0] : slots[0] + len(slots)].clone()
        else:
            made = store.block.index_select(2, torch.tensor(slots, device=old.device))
    else:
        made = old.new_zeros((*old.shape[:2], len(memories), old.shape[3], room, old.shape[5]))
        for n, k in enumerate(memories):
            if k.store.block is not None:
                width = min(room, k.store.room)
                made[:, :, n, :, :width] = k.store.block[:, :, k.slot, :, :width]
    for n, k in enumerate(memories):
        for version in reversed(list(k._overwritten())):
            assert version.undo is not None
            where, rows = version.undo
            made[:, :, n].index_copy_(3, torch.from_numpy(where).to(made.device), rows)
    return CanvasStore(made)


def saved(block: Tensor, where: slice | Tensor) -> Tensor:
    """A copy of the rows [layers, 2, slots, heads, n, dim] of a block at positions `where`: a slice or int64[n], or
    int64[slots, n], each slot's own."""
    if isinstance(where, slice):
        return block[:, :, :, :, where].clone()
    if where.dim() == 1:
        return block.index_select(4, where)
    index = where[None, None, :, None, :, None]
    return block.gather(4, index.expand(*block.shape[:2], -1, block.shape[3], -1, block.shape[5]))


def _joined_states(a: CachedMemory, b: CachedMemory) -> Tensor | None:
    """The last hidden states of both; where both have a position, `b`'s."""
    old, new = a.version.last, b.version.last
    if old is None or new is None:
        return old if new is None else new
    made = new.new_zeros(max(len(old), len(new)), new.shape[1])
    made[: len(old)] = old
    at = torch.from_numpy(np.flatnonzero(b.cached)).to(made.device)
    made[at] = new[at]
    return made


def _copy(source: Tensor, into: Tensor, where: np.ndarray) -> None:
    """Copies the rows at positions `where` of [..., heads, room, dim] into another such."""
    at = torch.from_numpy(where).to(into.device)
    into.index_copy_(into.dim() - 2, at, source.index_select(source.dim() - 2, at))


def _marks(ps: Iterable[int], length: int) -> np.ndarray:
    """bool[length]: the positions among `ps`."""
    at = ps if isinstance(ps, np.ndarray) else np.fromiter((int(p) for p in ps), np.int64)
    out = np.zeros(length, bool)
    out[at[(at >= 0) & (at < length)]] = True
    return out


def _padded(mask: np.ndarray, length: int) -> np.ndarray:
    if len(mask) == length:
        return mask
    out = np.zeros(length, bool)
    out[: len(mask)] = mask
    return out


# A memo of computed calls, by their content.

_CALLS = 2  # a sequence's last calls that are remembered: FreeDave reads a canvas, then a tree of canvases
Key = tuple[Hashable, ...]  # bytes and numbers that say what was computed from


@dataclass
class CanvasEntry:
    """The result of one canvas's forward.

    hidden: [n, width], the states that its fresh positions are predicted from. rows: int64, the fresh positions whose scores
    are rows `start`, `start` + 1, ... of `block` [m, vocabulary]. memory: its memory, if that was recorded. good: bool[rows],
    which scores are not NaN, or None: all. holding: objects whose addresses are in the key, which must live as long as the
    entry. states: [n, width], the states of the fresh positions, of a model with a shift.
    """

    hidden: Tensor
    rows: np.ndarray
    block: Tensor
    start: int
    memory: CachedMemory | None
    good: np.ndarray | None = None
    holding: tuple[np.ndarray, Tensor, Tensor] | None = None
    states: Tensor | None = None

    @property
    def logits(self) -> Tensor:
        """[rows, vocabulary]."""
        return self.block[self.start : self.start + len(self.rows)]

    @property
    def nbytes(self) -> int:
        """A lower bound of the bytes that it keeps alive."""
        memory = 0 if self.memory is None else self.memory.store.nbytes
        return self.hidden.nbytes + self.block[:1].nbytes * len(self.rows) + memory


class CanvasMemo:
    """The entries of every sequence's last calls, `limit` bytes at most."""

    def __init__(self, limit: int) -> None:
        self.limit, self.nbytes = limit, 0
        self._entries: OrderedDict[Key, CanvasEntry] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._users: dict[Key, int] = {}
        self._calls: dict[Hashable, deque[tuple[Key, ...]]] = {}

    def get(self, key: Key) -> CanvasEntry | None:
        """The entry of a key, if it is still there."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, sequence: Hashable, entries: Sequence[tuple[Key, CanvasEntry]]) -> None:
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
