"""Groups canvases into parts of one forward, and turns the result back into rows and memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.runtime.models.engine.masked_forward import Part
from decgraph.runtime.models.engine.masked_memory import CachedMemory, Store, gathered, saved
from decgraph.runtime.models.interface import Visibility

_LOOSE = 8  # fresh positions by which sequences of a part may always differ
_TABLES = 512  # position tables remembered


class Recording:
    """The memories of a part of whole canvases, created when the first is read."""

    def __init__(self, part: Part, family: str, lengths: list[int], row_bytes: int) -> None:
        self.part, self.family, self.lengths, self.nbytes = part, family, lengths, row_bytes * part.width
        self._kept: list[CachedMemory] = []

    def kept(self, slot: int) -> CachedMemory:
        """The memory of one canvas: always the same state, also if its rows are overwritten later."""
        if not self._kept:
            store = self.part.stored()
            self._kept = [CachedMemory(self.family, store, n, np.ones(width, bool)) for n, width in enumerate(self.lengths)]
        return self._kept[slot]


@dataclass(frozen=True)
class Recorded:
    """One memory of a recording."""

    recording: Recording
    slot: int

    def kept(self) -> CachedMemory:
        """The memory."""
        return self.recording.kept(self.slot)

    @property
    def alive(self) -> bool:
        """Whether the memory can still be read."""
        return not self.recording._kept or self.kept().alive

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.recording.nbytes


@dataclass
class Unit:
    """One canvas to be computed: int64[S] cells; the fresh positions int64[n] in order, or None for all; `given`
    comes with `fresh`. rows: int64, indices into the fresh positions whose scores are wanted. consumed: `given` is not
    read after this. prompt: where the canvas begins. Filled in: `start`, its first position in the forward, `padding`, the
    padding after its own, and `kept`."""

    cells: np.ndarray
    fresh: np.ndarray | None
    given: CachedMemory | None
    rows: np.ndarray
    soft: tuple[np.ndarray, Tensor, Tensor] | None
    keep: bool
    consumed: bool
    family: str = ""
    prompt: int = 0
    start: int = field(default=0, init=False)
    padding: int = field(default=0, init=False)
    kept: CachedMemory | Recorded | None = field(default=None, init=False)

    @property
    def width(self) -> int:
        """How many positions are computed."""
        return len(self.cells) if self.fresh is None else len(self.fresh)


def grouped(units: Sequence[Unit]) -> list[list[Unit]]:
    """The units of each part: whole canvases apart from canvases on a memory, widths and lengths equal up to a quarter
    or a few positions."""
    groups: list[list[Unit]] = []
    for whole in (True, False):
        some = sorted((u for u in units if (u.given is None) == whole), key=lambda u: (u.width, len(u.cells)))
        group: list[Unit] = []
        for unit in some:
            if group and not _alike(group, unit):
                groups.append(group)
                group = []
            group.append(unit)
        if group:
            groups.append(group)
    for group in groups:
        if group[0].given is not None:
            group.sort(key=lambda u: (id(u.given.store), u.given.slot))  # type: ignore[union-attr]
    return groups


def _alike(group: list[Unit], unit: Unit) -> bool:
    width, length = group[0].width, min(len(u.cells) for u in group)
    near = unit.width <= max(width + _LOOSE, width * 5 // 4)
    return near and len(unit.cells) <= max(2 * length, length + 64) and length <= max(2 * len(unit.cells), 64)


class Tables:
    """Position tensors on a device, remembered: the same blocks are computed again and again."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._known: dict[tuple[bytes, int], tuple[Tensor, slice | Tensor]] = {}
        self._ends: dict[tuple[Any, ...], Tensor | None] = {}

    def __call__(self, fresh: np.ndarray) -> tuple[Tensor, slice | Tensor]:
        """(positions int64[batch, width], the columns of a store that they are) of fresh int64[batch, width]."""
        key = (fresh.tobytes(), len(fresh))
        if key not in self._known:
            if len(self._known) >= _TABLES:
                self._known.clear()
            positions = torch.from_numpy(fresh.copy()).to(self.device)
            first = fresh[0]
            where: slice | Tensor = positions
            if (fresh == first).all():
                where = positions[0]
                if first[-1] - first[0] == len(first) - 1:
                    where = slice(int(first[0]), int(first[-1]) + 1)
            self._known[key] = (positions, where)
        return self._known[key]

    def ends(self, visibility: Visibility, fresh: np.ndarray, group: Sequence[Unit]) -> Tensor | None:
        """int64[batch, width]: the first position after those that each of fresh int64[batch, width] attends to, or None if all
        attend to all. The same as `interface.sees`."""
        if visibility == "full":
            return None
        lengths, prompts = (tuple(values) for values in zip(*((len(u.cells), u.prompt) for u in group), strict=True))
        key = (fresh.tobytes(), fresh.shape, lengths, prompts)  # an engine has one visibility
        if key not in self._ends:
            if len(self._ends) >= _TABLES:
                self._ends.clear()
            ends = _ends(visibility, fresh, np.array(lengths)[:, None], np.array(prompts)[:, None])
            self._ends[key] = torch.from_numpy(ends).to(self.device)
        return self._ends[key]


