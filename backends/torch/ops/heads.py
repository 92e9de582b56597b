"""The lowering of ir/ops/heads.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering


@lowering("head.read")
def read(m: Any, head: Any, place: Any, tree: Any = None, *, op: Any) -> Any:
    """What a head says, of the states that its target's engine keeps."""
    return m.read_head(op, head, place, tree)
