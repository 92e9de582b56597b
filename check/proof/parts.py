"""Values of programs on canvases (canvases.py): sets of cells, vectors, conditions, rows and draws."""

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
class Edit:
    """One cell and its token."""

    at: Any
    token: Any


@dataclass(frozen=True)
class Counts:
    """So many cells, spread over so many steps (at least one): how many each step decides."""

    cells: Linear
    steps: Linear
