"""Hugging Face causal models on the device: a forward over caches of a fixed size, and the choice of what a model runs as.

Keys and values are [B, H, capacity, D] by layer. A forward computes new cells at the slots behind those held, in one call
of the captured graph (causal_graph.py); a module that cannot be captured runs as it is, with dense masks made on the
device. Scores have the model's own type, as its output matrix gives them: the kernels that read them accumulate in float32.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.step.causal_cells import Cells, Placed, chain_bits, fits, rows_of, words
from decgraph.backends.triton.step.causal_graph import (
    Attention,
    DeviceStep,
    Site,
    dense_attention,
    device_step,
    kernel_attention,
)
from decgraph.backends.triton.step.model import DeviceModel
from decgraph.backends.triton.step.table import TableOnDevice, refusal
from decgraph.errors import DecError
from decgraph.runtime.models.engine.exits import plainly
from decgraph.runtime.models.engine.hf import read_out
from decgraph.runtime.models.engine.step import FULL, SLIDING, Layout, ModuleStep
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_live import Live
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel

CHUNK = 512  # cells of a prompt that one forward computes at most
_MARGIN = 512  # slots past a model's context: a step begun within it writes no further (capture/tables.py has as many rows)


@dataclass(frozen=True)
class Weights:
    """What a model computes with. step: the captured forward, or the module's own. head: states [..., width] to logits
    [..., size or more]. context: the most positions it reads."""

    step: DeviceStep | ModuleStep
    layout: Layout
    head: Callable[[Tensor], Tensor]
    name: str
    size: int
    context: int | None


class CausalOnDevice:
    """A `DeviceModel` of some weights.

    keep: whether last states are kept by slot (`last` [B, capacity, width]), for heads that read them. Raises DecError for
    a capacity that the model's context does not allow.
    """

    exact = False

    def __init__(self, weights: Weights, batch: int, capacity: int, tail: int, *, keep: bool = False) -> None:
        if weights.context is not None and capacity > weights.context + _MARGIN:
            raise DecError(f"{capacity} slots are more than the context of {weights.name!r} ({weights.context}) allows",
                           hint=f"at most {weights.context + _MARGIN}")  # fmt: skip
        self.weights, self.layout, self.name = weights, weights.layout, weights.name
        self.vocab_size, self.batch, self.capacity, self.tail = weights.size, batch, capacity, tail
        self.device = weights.layout.device
        self._cells = Cells(batch, capacity, tail, self.device)
        # Tensors of one size are one block [n, B, H, capacity, D], so that moving rows is one operation.
        sizes = [(h, k) for h, k, _ in self.layout.shapes] + [(h, v) for h, _, v in self.layout.shapes]
        self._blocks = {s: self.layout.zeros(sizes.count(s), batch, s[0], capacity, s[1]) for s in dict.fromkeys(sizes)}
        every = [self._blocks[s][sizes[:n].count(s)] for n, s in enumerate(sizes)]
        self.keys, self.values = every[: len(every) // 2], every[len(every) // 2 :]
        self.last = self.layout.zeros(batch, capacity, self.layout.width) if keep else None

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """See `DeviceModel`. Prompts are computed in chunks, all together."""
        if len(prompts) != self.batch:
            raise DecError(f"{len(prompts)} prompts for a batch of {self.batch}")
        for prompt in prompts:
            fits(self.name, prompt, self.vocab_size, self.tail, self.capacity, self.weights.context)
        # What an earlier run left may be no numbers, and would come through a dense mask.
        for cache in (*self._blocks.values(), *([] if self.last is None else [self.last])):
            cache.zero_()
        longest = max(map(len, prompts)) - 1
        for start in range(0, longest, CHUNK):
            self._prefill(prompts, start, min(CHUNK, longest - start))

    def _prefill(self, prompts: Sequence[Sequence[int]], start: int, count: int) -> None:
        """The cells start .. start + count - 1 of all prompts that have them."""
        chain = chain_bits(count, words(count))
        tokens = torch.zeros((self.batch, count), dtype=torch.int64)
        bits = torch.zeros((self.batch, *chain.shape), dtype=torch.int32)
        for lane, prompt in enumerate(prompts):
            part = list(prompt[start : min(start + count, len(prompt) - 1)])
            tokens[lane, : len(part)] = torch.tensor(part, dtype=torch.int64)
            bits[lane, : len(part)] = chain[: len(part)]
        cells = Cells(self.batch, self.capacity, count, self.device)
        held = torch.full((self.batch,), start, dtype=torch.int32, device=self.device)
        positions = torch.arange(start, start + count, device=self.device).expand(self.batch, -1)
        self.run(cells, cells.place(tokens.to(self.device), positions, 0, held, bits.to(self.device)))

    @torch.no_grad()
    def forward(self, tokens: Tensor, positions: Tensor, first: int, held: Tensor, bits: Tensor, rows: Tensor | None) -> Tensor:
        """See `DeviceModel`: [B, R, V] of the model's own type."""
        states = self.run(self._cells, self._cells.place(tokens, positions, first, held, bits))
        return self.read(rows_of(states, rows))

    def run(self, cells: Cells, placed: Placed) -> Tensor:
        """The last states [B, T, width] of new cells, written to the caches. To be called without gradients."""
        step, window = self.weights.step, self.layout.window
        kinds = {FULL: None, SLIDING: window} if window is not None else {FULL: None}
        masks: dict[str, Any]
        if isinstance(step, DeviceStep):
            masks = {kind: Site(cells, placed, w) for kind, w in kinds.items() if kind in self.layout.types}
        else:
            masks = {kind: cells.seen(placed, w)[:, None] for kind, w in kinds.items() if kind in self.layout.types}
        states: Tensor = step(placed.tokens, placed.positions, placed.write, self.keys, self.values, masks)
        if self.last is not None:
            self.last.index_put_((cells.lanes, placed.write), states)
        return states

    def read(self, states: Tensor) -> Tensor:
        """Logits [..., V] of last states [..., width], of the vocabulary's tokens only."""
        return self.weights.head(states)[..., : self.vocab_size].contiguous()

    @torch.no_grad()
    def move(self, held: Tensor, source: Tensor, count: Tensor) -> None:
        """See `DeviceModel`."""
        here, there = self._cells.kept(held, source, count)
        lanes = self._cells.lanes
        for block in self._blocks.values():
            block[:, lanes, :, there] = block[:, lanes, :, here]
        if self.last is not None:
            self.last[lanes, there] = self.last[lanes, here]


