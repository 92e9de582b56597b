"""The lowering of ir/ops/heads.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering


@lowering("head.read")
def read(m: Any, head: Any, place: Any, tree: Any = None, *, op: Any) -> Any:
    """What a head says, of the states that its target's engine keeps."""
    if op.operands[1].type.elem == "hidden":
        return m.read_states(op, head, place, None if tree is None else int(tree))
    return m.read_head(op, head, place, tree)
