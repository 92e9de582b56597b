"""Heads on a target's features: EAGLE and MTP layers, which feed their own outputs back.

The token at position p reads the feature of position p - 1, so the head's keys and values for it are at slot p - 1, and so is
its own output: slots are shifted by one here, nowhere else. Only where a text is one token long does that token have a slot,
with the absence of a feature, and nothing is shifted. Keys and values of drafted tokens come from the head's own features; when
they are committed, they are computed again from the target's.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from decgraph.backends.triton.models.decoder import CausalModel, Stage, Weights, layers_of
from decgraph.backends.triton.models.interface import ModelPart, Seen
from decgraph.backends.triton.support import NotSteppable
from decgraph.runtime.models.derive import Since
from decgraph.runtime.models.heads.chained import ChainHead
from decgraph.runtime.models.heads.rooted import Rooted
from decgraph.runtime.models.hf_heads import HFReading, outputs_of, values_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import Confidence

H = TypeVar("H", bound=ChainHead | Rooted)


class ReadingHead(ModelPart):
    """A head of a target with one value after every text, read off the target's last states."""

    kind, exact, mask = "head", False, None

    def __init__(self, model: Model, whole: HFReading | Confidence, target: CausalModel) -> None:
        super().__init__(model)
        self.whole, self.trunk, self.vocab_size, self.device = whole, target, target.vocab_size, target.device

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        """Values float64[..., 1] at the target's last states [..., W]; NaN where they are no numbers."""
        if isinstance(self.whole, Confidence):
            p = torch.softmax(self.trunk.read(states).double(), -1)
            top = p.amax(-1, keepdim=True)
            entropy = -torch.where(p > 0, p * torch.log(torch.where(p > 0, p, 1)), 0).sum(-1, keepdim=True)
            return {"prob": top, "real": entropy, "int": (top < 0.5).double(), "bool": (top >= 0.5).double()}[self.whole.gives]
        module, flat = self.whole.module, states.reshape(-1, states.shape[-1])
        return values_of(module, self.whole.gives, outputs_of(module, flat)).view(*states.shape[:-1], 1)


class SinceModel(CausalModel):
    """A target's layers from one on, over the states that another model has: of its lower layers and an adapter, or of a head.
    Keys and values of committed tokens are the target's where it follows that."""

    def __init__(self, model: Model, whole: Since, target: CausalModel, inner: CausalModel) -> None:
        uses = [use for use in target.weights.last.uses if use.layer >= whole.layer]
        upper = target.weights.last.using(uses).above()
        super().__init__(model, Weights((upper,), target.weights.head), target.pages)
        self.kind, self.inner, self.origin = inner.kind, inner, target
        self.pools += inner.pools
        self.positioned += inner.positioned
        if self.kind == "features":
            self.follow()

    def fill_part(self, tokens: Tensor, at: Tensor, first: int, lanes: slice) -> None:
        if self.following:
            super().fill_part(tokens, at, first, lanes)
            self.inner.fill_part(tokens, at, first, lanes)
        else:
            seen, room = Seen(at + 1), first + at.shape[1]
            self.run(self.inner.run(tokens, at, at, seen, lanes, room), at, at, seen, lanes, room)

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        states = self.inner.compute(tokens, positions, slots, seen, parents, known)
        return self.run(states, positions, self.followed(positions, slots, known), seen)


class OnTarget(CausalModel, Generic[H]):
    """What heads on a target's states share: keys and values, one slot below those of tokens."""

    kind = "features"
    behind = 1

    def __init__(self, model: Model, module: H, target: CausalModel, stages: tuple[Stage, ...]) -> None:
        own = next((p for p in cast("nn.Module", module).parameters()), None)
        if own is not None and (own.device != target.device or own.dtype != target.dtype):
            raise NotSteppable(f"{model.name!r} is no {target.dtype} on {target.device}, as its target {target.name!r} is")
        super().__init__(model, Weights(stages or (target.weights.last.using(()),), self.head), target.pages)
        self.module, self.target = module, target
        target.keep_states(module.reads or ())
        if stages:
            self.keep_states()

    def head(self, states: Tensor) -> Tensor:
        """Logits [..., V] of the head's outputs [..., W]."""
        if not self.module.own_output:
            return self.target.read(states)
        made: Tensor = self.module.read_out(states.reshape(-1, states.shape[-1]))
        return made.view(*states.shape[:-1], -1)

    def features(self, positions: Tensor, lanes: slice = slice(None)) -> Tensor:
        """What the head reads of the target's states of positions int64[b, T]: [b, T, hidden]."""
        made: Tensor = self.target.stored_states(self.module.reads, positions, lanes)
        return made.to(self.dtype)

    def entering(self, tokens: Tensor, features: Tensor) -> Tensor:
        """What enters the first layer, of tokens int64[b, T] and features of the positions before them."""
        return features

    def fill_part(self, tokens: Tensor, at: Tensor, first: int, lanes: slice) -> None:
        if first in (0, self.pages.shared[lanes.start]):  # the first token of a text, or what it gives is in a shared page
            tokens, at = tokens[:, 1:], at[:, 1:]
        if self.keys and at.shape[1]:
            before = at - 1
            entering = self.entering(tokens, self.features(before, lanes))
            self.run(entering, before, before, Seen(at), lanes, first + tokens.shape[1])

    def place(self, slots: Tensor, shift: Tensor) -> Tensor:
        """The head's slots of tokens' slots; the first token of a text has none, where there are others. slots: int64[B, T]."""
        at = slots - shift[:, None]
        return torch.where(at < 0, self.capacity - 1, at)


class FeaturesModel(OnTarget[ChainHead]):
    """See the module, and `DeviceModel`. `module` is as in runtime/models/heads/chained.py."""

    def __init__(self, model: Model, module: ChainHead, target: CausalModel) -> None:
        super().__init__(model, module, target, (layers_of(module, model.name),))
        self.shifts = torch.ones(target.batch, dtype=torch.int64, device=target.device)

    def entering(self, tokens: Tensor, features: Tensor) -> Tensor:
        made: Tensor = self.module.enter(tokens, features)
        return made

    def features(self, positions: Tensor, lanes: slice = slice(None)) -> Tensor:
        made: Tensor = self.module.project(super().features(positions, lanes))
        return made

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`. Without `known` all features are the target's. tokens: int64[B, T]."""
        shift = torch.ones_like(self.shifts) if known is None else (known > 0).long()
        self.shifts.copy_(shift)
        features = torch.where((positions > 0)[..., None], self.features(positions - 1), 0)
        if known is not None:
            own = (positions > 0) & (positions > known[:, None])
            tokens, features = self._own(own, tokens, features, slots - 1 if parents is None else parents)
        at = self.place(slots, shift)
        return self.run(self.entering(tokens, features), positions - shift[:, None], at, seen.shifted(shift))

    def _own(self, mask: Tensor, tokens: Tensor, features: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and features, those where bool[B, T] says so being the head's: its outputs at its slots of `parents`; of one
        that drafts in parallel, a mask and what stands for an unknown feature."""
        assert self.last is not None
        if self.module.mask is not None:
            return torch.where(mask, self.module.mask, tokens), torch.where(mask[..., None], self.module.unknown(), features)
        back = self.module.back(self.stored(self.last, parents - self.shifts[:, None]))
        return tokens, torch.where(mask[..., None], back, features)

    def move(self, source: Tensor, dest: Tensor) -> None:
        super().move(self.place(source, self.shifts), self.place(dest, self.shifts))