def weights_of(model: Model, attention: Attention | None = None) -> Weights:
    """The weights of a Hugging Face causal model, made once per model and attention. Raises DecError for another model, and
    for one that cannot be run with masks and positions given from outside.

    attention: None takes the template's kernel on a GPU, and masks over all slots where Triton's interpreter would run it.
    """
    if isinstance(model, HFCausal):
        holder: Any = model.net
        at = holder.embedding
    elif isinstance(model, Live):
        holder = model
        at = next(model.module.parameters())
    else:
        raise DecError(f"{model.name!r} has no form on the device: {_why_not(model)}")
    if attention is None:
        attention = kernel_attention if at.is_cuda and at.dtype.itemsize <= 4 else dense_attention
    # A net derived by copying carries its original's.
    kept = holder.__dict__.get("_device_weights")
    if kept is None or kept[0] is not holder:
        kept = holder.__dict__["_device_weights"] = (holder, {})
    if attention not in kept[1]:
        kept[1][attention] = _weights(model, attention)
    made: Weights = kept[1][attention]
    return replace(made, name=model.name, size=model.vocab.size, context=model.context)


def _weights(model: HFCausal | Live, attention: Attention) -> Weights:
    head: Callable[[Tensor], Tensor]
    if isinstance(model, HFCausal):
        base, plain = model.net.base, ModuleStep(model.net.base, model.name, plainly(model.net))
        head = model.net._out
    else:
        base, plain = model.module.base_model, ModuleStep(model.module.base_model, model.name)
        head = read_out(model.module, plain, model.name)
    step = device_step(base, attention)
    return Weights(step or plain, plain.layout, head, model.name, model.vocab.size, model.context)


def _why_not(model: Model) -> str:
    if model.kind != "causal":
        return f"it is a {model.kind} model"
    why = refusal(model) if isinstance(model, TableModel) else None
    return why or f"there is none for a {type(model).__name__}"


def device_model(
    model: Model,
    batch: int,
    capacity: int,
    tail: int,
    *,
    device: torch.device | str | None = None,
    attention: Attention | None = None,
    keep: bool = False,
) -> DeviceModel:
    """The model for steps of at most `tail` cells over `capacity` slots, for a batch of sequences.

    device: of a table model, whose rows lie wherever they are wanted (None: the GPU, if there is one); other models stay
    where their weights are. attention: see `weights_of`. keep: whether last states are kept, for heads that read them. Raises
    DecError naming the model, and why, where there is no such form.
    """
    if refusal(model) is None:
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return TableOnDevice(model, batch, capacity, tail, device)
    return CausalOnDevice(weights_of(model, attention), batch, capacity, tail, keep=keep)
