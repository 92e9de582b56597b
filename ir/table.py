"""The op table: every op once. ir/opdef.py says what a row holds; importing this imports ir/ops, which fills it."""

from __future__ import annotations

import difflib

import decgraph.ir.ops  # noqa: F401  (registers)
from decgraph.ir.opdef import TABLE, OpDef, OpError


def lookup(name: str) -> OpDef:
    """The row of `name`; OpError with the nearest names otherwise."""
    if name not in TABLE:
        near = difflib.get_close_matches(name, TABLE, 3)
        raise OpError(f"no op named {name}", f"did you mean {', '.join(near)}?" if near else "")
    return TABLE[name]


__all__ = ["TABLE", "lookup"]
