"""Hugging Face causal models on the device: a forward over caches of a fixed size, and the choice of its implementation.

Keys and values are [B, H, capacity, D] by layer. A forward computes new tokens at the slots after the cached ones, in one
call of the decoder (causal_graph.py); a module that has none runs as it is, with dense masks built on the
device. Scores have the dtype of the model's output matrix: the kernels that read them accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.attention.move import Mover
from decgraph.backends.triton.placement import home
from decgraph.backends.triton.step.causal_cells import Cells, Placed, chain_bits, fits, rows_of, words
from decgraph.backends.triton.step.causal_graph import Attention, Site, dense_attention, kernel_attention
from decgraph.backends.triton.step.causal_layers import Weights, adapted, least, lower, whole
from decgraph.backends.triton.step.model import DeviceModel
from decgraph.backends.triton.step.table import TableOnDevice, refusal
from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.derive import Applied, Headed, Upto
from decgraph.runtime.models.engine.layout import FULL, SLIDING
from decgraph.runtime.models.engine.nets import net_of
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter
from decgraph.runtime.models.hf_live import Live
from decgraph.runtime.models.hf_soft_prompts import SoftPrompted
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel

CHUNK = 512  # the most prompt tokens that one forward computes
_MARGIN = 512  # slots past a model's context: a step begun within it writes no further


class CausalOnDevice:
    """A `DeviceModel` of some weights.

    Last states are kept by slot (`last` [B, capacity, width]) where heads read them: Medusa heads of the model's own
    (`heads`), or others' (`keep_states`). Raises DecError for a capacity that the model's context does not allow.
    """

    exact = False

    def __init__(self, weights: Weights, batch: int, capacity: int, tail: int) -> None:
        if weights.context is not None and capacity > weights.context + _MARGIN:
            raise DecError(f"{capacity} slots are more than the context of {weights.name!r} ({weights.context}) allows",
                           hint=f"at most {weights.context + _MARGIN}")  # fmt: skip
        self.weights, self.layout, self.name = weights, weights.layout, weights.name
        self.vocab_size, self.batch, self.capacity, self.tail = weights.size, batch, capacity, tail
        self.device = weights.layout.device
        self._cells = Cells(batch, capacity, tail, self.device, weights.kernels)
        # Tensors of one size are one block [n, B, H, capacity, D], so that moving rows is one operation.
        sizes = [(h, k) for h, k, _ in self.layout.shapes] + [(h, v) for h, _, v in self.layout.shapes]
        self._blocks = {s: self.layout.zeros(sizes.count(s), batch, s[0], capacity, s[1]) for s in dict.fromkeys(sizes)}
        every = [self._blocks[s][sizes[:n].count(s)] for n, s in enumerate(sizes)]
        self.keys, self.values = every[: len(every) // 2], every[len(every) // 2 :]
        self.last: Tensor | None = None
        self._mover: Mover | None = None
        if weights.guesses is not None:
            self.keep_states()

    def keep_states(self) -> Tensor:
        """Keep last states from now on: [B, capacity, width], by slot. Call it before `begin`."""
        if self.last is None:
            self.last = self.layout.zeros(self.batch, self.capacity, self.layout.width)
            self._mover = None
        return self.last

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """See `DeviceModel`. Prompts are computed in chunks, all together. Raises DecError for a wrong number of prompts."""
        if len(prompts) != self.batch:
            raise DecError(f"{len(prompts)} prompts for a batch of {self.batch}")
        for prompt in prompts:
            fits(self.name, prompt, self.vocab_size, self.tail, self.capacity, self.weights.context)
        # Values of an earlier run may be NaN, which propagates through a dense mask.
        for cache in (*self._blocks.values(), *([] if self.last is None else [self.last])):
            cache.zero_()
        if self.weights.kernels and self._mover is None:
            self._mover = Mover([*self.keys, *self.values, *([] if self.last is None else [self.last])])
        longest = max(map(len, prompts)) - 1
        for start in range(0, longest, CHUNK):
            self._prefill(prompts, start, min(CHUNK, longest - start))

    def _prefill(self, prompts: Sequence[Sequence[int]], start: int, count: int) -> None:
        """The tokens start .. start + count - 1 of all prompts that have them."""
        chain = chain_bits(count, words(count))
        tokens = torch.zeros((self.batch, count), dtype=torch.int64)
        bits = torch.zeros((self.batch, *chain.shape), dtype=torch.int32)
        for lane, prompt in enumerate(prompts):
            part = list(prompt[start : min(start + count, len(prompt) - 1)])
            tokens[lane, : len(part)] = torch.tensor(part, dtype=torch.int64)
            bits[lane, : len(part)] = chain[: len(part)]
        cells = Cells(self.batch, self.capacity, count, self.device, self.weights.kernels)
        cached = torch.full((self.batch,), start, dtype=torch.int32, device=self.device)
        positions = torch.arange(start, start + count, device=self.device).expand(self.batch, -1)
        placed = cells.place(tokens.to(self.device), positions, 0, cached, bits.to(self.device))
        self.run(cells, placed, self.entering(cells, placed))

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, positions: Tensor, first: int, cached: Tensor, bits: Tensor, rows: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`: [B, R, V] of the model's own type."""
        placed = self._cells.place(tokens, positions, first, cached, bits)
        return self.read(rows_of(self.run(self._cells, placed, self.entering(self._cells, placed)), rows))

    def entering(self, cells: Cells, placed: Placed) -> Tensor:
        """The input of the step: tokens int64[B, T]."""
        return placed.tokens

    def run(self, cells: Cells, placed: Placed, entering: Tensor) -> Tensor:
        """The last states [B, T, width] of new tokens, whose keys and values are written to the caches. Call it without
        gradients."""
        kinds = {FULL: None} if self.layout.window is None else {FULL: None, SLIDING: self.layout.window}
        masks: dict[str, Any] = {}
        for kind, window in kinds.items():
            if kind in self.layout.types:
                masks[kind] = Site(cells, placed, window) if self.weights.sites else cells.seen(placed, window)[:, None]
        states = self.weights.step(entering, placed.positions, placed.write, self.keys, self.values, masks)
        if self.last is not None:
            self.last.index_put_((cells.lanes, placed.write), states)
        return states

    @torch.no_grad()
    def heads(self, slots: Tensor) -> Tensor:
        """Scores [B, heads, V] of the tokens after the one that follows each slot int64[B], by Medusa heads. A committed
        token's slot is its position. Raises DecError for a model without heads."""
        if self.weights.guesses is None or self.last is None:
            raise DecError(f"{self.name!r} has no heads")
        index = slots[:, None, None].expand(-1, 1, self.layout.width)
        made = torch.cat(self.weights.guesses(self.last.gather(1, index)), dim=1)
        own = getattr(self.weights.guesses, "own_output", False)  # then they are logits already
        return made[..., : self.vocab_size].contiguous() if own else self.read(made)

    def read(self, states: Tensor) -> Tensor:
        """Logits [..., V] of last states [..., width], of the vocabulary's tokens only."""
        return self.weights.head(states)[..., : self.vocab_size].contiguous()

    @torch.no_grad()
    def move(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        """See `DeviceModel`; source int64[B, K], cached and count int32[B]."""
        if self._mover is not None:
            self._mover(cached, source, count)
            return
        here, there = self._cells.kept(cached, source, count)
        lanes = self._cells.lanes
        for block in self._blocks.values():
            block[:, lanes, :, there] = block[:, lanes, :, here]
        if self.last is not None:
            self.last[lanes, there] = self.last[lanes, here]


def weights_of(model: Model, attention: Attention | None = None) -> Weights:
    """The weights of a Hugging Face causal model, loaded once per model and attention. Raises DecError for another model, and
    for one that cannot be run with given masks and positions.

    attention: None is the template's kernel on a GPU, and masks over all slots where Triton's interpreter would run it.
    """
    match model:
        case HFCausal():
            return _net(model, attention)
        case Live() if not isinstance(model, SoftPrompted):
            return _net(model, attention)
        case Headed(target=HFCausal() as target, inner=Upto() as inner) if inner.target is target:
            return _named(lower(target, _net(target, attention), inner.layer), model)
        case Headed(target=HFCausal() as target, inner=Applied(adapter=HFAdapter() as adapter, inner=Upto() as inner)):
            if inner.target is target:
                made = _net(target, attention)
                how = suited(attention, target.net.embedding)
                return _named(_once(model, how, lambda how: adapted(target, made, inner.layer, adapter.module, how)), model)
    raise DecError(f"{model.name!r} is not implemented on the device: {_why_not(model)}")


def _net(model: HFCausal | Live, attention: Attention | None) -> Weights:
    """The weights of a loaded model, or of one derived from it with layers of its own. Models that share a net share them."""
    net = net_of(model)

    def made_for(how: Attention) -> Weights:
        named = (model.name, model.vocab.size, model.context)
        return whole(net.decoder, net.read, *named, how)

    made = _named(_once(net, suited(attention, net.embedding), made_for), model)
    heads = getattr(model, "attached", None)
    return made if heads is None else replace(made, guesses=heads.module)


def _named(made: Weights, model: Model) -> Weights:
    return replace(made, name=model.name, size=model.vocab.size, context=least(made.context, model.context))


def suited(attention: Attention | None, weight: Tensor) -> Attention:
    """The attention of a model with such weights: the given one, or the best for their device and dtype."""
    if attention is not None:
        return attention
    return kernel_attention if weight.is_cuda and weight.dtype.itemsize <= 4 else dense_attention


def _once(holder: Model | Net, attention: Attention, make: Callable[[Attention], Weights]) -> Weights:
    """The weights of a model or net for an attention, cached with it."""
    return memo_of(holder).once(("device weights", attention), lambda: make(attention))


def _why_not(model: Model) -> str:
    if model.kind != "causal":
        return f"it is a {model.kind} model"
    if isinstance(model, SoftPrompted):
        return "it reads a soft prompt before every text"
    why = refusal(model) if isinstance(model, TableModel) else None
    return why or f"a {type(model).__name__} is not supported"


def device_model(
    model: Model,
    batch: int,
    capacity: int,
    tail: int,
    *,
    device: torch.device | str | None = None,
    attention: Attention | None = None,
) -> DeviceModel:
    """The model for steps of at most `tail` tokens over `capacity` slots, for a batch of sequences.

    device: of a table model (None: where kernels run); other models stay where their weights are. attention: see
    `weights_of`. Raises DecError with the model's name and the reason where it is not supported.
    """
    if refusal(model) is None:
        return TableOnDevice(model, batch, capacity, tail, home({}) if device is None else device)
    return CausalOnDevice(weights_of(model, attention), batch, capacity, tail)
