"""One forward of a masked model over positions of many sequences.

The canvases to be computed form parts: a part is `batch` sequences with `width` fresh positions each. A part without a store
attends to itself. A part with one writes its fresh keys and values into the store at their positions, in place, and attends
to the store; a boolean mask hides positions that are not cached. A part without hidden positions has no mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.masked_memory import CachedMemory, CanvasStore, gathered, saved
from decgraph.runtime.models.hf_masked import no_state
from decgraph.runtime.models.interface import Visibility

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.decoder import TransformerDecoder
    from decgraph.runtime.models.decoder.module import ModuleDecoder
    from decgraph.runtime.models.hf_masked import CalledMasked

_LOOSE = 8  # fresh positions by which sequences of a part may always differ
_TABLES = 512  # position tables remembered


class FreshPositions:
    """`batch` sequences with `width` fresh positions each, and the positions that they attend to.

    positions: int64[batch, width]. store: a slot for each sequence, or None: the fresh positions are 0 to width-1 and
    attend to each other. span: how many positions of the store count (`width` without one). seen: bool[batch, span], the
    positions that may be attended to, or None: all; `layers` replaces it in some layers. ends: int64[batch, width], a position
    attends to those before its end, or None: to all. record: whether `store` has the keys and values of a part without a store
    afterwards.
    """

    def __init__(
        self,
        positions: Tensor,
        *,
        store: CanvasStore | None = None,
        span: int = 0,
        seen: Tensor | None = None,
        layers: dict[int, Tensor] | None = None,
        ends: Tensor | None = None,
        record: bool = False,
    ) -> None:
        self.batch, self.width = positions.shape
        self.positions, self.store, self.seen = positions, store, seen
        self.span = span if store is not None else self.width
        self.layers, self.ends, self.record = layers or {}, ends, record

    def mask(self, seen: Tensor | None, window: int | None) -> Tensor | None:
        """bool[batch, 1, width, span] of a layer with this window, or None where no position is hidden. seen: as `seen`."""
        mask = None if seen is None else seen[:, None, None, :]
        columns = torch.arange(self.span, device=self.positions.device)
        rows = self.positions[:, None, :, None]
        if self.ends is not None:
            near = columns < self.ends[:, None, :, None]
            mask = near if mask is None else mask & near
        if window is not None:
            near = (rows - columns).abs() < window
            mask = near if mask is None else mask & near
        return None if mask is None else mask.expand(self.batch, 1, self.width, self.span)


class Forward(Protocol):
    """The forward that an engine runs. blank: keys and values [layers, 2, 1, heads, 1, dim] of one position, for their shape.
    whole: it computes canvases of one length and prompt only, keeps nothing, and its results are scores."""

    blank: Tensor
    whole: bool

    def __call__(self, cells: Tensor, part: FreshPositions, units: Sequence[Unit]) -> Tensor:
        """The last hidden states [n, width], after the final norm, of a part's inputs: ids int64[n] or embeddings [n, width].
        Writes the part's store, or records into the part."""
        ...


class CanvasStep:
    """See `Forward`: a decoder over the stores of memories. A row of a store is a position, so positions are also the rows to
    write. Raises DecError for layers whose keys and values differ in shape."""

    whole = False

    def __init__(self, decoder: TransformerDecoder | ModuleDecoder, name: str) -> None:
        self.decoder, self._above = decoder, decoder.above()
        shapes = {(heads, size) for heads, keys, values in decoder.caches for size in (keys, values)}
        if len(shapes) > 1:
            raise DecError(f"{name!r} is not supported: its layers' keys and values differ in shape")
        heads, size = shapes.pop()
        self.blank = torch.zeros(len(decoder.caches), 2, 1, heads, 1, size, dtype=decoder.dtype, device=decoder.device)
        self._windows = dict(zip(decoder.kinds, decoder.windows, strict=True))

    @torch.no_grad()
    def __call__(self, cells: Tensor, part: FreshPositions, units: Sequence[Unit]) -> Tensor:
        shape = (part.batch, part.width)
        step, inputs = self.decoder, cells.view(*shape, *cells.shape[1:])
        if cells.is_floating_point():
            step, inputs = self._above, self.decoder.placed(cells, part.positions).view(inputs.shape)
        last = step(inputs, part.positions, part.positions, *self._rows(part), self._masks(part))
        assert isinstance(last, Tensor), "nothing is tapped"
        return last.reshape(-1, last.shape[-1])

    def _rows(self, part: FreshPositions) -> tuple[list[Tensor], list[Tensor]]:
        store = part.store
        if store is None:
            layers, two, _, heads, _, dim = self.blank.shape
            store = CanvasStore(self.blank.new_empty(layers, two, part.batch, heads, part.width, dim))
            if part.record:
                part.store = store
        pairs = [store.rows(layer) for layer in range(len(self.decoder.caches))]
        if store.room != part.span:
            pairs = [(keys[:, :, : part.span], values[:, :, : part.span]) for keys, values in pairs]
        return [k for k, _ in pairs], [v for _, v in pairs]

    def _masks(self, part: FreshPositions) -> dict[str | int, Tensor | None]:
        masks: dict[str | int, Tensor | None] = {kind: part.mask(part.seen, window) for kind, window in self._windows.items()}
        return masks | {n: part.mask(seen, self.decoder.windows[n]) for n, seen in part.layers.items()}


