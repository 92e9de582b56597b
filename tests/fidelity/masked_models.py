"""The recordings' masked models, through `decgraph.masked`: LLaDA's, Dream's with its shift."""

from __future__ import annotations

from functools import cache

from fidelity.entry import GOLDEN

import decgraph
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Visibility

MASK = 127


@cache
def model(name: str, visibility: Visibility = "full") -> HFMasked:
    """A recorded masked model, read from its folder."""
    made = decgraph.masked(GOLDEN / "dllm/models" / name, shift=name.endswith("_shift"), visibility=visibility)
    assert isinstance(made, HFMasked) and made.mask == MASK
    return made
