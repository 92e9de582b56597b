"""Values of programs on canvases (canvases.py): sets of cells, vectors, conditions, rows and draws, and choices of the surest
masked cells: by the model's own probability of the token that was drawn for each, the best first, of equals the first.
`static_masked`, `llada` and what refines them decide by this choice. It depends on what was drawn, which does no harm where
every program with the schedule chooses so: it is a function of the canvas and of the draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decgraph.check.proof.amounts import PLACE
from decgraph.ir.linear import Linear

K = Linear.of(PLACE)
NOTHING = "a memory that holds nothing"
NONE = "none"


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells from low to high (left out), each once; in this order or in any."""

    low: Linear
    high: Linear
    ordered: bool = True


@dataclass(frozen=True)
class Blocks:
    """The canvas in blocks of so many cells."""

    step: Linear


@dataclass(frozen=True, eq=False)
class Rows:
    """The model's own rows of a canvas, at cells (None: at all). face: as the request shapes them, or another one."""

    canvas: Any
    at: Any
    face: str = "shaped"


@dataclass(frozen=True, eq=False)
class Drawn:
    """A draw of each of the model's rows of a canvas, with noise of its own, at cells (None: at all). draw: which noise."""

    canvas: Any
    at: Any
    draw: Any


@dataclass(frozen=True)
class Between:
    """A condition that is true of the places from low to high (left out)."""

    low: Linear
    high: Linear


@dataclass(frozen=True)
class Formula:
    """A condition (ir/linear.py) made of others of which nothing is known: whether some number is negative."""

    condition: Any


@dataclass(frozen=True)
class Vector:
    """A vector: how many entries it has along its first dimension, and of a plain one the entry at place k, by `K` (None:
    nothing is known). Atoms whose names begin with "@" may differ from entry to entry."""

    size: Linear | None
    item: Any = None


@dataclass(frozen=True)
class Places:
    """The numbers below `size`, each once, in any order; `even`: a distribution that gives mass to each of them."""

    size: Linear
    even: bool = False


@dataclass(frozen=True)
class CellEdit:
    """One cell and its token."""

    at: Any
    token: Any


@dataclass(frozen=True)
class Counts:
    """So many cells, spread over so many steps (at least one): how many each step decides."""

    cells: Linear
    steps: Linear


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
class TreeNodes:
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
