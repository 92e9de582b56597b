"""Values of programs on canvases (canvases.py): sets of cells, vectors, conditions, rows and draws, and choices of the surest
masked cells: by the model's own probability of the token that was drawn for each, the best first, of equals the first.
`static_masked`, `llada` and what refines them decide by this choice. It depends on what was drawn, which does no harm where
every program with the schedule chooses so: it is a function of the canvas and of the draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from decgraph.ir.known_numbers import INDEX, KnownNumbers
from decgraph.ir.linear import Condition, Linear
from decgraph.ir.values import Op

K = Linear.of(INDEX)
NOTHING = "a memory that holds nothing"
NONE = "none"


class Abstract:
    """What is known of a value that is no number, condition or name."""


Steps: TypeAlias = "tuple[tuple[str | Linear | Steps, ...], ...]"
"""In order: ("each", a, b), the cells from a to b one after the other; ("at once", a, b), all of them from one canvas;
("surest", a, b), one of them after the other, the surest first; ("counts", a, b, n, times), the n surest of them, so often;
("blocks", n, steps), these steps in each block of n cells."""


@dataclass(frozen=True)
class PartlyDecided:
    """Cells of which some are decided, by steps that each decided the surest, or the `counts` surest; shared: output noise."""

    low: Linear
    high: Linear
    counts: tuple[str | Linear, ...] = ()
    shared: bool = True


@dataclass(frozen=True, eq=False)
class Canvas(Abstract):
    """A canvas whose first `done` cells are decided, by these steps, then some of a part, and whose others are masked. went: a
    step was made since the head of the loop around."""

    done: Linear
    steps: Steps = ()
    part: PartlyDecided | None = None
    went: bool = False


@dataclass(frozen=True, eq=False)
class Lost(Abstract):
    """A canvas of which nothing is known any more: since which op, and why."""

    op: Op
    why: str


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of a draw; shared: the `output` noise whose number is how many cells are decided."""

    shared: bool


@dataclass(frozen=True, eq=False)
class Cells(Abstract):
    """The cells from low to high (left out), each once; in this order or in any."""

    low: Linear
    high: Linear
    ordered: bool = True


@dataclass(frozen=True)
class Blocks(Abstract):
    """The canvas in blocks of so many cells."""

    step: Linear


@dataclass(frozen=True, eq=False)
class CanvasRows(Abstract):
    """The model's own rows of a canvas, at cells (None: at all). face: as the request shapes them, or another one."""

    canvas: Canvas
    at: CanvasValue
    face: str = "shaped"


@dataclass(frozen=True, eq=False)
class CellDraws(Abstract):
    """A draw of each of the model's rows of a canvas, with noise of its own, at cells (None: at all). draw: which noise."""

    canvas: Canvas
    at: CanvasValue
    draw: Noise


@dataclass(frozen=True)
class Between(Abstract):
    """A condition that is true of the places from low to high (left out)."""

    low: Linear
    high: Linear


@dataclass(frozen=True)
class Formula(Abstract):
    """A condition (ir/linear.py) made of others of which nothing is known: whether some number is negative."""

    condition: Condition


@dataclass(frozen=True)
class Vector(Abstract):
    """A vector: how many entries it has along its first dimension, and of a plain one the entry at place k, by `K` (None:
    nothing is known)."""

    size: Linear | None
    item: CanvasValue = None


@dataclass(frozen=True)
class Places(Abstract):
    """The numbers below `size`, each once, in any order; `even`: a distribution that gives mass to each of them."""

    size: Linear
    even: bool = False


@dataclass(frozen=True)
class CellEdit(Abstract):
    """One cell and its token."""

    at: CanvasValue
    token: CanvasValue


@dataclass(frozen=True)
class Counts(Abstract):
    """So many cells, spread over so many steps (at least one): how many each step decides."""

    cells: Linear
    steps: Linear


@dataclass(frozen=True)
class MaskedOf(Abstract):
    """Which cells are masked, of a canvas some of whose cells are decided."""

    canvas: Canvas


@dataclass(frozen=True)
class Open(Abstract):
    """The masked cells of a canvas from low to high, in order. As a condition on those from low to high: which are masked."""

    canvas: Canvas
    low: Linear
    high: Linear


@dataclass(frozen=True)
class AnyOpen(Abstract):
    """Whether any of these cells is masked."""

    cells: Open


@dataclass(frozen=True)
class Score(Abstract):
    """The model's probability of each token that was drawn, as a number between 0 and 1."""

    number: Linear
    canvas: Canvas
    at: CanvasValue
    draw: Noise


@dataclass(frozen=True)
class Ranked(Abstract):
    """The place of each score from the best."""

    number: Linear
    score: Score


@dataclass(frozen=True)
class Best(Abstract):
    """The `count` best cells by a score: as a condition, as positions, or (`token`) the draws there."""

    score: Score
    count: Linear
    token: bool = False


@dataclass(frozen=True, eq=False)
class Tree(Abstract):
    """A tree of canvases whose root is this one."""

    base: Canvas


@dataclass(frozen=True)
class TreeNodes(Abstract):
    """All nodes of a tree; `one`: any one of them."""

    tree: Tree
    one: bool = False


@dataclass(frozen=True)
class Column(Abstract):
    """Something for each canvas of a tree: `value` is that of any one of them."""

    tree: Tree
    value: CanvasValue


@dataclass(frozen=True)
class Order(Abstract):
    """Cells from the best by a score to the worst."""

    score: Score


CanvasValue: TypeAlias = Abstract | Linear | bool | str | tuple[()] | None
"""What is known of a value: a model by its name, `NOTHING`, `NONE`, an empty list, a condition or number; None: nothing."""


class Walks(Protocol):
    """The pass over a function (schedules.py), as rules of ops need it: what is known of numbers, the canvas's length,
    vectors of blocks by their number, and the block that a loop is at."""

    known: KnownNumbers
    length: Linear
    blocks: dict[Linear, Linear]
    block: tuple[Linear, Cells] | None

    def masked_at(self, canvas: Canvas, at: Cells) -> Open | Formula:
        """Which of some cells are masked."""
        ...


Rule = Callable[..., CanvasValue]
"""What the result of an op is, of the walk, the op and its operands."""


def number(x: CanvasValue) -> CanvasValue:
    """A score or a rank as a number of which no more than its range is known."""
    return x.number if isinstance(x, Score | Ranked) else x


def same_cells(a: CanvasValue, b: CanvasValue) -> bool:
    """Whether two values name the same cells in the same order."""
    return a is b or isinstance(a, Open) and a == b