class CalledStep:
    """See `Forward`: a module that is called as it is, on whole canvases. Its results are its scores."""

    whole = True

    def __init__(self, model: CalledMasked) -> None:
        self.model, self.blank = model, torch.zeros(0, device=model.device)

    def __call__(self, cells: Tensor, part: FreshPositions, units: Sequence[Unit]) -> Tensor:
        shape, soft = (part.batch, part.width), cells.is_floating_point()
        ids = torch.from_numpy(np.stack([unit.cells for unit in units])).to(cells.device)
        scores = self.model.logits(ids, units[0].prompt, cells.view(*shape, -1) if soft else None)
        return scores.reshape(-1, scores.shape[-1])


@dataclass
class Unit:
    """One canvas to be computed: int64[S] cells; the fresh positions int64[n] in order, or None for all; `memory`
    comes with `fresh`. rows: int64, indices into the fresh positions whose scores are wanted. prompt: where the
    canvas begins. Filled in: `start`, its first position in the forward, the `padding` after its own, and `new_memory`."""

    cells: np.ndarray
    fresh: np.ndarray | None
    memory: CachedMemory | None
    rows: np.ndarray
    soft: tuple[np.ndarray, Tensor, Tensor] | None
    keep: bool
    family: str = ""
    prompt: int = 0
    start: int = field(default=0, init=False)
    padding: int = field(default=0, init=False)
    new_memory: CachedMemory | None = field(default=None, init=False)

    @property
    def width(self) -> int:
        """How many positions are computed."""
        return len(self.cells) if self.fresh is None else len(self.fresh)


def grouped(units: Sequence[Unit], alike: bool) -> list[list[Unit]]:
    """The units of each part: whole canvases apart from canvases on a memory, widths and lengths equal up to a quarter
    or a few positions. alike: of whole canvases of one length, prompt and kind of cells."""
    if alike:
        same: dict[object, list[Unit]] = {}
        for unit in units:
            same.setdefault((unit.width, unit.prompt, unit.soft is None), []).append(unit)
        return list(same.values())
    groups: list[list[Unit]] = []
    for whole in (True, False):
        some = sorted((u for u in units if (u.memory is None) == whole), key=lambda u: (u.width, len(u.cells)))
        group: list[Unit] = []
        for unit in some:
            if group and not _alike(group, unit):
                groups.append(group)
                group = []
            group.append(unit)
        if group:
            groups.append(group)
    for group in groups:
        if group[0].memory is not None:
            group.sort(key=lambda u: (id(u.memory.store), u.memory.slot))  # type: ignore[union-attr]
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
        self._ends: dict[tuple[object, ...], Tensor | None] = {}

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


def whole_part(group: list[Unit], tables: Tables, pad: int, visibility: Visibility) -> tuple[np.ndarray, FreshPositions]:
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
    part = FreshPositions(positions, seen=seen, ends=tables.ends(visibility, every, group), record=any(u.keep for u in group))
    return ids, part


def given_part(group: list[Unit], tables: Tables, blank: Tensor, visibility: Visibility) -> tuple[np.ndarray, FreshPositions]:
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
    special = {layer for u in group if u.memory is not None for layer in u.memory.parts}
    layers = {layer: torch.from_numpy(_seen(group, span, layer)).to(tables.device) for layer in special}
    positions, where = tables(fresh)
    part = FreshPositions(
        positions,
        store=_store(group, width, span, where, blank),
        span=span,
        seen=None if seen.all() else torch.from_numpy(seen).to(tables.device),
        layers=layers,
        ends=tables.ends(visibility, fresh, group),
    )
    return ids, part


