"""Heads side by side, and the target's own guesses at adaptive tokens: blockwise parallel decoding, Medusa, SDSAT. Greedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, unhurried

from lab.recordings.medusa_heads import headed, plain

block = unhurried("blockwise_parallel", "k", models=headed, last=1)


def cut(case: Mapping[str, Any], backend: str) -> Columns:
    """As theirs counts what the last call accepts: up to the limit."""
    found = block(case, backend)
    before = len(found["tokens"]) - len(case["prompt"]) - sum(n + 1 for n in found["accepted"][1:-1])
    found["accepted"][-1] = min(found["accepted"][-1], before - 1)
    return found


ENTRIES = [
    recorded("blockwise_parallel", cut),
    recorded("medusa_match", unhurried("medusa_match", "shape", models=headed, last=1)),
    recorded(
        "sdsat",
        unhurried("sdsat", "adaptive", "gamma", "shape", models=plain, last=1),
        differs={
            (case, column): "ours verifies drafts behind a first token that ends the text (decoders/sdsat.py:92)"
            for case in ("5 3 of 0", "6 3 of 0")
            for column in ("drafted", "accepted")
        },
    ),
]
COMPARED: list[Compared] = []
