"""What a run did, written down: what it committed, and every row and memory that a model gave on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.backends.reference.soft import read_path
from decgraph.ir.values import Op


@dataclass
class Seen:
    """What a session did: tokens, results and the end of each request, and what was computed."""

    runs: list[tuple[Any, ...]] = field(default_factory=list)
    rows: dict[tuple[Any, ...], str] = field(default_factory=dict)


class Watched(ReferenceMachine):
    """The reference, writing down every row and memory that a model returns."""

    seen: Seen

    def model_row(self, model: Any, scores: Any, path: Any, node: Any, allow: Any, position: Any = None) -> Any:
        row = super().model_row(model, scores, path, node, allow, position)
        if model is not None:  # `warp` has rows of no model
            tokens = read_path(path)
            got = scores()
            key = (model.name, tokens, row.position, got.logits.tobytes() if got.logits is not None else got.weights)
            self.seen.rows.setdefault(key, f"{model.name} after {list(tokens)}, for position {row.position}")
        return row

    def memory(self, op: Op, model: Any, place: Any, extra: Any) -> Any:
        found = super().memory(op, model, place, extra)
        self.seen.rows.setdefault(
            ("memory", model.name, found.memory), f"the memory of {model.name} up to position {found.memory.length}"
        )
        return found
