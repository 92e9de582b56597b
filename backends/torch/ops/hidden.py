"""Lowerings of ir/ops/hidden.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering, on_host


@lowering("model.states")
def states(m: Any, model: Any, place: Any, *rest: Any, op: Any) -> Any:
    """The states that a trunk computes on the rows that its target's engine keeps."""
    return m.states(op, model, place, dict(zip(op.attrs.get("named", ()), rest, strict=True)))


on_host("hidden.similarity", why="it is one number a state")
on_host("hidden.mean", why="states are on the host")
