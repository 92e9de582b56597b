"""A decoding step on the device waits for nothing: inside `Unread`, an operation that would is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "item", "unique_dim", "_unique2"}
COPIES = {"lift_fresh", "lift_fresh_copy"}
"""What `torch.tensor(list)` and `torch.from_numpy` are: a captured graph makes its constants before it is captured."""


class Unread(TorchDispatchMode):
    """Raises AssertionError where a value comes to the host, sizes depend on one, or a tensor moves to another device; with
    `copies=False` also where one is made of the host's numbers. `seen` counts the operations."""

    def __init__(self, *, copies: bool = True) -> None:
        super().__init__()
        self.refused = READS if copies else READS | COPIES
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = name in ("index", "index_put", "index_put_") and any(
            isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1]
        )
        there = (kwargs or {}).get("device")
        moved = name == "_to_copy" and there is not None and there != args[0].device
        if self.refused and (name in self.refused or masks or moved):
            raise AssertionError(f"{func} in a step: the host would wait")
        self.seen.append(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def nothing_read() -> Iterator[None]:
    """`Unread`, and tensors made of Python's lists are errors too, wherever they lie."""
    had = torch.tensor

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("torch.tensor in a step")

    torch.tensor = refuse
    try:
        with Unread():
            yield
    finally:
        torch.tensor = had
