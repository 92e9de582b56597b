"""Choosing the surest masked cells (canvases.py): by the model's own probability of the token that was drawn for each, the
best first, of equals the first. `static_masked`, `llada` and what refines them decide by this choice. It depends on what was
drawn, which does no harm where every program with the schedule chooses so: it is a function of the canvas and of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decgraph.check.proof.amounts import ONE
from decgraph.check.proof.parts import Cells, Drawn, Rows, Vector
from decgraph.ir.linear import Linear
from decgraph.ir.values import Op


@dataclass(frozen=True)
class MaskedOf:
    """Which cells are masked, of a canvas some of whose cells are decided."""

    canvas: Any


@dataclass(frozen=True)
class Open:
    """The masked cells of a canvas from low to high, in order. As a condition on those from low to high: which are masked."""

    canvas: Any
    low: Linear
    high: Linear


@dataclass(frozen=True)
class AnyOpen:
    """Whether any of these cells is masked."""

    cells: Open


@dataclass(frozen=True)
class Score:
    """The model's probability of each token that was drawn, as a number between 0 and 1."""

    number: Linear
    canvas: Any
    at: Any
    draw: Any


@dataclass(frozen=True)
class Ranked:
    """The place of each score from the best."""

    number: Linear
    score: Score


@dataclass(frozen=True)
class Best:
    """The `count` best cells by a score: as a condition, as positions, or (`token`) the draws there."""

    score: Score
    count: Linear
    token: bool = False


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of canvases whose root is this one."""

    base: Any


@dataclass(frozen=True)
class Node:
    """All nodes of a tree; `one`: any one of them."""

    tree: Tree
    one: bool = False


@dataclass(frozen=True)
class Column:
    """Something for each canvas of a tree: `value` is that of any one of them."""

    tree: Tree
    value: Any


@dataclass(frozen=True)
class Order:
    """Cells from the best by a score to the worst."""

    score: Score


def number(x: Any) -> Any:
    """A score or a rank as a number of which no more than its range is known."""
    return x.number if isinstance(x, Score | Ranked) else x


def same_cells(a: Any, b: Any) -> bool:
    """Whether two values name the same cells in the same order."""
    return a is b or isinstance(a, Open) and a == b


def scored(rows: Any, x: Any, entry: Linear) -> Any:
    """What a lookup of drawn tokens in the rows that they were drawn from gives."""
    if isinstance(rows, Rows) and isinstance(x, Drawn) and rows.face == "raw" and rows.canvas is x.canvas:
        if same_cells(rows.at, x.at):
            return Score(entry, rows.canvas, rows.at, x.draw)
    return entry


def chosen_by(op: Op, x: Any, keys: tuple[Any, ...]) -> Any:
    """argmax of cells, or of the tokens that were drawn for them, by their score."""
    key = keys[0].item if len(keys) == 1 and isinstance(keys[0], Vector) else None
    if op.attrs["fn"] != "max" or not isinstance(key, Score):
        return None
    if isinstance(x, Drawn):
        own = x.draw is key.draw and x.canvas is key.canvas and same_cells(x.at, key.at)
        return Best(key, ONE, token=True) if own else None
    return Best(key, ONE) if isinstance(x, Open | Cells) and same_cells(x, key.at) else None


def ordered_by(op: Op, x: Any, keys: tuple[Any, ...]) -> Any:
    """Cells in the order of their score, the best first."""
    key = keys[0].item if len(keys) == 1 and isinstance(keys[0], Vector) else None
    if isinstance(key, Score) and isinstance(x, Open | Cells) and same_cells(x, key.at):
        return Order(key)
    return None


def best_tokens(x: Drawn, i: Best) -> Any:
    """The draws at the best cells."""
    own = not i.token and x.draw is i.score.draw and x.canvas is i.score.canvas
    return Best(i.score, i.count, token=True) if own else None
