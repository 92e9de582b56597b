"""Which way a transformers model's forward ran: as the decoder, or as the module that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from decgraph.ir.memo import memo_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ForwardChoice:
    """way: "decoder" (decgraph's own, runtime/models/decoder) or "module" (transformers' own code). reason: why the module runs
    itself; else empty."""

    way: Literal["decoder", "module"]
    reason: str = ""

    def text(self) -> str:
        """In a line."""
        if self.way == "module":
            return f"as a module: {self.reason}"
        return "decoder"

    def to_json(self) -> dict[str, object]:
        """For a program."""
        return {"way": self.way, "reason": self.reason}


def note(base: nn.Module, forward: ForwardChoice) -> None:
    """Keeps which way a base module runs, where `forward_of` finds it."""
    memo_of(base).forget("forward")
    memo_of(base).once("forward", lambda: forward)


def forward_of(model: object) -> ForwardChoice | None:
    """Which way a model ran, of decgraph's models; None for one that is no transformers model, or did not run yet."""
    net = getattr(getattr(model, "root", model), "net", None) or memo_of(model).get("net")  # a live model's when it first ran
    if net is not None and not hasattr(net.decoder, "whole"):  # no module that runs as it is
        return ForwardChoice("decoder")
    bases = (getattr(net, "base", None), getattr(getattr(model, "module", None), "base_model", None))
    base = next((b for b in bases if b is not None), None)
    found: ForwardChoice | None = None if base is None else memo_of(base).get("forward")
    return found


def forwards_of(models: Mapping[str, object]) -> dict[str, ForwardChoice]:
    """The same for models by name, without those that have none."""
    return {name: found for name, model in models.items() if (found := forward_of(model)) is not None}
