"""Runs a module's code in float64 without a copy of its weights: what a captured forward is judged by.

Every function that the code calls gets its floating operands as float64, and a request for another floating dtype
(`x.to(torch.float32)`, `softmax(..., dtype=torch.float32)`) is one for float64. A weight is widened when it is used and
not kept, so that the memory needed is one weight's, not the module's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from decgraph.runtime.models.capture.functional import writes_in_place

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
# Functions that move numbers and compute nothing: a widened copy of a whole table of embeddings or of all experts to
# read a few rows would cost more than the rest.
_MOVES = {
    "__getitem__", "embedding", "index_select", "view", "reshape", "transpose", "t", "permute", "unbind", "split", "chunk",
    "narrow", "unsqueeze", "squeeze", "expand", "contiguous", "detach", "flatten", "repeat_interleave", "take_along_dim",
    "gather", "clone", "view_as", "expand_as", "swapaxes", "movedim", "tensor_split", "unflatten", "select", "repeat",
}  # fmt: skip
_WIDENS = {"float", "half", "bfloat16"}
# Properties and questions: answered by the tensor as it is.
_ASKS = {"__get__", "__set__", "size", "dim", "is_floating_point", "type", "stride", "numel", "is_contiguous"}
_LARGE = 1 << 16  # entries; larger operands are widened into one buffer that is used again


class Widened(TorchFunctionMode):
    """While it is entered, torch functions compute in float64."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer: Tensor | None = None
        self._taken = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = str(getattr(func, "__name__", "")), kwargs or {}
        if name in _ASKS or name in _MOVES:
            return func(*args, **kwargs)
        if name in _WIDENS:
            return args[0].double()
        if name in ("tensor", "full") and args and isinstance(args[-1], float):
            kwargs = {"dtype": torch.float64, **kwargs}  # the lowest number of float64, say
        writes = writes_in_place(name)
        first = args[0] if args else None
        if writes and isinstance(first, Tensor) and first.is_floating_point() and first.dtype != torch.float64:
            rest = self._wide(args[1:], first.dtype)  # a tensor that somebody else holds: it keeps its dtype
            return func(first, *rest, **self._wide(kwargs, first.dtype))
        self._taken = False
        if writes:
            return func(first, *self._wide(args[1:]), **self._wide(kwargs))
        out = func(*self._wide(args), **self._wide(kwargs))
        return _apart(out, self._buffer) if self._taken else out

    def _wide(self, value: Any, dtype: torch.dtype = torch.float64) -> Any:
        if isinstance(value, Tensor):
            if not value.is_floating_point() or value.dtype == dtype:
                return value
            return self._large(value) if value.numel() >= _LARGE and dtype == torch.float64 else value.to(dtype)
        if isinstance(value, torch.dtype):
            return dtype if value in _NARROW else value
        if isinstance(value, dict):
            return {key: self._wide(item, dtype) for key, item in value.items()}
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            return type(value)(self._wide(item, dtype) for item in value)
        return value

    def _large(self, value: Tensor) -> Tensor:
        """A large operand in the buffer: fresh memory for each would take longer than reading the weights."""
        if self._taken:
            return value.double()
        if self._buffer is None or self._buffer.numel() < value.numel() or self._buffer.device != value.device:
            self._buffer = torch.empty(value.numel(), dtype=torch.float64, device=value.device)
        self._taken = True
        return self._buffer[: value.numel()].view(value.shape).copy_(value)


def _apart(out: Any, buffer: Tensor | None) -> Any:
    """A result that is a view of the buffer, copied."""
    if isinstance(out, tuple | list) and not hasattr(out, "_fields"):
        return type(out)(_apart(item, buffer) for item in out)
    if isinstance(out, Tensor) and buffer is not None and out.dtype == torch.float64:
        return out.clone() if out.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr() else out
    return out
