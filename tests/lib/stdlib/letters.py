"""A tokenizer for models whose tokens are numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from decgraph.runtime.text import detokenizer_of


class Letters:
    """A tokenizer with a piece of text for each token."""

    def __init__(self, pieces: Iterable[str] = "abcdefg") -> None:
        self.detokenizer = detokenizer_of([*pieces])

    def decode(self, tokens: Any) -> str:
        """The text of tokens."""
        return self.detokenizer.text(tokens)
