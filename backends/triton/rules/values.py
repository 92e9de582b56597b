"""Representations of a rule's values in its kernel's text: scalars, row handles, draws, numbers over the vocabulary or
nodes."""

from __future__ import annotations

import builtins
import keyword
from dataclasses import dataclass, field
from typing import Any

from decgraph.errors import DecError
from decgraph.ir.values import Op, Value


class Unsupported(DecError):
    """A rule that cannot be a kernel: `why`, and the op whose place the message names."""

    def __init__(self, why: str, op: Op | None = None) -> None:
        where = f"{op.loc}: " if op is not None and op.loc.line else ""
        super().__init__(
            f"{where}this rule cannot be a kernel: {why}", hint="it runs on the host, as the torch backend runs it"
        )
        self.why, self.op = why, op


@dataclass(frozen=True)
class Scalar:
    """One number. text: an expression; kind: "i" int64 (numbers, tokens, nodes), "f" float64, "b" a condition. known: its value
    where it is a constant; fixed: whether it is a constant or captured from outside."""

    text: str
    kind: str
    known: Any = None
    fixed: bool = False

    def real(self) -> str:
        return self.text if self.kind == "f" else f"{self.text}.to(tl.float64)"


@dataclass(frozen=True)
class Row:
    """A distribution: variables `name`_point, _base, _mass (see kernels.py) and _slot: -1 the evidence at the node, >= 0 a
    scratch row, -3 one-hot, -17 - 2 n the law of node n. node: of evidence, the node it was computed at (an expression), else
    ""."""

    name: str
    node: str = ""

    PARTS = ("point", "base", "mass", "slot")

    def handle(self) -> str:
        return f"{self.name}_point, {self.name}_base, {self.name}_mass"


@dataclass(frozen=True)
class Draw:
    """A draw: variables `name`_token, _node (-1: no child), _slot and _mass (the row it was drawn from; slot -16 - 2 n: the
    child n itself, -4: it is only a token). child: whether it is one of the children, or none. law: of others, the row it was
    drawn from."""

    name: str
    child: bool
    law: Row | None = None

    PARTS = ("token", "node", "slot", "mass")

    @property
    def token(self) -> Scalar:
        return Scalar(f"{self.name}_token", "i")


@dataclass(frozen=True)
class Nothing:
    """The constant `none`."""


@dataclass(frozen=True)
class Vec:
    """Numbers over the vocabulary, not computed yet: fn over arguments; leaves are rows and scalars."""

    fn: str
    args: tuple[Row | Scalar | Vec, ...]
    kind: str = "f"

    def rows(self) -> list[Row]:
        out: dict[Row, None] = {}
        for a in self.args:
            out.update(dict.fromkeys([a] if isinstance(a, Row) else a.rows() if isinstance(a, Vec) else []))
        return list(out)

    def scalars(self) -> list[Scalar]:
        return [s for a in self.args for s in ([a] if isinstance(a, Scalar) else a.scalars() if isinstance(a, Vec) else [])]


@dataclass(frozen=True)
class Column:
    """A number for every node, in a block of NB lanes. mask: where it is defined (an expression, "" for all nodes). ids:
    whether its values are the nodes of the mask."""

    text: str
    kind: str
    mask: str = ""
    ids: bool = False

    def real(self) -> str:
        return self.text if self.kind == "f" else f"{self.text}.to(tl.float64)"


@dataclass(frozen=True)
class Children:
    """The draws below the current node."""


@dataclass(frozen=True)
class Nodes:
    """A distribution for every node: of the evidence or of laws, at the nodes of a column."""

    of: str
    at: Column


@dataclass(frozen=True)
class TreeOf:
    """The tree itself."""


@dataclass(frozen=True)
class RuleNoise:
    """A noise: its kind, the column of its site in `words`, counters, and the index of the output stream where given."""

    kind: str
    site: int
    counters: tuple[Scalar, ...] = ()
    index: Scalar | None = None


@dataclass(frozen=True)
class Captured:
    """A noise from outside of the rule. counters: how many it has; indexed: whether it gives the output stream's index."""

    kind: str
    counters: int = 0
    indexed: bool = False


@dataclass
class Feature:
    """A precomputed feature of every node's evidence. kind: "race", "arg", or a fold ("sum", "max", "min"). vec: over
    which numbers (a row alone for races)."""

    name: str
    kind: str
    vec: Row | Vec
    noise: RuleNoise | None = None
    op: Op | None = None
    key: Any = field(default=None, repr=False)


def variables(x: Any) -> set[str]:
    """The variables of a scalar, a row or a draw."""
    if isinstance(x, Row | Draw):
        return {f"{x.name}_{part}" for part in x.PARTS}
    return {x.text} if isinstance(x, Scalar) else set()


SUFFIXES = (
    "all",
    "at",
    "base",
    "best",
    "c0",
    "c1",
    "end",
    "holds",
    "mass",
    "new",
    "node",
    "of",
    "on",
    "own",
    "parts",
    "point",
    "row",
    "slot",
    "to",
    "token",
    "tokens",
    "twin",
    "where",
    "who",
    "x",
)
"""Suffixes of the variables of one value."""
RESERVED = {*keyword.kwlist, *dir(builtins), "tl", "triton"}


def fresh_name(taken: set[str], wish: str) -> str:
    """A Python name near a wish that is not taken yet with any of the suffixes."""
    base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in wish).strip("_") or "x"
    if base[0].isdigit():
        base = "x_" + base
    name, n = base, 1
    while name in RESERVED or taken & {name, *(f"{name}_{s}" for s in SUFFIXES)}:
        n += 1
        name = f"{base}_{n}"
    taken |= {name, *(f"{name}_{s}" for s in SUFFIXES)}
    return name


__all__ = [
    "Captured",
    "Children",
    "Column",
    "Draw",
    "Feature",
    "Nodes",
    "RuleNoise",
    "Nothing",
    "Row",
    "Scalar",
    "TreeOf",
    "Unsupported",
    "Value",
    "Vec",
    "fresh_name",
    "variables",
]
