"""The op table: every op once. ir/opdef.py says what a row holds; importing this imports ir/ops, which fills it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import decgraph.ir.ops  # noqa: F401  (registers)
from decgraph.ir.opdef import TABLE, OpDef, OpError


def lookup(name: str) -> OpDef:
    """The row of `name`; OpError with the nearest names otherwise."""
    if name not in TABLE:
        near = difflib.get_close_matches(name, TABLE, 3)
        raise OpError(f"no op named {name}", f"did you mean {', '.join(near)}?" if near else "")
    return TABLE[name]


__all__ = ["TABLE", "lookup"]


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
