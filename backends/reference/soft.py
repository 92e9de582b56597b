"""What a model reads of a place: tokens, and at soft cells and nodes mixtures of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decgraph.ir.data.dist import Draw, Symbol
from decgraph.ir.data.dist import Soft as Held
from decgraph.runtime.models.interface import Cell, SoftCell, mixture


def read_path(path: Sequence[Symbol]) -> tuple[Any, ...]:
    """A path with every draw read, and mixtures at its soft nodes."""
    return tuple([x if type(x) is int else _read(x) for x in path])


def tokens_of(path: Sequence[Symbol | SoftCell]) -> tuple[int, ...]:
    """The tokens of a path: a soft node has none."""
    return tuple(x.token if isinstance(x, Draw) else int(x) for x in path if not isinstance(x, Held | SoftCell))


def is_soft(path: Sequence[object]) -> bool:
    """Whether a soft node is on the path: what a model says after it may be said of no text."""
    return Held in map(type, path)


def _read(x: Symbol) -> Cell:
    """A draw that is read, or what else stands in a path."""
    return x.token if isinstance(x, Draw) else mixture(x.value) if isinstance(x, Held) else int(x)
