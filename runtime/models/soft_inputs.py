"""Mixtures of embeddings as what a transformers module reads: `inputs_embeds` in place of token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from decgraph.runtime.models.interface import SoftCell

if TYPE_CHECKING:
    from torch import nn

    from decgraph.runtime.models.decoder.decoder import EmbeddingLookup

Embedding: TypeAlias = "nn.Module | EmbeddingLookup"


def mixture(embed: Embedding, soft: SoftCell) -> Tensor:
    """The mixture of a module's embeddings [width], as the module looks them up (some scale them)."""
    weights = torch.tensor([float(w) for w in soft.weights])
    used = weights.nonzero()[:, 0]
    at = device_of(embed)
    rows: Tensor = embed(used.to(at))
    return weights[used].to(at, rows.dtype) @ rows


def replaced(embed: Embedding, ids: Tensor, soft: Mapping[int, SoftCell]) -> Tensor:
    """The embeddings [n, width] of token ids int64[n], and of mixtures at some of their places."""
    rows: Tensor = embed(ids).clone()
    for place, cell in soft.items():
        rows[place] = mixture(embed, cell)
    return rows


def inputs(embed: Embedding, cells: Sequence[int | SoftCell]) -> Tensor:
    """Token ids int64[n]; embeddings [n, width] where a cell is soft."""
    ids = torch.tensor([0 if isinstance(c, SoftCell) else c for c in cells], device=device_of(embed))
    soft = {n: c for n, c in enumerate(cells) if isinstance(c, SoftCell)}
    return replaced(embed, ids, soft) if soft else ids


def device_of(embed: Embedding) -> torch.device:
    """Where a module's embeddings, or those of a decoder, lie."""
    looked: Any = embed  # without a device an nn.Embedding, or another class that has its weight
    found: torch.device = getattr(embed, "device", None) or looked.weight.device
    return found
