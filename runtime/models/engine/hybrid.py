"""The engine of models with recurrent layers, which passes their states to the decoder (decoder/hybrid.py)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from decgraph.runtime.models.decoder.states import DraftedStates, State, Work
from decgraph.runtime.models.engine.batch import Batch
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.slots import Move, Slot, SlotPlan, SlotStates
from decgraph.runtime.models.engine.step import ForwardStep

_EARLIER = 3  # states after beginnings of a text, for requests that begin alike


class HybridSlot(Slot):
    """A sequence's rows, and the states of recurrent layers after the chain without its last `pending` tokens. drafted: of the
    tail's tokens. earlier: states after shorter beginnings of the chain, by their length."""

    def forget(self) -> None:
        super().forget()
        self.state: State | None = None
        self.pending: list[DraftedStates] = []
        self.earlier: dict[int, State] = {}

    def drop_tail(self) -> None:
        super().drop_tail()
        self.drafted: list[DraftedStates] = []

    def rewind(self, context: Sequence[int]) -> None:
        at = len(self.chain) - len(self.pending)
        super().rewind(context)
        left = len(self.chain)
        self.earlier = {n: state for n, state in self.earlier.items() if n <= left}
        if left >= at:
            self.pending = self.pending[: left - at]
        elif not self.earlier:
            self.forget()
        else:
            at = max(self.earlier)
            self.state, self.pending = self.earlier[at], []
            del self.chain[at:]

    def _keep(self, accepted: list[int], places_after: dict[int, int], context: Sequence[int], move: Move) -> int:
        state, pending, earlier, drafted = self.state, self.pending, self.earlier, self.drafted
        for n in accepted:
            state, pending = (drafted[n].state, []) if drafted[n].state else (state, [*pending, drafted[n]])
        moved = super()._keep(accepted, places_after, context, move)
        self.state, self.pending, self.earlier, self.drafted = state, pending, earlier, [drafted[n] for n in places_after]
        return moved


class HybridEngine(CausalEngine):
    """The engine of a `HybridDecoder`: as any other, with the states of recurrent layers in its slots."""

    slot = HybridSlot

    def _stepped(
        self, step: ForwardStep, inputs: Tensor, batch: Batch, part: SlotStates, plans: Sequence[SlotPlan], takes: Sequence[int]
    ) -> Tensor:
        from decgraph.runtime.models.decoder.hybrid import HybridDecoder
        from decgraph.runtime.models.engine.step import Tapped

        assert isinstance(step, HybridDecoder | Tapped), "the step of a model with recurrent layers"
        works = []
        for plan, take in zip(plans, takes, strict=True):
            slot, split = _slot(plan), len(plan.fresh)
            chain = min(max(split - plan.done, 0), take)
            begin = max(plan.done - split, 0)
            new = plan.parents[begin : begin + take - chain]
            works.append(Work(slot.state, slot.pending, chain, slot.drafted, slot.parents, new))
        made = step(inputs, batch.positions, batch.write, part.keys, part.values, batch.masks, works)
        assert isinstance(made, Tensor), "taps are joined to the last states"
        for plan, work in zip(plans, works, strict=True):
            slot = _slot(plan)
            slot.state, slot.pending = work.state_after(), []
            slot.drafted.extend(work.drafted)
            if work.chain > 1 and slot.state is not None:  # most likely a prompt's end, where the next request's goes on
                slot.earlier = dict([*slot.earlier.items(), (plan.start + plan.done + work.chain, slot.state)][-_EARLIER:])
        return made


def _slot(plan: SlotPlan) -> HybridSlot:
    assert isinstance(plan.slot, HybridSlot)
    return plan.slot
