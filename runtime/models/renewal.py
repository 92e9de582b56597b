"""Models of modules that may have changed since: see `Model.renew`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from decgraph.runtime.models.interface import Model

M = TypeVar("M", bound=Model)


def renewed(model: M) -> M:
    """The model as what it was made of is now: itself where nothing has changed."""
    renew: Callable[[], M] | None = getattr(model, "renew", None)
    return model if renew is None else renew()


def renewed_all(models: Mapping[str, Model]) -> dict[str, Model]:
    """The models by name, each `renewed`; what they were made of is looked at once."""
    if all(getattr(model, "renew", None) is None for model in models.values()):
        return dict(models)
    from decgraph.runtime.models.watch import one_look

    with one_look():
        return {name: renewed(model) for name, model in models.items()}
