"""The engine of heads that read the target's states up to a root, and the tokens below it: Hydra, ReDrafter, DFlash.

They read the states of the target's own engine. What a head makes of the positions before a root (a state, keys and values) is
kept per sequence and grows with the context.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Counted, ForwardCall, Output
from decgraph.runtime.models.engine.on_target import ServedByTarget
from decgraph.runtime.models.engine.taps import columns
from decgraph.runtime.models.heads.rooted import Before, Rooted
from decgraph.runtime.models.hf_heads import HFFeatures


@dataclass
class _Features:
    """A head's summary of the first tokens of a context."""

    tokens: list[int]
    before: Before


class RootedEngine(ServedByTarget):
    """Computes calls whose memory ends one token before the context's end, which are those of drafting programs. head: the
    engine of the head that this one corrects, which keeps what both are made of."""

    def __init__(self, model: HFFeatures, module: Rooted, target: CausalEngine, head: RootedEngine | None = None) -> None:
        self.model, self.module, self.target, self.head = model, module, target, head
        self.counted = Counted()
        self._features: dict[Hashable, _Features] = {}

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call, or its DecError."""
        outputs, mine = self.served(calls)
        self.counted.sequence_calls += len(calls)
        for n, call, want in mine:
            try:
                outputs[n] = self._one(call, want)
            except DecError as error:
                outputs[n] = error
        return cast("list[Output]", outputs)

    def known(self, call: ForwardCall) -> int | None:
        found = super().known(call)
        return found if found == len(call.context) - 1 else None

    def _one(self, call: ForwardCall, want: ForwardCall) -> Tensor:
        """The rows of a call whose root is the context's last token."""
        before, module = self._before(want), self.module
        root, position = int(call.context[-1]), len(call.context) - 1
        tokens = call.draft_tokens()
        paths: dict[int, tuple[int, ...]] = {-1: (root,)}
        for node, (token, parent) in enumerate(zip(tokens, call.parents, strict=True)):
            paths[node] = (*paths[int(parent)], token)
        by_depth: dict[int, list[int]] = {}
        for place, row in enumerate(call.rows):
            by_depth.setdefault(len(paths[int(row)]), []).append(place)
        out: Tensor | None = None
        for depth, places in by_depth.items():
            module.check_depth(depth, self.model.name)
            below = torch.tensor([paths[int(call.rows[place])] for place in places], device=self.target.layout.device)
            logits = module.read(before, below, position)[:, : self.model.vocab.size].float()
            if out is None:
                out = logits.new_empty(len(call.rows), logits.shape[-1])
            out[places] = logits
            self.counted.calls += 1
        assert out is not None
        self.counted.rows += len(call.rows)
        self.counted.computed += len(call.rows)
        self.counted.requested += len(call.context) + len(tokens)
        peaks = out.amax(-1)
        if not bool(torch.isfinite(peaks).all()):
            raise DecError(f"{self.model.name!r} gave logits that are not numbers, in {call.request}")
        return out

    def _before(self, want: ForwardCall) -> Before:
        """The head's summary of the positions before the root, continued from that of a shorter context where there is one."""
        if self.head is not None:
            return self.head._before(want)
        known = list(map(int, want.context))
        kept, module = self._features.get(want.sequence), self.module
        if kept is not None and kept.tokens == known:
            return kept.before
        if not known:
            return module.nothing()
        grown = kept is not None and len(kept.tokens) < len(known) and known[: len(kept.tokens)] == kept.tokens
        first = len(kept.tokens) if kept is not None and grown else 0
        rows = self.target.features(want, len(known))[first:]
        states = columns(self.target, rows, module.reads, self.model.target.layers)
        positions = torch.arange(first, len(known), device=states.device)
        before = module.prepare(states, positions, kept.before if kept is not None and grown else None)
        self._features[want.sequence] = _Features(known, before)
        return before

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes: of the target's states; the head's own is small."""
        self.target.limit(budget)

    def compile(self, notice: Callable[[str], None]) -> bool:
        """False: there is no decoder to compile."""
        return False

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Forget the head's own states; the target keeps the rows of the longest common beginning with a new prompt."""
        self._features.pop(sequence, None)
        self.target.rewind(sequence, context)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence, also in the target's cache."""
        self._features.pop(sequence, None)
        self.target.close(sequence)
