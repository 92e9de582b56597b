"""Scores that stand one position before the one that they are about (Ye et al., Dream, 2025), in calls of many canvases.

After a forward every computed position gets the state that predicts it: the one computed before it, or, in a call on a memory,
the one that the memory has. So a memory of a model with a shift also has its last hidden states, beside keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decgraph.runtime.models.engine.masked_batch import Unit
from decgraph.runtime.models.engine.masked_memory import CachedMemory
from decgraph.runtime.models.hf_masked import no_state


def moved(hidden: Tensor, units: Sequence[Unit]) -> Tensor:
    """[n, width]: for every position that a forward computed, the state that predicts it. hidden: [n, width], the forward's."""
    source, extra = np.arange(len(hidden)), []
    at = len(hidden)
    for unit in units:
        fresh = np.arange(unit.width) if unit.fresh is None else unit.fresh
        before = np.maximum(fresh - 1, 0)
        place = fresh.searchsorted(before)
        here = fresh[place] == before
        source[unit.start : unit.start + unit.width] = np.where(here, unit.start + place, unit.start + np.arange(unit.width))
        missing = np.flatnonzero(~here)
        last = None if unit.given is None else unit.given.version.last
        if len(missing) and last is not None:
            known = missing[before[missing] < len(last)]
            extra.append(last.index_select(0, torch.from_numpy(before[known]).to(last.device)))
            source[unit.start + known] = at + np.arange(len(known))
            at += len(known)
    states = torch.cat([hidden, *extra]) if extra else hidden
    return states.index_select(0, torch.from_numpy(source).to(hidden.device))


def check_sources(name: str, wanted: np.ndarray, fresh: np.ndarray, given: CachedMemory, where: str) -> None:
    """Raises DecError unless the call or its memory has the states that predict the positions `wanted` int64[n]. where: what
    messages call the first position that is not predicted, with {} for its number."""
    before = np.maximum(wanted - 1, 0)
    kept = given.cached if given.version.last is not None else np.zeros(0, bool)
    known = np.isin(before, fresh) | np.isin(before, np.flatnonzero(kept))
    if not known.all():
        raise no_state(name, where.format(int(wanted[~known][0])))


def keep_states(kept: CachedMemory, unit: Unit, states: Tensor) -> None:
    """Gives a memory the last hidden states [n, width] of the call that made it, over those of the memory that it was made
    on."""
    old = None if unit.given is None else unit.given.version.last
    if unit.fresh is None:
        kept.version.last = states
        return
    made = states.new_zeros(kept.length, states.shape[1])
    if old is not None:
        made[: len(old)] = old[: len(made)]
    made[torch.from_numpy(unit.fresh).to(made.device)] = states
    kept.version.last = made
