"""What a masked model computed, on its device: keys and values by layer and position, as an immutable value.

The rows stand in preallocated tensors (a `Store`), where a row's index is its position. Which of them are held
is a mask beside the store, so cutting a memory copies nothing. A call may write its rows over those of a memory
that its owner gave up (`CanvasAsk.consumed`); the store then counts a new version, and values of an old version
are refused instead of read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError, InternalError

_SERIAL = count()


class Store:
    """Keys and values of some sequences: by layer a tensor [slots, heads, S, dim] each, where S is room for
    positions 0..S-1. Two stores are never mistaken for each other: `serial` is a store's own. By slot: `versions`
    counts the calls that wrote over its rows, `handed` how often the version's memory was given to somebody. nbytes:
    of one slot."""

    __slots__ = ("handed", "keys", "nbytes", "room", "serial", "values", "versions")

    def __init__(self, keys: dict[int, Tensor], values: dict[int, Tensor]) -> None:
        self.keys, self.values, self.serial = keys, values, next(_SERIAL)
        some = next(iter(keys.values())) if keys else None
        self.versions = [0] * (1 if some is None else len(some))
        self.handed = [0] * len(self.versions)
        self.room = 0 if some is None else int(some.shape[2])
        self.nbytes = sum(t.nbytes for t in (*keys.values(), *values.values())) // max(1, len(self.versions))


class Kept:
    """A memory of a masked Hugging Face model: what is held of one sequence, `runtime.models.interface.Memory`
    with its rows on the device. Immutable; `only` and `without` share the rows.

    family: models of one family may read each other's memory. length: the number of positions covered. held:
    bool[length], the positions held. parts: by layer, where that differs from `held`.
    """

    __slots__ = ("family", "held", "length", "parts", "slot", "store", "version")

    def __init__(
        self,
        family: str,
        store: Store,
        slot: int,
        held: np.ndarray,
        parts: dict[int, np.ndarray] | None = None,
        version: int | None = None,
    ) -> None:
        self.family, self.store, self.slot, self.held, self.parts = family, store, slot, held, parts or {}
        self.length = len(held)
        self.version = store.versions[slot] if version is None else version

    @property
    def alive(self) -> bool:
        """Whether the rows are still what they were: no call wrote over them."""
        return self.store.versions[self.slot] == self.version

    def check(self) -> None:
        """Raises InternalError for a memory that a call was allowed to consume, and did."""
        if not self.alive:
            raise InternalError(f"a memory of {self.family!r} is read after a call consumed it")

    @property
    def positions(self) -> np.ndarray:
        """int64: the positions held anywhere, in order."""
        held = self.held
        for mask in self.parts.values():
            held = held | mask
        return np.flatnonzero(held)

    def mask(self, layer: int) -> np.ndarray:
        """bool[length]: the positions whose keys and values are held in a layer."""
        return self.parts.get(layer, self.held)

    def key(self, fresh: np.ndarray | None = None) -> tuple[object, ...]:
        """Equal for memories that hold the same rows of the same store; positions `fresh` do not count."""
        masks = (self.held, *(self.parts[layer] for layer in sorted(self.parts)))
        if fresh is not None:
            masks = tuple(m.copy() for m in masks)
            for m in masks:
                m[fresh[fresh < self.length]] = False
        seen = tuple(m.tobytes() for m in masks)
        return (self.store.serial, self.slot, self.version, self.length, tuple(sorted(self.parts)), seen)

    def only(self, ps: Iterable[int]) -> Kept:
        """What is held of positions `ps`, in every layer."""
        keep = _marks(ps, self.length)
        return self._with(self.held & keep, {layer: m & keep for layer, m in self.parts.items()})

    def without(self, ps: Iterable[int]) -> Kept:
        """What is held, positions `ps` dropped in every layer."""
        keep = ~_marks(ps, self.length)
        return self._with(self.held & keep, {layer: m & keep for layer, m in self.parts.items()})

    def join(self, other: Kept) -> Kept:
        """Both; where both hold a position, `other`'s rows. Raises DecError for memories of different families."""
        if self.family != other.family:
            raise DecError(f"cannot join memories of {self.family!r} and {other.family!r}: different models made them")
        length, layers = max(self.length, other.length), {*self.parts, *other.parts}
        held = _padded(self.held, length) | _padded(other.held, length)
        parts = {layer: _padded(self.mask(layer), length) | _padded(other.mask(layer), length) for layer in layers}
        if self._rows() == other._rows() or not other._anything():
            return Kept(self.family, self.store, self.slot, held, parts, self.version)
        if not self._anything():
            return Kept(self.family, other.store, other.slot, held, parts, other.version)
        self.check()
        other.check()
        made = gathered([self], max(length, self.store.room, other.store.room))
        for layer in made.keys:
            _copy(other, layer, layer, made, np.flatnonzero(other.mask(layer)))
        return Kept(self.family, made, 0, held, parts)

    def layer(self, index: int) -> KeptLayer:
        """One layer's rows, to be cut and put back. Raises DecError for a layer that the model does not have."""
        if self.store.keys and index not in self.store.keys:
            raise DecError(f"{self.family!r} has no layer {index} with keys and values")
        return KeptLayer(self, index, self.mask(index))

    def put(self, index: int, part: KeptLayer) -> Kept:
        """The same memory with one layer replaced (eviction per layer: `m[l] = m[l].only(ps)`)."""
        if part.of.family != self.family:
            raise DecError(f"cannot put a layer of {part.of.family!r} into a memory of {self.family!r}")
        length = max(self.length, len(part.held))
        held = _padded(self.held, length)
        parts = {layer: _padded(m, length) for layer, m in self.parts.items()}
        parts[index] = _padded(part.held, length)
        if (part.of._rows() == self._rows() and part.index == index) or not part.held.any():
            return Kept(self.family, self.store, self.slot, held, parts, self.version)
        self.check()
        part.of.check()
        made = gathered([self], max(length, self.store.room, part.of.store.room), like=part.of.store)
        _copy(part.of, part.index, index, made, np.flatnonzero(part.held))
        return Kept(self.family, made, 0, held, parts)

    def rows(self, layer: int) -> dict[int, tuple[Tensor, Tensor]]:
        """By position the key and the value row [heads, dim] of a layer: for looking at, one at a time."""
        self.check()
        keys, values = self.store.keys.get(layer), self.store.values.get(layer)
        if keys is None or values is None:
            return {}
        return {int(i): (keys[self.slot, :, i], values[self.slot, :, i]) for i in np.flatnonzero(self.mask(layer))}

    def overwritten(self, fresh: np.ndarray, length: int, store: Store, slot: int) -> Kept:
        """This memory after a call of `length` positions that computed `fresh`, whose rows are in `store`."""
        length = max(length, self.length)
        marks = _marks(fresh, length)
        parts = {layer: _padded(m, length) | marks for layer, m in self.parts.items()}
        return Kept(self.family, store, slot, _padded(self.held, length) | marks, parts)

    def _rows(self) -> tuple[int, int, int]:
        return (self.store.serial, self.slot, self.version)

    def _anything(self) -> bool:
        return bool(self.held.any() or any(m.any() for m in self.parts.values()))

    def _with(self, held: np.ndarray, parts: dict[int, np.ndarray]) -> Kept:
        return Kept(self.family, self.store, self.slot, held, parts, self.version)

    def __repr__(self) -> str:
        return f"<Kept {self.family} {int(self.held.sum())} of {self.length} positions>"


