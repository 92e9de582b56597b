"""Places: where a program calls a model, and what the model reads there: states, tokens, and at soft cells and nodes mixtures
of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decgraph.backends.reference.protocols import Context, Machine, States
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Draw, Draws, Path, Symbol, resolve_path
from decgraph.ir.data.dist import Soft as Held
from decgraph.ir.data.tree import State, Tree
from decgraph.ir.machine import Datum
from decgraph.ir.ops.common import is_context
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


def place_states(m: Machine, place: Datum, extra: dict[str, Datum]) -> States:
    """The states of a place: paths or canvases."""
    if isinstance(place, Tree):
        return [place.state(i) for i in range(len(place))], (len(place),), None
    if isinstance(place, Canvas) or is_context(place):
        return [place], (), None
    if isinstance(place, Path):
        return [m.context() + tuple(place.tokens)], (), None
    tree = extra["tree"]
    assert isinstance(tree, Tree)
    ids = np.asarray(place, dtype=np.int64)
    return [tree.state(int(i)) for i in ids.ravel()], ids.shape, (ids if ids.ndim == 1 else None)


def as_context(state: State) -> Context:
    """The state of a place in a text."""
    assert isinstance(state, tuple), "a canvas where a model reads a text"
    return state


def as_canvas(state: State) -> Canvas:
    """The state of a place among canvases."""
    assert isinstance(state, Canvas), "a text where a model reads a canvas"
    return state


def text_of_place(tokens: Datum) -> tuple[int, ...]:
    """The tokens that stand in the place of a context."""
    if isinstance(tokens, Path):
        return resolve_path(tokens.tokens)
    return resolve_path(tokens.items if isinstance(tokens, Draws) else np.asarray(tokens, dtype=object))


def path_of_place(m: Machine, place: Datum, extra: dict[str, Datum]) -> tuple[int, ...]:
    """The tokens of a context, of a node (with `tree`), or in the place of a context."""
    if isinstance(place, tuple) or "tree" in extra:
        return resolve_path(as_context(m.place_states(place, extra)[0][0]))
    return text_of_place(place)


def second_context(place: Datum, extra: dict[str, Datum]) -> tuple[int, ...] | None:
    """The tokens of a second context; None for a place in this one."""
    here = isinstance(place, np.ndarray | list) and "tree" in extra
    return text_of_place(place) if not here and isinstance(place, Path | Draws | np.ndarray | list) else None


def beginnings(tokens: tuple[int, ...], each: bool) -> list[tuple[int, ...]]:
    """The texts whose ends are read: one, or every beginning of it."""
    return [tokens[: i + 1] for i in range(len(tokens))] if each else [tokens]


def paths(m: Machine, at: tuple[Datum, ...], shape: tuple[int, ...]) -> list[Context]:
    """The paths of a place that `warp` names."""
    context = at[0]
    if is_context(context):
        return [context] * (int(np.prod(shape)) if shape else 1)
    return list(map(as_context, m.place_states(at[0], {"tree": at[1]} if len(at) > 1 else {})[0]))
