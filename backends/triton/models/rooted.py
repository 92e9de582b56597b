"""Heads that read the target's states up to a root, and the tokens from it on: Hydra, ReDrafter, DFlash.

The root of a call is the token at position `known`. What a head makes of the tokens from the root to a cell is kept at the
cell's slot (`rows`), so a call has what its parents left there. What it makes of the target's states is kept as those of heads
on features are: the state of position p - 1 at slot p - 1, when the token at p is computed.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from decgraph.backends.triton.models.decoder import CausalModel, SlotDecoder, layers_of
from decgraph.backends.triton.models.heads import OnTarget
from decgraph.backends.triton.models.interface import Seen, at_slots, put, put_heads
from decgraph.backends.triton.support import NotSteppable
from decgraph.runtime.models.heads.corrections import Correction
from decgraph.runtime.models.heads.dflash import DFlash
from decgraph.runtime.models.heads.rooted import Hydra, Rooted
from decgraph.runtime.models.interface import Model


class RootedModel(OnTarget[Rooted]):
    """A head of rows: Hydra, of whose heads one is chosen by how many tokens were drafted, or ReDrafter. With a layer over the
    target's states (Hydra++) its outputs take those states' place."""

    def __init__(self, model: Model, module: Rooted, target: CausalModel) -> None:
        self.prefix = module.prefix if isinstance(module, Hydra) else None
        super().__init__(model, module, target, () if self.prefix is None else (layers_of(self.prefix, model.name),))
        self.rows = self.pool(module.width, dtype=self.dtype)

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`. States are what `read` reads, of another width than the target's. tokens: int64[B, T]."""
        root = positions[:, -1] if known is None else known
        depth = positions - root[:, None]
        above = torch.where((depth > 0)[..., None], self.stored(self.rows, slots - 1 if parents is None else parents), 0)
        rows = self.module.row(tokens, above, depth)
        put(self.rows, self.pages.at(slots), rows)
        context = self.target.stored_states(None, root[:, None] - 1)  # the target's last state of the position before the root
        if self.prefix is not None:
            shift = (root > 0).long()
            at = torch.where(depth > 0, self.capacity - 1, self.place(slots, shift))  # the states of drafts are not known
            self.run(self.features(positions - 1), positions - shift[:, None], at, seen.shifted(shift))
            assert self.last is not None
            context = self.prefix.norm(self.stored(self.last, root[:, None] - 1))
        context = torch.where((root > 0)[:, None, None], context, 0).to(self.dtype)
        return torch.cat([context.expand(*depth.shape, -1), rows, depth[..., None].to(self.dtype)], -1)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        """See `DeviceModel`; NaN below as many tokens as there are heads."""
        states, depth = states[..., :-1], states[..., -1:]
        if self.module.depth is None:
            return self.module.read_out(states)[..., : self.vocab_size]
        out = torch.full_like(depth, float("nan")).expand(*depth.shape[:-1], self.vocab_size)
        for n in range(self.module.depth):
            out = torch.where(depth == n, self.module.read_out(states, n)[..., : self.vocab_size], out)
        return out


class DFlashModel(OnTarget[DFlash]):
    """DFlash: keys and values of committed tokens are made of the target's states; a block of masks behind the root is computed
    on them in every call, at the slots from the root on, and a cell has the state of its place in it."""

    both = True

    def __init__(self, model: Model, module: DFlash, target: CausalModel) -> None:
        if any(module.causal):
            raise NotSteppable(f"{model.name!r} has layers in whose block a place sees no later one")
        made = layers_of(module, model.name)
        windows = [None if w is None else w + 1 for w in module.windows]
        layers = tuple(replace(one, window=w) for one, w in zip(made.shape.layers, windows, strict=True))
        super().__init__(model, module, target, (SlotDecoder(made.copied(shape=replace(made.shape, layers=layers))),))
        self.reach = module.block
        self.roots = torch.zeros(self.batch, dtype=torch.int64, device=self.device)

    def features(self, positions: Tensor, lanes: slice = slice(None)) -> Tensor:
        """What keys and values of positions int64[b, T] are made of [b, T, hidden]."""
        return self.module.context(self.target.stored_states(self.module.reads, positions, lanes))

    def run(
        self, x: Tensor, positions: Tensor, slots: Tensor, seen: Seen, lanes: slice = slice(None), room: int | None = None
    ) -> Tensor:
        """Writes the keys and values of states [b, T, hidden]: nothing else is computed of them."""
        step = self.weights.last
        assert isinstance(step, SlotDecoder)
        self.placed(slots, positions, lanes)
        rows = self.pages.at(slots, lanes)
        for kept, made in zip(zip(self.keys, self.values, strict=True), step.keys_and_values(x, positions), strict=True):
            put_heads(kept[0], rows, made[0])
            put_heads(kept[1], rows, made[1])
        return x

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`. tokens: int64[B, T]."""
        root = positions[:, -1] if known is None else known
        depth = positions - root[:, None]
        at = torch.where(depth > 0, self.capacity - 1, self.place(slots, torch.ones_like(root)))
        self.run(self.features(positions - 1), positions - 1, at, seen)
        there, block = depth == 0, self.module.block
        self.roots.copy_(torch.where(there.any(1), torch.where(there, tokens, -1).amax(1), self.roots))
        places = root[:, None] + torch.arange(block, device=self.device)
        inside = places.clamp(0, self.capacity - 1)  # a lane without a text has no root
        below = (root[:, None] + block).clamp(max=self.capacity).expand(-1, block)
        states = super().run(self.module.blocks(self.roots).to(self.dtype), places, inside, Seen(below))
        return at_slots(states, depth + block - self.module.depth)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        flat = self.module.norm(states.reshape(-1, states.shape[-1]))
        made: Tensor = self.module.logits(flat)
        return made.view(*states.shape[:-1], -1)[..., : self.vocab_size]


class CorrectionModel(DFlashModel):
    """What corrects the scores of a DFlash head: the head's block is computed here too, and what each token makes of those
    before it is kept at its slot, as of a head of rows."""

    def __init__(self, model: Model, module: Correction, target: CausalModel) -> None:
        assert isinstance(module.drafter, DFlash), "it corrects a block"
        super().__init__(model, module.drafter, target)
        self.correction = module
        self.rows = self.pool(module.width, dtype=self.dtype)

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`. tokens: int64[B, T]."""
        here = self.module.norm(super().compute(tokens, positions, slots, seen, parents, known))
        root = positions[:, -1] if known is None else known
        below, before = positions > root[:, None], slots - 1 if parents is None else parents
        rows = []
        for n in range(tokens.shape[1]):  # a token may be the child of one of this call
            above = torch.where(below[:, n, None], self.stored(self.rows, before[:, n : n + 1])[:, 0], 0)
            rows.append(self.correction.next_row(tokens[:, n], above, here[:, n]))
            put(self.rows, self.pages.at(slots[:, n : n + 1]), rows[-1][:, None])
        return torch.cat([here, torch.stack(rows, 1)], -1)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        made = self.correction.read_out(states.reshape(-1, states.shape[-1]))
        return made.view(*states.shape[:-1], -1)[..., : self.vocab_size]
