"""Models of modules that may have changed since: see `Model.renew`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decgraph.runtime.models.interface import Model


def renewed(model: Model) -> Any:  # Any: of the model's own class
    """The model as what it was made of is now: itself where nothing has changed."""
    return model if getattr(model, "renew", None) is None else model.renew()  # type: ignore[misc]  # others have no `renew`


def renewed_all(models: Mapping[str, Model]) -> dict[str, Model]:
    """The models by name, each `renewed`; what they were made of is looked at once."""
    if all(getattr(model, "renew", None) is None for model in models.values()):
        return dict(models)
    from decgraph.runtime.models.watch import one_look

    with one_look():
        return {name: renewed(model) for name, model in models.items()}
