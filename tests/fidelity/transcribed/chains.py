"""Chains of drafts: PARD, FLy."""

from __future__ import annotations

from functools import partial

from fidelity.entry import recorded
from fidelity.transcribed.compared import by_chain, replayed

from lab.recordings.chains import models

ours = partial(replayed, models=models, columns=by_chain, beyond=32)

ENTRIES = [
    recorded("pard", ours("pard", "gamma")),
    recorded("fly", ours("fly", "gamma", "window", "eta")),
]
