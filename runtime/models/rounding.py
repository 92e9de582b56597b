"""Uniform quantisation: keys, values and weights rounded to so many bits."""

from __future__ import annotations

from typing import Any


def rounded(x: Any, bits: int) -> Any:
    """Numbers rounded to the nearest of 2**bits evenly spaced levels, from the least to the greatest of their group: the last
    dimension. x: float[..., n], NumPy's or torch's; the result has its shape and dtype. It is uniform asymmetric
    quantisation, with a scale and a zero point of each group, and what is read back of it."""
    low, high = _end(x.min(-1, keepdims=True)), _end(x.max(-1, keepdims=True))
    step = (high - low) / (2**bits - 1)
    step = step + (step == 0)
    return ((x - low) / step).round() * step + low


def _end(found: Any) -> Any:
    """The least or greatest: torch returns their places as well."""
    return getattr(found, "values", found)


__all__ = ["rounded"]
