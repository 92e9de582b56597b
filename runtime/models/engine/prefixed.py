"""A step of a model whose every sequence begins with the same cached rows: those of a soft prompt (hf_soft_prompts.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from decgraph.runtime.models.engine.layout import SLIDING, Step


class PrefixedStep:
    """As `step`, over `prefix` rows before the caches: keys and values by layer, each [1, heads, n, dim]. Positions are n
    further on. The caches are copied behind the prefix in every call."""

    def __init__(self, step: Step, prefix: Sequence[tuple[Tensor, Tensor]], window: int | None) -> None:
        self.step, self.prefix, self.window = step, prefix, window
        self.count = prefix[0][0].shape[2]

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Tensor],
    ) -> Tensor:
        n, batch = self.count, len(positions)
        wide = [[torch.cat([row.expand(batch, -1, -1, -1), own], dim=2) for row, own in zip(rows, caches, strict=True)]
                for rows, caches in zip(zip(*self.prefix, strict=True), (keys, values), strict=True)]  # fmt: skip
        at = positions + n
        shown = {kind: torch.cat([self._sees(kind, at, mask), mask], dim=3) for kind, mask in masks.items()}
        out = self.step(ids, at, write + n, wide[0], wide[1], shown)
        for caches, rows in zip((keys, values), wide, strict=True):
            for own, row in zip(caches, rows, strict=True):
                own.copy_(row[:, :, n:])
        return out

    def _sees(self, kind: str, at: Tensor, mask: Tensor) -> Tensor:
        """Which rows of the prefix tokens at these positions attend to: [B, 1, T, n], as the mask says it."""
        rows = torch.arange(self.count, device=at.device)
        near = at[:, None, :, None] - rows < (self.window if kind == SLIDING and self.window is not None else 1 << 62)
        near = near.expand(*mask.shape[:3], -1)
        if mask.dtype == torch.bool:
            return near
        return torch.zeros(near.shape, dtype=mask.dtype, device=mask.device).masked_fill_(~near, torch.finfo(mask.dtype).min)
