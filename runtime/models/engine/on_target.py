"""What engines of heads on a target's features share: which calls the states of the target's own engine serve. Others, which no
program of the standard library makes, are computed by the model without a cache."""

from __future__ import annotations

from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, Output
from decgraph.runtime.models.engine.memories import features_of, inside, strange
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.hf_heads import HFFeatures


class ServedByTarget:
    """A part of an engine of `model`; target: its target's engine."""

    model: HFFeatures
    target: CausalEngine

    def served(self, calls: list[ForwardCall]) -> tuple[list[Output | None], list[tuple[int, ForwardCall, ForwardCall]]]:
        """The calls that the target's states serve, each with its place and the part of its context whose states are wanted and
        there now; and the outputs of all others."""
        outputs: list[Output | None] = [None] * len(calls)
        mine: list[tuple[int, ForwardCall, ForwardCall]] = []
        missing: list[tuple[int, ForwardCall]] = []
        for n, call in enumerate(calls):
            if call.memory is not None and call.memory.model.family != self.model.family:
                outputs[n] = strange(self.model, call.memory)
            elif (known := self.known(call)) is not None:
                wanting = ForwardCall(call.sequence, call.context[:known], call.marks, name=call.name)
                mine.append((n, call, wanting))
                if known and not self.target.caches(wanting, known):
                    missing.append((n, wanting))
            else:
                rows = PlainEngine(self.model).compute([call])[0]
                outputs[n] = rows.float().to(self.target.layout.device) if isinstance(rows, Tensor) else rows
        if missing:  # the target's part of all calls at once
            for (n, _), made in zip(missing, self.target.states([wanting for _, wanting in missing])):
                outputs[n] = made if isinstance(made, DecError) else None
            mine = [one for one in mine if outputs[one[0]] is None]
        return outputs, mine

    def known(self, call: ForwardCall) -> int | None:
        """How many of the context's tokens the head has the target's states of, all or all but the last; None for a call that
        they do not serve."""
        length, memory = len(call.context), call.memory
        if memory is None:
            return length - 1 if length and max(call.rows, default=-1) < 0 else None
        if not length or memory.length < length - 1 or not (features_of(memory, self.model.target) and inside(call, memory)):
            return None
        return min(memory.length, length)
