"""The device model of a model that was loaded: a causal or masked one, a head of one, or what is derived from them."""

from __future__ import annotations

from typing import cast

from decgraph.backends.triton.models.decoder import CausalModel, Weights, lower, of_net, weights_of
from decgraph.backends.triton.models.heads import FeaturesModel, ReadingHead, SinceModel
from decgraph.backends.triton.models.interface import DeviceModel
from decgraph.backends.triton.models.masked import MaskedModel
from decgraph.backends.triton.models.rooted import CorrectionModel, DFlashModel, RootedModel
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.runtime.models.derive import Applied, Since
from decgraph.runtime.models.heads.chained import ChainHead
from decgraph.runtime.models.heads.corrections import Correction
from decgraph.runtime.models.heads.dflash import DFlash
from decgraph.runtime.models.heads.rooted import Rooted
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFFeatures, HFReading
from decgraph.runtime.models.hf_masked import CalledMasked, HFMasked
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import Confidence
from decgraph.runtime.models.sharing import original_of


def loaded_model(model: Model, whole: Model, pages: Pages, target: DeviceModel | None) -> DeviceModel:
    """The device model of `whole`, given its target's. Raises NotSteppable where there is none."""
    if isinstance(whole, HFMasked):
        return MaskedModel(model, of_net(whole.net, model.name), pages)
    if whole.kind == "masked":
        why = whole.why if isinstance(whole, CalledMasked) else ""
        raise NotSteppable(f"{model.name!r} is called as it is, and keeps no keys and values: {why}")
    if isinstance(whole, Since):
        return _since_model(model, whole, target)
    if whole.kind not in ("features", "head"):
        return CausalModel(model, weights_of(whole), pages)
    if not isinstance(target, CausalModel) or target.kind != "causal":
        raise NotSteppable(f"{model.name!r} reads states of its target, which has no step")
    match whole:
        case HFFeatures(module=ChainHead() as chain):
            return FeaturesModel(model, chain, target)
        case HFFeatures(module=DFlash() as dflash):
            return DFlashModel(model, dflash, target)
        case HFFeatures(module=Correction() as correction):
            return CorrectionModel(model, correction, target)
        case HFFeatures(module=Rooted(width=n) as rooted) if n:
            return RootedModel(model, rooted, target)
        case HFReading() | Confidence() if original_of(whole.target) is original_of(target.model):
            return cast(DeviceModel, ReadingHead(model, whole, target))
        case HFReading() | Confidence():
            raise NotSteppable(f"{model.name!r} reads states of its target, which has no step")
    raise NotSteppable(f"{model.name!r} is a {type(whole).__name__}, which has no step")


def _since_model(model: Model, whole: Since, target: DeviceModel | None) -> SinceModel:
    """`target.since(l, inner)`."""
    inner = whole.inner
    if (
        not isinstance(target, CausalModel)
        or not isinstance(whole.target, HFCausal)
        or target.model is not whole.target
        or len(target.weights.stages) > 1
    ):
        raise NotSteppable(f"{model.name!r} continues layers of its target, which has no step")
    if inner.kind == "features":
        below = DeviceModel.of(inner, target.pages, target=target)
        assert isinstance(below, CausalModel)
        return SinceModel(model, whole, target, below)
    if isinstance(inner, Applied) and inner.adapter.own_norm:
        raise NotSteppable(f"{model.name!r} reads states that have been through a norm of their own")
    lowered = Weights(lower(model.name, whole.target, inner), target.weights.head)
    return SinceModel(model, whole, target, CausalModel(model, lowered, target.pages))
