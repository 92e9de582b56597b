"""Which way a transformers model's forward ran: as a captured graph, or as the module that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from decgraph.ir.memo import memo_of


@dataclass(frozen=True)
class Forward:
    """way: "captured" (a graph recorded from the module, fast for few tokens) or "module" (transformers' own code).
    dropped: passes of the graph that were left out, each with what it got wrong on this model. reason: why the module
    could not be captured; empty for a captured one."""

    way: Literal["captured", "module"]
    dropped: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    def text(self) -> str:
        """In a line."""
        if self.way == "module":
            return f"as a module: {self.reason}"
        return "captured" + (f", without {', '.join(self.dropped)}" if self.dropped else "")

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {"way": self.way, "dropped": dict(self.dropped), "reason": self.reason}


def note(base: Any, forward: Forward) -> None:
    """Keeps which way a base module runs, where `forward_of` finds it."""
    memo_of(base).forget("forward")
    memo_of(base).once("forward", lambda: forward)


def forward_of(model: Any) -> Forward | None:
    """Which way a model ran, of decgraph's models; None for one that is no transformers model, or did not run yet."""
    net = getattr(getattr(model, "root", model), "net", None)
    bases = (getattr(net, "base", None), getattr(getattr(model, "module", None), "base_model", None))
    found: Forward | None = next((memo_of(b).get("forward") for b in bases if b is not None), None)
    return found


def forwards_of(models: Mapping[str, Any]) -> dict[str, Forward]:
    """The same for models by name, without those that have none."""
    return {name: found for name, model in models.items() if (found := forward_of(model)) is not None}
