"""The lowering of ir/ops/attention.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering


@lowering("model.attention")
def attention(m: Any, model: Any, place: Any, *rest: Any, named: tuple[str, ...] = ()) -> Any:
    """How much attention each position is given."""
    return m.attention(model, place, dict(zip(named, rest, strict=True)))
