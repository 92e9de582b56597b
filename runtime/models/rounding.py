"""Uniform quantisation: keys, values and weights rounded to so many bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from decgraph.errors import DecError

if TYPE_CHECKING:
    import torch

Numbers: TypeAlias = "np.ndarray | torch.Tensor"
Bits = int | tuple[int, int]
"""How many for keys and values alike, or for each."""


def bits_of(said: object) -> Bits:
    """A number of bits, or two numbers, as a program says them. Raises DecError for others."""
    found = [int(n) for n in np.array(getattr(said, "tolist", lambda: said)()).ravel()]
    if len(found) not in (1, 2) or not all(1 <= n <= 16 for n in found):
        numbers = " and ".join(map(str, found)) or "no"
        raise DecError(
            f"a memory cannot be rounded to {numbers} bits", hint="whole bits in 1..16, or two: for keys and for values"
        )
    return found[0] if found[0] == found[-1] else (found[0], found[1])


def rounded(x: Numbers, bits: int) -> Numbers:
    """Numbers rounded to the nearest of 2**bits evenly spaced levels, from the least to the greatest of their group: the last
    dimension. x: float[..., n], NumPy's or torch's; the result has its shape and dtype. It is uniform asymmetric
    quantisation, with a scale and a zero point of each group, and what is read back of it."""
    named: Any = x  # torch takes NumPy's `keepdims`, which its types leave out
    low, high = _end(named.min(-1, keepdims=True)), _end(named.max(-1, keepdims=True))
    step = (high - low) / (2**bits - 1)
    step = step + (step == 0)
    return ((x - low) / step).round() * step + low


def _end(numbers: Numbers) -> Numbers:
    """The least or greatest: torch returns their places as well."""
    return getattr(numbers, "values", numbers)


__all__ = ["Bits", "bits_of", "rounded"]
