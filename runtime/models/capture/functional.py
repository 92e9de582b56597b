"""Writes into tensors as functions: a graph whose equal calls are shared has no room for calls that change a tensor.

A call that changes a tensor made in the same forward becomes one that returns the changed tensor, and whoever uses the
tensor afterwards uses that. If the tensor is a slice of another (DeepSeek's keys are filled by halves), the other is
replaced too. Refused are writes to weights and inputs, and reading another view of what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def put_at(x: Tensor, index: Any, value: Any) -> Tensor:
    """A copy [...] of a tensor [...] with other values at an index."""
    made = x.clone()
    made[index] = value
    return made


def copied(x: Tensor, source: Tensor) -> Tensor:
    """A source's values, broadcast to the shape [...] and in the dtype of a tensor."""
    return source.to(x.dtype).expand(x.shape)


def writes_in_place(name: str) -> bool:
    """Whether a torch function of this name changes its first operand."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    return name.endswith("_") and not name.startswith("_")


def functional(name: str) -> Callable[..., Tensor] | None:
    """The function that returns what the one of this name would have left in its first operand [...]; None if there is none."""
    if name == "__setitem__":
        return put_at
    if name == "copy_":
        return copied
    if name == "zero_":
        return torch.zeros_like
    plain = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")
    found: Callable[..., Tensor] | None = getattr(Tensor, plain, None) or getattr(torch, plain, None)
    return found


def shares(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors [...] lie in the same memory."""
    there = a.untyped_storage()
    return there.nbytes() > 0 and there.data_ptr() == b.untyped_storage().data_ptr()
