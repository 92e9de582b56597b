"""The values of the oracle's interpreter: distributions, draws, vectors, trees and canvases, and arithmetic on them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any


class Stuck(Exception):
    """The program has no meaning in this world (0 / 0, a missing place), or the oracle does not know it."""


@dataclass(frozen=True)
class Dist:
    """Numbers over the vocabulary. `raw`: before shaping; `place`: where its `output` noise stands, if anywhere."""

    probs: tuple[Any, ...]
    raw: tuple[Any, ...] | None = None
    place: Any = None


@dataclass(frozen=True, eq=False)
class Drawn:
    """A token that was drawn, its law, and the unshaped distribution it was taken from. Compared by identity."""

    token: int
    law: tuple[Any, ...]
    raw: tuple[Any, ...]


class Many(list[Any]):
    """A vector; `at`: the nodes or positions that its elements belong to."""

    def __init__(self, items: Any, at: Any = None) -> None:
        super().__init__(items)
        self.at = None if at is None else list(at)


@dataclass
class Tree:
    """Node 0 is the root; of the others `edges` has the draw and `parents` the parent."""

    base: tuple[int, ...]
    edges: list[Any] = field(default_factory=lambda: [None])
    parents: list[int] = field(default_factory=lambda: [0])
    new: list[int] = field(default_factory=lambda: [0])
    accepted: Any = None

    def path(self, n: int) -> list[int]:
        out = []
        while n:
            out.append(n)
            n = self.parents[n]
        return out[::-1]

    def context(self, n: int) -> tuple[int, ...]:
        return self.base + tuple(token_of(self.edges[m]) for m in self.path(n))

    def children(self, n: int) -> list[int]:
        return [m for m in range(1, len(self.edges)) if self.parents[m] == n]

    def leaves(self) -> list[int]:
        inner = set(self.parents[1:])
        return [n for n in range(len(self.edges)) if n not in inner]

    def below(self, top: int, base: tuple[int, ...]) -> Tree:
        """The subtree under a node as a tree of its own."""
        kept = [n for n in range(len(self.edges)) if n == top or top in self.path(n)] if top else list(range(len(self.edges)))
        place = {n: i for i, n in enumerate(kept)}
        out = Tree(
            base, [None if n == top else self.edges[n] for n in kept], [0 if n == top else place[self.parents[n]] for n in kept]
        )
        out.new = out.leaves()
        return out


@dataclass(frozen=True)
class Node:
    tree: Tree
    id: int


@dataclass(frozen=True)
class Path:
    """An accepted path: what is committed, where it ended, and how deep that is."""

    tokens: tuple[int, ...]
    node: int
    depth: int
    emitted: bool


@dataclass(frozen=True)
class Context:
    tokens: tuple[int, ...]


@dataclass
class Canvas:
    """Cells after a context; None is masked."""

    base: tuple[int, ...]
    cells: list[Any]


def token_of(x: Any) -> int:
    """The token id of a draw or a number."""
    if isinstance(x, Drawn):
        return x.token
    if isinstance(x, Many) and len(x) == 1:
        return token_of(x[0])
    if isinstance(x, bool) or not isinstance(x, int | Fraction):
        raise Stuck(f"no token: {x!r}")
    return int(x)


def numbers(x: Any) -> Any:
    """What a value is in arithmetic."""
    return x.token if isinstance(x, Drawn) else x


def _divided(a: Any, b: Any) -> Any:
    if b == 0:
        if a == 0:
            raise Stuck("0 / 0")
        return float("inf") if a > 0 else float("-inf")
    return Fraction(a) / Fraction(b) if not isinstance(a, float) and not isinstance(b, float) else a / b


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "^": lambda a, b: a ** int(b),
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}


def combine(op: str, a: Any, b: Any) -> Any:
    """A binary operation, element by element over vectors and distributions."""
    if op == "++":
        return Many([*_listed(a), *_listed(b)])
    if isinstance(a, Many) and isinstance(b, Many):
        if len(a) != len(b):
            raise Stuck(f"{op} of {len(a)} and {len(b)}")
        return Many([combine(op, x, y) for x, y in zip(a, b, strict=True)], a.at)
    if isinstance(a, Many):
        return Many([combine(op, x, b) for x in a], a.at)
    if isinstance(b, Many):
        return Many([combine(op, a, y) for y in b], b.at)
    if isinstance(a, Dist) and isinstance(b, Dist):
        return Dist(tuple(OPERATORS[op](x, y) for x, y in zip(a.probs, b.probs, strict=True)))
    if isinstance(a, Dist):
        return Dist(tuple(OPERATORS[op](x, numbers(b)) for x in a.probs))
    if isinstance(b, Dist):
        return Dist(tuple(OPERATORS[op](numbers(a), y) for y in b.probs))
    return OPERATORS[op](numbers(a), numbers(b))


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, Many) else [x]


def deep(f: Callable[[Any], Any], x: Any) -> Any:
    """A function of one element over a vector of any depth."""
    return Many([deep(f, y) for y in x], x.at) if isinstance(x, Many) else f(x)


def taken(p: Any, i: Any) -> Any:
    """`p[i]`: the probability of a token, an element, or elements."""
    if isinstance(p, Many) and p and isinstance(p[0], Dist) and isinstance(i, Many) and _tokens(i):
        if len(p) == len(i):
            return Many([taken(row, x) for row, x in zip(p, i, strict=True)], p.at)
        raise Stuck("rows and tokens do not go together")
    if isinstance(i, Many):
        return Many([taken(p, x) for x in i], i.at)
    if isinstance(p, Many) and p and isinstance(p[0], Dist) and isinstance(i, Drawn):
        return Many([taken(row, i) for row in p], p.at)
    n = i.id if isinstance(i, Node) else token_of(i)
    rows = p.probs if isinstance(p, Dist) else p
    if isinstance(p, Many) and p.at is not None and isinstance(i, Node):
        places = [a.id if isinstance(a, Node) else a for a in p.at]
        if n not in places:
            raise Stuck(f"no row at node {n}")
        return p[places.index(n)]
    if not isinstance(rows, list | tuple) or not 0 <= n < len(rows):
        raise Stuck(f"nothing at {n}")
    return rows[n]


def _tokens(i: Many) -> bool:
    return bool(i) and all(isinstance(x, Drawn) for x in i)


def frozen(x: Any) -> Any:
    """A value as something that can be a key, and back by `thawed`."""
    if isinstance(x, Many):
        return ("many", tuple(map(frozen, x)), None if x.at is None else tuple(map(frozen, x.at)))
    if isinstance(x, Drawn):
        return ("drawn", x.token, x.law, x.raw)
    if isinstance(x, Tree):
        return ("tree", x.base, tuple(map(frozen, x.edges)), tuple(x.parents))
    if isinstance(x, Canvas):
        return ("canvas", x.base, tuple(x.cells))
    if isinstance(x, dict):
        return ("dict", tuple(sorted((k, frozen(v)) for k, v in x.items())))
    if isinstance(x, Node):
        return ("node", x.id)
    return x


def thawed(x: Any) -> Any:
    """The value that `frozen` made a key of."""
    if not isinstance(x, tuple) or not x or not isinstance(x[0], str):
        return x
    if x[0] == "many":
        return Many(map(thawed, x[1]), None if x[2] is None else map(thawed, x[2]))
    if x[0] == "drawn":
        return Drawn(*x[1:])
    if x[0] == "tree":
        made = Tree(x[1], [thawed(e) for e in x[2]], list(x[3]))
        made.new = made.leaves()
        return made
    if x[0] == "canvas":
        return Canvas(x[1], list(x[2]))
    if x[0] == "node":
        raise Stuck("a node is carried round the loop")
    return {k: thawed(v) for k, v in x[1]} if x[0] == "dict" else x
