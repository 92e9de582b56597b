"""A trained head of a Hugging Face target with one value after every token: any module from last hidden states [n, width] to
[n, outputs]."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import Path
from decgraph.runtime.models.reading import Reading


class Mlp(nn.Module):
    """Linear layers with an activation between: what a head's folder holds (`sizes` from the target's width to the outputs,
    `activation` one of torch.nn)."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        sizes, between = [int(n) for n in config["sizes"]], str(config.get("activation", "ReLU"))
        parts: list[nn.Module] = []
        for a, b in pairwise(sizes):
            parts += [nn.Linear(a, b), getattr(nn, between)()]
        self.layers = nn.Sequential(*parts[:-1])

    def forward(self, states: Tensor) -> Tensor:
        made: Tensor = self.layers(states)
        return made


class HFReading(Reading):
    """A module on the target's last hidden state, after the final norm. Of its outputs a probability is the first one's
    sigmoid, or of two the second one's share; a number is the first, a class the largest one's place, and yes where the
    probability is at least one half. Outputs that are probabilities already say so: `probabilities = True` on the module."""

    def __init__(self, module: Any, target: HFCausal, gives: str, name: str) -> None:
        super().__init__(target, gives, name)
        self.module = module

    def read(self, paths: Sequence[Path]) -> list[Any]:
        rows = [self.target.memory(path).features[len(path) - 1] for path in paths]
        return self.of(torch.stack(rows)) if rows else []

    def of_states(self, states: np.ndarray, layer: int | None) -> list[Any]:
        parts = isinstance(self.module, nn.ModuleList)
        if parts != (layer is not None) or layer is not None and not 0 <= layer < len(self.module):
            has = f"parts for the layers 0..{len(self.module) - 1}" if parts else "one part for all layers"
            raise DecError(
                f"the head {self.name!r} has {has}, and is read {'as a whole' if layer is None else f'for layer {layer}'}",
                hint="an nn.ModuleList has a part for each layer, router(h, layer = l)",
            )
        return self.of(torch.from_numpy(states).float(), self.module[layer] if parts else None)

    @torch.no_grad()
    def of(self, states: Tensor, part: Any = None) -> list[Any]:
        """The values at states [n, width], of a part of the module or the whole. Raises DecError for outputs of another shape,
        or that are not numbers."""
        module = self.module if part is None else part
        first = next(iter(module.parameters()), states)
        out = module(states.to(first)).double()
        if out.ndim == 1:
            out = out[:, None]
        if out.ndim != 2 or out.shape[0] != len(states) or not bool(torch.isfinite(out).all()):
            raise DecError(
                f"the head {self.name!r} gave {list(out.shape)} for {len(states)} states, or numbers that are not finite",
                hint="a module from hidden states [n, width] to [n, outputs]",
            )
        if self.gives == "real":
            made: list[Any] = out[:, 0].tolist()
            return made
        if self.gives == "int":
            classes: list[Any] = out.argmax(-1).tolist()
            return classes
        if not getattr(module, "probabilities", False):
            out = out.sigmoid() if out.shape[1] == 1 else out.softmax(-1)
        share: list[Any] = out[:, 0 if out.shape[1] == 1 else 1].tolist()
        return [x >= 0.5 for x in share] if self.gives == "bool" else share


def reading_model(module: Any, target: Any, gives: str, name: str) -> HFReading:
    """The head of a module. Raises DecError for a target whose hidden states cannot be read, or have another width."""
    if not isinstance(target, HFCausal):
        reason = getattr(target, "unreached", None)
        raise DecError(
            f"{name!r} reads hidden states of {target.name!r}, which has none that can be read", hint=str(reason or "")
        )
    weights = next((p for p in module.parameters() if p.ndim == 2), None)
    if weights is not None and weights.shape[1] != target.width:
        raise DecError(
            f"{name!r} reads hidden states of size {weights.shape[1]}, those of {target.name!r} have {target.width}: "
            "it belongs to another target"
        )
    return HFReading(module, target, gives, name)
