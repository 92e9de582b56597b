"""Lowerings of ir/ops/limits.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import host, lowering
from decgraph.backends.torch.protocols import Machine
from decgraph.ir.ops.limits import bounded, fits


@lowering("within")
def within(m: Machine, x: Any, *sizes: Any, what: str, most: int | None = None) -> Any:
    """x itself. Raises an error where it is larger than it may be."""
    if sizes:
        fits(x, [int(host(n)) for n in sizes], what)
    elif most is not None:
        bounded(x, most, what)
    return x
