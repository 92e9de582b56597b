"""A masked model on the device: B canvases of one length after prompts of their own, computed whole or in part on a cache.

A row of the caches is a *slot*. The prompts are padded on the left to one width P, so canvas cell i has slot P + i in every
sequence; its position is the slot less the sequence's padding. Slots of padding are masked. Sequences that have
stopped must keep their caches: what they compute is written to an extra slot, which is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.backends.triton.attention.attend import attend_canvas
from decgraph.backends.triton.step.canvas_symbols import plain
from decgraph.backends.triton.step.canvas_values import DeviceCanvas, DeviceCanvasMemory, constant, picked
from decgraph.backends.triton.step.causal_graph import DeviceStep, device_step
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.engine.masked_memory import Store

Ids = np.ndarray


class Scores(Protocol):
    """The scores of one call, computed for the rows that are read."""

    size: int

    def logits(self, ids: Ids) -> Tensor:
        """[B, N, V], float32 or float64: the scores of the call's rows `ids` (NumPy int64[N])."""
        ...


class CanvasModel(Protocol):
    """A masked model for a step. Only `begin` reads anything back."""

    name: str
    vocab_size: int
    mask: int
    device: torch.device
    ragged: bool
    """Whether prompts differ in length: captured iterations are for one case only."""
    serial: int
    """The number of the last write to the caches."""

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Set the prompts of the sequences, at most `width` tokens each."""
        ...

    def call(
        self, canvas: DeviceCanvas, at: Ids | None, given: DeviceCanvasMemory | None, keep: bool, active: Tensor | None
    ) -> tuple[Scores, DeviceCanvasMemory | None]:
        """Scores at the canvas positions `at` (None: all), and, with `keep`, the caches afterwards.

        Without a memory everything is computed; with one, the cells at `at`, and the prompt where `given` does not have it.
        active: bool[B], whose caches may be written (None: all).
        """
        ...

    def nothing(self) -> DeviceCanvasMemory:
        """The empty memory."""
        ...


@dataclass
class Site:
    """The attention mask of one kind of layer. mask: bool[B, 1, T, span], or None: every slot below span is seen. Where the
    attention template is used: length: int32[B], the slots; hidden: bool[B, span], those that no cell sees; blocks:
    int32[B, T] and int32[B, span]: a cell sees its own block and those before."""

    span: int
    mask: Tensor | None
    length: Tensor | None = None
    hidden: Tensor | None = None
    blocks: tuple[Tensor, Tensor] | None = None


def canvas_attention(
    query: Tensor, keys: Tensor, values: Tensor, *, attn_mask: Site, scale: float | None = None, enable_gqa: bool = False
) -> Tensor:
    """Attention of queries [B, Hq, T, D] over the slots that a site does not mask."""
    site = attn_mask
    keys, values = keys[:, :, : site.span], values[:, :, : site.span]
    if site.length is None:
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=site.mask, scale=scale, enable_gqa=enable_gqa)
    rows, slots = (None, None) if site.blocks is None else site.blocks
    usual = query.shape[-1] ** -0.5
    return attend_canvas(
        query.transpose(1, 2),
        keys,
        values,
        site.length,
        scale=usual if scale is None else scale,
        hidden=site.hidden,
        row_blocks=rows,
        slot_blocks=slots,
    ).transpose(1, 2)


def canvas_step(net: Net, kernels: bool) -> DeviceStep | None:
    """The decoder of a net with a canvas's attention, made once; None where there is none, which is logged."""
    whole = net.decoder if isinstance(net.decoder, Decoder) else None
    found: DeviceStep | None = memo_of(net).once("canvas step", lambda: device_step(whole, canvas_attention))
    return None if found is None else DeviceStep(found, found.part, canvas_attention, kernels)


