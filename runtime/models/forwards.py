"""Which way a transformers model's forward ran: as the decoder, or as the module that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from decgraph.ir.memo import memo_of


@dataclass(frozen=True)
class Forward:
    """way: "decoder" (decgraph's own, runtime/models/decoder) or "module" (transformers' own code). reason: why the module runs
    itself; else empty. packed: bytes of copies of its matrices that products of several tokens read (packs.py), so far."""

    way: Literal["decoder", "module"]
    reason: str = ""
    packed: int = 0

    def text(self) -> str:
        """In a line."""
        copies = f", {self.packed / 1e6:.0f} MB of packed matrices" if self.packed else ""
        if self.way == "module":
            return f"as a module: {self.reason}{copies}"
        return "decoder" + copies

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        return {"way": self.way, "reason": self.reason, "packed": self.packed}


class Copies(Protocol):
    """What has copies of matrices: `bytes` says how much."""

    @property
    def bytes(self) -> int: ...


def note(base: Any, forward: Forward, copies: Copies | None = None) -> None:
    """Keeps which way a base module runs, where `forward_of` finds it. copies: those of its matrices."""
    for name, value in (("forward", forward), ("copies", copies)):
        memo_of(base).forget(name)
        memo_of(base).once(name, lambda value=value: value)  # type: ignore[misc]


def note_output(base: Any, copies: Copies) -> None:
    """Keeps who has the copy of the output matrix beside a base module."""
    memo_of(base).forget("output copy")
    memo_of(base).once("output copy", lambda: copies)


def forward_of(model: Any) -> Forward | None:
    """Which way a model ran, of decgraph's models; None for one that is no transformers model, or did not run yet."""
    net = getattr(getattr(model, "root", model), "net", None)
    decoder = getattr(net, "decoder", None)
    if decoder is not None:
        return Forward("decoder", packed=0 if decoder.copies is None else decoder.copies.bytes)
    bases = (getattr(net, "base", None), getattr(getattr(model, "module", None), "base_model", None))
    base = next((b for b in bases if b is not None), None)
    found: Forward | None = None if base is None else memo_of(base).get("forward")
    if found is None:
        return None
    held = (memo_of(base).get("copies"), memo_of(base).get("output copy"))
    return replace(found, packed=sum(copies.bytes for copies in held if copies is not None))


def forwards_of(models: Mapping[str, Any]) -> dict[str, Forward]:
    """The same for models by name, without those that have none."""
    return {name: found for name, model in models.items() if (found := forward_of(model)) is not None}
