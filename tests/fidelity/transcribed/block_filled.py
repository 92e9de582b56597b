"""Drafts that a masked model fills in at once: generalized aggressive decoding."""

from __future__ import annotations

from fidelity.entry import recorded
from fidelity.transcribed.compared import by_chain, replayed

from lab.recordings.block_filled import models

ENTRIES = [
    recorded(
        "generalized_aggressive",
        replayed("generalized_aggressive", "block", "beta", "tau", models=models, columns=by_chain, beyond=32),
    )
]
