"""The lowering of ir/ops/heads.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering


@lowering("head.score")
def score(m: Any, head: Any, place: Any, *rest: Any, op: Any) -> Any:
    """The distributions that a head gives of hidden states."""
    return m.score_states(op, head, place, **dict(zip(op.attrs.get("named", ()), rest, strict=True)))


@lowering("head.read")
def read(m: Any, head: Any, place: Any, *rest: Any, op: Any) -> Any:
    """What a head says, of the states that its target's engine keeps, or of hidden states."""
    if op.operands[1].type.elem == "hidden":
        return m.read_states(op, head, place, **dict(zip(op.attrs.get("named", ()), rest, strict=True)))
    return m.read_head(op, head, place, *(rest or (None,)))
