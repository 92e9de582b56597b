"""Decoders on table models: they need no torch, and start in milliseconds."""

from __future__ import annotations

from typing import Any

from decgraph.runtime.models.table import TableModel
from decgraph.scale.decoder import Decoder


def table_decoder(**more: Any) -> Decoder:
    """Speculative decoding of tokens 0..3, sampled; `more` goes into the requests."""
    models = {"target": TableModel(4, seed=1), "drafter": TableModel(4, seed=2)}
    fields: dict[str, Any] = {"max_tokens": 6, "temperature": 1.0, **more}
    return Decoder("speculative", models, {"gamma": 2}, backend="reference", batch=2, **fields)
