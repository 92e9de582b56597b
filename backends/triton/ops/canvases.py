"""Canvases of masked models."""

from __future__ import annotations

from typing import Any


def is_canvas(x: Any) -> bool:
    """Whether a value is a canvas."""
    return False


def decided_tokens(s: Any, x: Any) -> Any:
    """The decided beginning of a canvas: tokens int64[B, N] and how many."""
    raise NotImplementedError
