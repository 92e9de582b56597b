"""Whether two greedy continuations are the same, and if not, whether a near-tie parted them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import causal_engine_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.placement import placement_of_all

NEAR_TIE = 1e-3  # of two logits in float32: below this, which one is larger is the order of additions
ROUNDINGS = 4
"""In bfloat16 and float16: how many roundings of the larger logit two logits may be apart. A forward there rounds every
layer."""
QUANTISED = 0.125
"""How far they may be apart where weights are int8 or int4: the rows of a batch share scales."""


class Agreement:
    """Counts continuations that are equal, differ from a near-tie on, or differ. `target` decides what a near-tie is: a module
    of transformers, or a causal model of decgraph's; of a masked model nothing is one."""

    def __init__(self, target: Any) -> None:  # Any: a transformers module, which has no useful type
        self.target = target
        self.same = self.near_ties = self.different = 0
        self.alike = self.tokens = 0
        self.first: str = ""

    @property
    def share(self) -> float:
        """The share of the tokens that stand at the same place on both sides."""
        return self.alike / self.tokens if self.tokens else 1.0

    def compare_all(
        self, prompts: Iterable[Sequence[int]], ours: Iterable[Sequence[int]], theirs: Iterable[Sequence[int]]
    ) -> None:
        """Compares the continuations of several prompts."""
        for three in zip(prompts, ours, theirs, strict=True):
            self.compare(*three)

    def compare(self, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> None:
        """Compares two greedy continuations. After a near-tie each goes its own way, so the first difference decides."""
        self.alike += sum(a == b for a, b in zip(ours, theirs, strict=False))
        self.tokens += max(len(ours), len(theirs))
        if list(ours) == list(theirs):
            self.same += 1
            return
        shorter = min(len(ours), len(theirs))
        at = next((n for n in range(shorter) if ours[n] != theirs[n]), shorter)
        if at == shorter:
            self._differs(f"token {at}: one of the two ends there")
            return
        gap, least = self.gap([*prompt, *ours[:at]], ours[at], theirs[at])
        if gap < least:
            self.near_ties += 1
        else:
            self._differs(f"token {at}: {[ours[at]]} and {[theirs[at]]}, logits {gap:.3g} apart")

    def _differs(self, what: str) -> None:
        self.different += 1
        self.first = self.first or what

    def gap(self, path: Sequence[int], one: int, other: int) -> tuple[float, float]:
        """How far apart the logits of two tokens are by the target's own forward, and below which distance that is a
        near-tie in its precision."""
        row, dtype = self._scores(path)
        if row is None:
            return float("inf"), 0.0
        a, b = float(row[one]), float(row[other])
        if dtype in ("float32", "float64"):
            return abs(a - b), NEAR_TIE
        if dtype not in ("bfloat16", "float16"):
            return abs(a - b), QUANTISED
        return abs(a - b), ROUNDINGS * torch.finfo(getattr(torch, dtype)).eps * max(abs(a), abs(b))

    def _scores(self, path: Sequence[int]) -> tuple[torch.Tensor | None, str]:
        """The logits [V] after a path, and the precision in which they were computed."""
        if not isinstance(self.target, Model):
            ids = torch.tensor([list(path)], device=self.target.device)
            with torch.inference_mode():
                row = self.target(ids, use_cache=False, logits_to_keep=1).logits[0, -1]
            return row, str(self.target.dtype).removeprefix("torch.")
        if self.target.kind != "causal":
            return None, ""
        engine, sequence = causal_engine_of(self.target), object()
        (made,) = engine.compute([ForwardCall(sequence, list(path))])
        engine.close(sequence)
        if isinstance(made, Exception):
            raise made
        return made[0], placement_of_all({"target": self.target}).dtype

    def to_json(self) -> dict[str, object]:
        """same, near_ties, different; `first` describes the first difference that is no near-tie."""
        out: dict[str, object] = {"same": self.same, "near_ties": self.near_ties, "different": self.different}
        return {**out, "first": self.first} if self.first else out
