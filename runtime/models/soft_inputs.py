"""Mixtures of embeddings as what a transformers module reads: `inputs_embeds` in place of token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from decgraph.runtime.models.interface import Cell, SoftCell

Embed: TypeAlias = Callable[[Tensor], Tensor]
"""From token ids int64[n] to their embeddings [n, width], as the model looks them up (some scale them)."""


def mixture(embed: Embed, soft: SoftCell, at: torch.device, mask: int | None = None) -> Tensor:
    """The mixture [width] of embeddings, on a device. mask: the id of the mask token; None for a causal model."""
    weights = torch.tensor([float(w) for w in soft.weights])
    used = weights.nonzero()[:, 0]
    ids, weights = used, weights[used]
    if soft.mask and mask is not None:
        ids, weights = torch.cat([ids, torch.tensor([mask])]), torch.cat([weights, torch.tensor([float(soft.mask)])])
    rows = embed(ids.to(at))
    return weights.to(at, rows.dtype) @ rows


def replaced(embed: Embed, ids: Tensor, soft: Mapping[int, SoftCell], mask: int | None = None) -> Tensor:
    """The embeddings [n, width] of token ids int64[n], with mixtures at some of their places."""
    rows = embed(ids).clone()
    for place, cell in soft.items():
        rows[place] = mixture(embed, cell, ids.device, mask)
    return rows


def inputs(embed: Embed, cells: Sequence[Cell], at: torch.device, mask: int | None = None) -> Tensor:
    """Token ids int64[n] on a device; embeddings [n, width] where a cell is a mixture. mask: the id of masked cells."""
    ids = torch.tensor([c if isinstance(c, int) else mask or 0 for c in cells], device=at)
    soft = {n: c for n, c in enumerate(cells) if isinstance(c, SoftCell)}
    return replaced(embed, ids, soft, mask) if soft else ids