def _seen(group: list[Unit], span: int, layer: int | None) -> np.ndarray:
    """bool[batch, span]: the positions cached or fresh, in a layer or (None) in the layers without a mask of their own."""
    seen = np.zeros((len(group), span), bool)
    for row, unit in zip(seen, group, strict=True):
        assert unit.memory is not None
        cached = unit.memory.cached if layer is None else unit.memory.mask(layer)
        cached = cached[: len(unit.cells)]
        row[: len(cached)] = cached
        row[_fresh(unit)] = True
    return seen


def _store(group: list[Unit], width: int, span: int, where: slice | Tensor, blank: Tensor) -> CanvasStore:
    """The store that a part writes: the memories' own if their slots are consecutive in it, else a copy. Sets the
    units' `kept`."""
    memories = [u.memory for u in group if u.memory is not None]
    store, first = memories[0].store, memories[0].slot
    in_row = all(k.store is store and k.slot == first + n and k.newest for n, k in enumerate(memories))
    # Saving most of the rows costs as much as a copy, and a copy leaves the old value as it is.
    if not in_row or store.block is None or store.room < span or 2 * width > store.room:
        made = gathered(memories, max(span, *(k.length for k in memories)), like=blank)
        for slot, (unit, k) in enumerate(zip(group, memories, strict=True)):
            unit.new_memory = k.overwritten(_fresh(unit), len(unit.cells), made, slot)
        return made
    block = store.block[:, :, first : first + len(memories)]
    old = saved(block, where)
    for n, (unit, k) in enumerate(zip(group, memories, strict=True)):
        fresh = _fresh(unit)
        store.overwrite(k.slot, (fresh, old[:, :, n, :, : len(fresh)]))
        unit.new_memory = k.overwritten(fresh, len(unit.cells), store, k.slot)
    return store if len(memories) == store.slots else CanvasStore(block)


def _fresh(unit: Unit) -> np.ndarray:
    assert unit.fresh is not None
    return unit.fresh


# Scores that stand one position before the one that they are about (Ye et al., Dream, 2025). After a forward every computed
# position gets the state that predicts it: the one computed before it, or, in a call on a memory, the one that the memory has.
# So a memory of a model with a shift also has its last hidden states, beside keys and values.


def moved(hidden: Tensor, units: Sequence[Unit]) -> Tensor:
    """[n, width]: for every position that a forward computed, the state that predicts it. hidden: [n, width], the forward's."""
    source, extra = np.arange(len(hidden)), []
    at = len(hidden)
    for unit in units:
        fresh = np.arange(unit.width) if unit.fresh is None else unit.fresh
        before = np.maximum(fresh - 1, 0)
        place = fresh.searchsorted(before)
        here = fresh[place] == before
        source[unit.start : unit.start + unit.width] = np.where(here, unit.start + place, unit.start + np.arange(unit.width))
        missing = np.flatnonzero(~here)
        last = None if unit.memory is None else unit.memory.version.last
        if len(missing) and last is not None:
            known = missing[before[missing] < len(last)]
            extra.append(last.index_select(0, torch.from_numpy(before[known]).to(last.device)))
            source[unit.start + known] = at + np.arange(len(known))
            at += len(known)
    states = torch.cat([hidden, *extra]) if extra else hidden
    return states.index_select(0, torch.from_numpy(source).to(hidden.device))


def check_sources(name: str, wanted: np.ndarray, fresh: np.ndarray, memory: CachedMemory, where: str) -> None:
    """Raises DecError unless the call or its memory has the states that predict the positions `wanted` int64[n]. where: what
    messages call the first position that is not predicted, with {} for its number."""
    before = np.maximum(wanted - 1, 0)
    kept = memory.cached if memory.version.last is not None else np.zeros(0, bool)
    known = np.isin(before, fresh) | np.isin(before, np.flatnonzero(kept))
    if not known.all():
        raise no_state(name, where.format(int(wanted[~known][0])))


def keep_states(memory: CachedMemory, unit: Unit, states: Tensor) -> None:
    """Gives a memory the last hidden states [n, width] of the call that made it, over those of the memory that it was made
    on."""
    old = None if unit.memory is None else unit.memory.version.last
    if unit.fresh is None:
        memory.version.last = states
        return
    made = states.new_zeros(memory.length, states.shape[1])
    if old is not None:
        made[: len(old)] = old[: len(made)]
    made[torch.from_numpy(unit.fresh).to(made.device)] = states
    memory.version.last = made
