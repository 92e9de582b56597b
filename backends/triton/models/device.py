"""The device model of a runtime model."""

from __future__ import annotations

from typing import Any

import torch

from decgraph.backends.triton.models.interface import DeviceModel
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.runtime.models.derive import Since
from decgraph.runtime.models.distinct import original_of
from decgraph.runtime.models.interface import Model


def step_model(
    model: Model, batch: int, capacity: int, device: torch.device | str | None = None, *, target: Any = None
) -> DeviceModel:
    """A runtime model for `batch` lanes and `capacity` slots each, the last of which is nobody's.

    device: of a table model; a loaded model stays where its weights are. target: the device model of the target whose states a
    head reads (`features` models). Raises NotSteppable, with the reason, for a model that has no such form.
    """
    if capacity < 2:
        raise NotSteppable(f"{model.name!r} needs two slots a lane at least, not {capacity}")
    try:
        return _made(model, original_of(model), batch, capacity, device, target)
    except DecError as error:  # a module that cannot run over caches, or reads values on the host
        raise NotSteppable(str(error.diagnostics[0]).removeprefix("error: ")) from error


def _made(model: Model, whole: Any, batch: int, capacity: int, device: Any, target: Any) -> DeviceModel:
    from decgraph.backends.triton.models.table import PathModel, is_function_of_paths

    if is_function_of_paths(whole):
        return PathModel(model, whole, batch, capacity, device or "cpu")
    if whole.kind == "masked":
        from decgraph.backends.triton.models.masked import masked_model

        return masked_model(model, whole, batch, capacity)
    if whole.kind == "features":
        return _features_model(model, whole, target)
    if whole.kind == "head":
        from decgraph.backends.triton.models.heads import reading_head

        return reading_head(model, whole, target)
    if isinstance(whole, Since):
        from decgraph.backends.triton.models.heads import since_model

        return since_model(model, whole, target)
    from decgraph.backends.triton.models.decoder import CausalModel, weights_of

    return CausalModel(model, weights_of(whole), batch, capacity)


def _features_model(model: Model, whole: Any, target: Any) -> Any:
    """The device model of a head, given its target's, which keeps its states from now on. Raises NotSteppable for a head of
    another kind, and without a target that it fits."""
    from decgraph.backends.triton.models.decoder import CausalModel
    from decgraph.backends.triton.models.heads import FeaturesModel
    from decgraph.backends.triton.models.rooted import rooted_model
    from decgraph.runtime.models.hf_heads import HFFeatures, HFRooted

    if not isinstance(target, CausalModel) or target.kind != "causal":
        raise NotSteppable(f"{model.name!r} reads states of its target, which has no step")
    if isinstance(whole, HFFeatures):
        return FeaturesModel(model, whole.module, target)
    if isinstance(whole, HFRooted):
        return rooted_model(model, whole.module, target)
    raise NotSteppable(f"{model.name!r} is a {type(whole).__name__}, which has no step")


DeviceModel.of = staticmethod(step_model)
