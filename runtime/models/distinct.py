"""One model under two names of an algorithm: a model for each, on one engine."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.interface import Model


def distinct(models: Mapping[str, Model]) -> dict[str, Model]:
    """The models by parameter name, none of them twice: a later occurrence is a shallow copy that shares weights, engine and KV
    cache with the first. A run tells its target from its drafter by the object."""
    out: dict[str, Model] = {}
    for name, model in models.items():
        if any(model is other for other in out.values()):
            out[name] = copy.copy(model)
            memo_of(out[name]).once("original", lambda model=model: original_of(model))  # type: ignore[misc]
        else:
            out[name] = model
    return out


def original_of(model: Model) -> Model:
    """The model that `distinct` made this one of, or itself. What is derived from a copy is no copy: a memo is not copied."""
    return memo_of(model).get("original") or model