@dataclass(frozen=True, eq=False)
class KeptLayer:
    """One layer of a memory. held: bool[length], the positions held in it."""

    of: Kept
    index: int
    held: np.ndarray

    @property
    def positions(self) -> np.ndarray:
        """int64: the positions held, in order."""
        return np.flatnonzero(self.held)

    def only(self, ps: Iterable[int]) -> KeptLayer:
        """What is held of positions `ps`."""
        return replace(self, held=self.held & _marks(ps, len(self.held)))

    def without(self, ps: Iterable[int]) -> KeptLayer:
        """What is held, positions `ps` dropped."""
        return replace(self, held=self.held & ~_marks(ps, len(self.held)))


def empty(family: str, length: int) -> Kept:
    """A memory of `length` positions that holds none."""
    return Kept(family, Store({}, {}), 0, np.zeros(length, bool))


def gathered(kept: Sequence[Kept], room: int, like: Store | None = None) -> Store:
    """A new store with a slot for each memory, in order, and room for positions 0..room-1.

    What is not held stays a finite number, so that a weight of zero hides it. `like`: a store whose shapes a
    memory without rows takes. Raises InternalError for a memory that was consumed.
    """
    for k in kept:
        k.check()
    shape = next((k.store for k in kept if k.store.keys), like)
    if shape is None:
        return Store({}, {})
    one = bool(kept[0].store.keys) and all(k.store is kept[0].store for k in kept) and kept[0].store.room == room
    slots: Tensor | None = None
    if one and len(kept) > 1:
        slots = torch.tensor([k.slot for k in kept], device=next(iter(shape.keys.values())).device)

    def stacked(name: str, layer: int) -> Tensor:
        if slots is not None:
            tensor: Tensor = getattr(kept[0].store, name)[layer]
            return tensor.index_select(0, slots)
        if one:
            tensor = getattr(kept[0].store, name)[layer]
            return tensor[kept[0].slot : kept[0].slot + 1].clone()
        old = getattr(shape, name)[layer]
        made: Tensor = old.new_zeros((len(kept), old.shape[1], room, old.shape[3]))
        for slot, k in enumerate(kept):
            if k.store.keys:
                width = min(room, k.store.room)
                made[slot, :, :width] = getattr(k.store, name)[layer][k.slot, :, :width]
        return made

    return Store(*({layer: stacked(name, layer) for layer in shape.keys} for name in ("keys", "values")))


def _copy(source: Kept, layer: int, into: int, store: Store, where: np.ndarray) -> None:
    """Writes the rows of `source`'s layer at the positions `where` into slot 0 of a store's layer `into`."""
    at = torch.from_numpy(where).to(store.keys[into].device)
    store.keys[into][0][:, at] = source.store.keys[layer][source.slot][:, at]
    store.values[into][0][:, at] = source.store.values[layer][source.slot][:, at]


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
