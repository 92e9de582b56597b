"""Last states of a text by a decoder and by its module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from lib.lazily import make

IDS = torch.randint(97, (15,), generator=torch.Generator().manual_seed(2))
"""A text, int64[15]."""


def rows_of(decoder: TransformerDecoder, ids: Tensor, cells: int) -> Tensor:
    """Last states [n, width] of a sequence int64[n], `cells` tokens a call."""
    keys, values = make.caches(decoder, 1, 33)
    out = []
    for start in range(0, len(ids), cells):
        now = torch.arange(start, min(start + cells, len(ids)))
        sees = (torch.arange(33) <= now[:, None])[None, None]
        near = {w: sees & (torch.arange(33) > now[:, None] - (w or 99))[None, None] for w in decoder.windows}
        masks = {kind: near[w] for kind, w in zip(decoder.kinds, decoder.windows, strict=True)}
        out.append(decoder(ids[None, now], now[None], now[None], keys, values, masks)[0])
    return torch.cat(out)


def own(model: Any, ids: Tensor) -> Tensor:
    """The module's."""
    with torch.no_grad():
        made: Tensor = model.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    return made
