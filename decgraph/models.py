"""From what a caller names to models: folders, shipped models by name, modules, and one for every parameter left out.

The names are the zoo's, and the road from there to a model is `runtime/sources.py` and `runtime/binding.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from decgraph import zoo
from decgraph.extras import needs_models
from decgraph.ir.values import Function
from decgraph.runtime import binding
from decgraph.runtime.binding import Bound
from decgraph.runtime.models.masked_settings import MaskedSettings
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement
from decgraph.runtime.prompts import request_for
from decgraph.runtime.sources import arguments_of

if TYPE_CHECKING:
    from decgraph.runtime.arguments import ModelLike, TokenizerLike
    from decgraph.runtime.models.decoder.compared import ForwardVerdict
    from decgraph.runtime.models.interface import Model, Visibility

__all__ = ["Bound", "bind", "masked", "request_for", "shipped", "verify"]


def shipped(function: Function) -> dict[str, str]:
    """The shipped model that stands in for every model parameter which is left out.

    The first causal model is the target, every other one the drafter; heads that read features or layers are the ones
    trained on the target.
    """
    return zoo.known().shipped(function)


@needs_models()
def bind(
    function: Function,
    models: Mapping[str, ModelLike],
    *,
    tokenizer: TokenizerLike | None = None,
    device: DeviceLike = AUTO,
    dtype: DtypeLike = AUTO,
    share: bool = True,
) -> Bound:
    """A model for every model parameter of a function. `name.heads` is for the Medusa heads of the model `name`; `name.shift`,
    `name.mask_token` and `name.visibility` say how a masked model is read (`runtime/models/masked_settings.py`).

    A transformers module is bound as the folder that it was saved in would be, on its own weights and in evaluation mode; its
    vocabulary and its tokenizer are those of the folder that it was loaded from, where that is on this machine. device, dtype:
    where folders are loaded and in which precision (`runtime/placement.py`); heads and adapters follow their target. share: the
    model of a folder may be the one that was bound before, as long as that is in use and the folder's files are what they were.

    Raises DecError for a name the function does not have, a folder or module that cannot be used, a part (heads, features,
    adapter) whose target is neither a folder nor a module, a model left out beside one that is not shipped, a device that is
    not there, and modules on several devices, or elsewhere than asked for.
    """
    names = zoo.known()
    side, found = names.located(tokenizer), arguments_of(function, models, names)
    return binding.bind(function, found, tokenizer=side, device=device, dtype=dtype, share=share)


@needs_models()
def masked(
    source: ModelLike,
    *,
    mask_token: int | str | None = None,
    shift: bool | None = None,
    visibility: Visibility | str | None = None,
    device: DeviceLike = AUTO,
    dtype: DtypeLike = AUTO,
) -> Model:
    """A masked model for `models={"model": ...}`: a folder, a shipped model's name, or a module (its weights are shared).

    mask_token: the mask's id, or its text where the folder has a tokenizer. shift: whether the prediction of position i stands
    at i - 1 (Dream, Fast-dLLM v2). visibility: "full", "causal", "block:32" (blocks from position 0), "prompt+block:32" (the
    prompt is one block; D2F) or "window:4" (causal, but for the last 4 positions; SDLM). What is left out is read in the
    configuration, or known of a published class (LLaDA, Dream, Fast-dLLM v2, SDAR). device, dtype: where a folder is loaded and
    in which precision, as in `Algorithm.session`; a module stays as it is.

    A module whose layers decgraph cannot reach is called as it is: it decodes, and refuses cache policies with the reason.
    Raises DecError for a source that is no masked model, for a mask or a shift that nobody says, and for a module whose scores
    depend on other positions than `visibility` says; also for a device that is not there, and a module that lies elsewhere.
    """
    reading = MaskedSettings.of(mask_token=mask_token, shift=shift, visibility=visibility)
    return binding.masked(zoo.known().located(source), reading, Placement.of(device, dtype))


@needs_models()
def verify(source: str | Path) -> ForwardVerdict:
    """Whether the decoder computes what the installed transformers' module does for models of a folder's shape: both compute
    the logits of a small random model of the same family and switches, in float64. The verdict is kept, by shape and version,
    and a difference makes folders of that shape run as transformers' module from then on, which results say.

    Takes seconds, and imports transformers. Raises DecError for a folder that is none, and for one without a causal model.
    """
    from decgraph.runtime.models.decoder.compared import compare
    from decgraph.runtime.models.folders import read

    return compare(read(zoo.folder_of(source), "causal").config)