class HFCanvas:
    """A Hugging Face masked model. `engine` is its engine (runtime/models/engine/masked.py), whose weights it shares; width:
    the widest prompt; length: cells of a canvas; kernels: whether attention over the cache is the template's, and the
    operations between two products are one kernel (None: where there is CUDA)."""

    def __init__(self, engine: Any, batch: int, width: int, length: int, *, kernels: bool | None = None) -> None:
        model = engine.model
        self.model, self.name, self.vocab_size, self.mask = model, model.name, model.vocab.size, int(engine.mask)
        self.batch, self.width, self.length, self.slots = batch, width, length, width + length
        self.device = engine.device
        self.kernels = self.device.type == "cuda" if kernels is None else kernels
        self.step = canvas_step(model.net, self.kernels)
        whole = model.net.decoder
        self.dense: Any = whole.unread() if isinstance(whole, Decoder) else whole  # over masks
        self.blank: Tensor = engine.step.blank
        self.read = model.net.read
        self._block = None if isinstance(model.visibility, str) else int(model.visibility[1])
        self.windows = sorted(set(whole.windows), key=lambda w: -1 if w is None else w)
        self.prompt = torch.zeros(batch, width, dtype=torch.int64, device=self.device)
        self.pad = torch.zeros(batch, 1, dtype=torch.int64, device=self.device)
        self.ragged = False
        self.serial = 0
        layers, two, _, heads, _, dim = self.blank.shape
        self._shape = (layers, two, batch, heads, self.slots + 1, dim)
        self._store: Store | None = None
        self._scratch: Tensor | None = None

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """See `CanvasModel`."""
        rows = np.zeros((self.batch, self.width), np.int64)
        pad = np.array([[self.width - len(p)] for p in prompts], np.int64)
        for row, prompt in zip(rows, prompts, strict=True):
            row[self.width - len(prompt) :] = prompt
        self.prompt.copy_(torch.from_numpy(rows))
        self.pad.copy_(torch.from_numpy(pad))
        self.ragged = bool(pad.any())

    def nothing(self) -> DeviceCanvasMemory:
        """See `CanvasModel`."""
        return DeviceCanvasMemory(self.name, np.zeros(self.length, dtype=bool), False, self.serial)

    def call(
        self, canvas: DeviceCanvas, at: Ids | None, given: DeviceCanvasMemory | None, keep: bool, active: Tensor | None
    ) -> tuple[Scores, DeviceCanvasMemory | None]:
        """See `CanvasModel`; at: int64[N], active: bool[B]."""
        which = np.arange(self.length) if at is None else np.asarray(at, dtype=np.int64)
        active, cells = plain(active), plain(canvas.tokens)
        wanted = np.unique(which)
        whole = given is None or (len(wanted) == self.length and not given.prompt)
        if whole:
            fresh, seen = np.arange(self.slots), np.ones(self.slots, dtype=bool)
        else:
            assert given is not None
            if given.serial != self.serial:
                raise NotCapturable("a later call has overwritten a memory that is read")
            context = np.arange(0 if given.prompt else self.width)
            fresh = np.concatenate((context, wanted + self.width))
            seen = np.concatenate((np.full(self.width, True), given.cached))
            seen[fresh] = True
        cells = torch.where(cells < 0, self.mask, cells)
        cells = torch.cat((self.prompt, cells), 1)
        states = self._forward(picked(cells, fresh), fresh, seen, keep or not whole, active if keep or not whole else None)
        place = np.searchsorted(fresh, which + self.width)
        memory = None
        if keep or not whole:
            self.serial += 1
            cached = np.zeros(self.length, dtype=bool) if whole or given is None else given.cached.copy()
            cached[wanted if not whole else slice(None)] = True
            memory = DeviceCanvasMemory(self.name, cached, True, self.serial)
        return _States(self, states, place), memory

    def _forward(self, ids: Tensor, fresh: Ids, seen: Ids, kept: bool, active: Tensor | None) -> Tensor:
        """The last hidden states [B, T, width] of cells int64[B, T] in the slots `fresh`; `seen`: bool[slots], static."""
        slots = constant(fresh, self.device)[None]
        positions = (slots - self.pad).clamp_min(0)
        write = slots.expand(self.batch, -1) if active is None else torch.where(active[:, None], slots, self.slots)
        sites = {w: self._site(w, positions, seen) for w in self.windows}
        pairs = self._pairs(kept)
        with torch.no_grad():
            masks: dict[str, Any] = {kind: sites[w] for kind, w in zip(self.dense.kinds, self.dense.windows, strict=True)}
            keys, values = [k for k, _ in pairs], [v for _, v in pairs]
            if self.step is not None:
                out: Tensor = self.step(ids, positions, write, keys, values, masks)
                return out
            masks = {kind: self._widened(site.mask, positions) for kind, site in masks.items()}
            out = self.dense(ids, positions, write, keys, values, masks)
            return out

    def _pairs(self, kept: bool) -> list[tuple[Tensor, Tensor]]:
        """Keys and values [B, H, S, D] by layer. A cache that is not read again is one layer's buffer for all."""
        if kept:
            if self._store is None:
                self._store = Store(self.blank.new_zeros(self._shape))
            return [self._store.rows(layer) for layer in range(self._shape[0])]
        if self._scratch is None:
            self._scratch = self.blank.new_zeros(self._shape[1:])
        return [(self._scratch[0], self._scratch[1])] * self._shape[0]

    def _site(self, window: int | None, positions: Tensor, seen: Ids) -> Site:
        """The mask of layers with this window. The template is for few cells over many slots, without windows; where all cells
        are computed, attention is bound by arithmetic, and torch's is as good."""
        if not self.kernels or self.step is None or window is not None or positions.shape[1] == self.slots:
            return Site(self.slots, self._mask(window, positions, seen))
        length = constant(np.full(self.batch, self.slots), self.device).int()
        slots = constant(np.arange(self.slots), self.device)[None]
        hidden = None
        if self.ragged or not seen.all():
            hidden = (slots < self.pad) | ~constant(seen, self.device)
        blocks = None
        if self._block is not None:
            places = (slots - self.pad).clamp_min(0)
            blocks = (positions // self._block).int(), (places // self._block).int()
        return Site(self.slots, None, length, hidden, blocks)

    def _widened(self, mask: Tensor | None, positions: Tensor) -> Tensor:
        """A mask [B, 1, T, slots] with a column for what sequences that have stopped write, which none attends to."""
        if mask is None:
            mask = torch.ones(self.batch, 1, positions.shape[1], self.slots, dtype=torch.bool, device=self.device)
        return F.pad(mask, (0, 1))

    def _mask(self, window: int | None, positions: Tensor, seen: Ids) -> Tensor | None:
        """bool[B, 1, T, slots]: the mask of layers with this window, or None: everything is seen."""
        if not self.ragged and window is None and self._block is None and seen.all():
            return None
        slots = constant(np.arange(self.slots), self.device)[None]
        mask = constant(seen, self.device) & (slots >= self.pad)
        mask = mask[:, None, None, :]
        rows, columns = positions[:, None, :, None], (slots - self.pad)[:, None, None, :]
        if self._block is not None:
            mask = mask & (columns < (rows // self._block + 1) * self._block)
        if window is not None:
            mask = mask & ((rows - columns).abs() < window)
        return mask.expand(self.batch, 1, positions.shape[1], self.slots)


class _States:
    """See `Scores`: the last hidden states [B, T, width] of a call, and where its rows are among them."""

    def __init__(self, model: HFCanvas, states: Tensor, place: Ids) -> None:
        self.model, self.states, self.place, self.size = model, states, place, model.vocab_size
        self._known: dict[bytes, Tensor] = {}

    def logits(self, ids: Ids) -> Tensor:
        """See `Scores`."""
        key = ids.tobytes()
        if key not in self._known:
            size = self.model.vocab_size
            states = picked(self.states, self.place[ids])
            with torch.no_grad():
                logits = self.model.read(states)[..., :size].float()
            if self.model.mask < size:
                logits[..., self.model.mask].fill_(float("-inf"))
            self._known[key] = logits
        return self._known[key]
