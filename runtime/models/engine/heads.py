"""Engines of the heads that read a target's last states: Medusa's and EAGLE's.

They read the states of the target's own engine, so nothing that the target computed is computed again.

Cai et al., Medusa, 2024. Li, Wei, Zhang and Zhang, EAGLE: Speculative Sampling Requires Rethinking Feature
Uncertainty, 2024.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from decgraph.runtime.models.decoder.layers import step_of_layers
from decgraph.runtime.models.engine.batch import Batch
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Counted, Engine, ForwardCall, Output, OverCore
from decgraph.runtime.models.engine.nets import fresh_engine, layout_of, net_engine
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.on_target import ServedByTarget
from decgraph.runtime.models.engine.plain import uncached
from decgraph.runtime.models.engine.rooted import RootedEngine
from decgraph.runtime.models.engine.slots import SlotPlan, SlotStates
from decgraph.runtime.models.engine.taps import columns, tap
from decgraph.runtime.models.heads.chained import ChainHead
from decgraph.runtime.models.heads.rooted import Rooted
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFFeatures, HFHeads

if TYPE_CHECKING:
    from torch import nn


def build_engine(model: HFHeads | HFFeatures | HFCausal) -> Engine:
    """The engine of a head, or of a target with Medusa heads. The engine of the target of one that reads features keeps the
    states that they are made of from now on."""
    match model:
        case HFCausal(attached=heads) if heads is not None:
            return HeadsEngine(net_engine(model), heads.module)
        case HFHeads():
            return HeadsEngine(net_engine(model.target), model.module, only=True)
        case HFFeatures(target=target, module=ChainHead() | Rooted() as module):
            engine = net_engine(target)
            if module.reads is not None:
                tap(engine, target.net, module.reads, lambda: fresh_engine(target))
            if isinstance(module, Rooted):
                head = None if model.head is None else engine_of(model.head)
                return RootedEngine(model, module, engine, head if isinstance(head, RootedEngine) else None)
            return FeaturesEngine(model, module, engine)
    return uncached(model)


class HeadsEngine(OverCore[CausalEngine]):
    """A target with Medusa heads. Calls of the part "heads" return [rows * heads, V], row by row; the others are the
    target's. `only` makes every call one of heads (an `HFHeads` model has nothing else)."""

    def __init__(self, core: CausalEngine, module: nn.Module, *, only: bool = False) -> None:
        self.core, self.module, self.only = core, module, only
        self.counted = Counted()

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V], or [rows * heads, V] of a call of heads."""
        for call in calls:  # not of heads: those are read off the target's own states
            if call.memory is not None:
                assert self.core.memories is not None, "a target's engine reads memories"
                return self.core.memories.compute(calls, self._compute, self.counted)
        return self._compute(calls)

    def _compute(self, calls: list[ForwardCall]) -> list[Output]:
        before = replace(self.core.counted)
        outputs = list(states := self.core.states(calls))
        guessed: list[tuple[int, ForwardCall, Tensor]] = []
        plain: list[tuple[int, ForwardCall, Output]] = []
        for n, (call, made) in enumerate(zip(calls, states)):
            if not self.only and call.part != "heads":
                plain.append((n, call, made))
            elif isinstance(made, Tensor):
                guessed.append((n, call, made))
        if plain:
            at, asked, rows = zip(*plain)
            for n, made in zip(at, self.core.read(asked, rows)):
                outputs[n] = made
        if guessed:
            for (n, _, _), made in zip(guessed, self._guessed(guessed)):
                outputs[n] = made
        self.counted.add(self.core.counted.since(before))
        return outputs

    def _guessed(self, wanted: Sequence[tuple[int, ForwardCall, Tensor]]) -> list[Output]:
        """The heads' logits of calls, given their states [rows, width]: the heads and the read-out once for all."""
        _, calls, each = zip(*wanted)
        states = torch.cat(each) if len(each) > 1 else each[0]
        guesses = torch.stack(self.module(states[None, :, : self.core.width]), dim=2)[0]
        made, asked, first = [], [], 0
        for call, rows in zip(calls, each):  # a head's NaN is reported at the row that the head reads
            made.append(guesses[first : first + len(rows)].flatten(0, 1))
            asked.append(replace(call, rows=np.repeat(call.rows, guesses.shape[1]).tolist()))
            first += len(rows)
        return self.core.read(asked, made, _as_it_is if self.module.own_output else None)


def _as_it_is(logits: Tensor) -> Tensor:
    """The read-out of heads that give logits."""
    return logits


