"""The capacities of the trees of a module (ir/sizes.py says how they are found)."""

from __future__ import annotations

import decgraph.ir.table  # noqa: F401  (the ops' rules)
from decgraph.ir.sizes import Size, Sizes
from decgraph.ir.values import Function, Module, Op


def capacities(function: Function) -> dict[Op, Size]:
    """For each tree that is started in a function, the most nodes it ever has (the root counts); None: no static bound."""
    return Sizes(function).run()


def too_large(function: Function) -> list[Op]:
    """What makes a tree larger than trees may be, whatever the parameters are."""
    sizes = Sizes(function, least=True)
    sizes.run()
    return sizes.too_large


def note_capacities(module: Module) -> None:
    """Write what is known into attribute `capacity` of every `tree.new` (in place: for modules just created)."""
    for function in module.functions.values():
        for op, size in capacities(function).items():
            op.attrs.pop("capacity", None)
            if size is not None:
                op.attrs["capacity"] = size


__all__ = ["capacities", "note_capacities", "too_large"]
