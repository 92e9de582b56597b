"""Heads that read the target's states up to a root, and the tokens from it on: Hydra, ReDrafter, DFlash.

The root of a call is the token at position `known`. What a head makes of the tokens from the root to a cell is kept at the
cell's slot (`rows`), so a call has what its parents left there. What it makes of the target's states is kept as those of heads
on features are: the state of position p - 1 at slot p - 1, when the token at p is computed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.backends.triton.models.decoder import CausalModel, SlotDecoder, Stage, layers_of
from decgraph.backends.triton.models.heads import OnTarget
from decgraph.backends.triton.models.interface import Seen, at_slots, put
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.heads.base import outside
from decgraph.runtime.models.heads.dflash import DFlash
from decgraph.runtime.models.heads.rooted import Hydra, Recurrent, Rooted
from decgraph.runtime.models.interface import Model

R = TypeVar("R", bound=Rooted)


class RootedModel(OnTarget[R]):
    """What these heads share. width: numbers of a row."""

    def __init__(self, model: Model, module: R, target: CausalModel, stages: tuple[Stage, ...], width: int) -> None:
        super().__init__(model, module, target, stages)
        self.rows = self.buffer((self.batch, self.capacity, width), self.dtype)

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`. States are what `read` reads, of another width than the target's. tokens: int64[B, T]."""
        root = positions[:, -1] if known is None else known
        above = at_slots(self.rows, slots - 1 if parents is None else parents)
        depth = positions - root[:, None]
        rows, states = self.drafted(tokens, positions, slots, seen, above, depth, root)
        put(self.rows, slots, rows)
        return states

    def drafted(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, above: Tensor, depth: Tensor, root: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rows [B, T, width] of tokens, and their states [B, T, ...], from the rows of the tokens before them. depth: int64[B,
        T], how far below the root they are; below 0: committed. root: int64[B], its position."""
        raise NotImplementedError

    def before(self, root: Tensor) -> Tensor:
        """The target's last state [B, 1, W] of the position before the root; zeros where there is none."""
        return torch.where((root > 0)[:, None, None], self.target.kept(None, root[:, None] - 1), 0).to(self.dtype)


class RecurrentModel(RootedModel[Recurrent]):
    """ReDrafter: a row is the state of its RNN."""

    def __init__(self, model: Model, module: Recurrent, target: CausalModel) -> None:
        super().__init__(model, module, target, (), target.width)

    def drafted(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, above: Tensor, depth: Tensor, root: Tensor
    ) -> tuple[Tensor, Tensor]:
        module, embedded = self.module, self.module.embed(tokens).to(self.dtype)
        above = torch.where((depth > 0)[..., None], above, 0)
        rows = (
            embedded + above
            if module.rnn_u is None or module.rnn_w is None
            else F.silu(module.rnn_w(embedded) + module.rnn_u(above))
        )
        context = self.before(root).expand(rows.shape)
        return rows, torch.cat([context, rows], -1)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        """See `DeviceModel`; of the likeliest tokens alone."""
        module = self.module
        logits: Tensor = module.lm_head(states if module.input_proj is None else module.input_proj(states))
        kept = whole(module.options, "kept", 50)
        if kept < logits.shape[-1]:
            logits = torch.where(logits < logits.topk(kept, dim=-1).values[..., -1:], outside(logits.dtype), logits)
        return logits[..., : self.vocab_size]


class HydraModel(RootedModel[Hydra]):
    """Hydra: a row is the embeddings of the tokens from the root on, side by side, and how many they are. With a layer over the
    target's states (Hydra++) its outputs take those states' place."""

    def __init__(self, model: Model, module: Hydra, target: CausalModel) -> None:
        stages = () if module.prefix is None else (layers_of(module.prefix, model.name),)
        super().__init__(model, module, target, stages, int(module.depth or 0) * target.width)

    def drafted(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, above: Tensor, depth: Tensor, root: Tensor
    ) -> tuple[Tensor, Tensor]:
        module, count = self.module, self.module.depth or 0
        here = torch.arange(count, device=self.device) == depth[..., None]
        parts = above.view(*depth.shape, count, -1)
        embedded = module.embed(tokens).to(self.dtype) if module.grounded else parts[..., 0, :]
        rows = torch.where(here[..., None], embedded[..., None, :], parts).flatten(2)
        context = self.before(root)
        if module.prefix is not None:
            shift = (root > 0).long()
            at = torch.where(depth > 0, self.capacity - 1, self.place(slots, shift))  # the states of drafts are not known
            self.run(self.features(positions - 1), positions - shift[:, None], at, seen.shifted(shift))
            assert self.last is not None
            made = module.prefix.norm(at_slots(self.last, root[:, None] - 1))
            context = torch.where((root > 0)[:, None, None], made, 0)
        return rows, torch.cat([context.expand(*depth.shape, -1), rows, depth[..., None].to(self.dtype)], -1)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        """See `DeviceModel`; NaN below as many tokens as there are heads."""
        depth, width = states[..., -1:], self.target.width
        out = torch.full_like(depth, float("nan")).expand(*depth.shape[:-1], self.vocab_size)
        for n, head in enumerate(self.module.heads):
            made = head(states[..., : (n + 2 if self.module.grounded else 1) * width])
            out = torch.where(depth == n, made[..., : self.vocab_size], out)
        return out


class DFlashModel(RootedModel[DFlash]):
    """DFlash: keys and values of committed tokens are made of the target's states; a block of masks behind the root is computed
    on them in every call, at the slots from the root on, and a cell has the state of its place in it. A row is the root's
    token."""

    both = True

    def __init__(self, model: Model, module: DFlash, target: CausalModel) -> None:
        made = layers_of(module, model.name)
        windows = [None if w is None else w + 1 for w in module.windows]
        layers = tuple(replace(one, window=w) for one, w in zip(made.shape.layers, windows, strict=True))
        super().__init__(model, module, target, (SlotDecoder(made.copied(shape=replace(made.shape, layers=layers))),), 1)
        self.roots = torch.zeros(self.batch, dtype=torch.int64, device=self.device)

    def features(self, positions: Tensor, lanes: slice = slice(None)) -> Tensor:
        """What keys and values of positions int64[b, T] are made of [b, T, hidden]."""
        made: Tensor = self.module.hidden_norm(self.module.fc(self.target.kept(self.module.reads, positions, lanes)))
        return made

    def run(
        self, x: Tensor, positions: Tensor, slots: Tensor, seen: Seen, lanes: slice = slice(None), room: int | None = None
    ) -> Tensor:
        """Writes the keys and values of states [b, T, hidden]: nothing else is computed of them."""
        step = self.weights.last
        assert isinstance(step, SlotDecoder)
        put(self.slot_positions[lanes], slots, positions)
        rotations, size = step.rotations(positions), (x.shape[0], x.shape[1])
        for n, layer in enumerate(step.shape.layers):
            _, key, value = step._heads(f"{n}.", x.flatten(0, 1), size, rotations.get(layer.rope or ""))
            for kept, made in ((self.keys[n], key), (self.values[n], value)):
                index = slots[:, None, :, None].expand(-1, made.shape[2], -1, made.shape[3])
                kept[lanes].scatter_(2, index, made.transpose(1, 2))
        return x

    def drafted(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, above: Tensor, depth: Tensor, root: Tensor
    ) -> tuple[Tensor, Tensor]:
        module, block = self.module, self.module.block
        at = torch.where(depth > 0, self.capacity - 1, self.place(slots, torch.ones_like(root)))
        self.run(self.features(positions - 1), positions - 1, at, seen)
        there = depth == 0
        self.roots.copy_(torch.where(there.any(1), torch.where(there, tokens, -1).amax(1), self.roots))
        masks = torch.full((self.batch, block - 1), module.mask, dtype=torch.int64, device=self.device)
        places = root[:, None] + torch.arange(block, device=self.device)
        inside = places.clamp(max=self.capacity - 1)
        x = module.embed(torch.cat([self.roots[:, None], masks], 1)).to(self.dtype)
        below = (root[:, None] + block).clamp(max=self.capacity).expand(-1, block)
        states = super().run(x, places, inside, Seen(below))
        return tokens[..., None].to(self.dtype), at_slots(states, depth + 1)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        flat = self.module.norm(states.reshape(-1, states.shape[-1]))
        made: Tensor = self.module.logits(flat)
        return made.view(*states.shape[:-1], -1)[..., : self.vocab_size]
