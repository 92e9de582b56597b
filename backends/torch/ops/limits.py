"""Lowerings of ir/ops/limits.py."""

from __future__ import annotations

from decgraph.backends.torch.data import whole
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.protocols import Machine
from decgraph.ir.ops.limits import bounded, fits


@lowering("within")
def within(m: Machine, x: object, *sizes: object, what: str, most: int | None = None) -> object:
    """x itself. Raises an error where it is larger than it may be."""
    if sizes:
        fits(x, [whole(n) for n in sizes], what)
    elif most is not None:
        bounded(x, most, what)
    return x
