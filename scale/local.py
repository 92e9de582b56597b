"""Rows decoded in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from decgraph.scale.decoder import Decoder, groups
from decgraph.scale.rows import PromptLine

TOGETHER = 256
"""Rows that are tokenised and handed to the session at a time; of these it runs a batch, and the next joins as one ends."""


def run(decoder: Decoder, rows: Iterable[PromptLine], finished: Callable[[dict[str, Any]], None]) -> None:
    """Decode rows and tell `finished` each record as its row ends. Raises KeyboardInterrupt after Ctrl-C."""
    for group in groups(rows, max(TOGETHER, 4 * decoder.batch)):
        decoder.decode(group, finished)