class FeaturesEngine(ServedByTarget, CausalEngine):
    """An EAGLE head. Its input i pairs the target's feature of position i with the token at i + 1, so its chain is
    the context from the second token on, and is cached. A draft token is paired with the head's own prediction of the
    feature before it; once it is committed its feature is the target's, so its cached row is dropped then.

    Each new level of the tree is one forward.
    """

    def __init__(self, model: HFFeatures, module: ChainHead, target: CausalEngine) -> None:
        step, head = step_of_layers(module), module.read_out if module.own_output else model.target.net.head
        context = None if model.context is None else model.context - 1
        super().__init__(step, layout_of(step), head, name=model.name, size=model.vocab.size, context=context)
        self.model, self.module, self.target = model, module, target
        self._known: dict[Hashable, tuple[Tensor | None, bool]] = {}  # the target's features; whether of the end too

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call, or its DecError. The cached path needs a `memory` of the context's length or one
        less."""
        outputs, mine = self.served(calls)
        shifted: list[ForwardCall] = []
        asked: list[ForwardCall] = []
        for _, call, wanting in mine:  # after all of the target's work is done: these are views of its cache
            length = len(wanting.context)
            self._open(call, self.target.features(wanting, length) if length else None)
            # A prompt of one token has no feature before it: the token itself, with zeros, is the chain.
            asked.append(call)
            shifted.append(replace(call, context=call.context[1:] if len(call.context) > 1 else call.context, marks=()))
        for (n, _, _), made in zip(mine, self.read(asked, self.states(shifted))):
            outputs[n] = made
        return cast("list[Output]", outputs)

    def known(self, call: ForwardCall) -> int | None:
        # Below a first token whose feature is known, its own slot is the chain and cannot be.
        only = len(call.context) == 1 and max(call.rows, default=-1) >= 0
        found = super().known(call)
        return None if only and found else found

    def _open(self, call: ForwardCall, known: Tensor | None) -> None:
        """Drops cached rows that were computed from other features than these."""
        late = known is not None and len(known) == len(call.context)
        before = self._known.get(call.sequence)
        slot = self._slots.get(call.sequence)
        if slot is not None and before is not None:
            if (before[0] is None) != (known is None):
                slot.forget()
            elif before[1] != late:
                slot.drop_tail()
        self._known[call.sequence] = (known, late)

    def _take(self, p: SlotPlan) -> int:
        """How many tokens of the chain the next forward takes, or how many draft tokens whose parents' features are there."""
        split = len(p.fresh)
        if p.done < split:
            return min(split - p.done, self.chunk)
        cached = len(p.slot.uids)
        ready = 0
        for parent in p.parents[p.done - split :]:
            if parent >= cached or ready == self.chunk:
                break
            ready += 1
        return ready

    def _features(self, rows: Tensor) -> Tensor:
        """Features [n, hidden] of the target's rows [n, ...]."""
        module = self.module
        return module.project(columns(self.target, rows, module.reads, self.model.target.layers))

    def _run(self, batch: Batch, part: SlotStates, plans: Sequence[SlotPlan], takes: Sequence[int]) -> Tensor:
        module, (count, width) = self.module, batch.ids.shape
        ids = batch.ids if module.mask is None else batch.ids.clone()
        if count == 1 and takes[0] == width:
            features = self._paired(plans[0], width, ids[0])[None].to(self.layout.dtype)
        else:
            features = self.layout.zeros(count, width, self.layout.width)
            for row, p, take, tokens in zip(features, plans, takes, ids):
                row[:take] = self._paired(p, take, tokens)
        entering = module.enter(ids, features)
        return self._stepped(self.step, entering, batch, part, plans, takes)

    def _paired(self, p: SlotPlan, take: int, ids: Tensor) -> Tensor:
        """The features [take, width] that a plan's next tokens are paired with. Of a head that drafts in parallel neither the
        tokens after the context nor their features are known: its mask is put into `ids`."""
        module, first = self.module, p.done - len(p.fresh)
        known, late = self._known[p.call.sequence]
        if first < 0:
            at = p.start + p.done
            return self.layout.zeros(take, self.layout.width) if known is None else self._features(known[at : at + take])
        parents = p.parents[first : first + take]
        if module.mask is None:
            rows = np.add(parents, p.base).tolist()  # a parent of -1 is the chain's end
            made: Tensor = module.back(self.store.states(p.slot.number, rows))
        else:
            made = self.layout.zeros(take, self.layout.width)
            unknown = [n for n, parent in enumerate(parents) if parent >= 0 or not late or known is None]
            made[unknown], ids[unknown] = module.unknown(), module.mask
        if late and known is not None and -1 in parents:
            made[[n for n, parent in enumerate(parents) if parent < 0]] = self._features(known[-1])
        return made

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Forget the head's own rows, each of which belongs to a feature and the token after it; the target keeps its own."""
        super().close(sequence)
        self._known.pop(sequence, None)
        self.target.rewind(sequence, context)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence, also in the target's cache."""
        super().close(sequence)
        self._known.pop(sequence, None)
        self.target.close(sequence)
