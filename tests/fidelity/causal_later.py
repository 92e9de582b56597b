"""Recordings of causal decoders that no program of stdlib replays, with what it would take."""

from __future__ import annotations

WITHOUT = {
    "logits/constrained_beam": "phrases of several tokens, which may begin again, and choices between phrases; the program's "
    "words are single tokens",
}
