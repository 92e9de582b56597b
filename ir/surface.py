"""How programs call ops: the names that the ops themselves declare (`surface` in ir/opdef.py), in `.dec` and in Python alike.

What is not a plain op call (keys, options, results in several parts) has a form of its own in dsl/lower/builtins.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from decgraph.ir.table import TABLE


@dataclass(frozen=True)
class Surface:
    """One name: the op that it calls, with which attributes, and its parameters, the last `optional` may be left out."""

    name: str
    opcode: str
    attrs: Mapping[str, Any]
    parameters: tuple[str, ...]
    optional: int

    @property
    def signature(self) -> str:
        """`learn(index, tokens, after?)`."""
        must = len(self.parameters) - self.optional
        return f"{self.name}({', '.join(p + '?' * (i >= must) for i, p in enumerate(self.parameters))})"


@cache
def surface() -> Mapping[str, Surface]:
    """Every name that an op declares. Raises TypeError for a name that two ops declare."""
    found: dict[str, Surface] = {}
    for row in TABLE.values():
        for signature, attrs in row.surface.items():
            name, _, rest = signature.removesuffix(")").partition("(")
            parameters = tuple(p for p in rest.split(", ") if p)
            if name in found:
                raise TypeError(f"{name}(...) is declared by {found[name].opcode} and by {row.name}")
            optional = sum(p.endswith("?") for p in parameters)
            found[name] = Surface(name, row.name, attrs, tuple(p.rstrip("?") for p in parameters), optional)
    return found
