"""Fewer layers for some tokens, on free models, whose every state is a hash of what it was computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, replayed, tokens
from fidelity.watched import Watched

from lab.recordings.depth import models


def read(done: Watched, case: Mapping[str, Any]) -> Columns:
    """What ours writes, and the texts after which it called the whole model."""
    return {"tokens": done.tokens, "deep": [len(c.rows[0]) for c in done.calls]}


ENTRIES = [
    recorded("unified_skip", replayed("unified_skip", "speedup", models=models, columns=tokens)),
    recorded("free", replayed("free", "exit", "tau", models=models, columns=read)),
]
COMPARED: list[Compared] = []
