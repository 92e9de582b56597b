"""Rotary positions whose frequencies depend on the length of the whole text: longrope and dynamic NTK.

transformers chooses the frequencies of a forward by the largest position in it, so a draft past the boundary, or a longer
neighbour in a batch, would turn the positions of every other token. Here a text is read with the frequencies of its own length.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

M = TypeVar("M", bound="nn.Module")

_RECOMPUTING = ("phi3", "phi4_multimodal")
"""Models whose `generate` computes the whole cache again where a text grows past the boundary. The others' goes on with keys of
the old frequencies, so that a token's scores depend on where the prompt ended."""


@dataclass(frozen=True)
class Boundary:
    """The most tokens of a text that is read with a model's first frequencies. kind: as transformers names it. recomputed:
    whether what comes after is a function of the text alone."""

    kind: str
    length: int
    recomputed: bool

    def words(self, name: str) -> str:
        """Why nothing is computed past the boundary."""
        return (
            f"{name!r} has rotary positions of the kind {self.kind}: past {self.length} tokens their frequencies depend on "
            "where the prompt ended, which decgraph does not follow"
        )


def boundary_of(config: PretrainedConfig | None) -> Boundary | None:
    """The boundary of a model by its configuration, where it has one; None for positions that do not depend on the length."""
    if config is None:
        return None
    within = getattr(config, "get_text_config", None)  # a masked module's configuration may be any object
    text = config if within is None else within()
    stated: dict[str, Any] = getattr(text, "rope_parameters", None) or {}
    found = []
    for one in (stated, *stated.values()):  # one for all layers, or one for each type of layer
        if not isinstance(one, dict):
            continue
        kind = one.get("rope_type")
        if kind == "longrope" and any(one.get(f"short_{what}") != one.get(f"long_{what}") for what in ("factor", "mscale")):
            found.append(Boundary("longrope", int(one["original_max_position_embeddings"]), text.model_type in _RECOMPUTING))
        elif kind == "dynamic":
            found.append(Boundary("dynamic", int(text.max_position_embeddings), False))
    return min(found, key=lambda b: b.length, default=None)


def bounded(context: int | None, config: PretrainedConfig | None, name: str) -> tuple[int | None, str]:
    """A model's context, which ends at a boundary past which no text is computed; and why it ends there, or ""."""
    boundary = boundary_of(config)
    if boundary is None or boundary.recomputed or (context is not None and context < boundary.length):
        return context, ""
    return boundary.length, boundary.words(name)


def at_length(module: M, boundary: Boundary, past: bool) -> M:
    """A longrope module with the frequencies of texts up to the boundary, or of those past it, whatever the length: new Python
    objects around the same weights."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    made = copy.deepcopy(module, {id(t): t for t in (*module.parameters(), *module.buffers())})
    part: Any  # with these frequencies it is a rotary embedding, of whatever family
    for part in made.modules():
        if getattr(part, "rope_type", None) == boundary.kind:
            part.rope_type = "default"  # transformers leaves the frequencies of this kind as they are
            frequencies = part.original_inv_freq
            if past:
                rotary = ROPE_INIT_FUNCTIONS[boundary.kind]
                frequencies = rotary(part.config, frequencies.device, seq_len=boundary.length + 1)[0]
            part.register_buffer("inv_freq", frequencies.clone(), persistent=False)
    return made
