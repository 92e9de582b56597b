"""Which layers a derived model runs, which halves of them (attention, and the perceptron (MLP) after it), and which attentions
read one state.

Zhang et al., Draft & Verify, 2024; Xia et al., SWIFT, 2025; Wu et al., EasySpec, 2025.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from decgraph.errors import DecError


@dataclass(frozen=True)
class LayerUse:
    """A layer that runs, by its number, and which of its halves run. reads: the layer whose entering state its attention reads
    instead of its own, the first one of its group; None: there are no groups."""

    layer: int
    attention: bool = True
    mlp: bool = True
    reads: int | None = None


def without(uses: Iterable[LayerUse], attention: Iterable[int], mlp: Iterable[int]) -> tuple[LayerUse, ...]:
    """These layers without the attention of some and the MLPs of some. A layer with neither is left out."""
    attention, mlp = frozenset(attention), frozenset(mlp)
    kept = (
        replace(use, attention=use.attention and use.layer not in attention, mlp=use.mlp and use.layer not in mlp)
        for use in uses
    )
    return tuple(use for use in kept if use.attention or use.mlp)


def grouped(uses: Sequence[LayerUse], size: int) -> tuple[LayerUse, ...]:
    """These layers in groups of `size`, the attentions of each of which read the state that enters the group."""
    return tuple(replace(use, reads=uses[i - i % size].layer) for i, use in enumerate(uses)) if size > 1 else tuple(uses)


def skip_name(attention: Iterable[int], mlp: Iterable[int]) -> str:
    """`skip({1})` where whole layers are skipped, else `skip(attention = {1}, mlp = {})`."""
    a, m = (", ".join(map(str, sorted(set(numbers)))) for numbers in (attention, mlp))
    return f"skip({{{a}}})" if a == m else f"skip(attention = {{{a}}}, mlp = {{{m}}})"


def called(how: str, args: Iterable[object]) -> str:
    """A derivation as a program writes it: `exit(8)`."""
    return f"{how}({', '.join(str(sorted(a)) if isinstance(a, frozenset | set) else str(a) for a in args)})"


def no_such(name: str, layers: int, how: str, args: Iterable[object]) -> DecError:
    """The error for a derivation that a model with so many layers does not have."""
    hints = {"exit": f"an exit in 1..{layers}", "quantized": "whole bits in 1..16", "parallel": "groups of 1 layer or more"}
    return DecError(f"{name!r} has {layers} layers and no {called(how, args)}", hint=hints.get(how, ""))


class HasLayers(Protocol):
    """A model with layers."""

    name: str
    layers: int


def check_layers(model: HasLayers, numbers: Iterable[int]) -> None:
    """Raises DecError unless the model has all of these layers."""
    odd = sorted(n for n in numbers if not 0 <= n < model.layers)
    if odd:
        raise DecError(f"{model.name!r} has no layer {', '.join(map(str, odd))} to skip: its layers are 0..{model.layers - 1}")


def untouched(uses: Sequence[LayerUse]) -> int:
    """How many of the first layers are there, whole and in order."""
    return next((n for n, use in enumerate(uses) if use != LayerUse(n)), len(uses))