def _ends(visibility: Visibility, fresh: np.ndarray, lengths: np.ndarray, prompts: np.ndarray) -> np.ndarray:
    if isinstance(visibility, str):
        return fresh + 1  # causal
    kind, n = visibility
    if kind == "window":
        return np.where(fresh >= lengths - n, lengths, fresh + 1)
    first = prompts if kind == "prompt+block" else 0
    return np.where(fresh < first, first, first + ((fresh - first) // n + 1) * n)


def whole_part(group: list[Unit], tables: Tables, pad: int, visibility: Visibility) -> tuple[np.ndarray, Part]:
    """(ids int64[batch, width], part) of canvases that are computed whole."""
    width = max(u.width for u in group)
    ids = np.full((len(group), width), pad, np.int64)
    for row, unit in zip(ids, group, strict=True):
        row[: unit.width] = unit.cells
    every = np.broadcast_to(np.arange(width), ids.shape)
    positions, _ = tables(every)
    seen = None
    if group[0].width != width or group[-1].width != width:
        lengths = np.array([u.width for u in group])
        seen = torch.from_numpy(np.arange(width) < lengths[:, None]).to(tables.device)
    part = Part(positions, seen=seen, ends=tables.ends(visibility, every, group), record=any(u.keep for u in group))
    return ids, part


def given_part(group: list[Unit], tables: Tables, blank: Tensor, visibility: Visibility) -> tuple[np.ndarray, Part]:
    """(ids int64[batch, width], part) of canvases on memories. A canvas with fewer fresh positions repeats its last
    one, which computes and writes the same row again. Sets the units' `kept`."""
    width, span = max(u.width for u in group), max(len(u.cells) for u in group)
    fresh = np.empty((len(group), width), np.int64)
    ids = np.empty_like(fresh)
    for n, unit in enumerate(group):
        own = _fresh(unit)
        fresh[n, : len(own)], fresh[n, len(own) :] = own, own[-1]
        ids[n] = unit.cells[fresh[n]]
    seen = _seen(group, span, None)
    special = {layer for u in group if u.given is not None for layer in u.given.parts}
    layers = {layer: torch.from_numpy(_seen(group, span, layer)).to(tables.device) for layer in special}
    positions, where = tables(fresh)
    part = Part(
        positions,
        store=_store(group, width, span, where, blank),
        span=span,
        where=where,
        seen=None if seen.all() else torch.from_numpy(seen).to(tables.device),
        layers=layers,
        ends=tables.ends(visibility, fresh, group),
    )
    return ids, part


def _seen(group: list[Unit], span: int, layer: int | None) -> np.ndarray:
    """bool[batch, span]: the positions cached or fresh, in a layer or (None) in the layers without a mask of their own."""
    seen = np.zeros((len(group), span), bool)
    for row, unit in zip(seen, group, strict=True):
        assert unit.given is not None
        cached = unit.given.cached if layer is None else unit.given.mask(layer)
        cached = cached[: len(unit.cells)]
        row[: len(cached)] = cached
        row[_fresh(unit)] = True
    return seen


def _store(group: list[Unit], width: int, span: int, where: slice | Tensor, blank: Tensor) -> Store:
    """The store that a part writes: the memories' own if their slots are consecutive in it, else a copy. Sets the
    units' `kept`."""
    given = [u.given for u in group if u.given is not None]
    store, first = given[0].store, given[0].slot
    in_row = all(k.store is store and k.slot == first + n and k.newest for n, k in enumerate(given))
    consumed = all(u.consumed for u in group)
    # Saving most of the rows costs as much as a copy, and a copy leaves the old value as it is.
    if not in_row or store.block is None or store.room < span or not (consumed or 2 * width <= store.room):
        made = gathered(given, max(span, *(k.length for k in given)), like=blank)
        for slot, (unit, k) in enumerate(zip(group, given, strict=True)):
            unit.kept = k.overwritten(_fresh(unit), len(unit.cells), made, slot)
        return made
    block = store.block[:, :, first : first + len(given)]
    old = None if consumed else saved(block, where)
    for n, (unit, k) in enumerate(zip(group, given, strict=True)):
        fresh = _fresh(unit)
        store.overwrite(k.slot, None if old is None or unit.consumed else (fresh, old[:, :, n, :, : len(fresh)]))
        unit.kept = k.overwritten(fresh, len(unit.cells), store, k.slot)
    return store if len(given) == store.slots else Store(block)


def _fresh(unit: Unit) -> np.ndarray:
    assert unit.fresh is not None
    return unit.fresh


def whole_kept(group: list[Unit], part: Part, row_bytes: int) -> None:
    """Sets the units' `kept` from a recording part. row_bytes: bytes of one position."""
    recording = Recording(part, group[0].family, [len(u.cells) for u in group], row_bytes)
    for slot, unit in enumerate(group):
        unit.kept = Recorded(recording, slot)
