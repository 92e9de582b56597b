"""`decgraph.masked`: a masked model from a module or a folder, with what has to be known of it to read it right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from decgraph.errors import DecError
from decgraph.extras import needs_models
from decgraph.runtime.models.interface import Model, Visibility
from decgraph.runtime.models.masked_settings import MaskedSettings
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement
from decgraph.zoo.folders import folder_of

if TYPE_CHECKING:
    from decgraph.runtime.arguments import ModelLike

__all__ = ["masked"]


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
    from decgraph.hf import modules
    from decgraph.models import vocabulary_of
    from decgraph.runtime.models.masked_load import load_masked

    placed = Placement.of(device, dtype).beside({"source": source})
    asked = MaskedSettings.of(mask_token=mask_token, shift=shift, visibility=visibility)
    if isinstance(source, Model):
        raise DecError(
            f"{source.name!r} is a model of decgraph's already", hint="give decgraph.masked the module or the folder"
        )
    if isinstance(source, str | Path):
        return load_masked(folder_of(source), asked, placed)
    if not modules.is_module(source):
        raise DecError(f"{source!r} is no masked model", hint="give decgraph.masked a module or a folder")
    return modules.live(source, "masked", vocabulary_of(source) or modules.vocabulary_of(source, None), asked)
