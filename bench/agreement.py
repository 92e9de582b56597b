"""Whether two greedy continuations are the same, and if not, whether a near-tie parted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

NEAR_TIE = 1e-3  # of two logits in float32: below this, which one is larger is the order of additions
ROUNDINGS = 4
"""In bfloat16 and float16: how many roundings of the larger logit two logits may be apart. A forward there rounds every
layer."""


class Agreement:
    """Counts continuations that are equal, differ from a near-tie on, or differ. `target` is the module that decides."""

    def __init__(self, target: Any) -> None:  # Any: a transformers module, which has no useful type
        self.target = target
        self.same = self.near_ties = self.different = 0
        self.first: str = ""

    def compare(self, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> None:
        """Compares two greedy continuations. After a near-tie each goes its own way, so the first difference decides."""
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
        """How far apart the logits of two tokens are by the module's own forward, and below which distance that is a
        near-tie in its precision."""
        ids = torch.tensor([list(path)], device=self.target.device)
        with torch.inference_mode():
            row = self.target(ids, use_cache=False, logits_to_keep=1).logits[0, -1]
        a, b = float(row[one]), float(row[other])
        dtype = self.target.dtype
        least = NEAR_TIE if dtype == torch.float32 else ROUNDINGS * torch.finfo(dtype).eps * max(abs(a), abs(b))
        return abs(a - b), least

    def to_json(self) -> dict[str, object]:
        """same, near_ties, different; `first` describes the first difference that is no near-tie."""
        out: dict[str, object] = {"same": self.same, "near_ties": self.near_ties, "different": self.different}
        return {**out, "first": self.first} if self.first else out
