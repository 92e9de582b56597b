"""Types of the IR: an element kind, what it belongs to, and the dimensions it is repeated over.

One class serves every value. `Type("dist", of=("V", "shaped"), dims=(Dim("nodes", "t", 31),))` is one
distribution over the vocabulary V at every node of tree t, of which there are at most 31. The text form is
`dist<V,shaped>[nodes.t<=31]` and parses back to an equal type (`parse_type`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, Union

# What an element is. `of` names what it belongs to, in the order given here.
ELEMENTS: dict[str, tuple[str, ...]] = {
    "int": (),
    "real": (),
    "prob": (),
    "bool": (),
    "text": (),
    "none": (),
    "token": ("vocabulary",),
    "dist": ("vocabulary", "face"),
    "draw": ("vocabulary",),
    "scores": ("vocabulary",),
    "node": ("tree",),
    "path": ("vocabulary",),
    "edit": ("canvas",),
    "hidden": ("model",),
    "embedding": ("model",),
    "tree": ("tree", "edge", "vocabulary"),
    "canvas": ("canvas", "vocabulary"),
    "position": ("canvas",),
    "memory": ("family",),
    "model": ("kind", "vocabulary", "family", "visibility"),
    "noise": (),
    "index": ("kind", "vocabulary"),
    "automaton": ("vocabulary",),
    "astate": (),
    "set": (),
    "topology": (),
    "level": (),
    "list": (),
    "any": (),
    "until": (),
}
# Names that stand in a type's text as they are; any other (an empty one, "block-causal(8)") stands in double
# quotes.
_NAME = re.compile(r"[A-Za-z_][\w.:/$#~-]*")
_REST = re.compile(r"[\w.:/$#~-]+")
DIM_KINDS = ("vocab", "nodes", "part", "cells", "layers", "k")


@dataclass(frozen=True)
class Dim:
    """A bounded dimension: what it ranges over, and the static bound (None: known only at run time).

    `nodes.t` is every node of tree t, `part.t` some of them (or some positions of canvas t), `cells.c` every
    position of canvas c, `vocab.V` a vocabulary, `layers`, and `k` any other.
    """

    kind: str
    of: str = ""
    bound: int | None = None

    def __str__(self) -> str:
        of = self.of if _REST.fullmatch(self.of) else json.dumps(self.of)
        name = f"{self.kind}.{of}" if self.of else self.kind
        return name if self.bound is None else f"{name}<={self.bound}"

    def same(self, other: Dim) -> bool:
        """Whether both range over the same things (bounds aside)."""
        return self.kind == other.kind and self.of == other.of


T = TypeVar("T")
Arg = Union[str, int, "Type"]


def _written(arg: Arg) -> str:
    return json.dumps(arg) if isinstance(arg, str) and not _NAME.fullmatch(arg) else str(arg)


@dataclass(frozen=True)
class Type:
    """An IR type: element, what it belongs to, dimensions (outermost first)."""

    elem: str
    of: tuple[Arg, ...] = ()
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        text = self.elem
        if self.of:
            text += "<" + ",".join(_written(a) for a in self.of) + ">"
        if self.dims:
            text += "[" + ",".join(str(d) for d in self.dims) + "]"
        return text

    @property
    def scalar(self) -> Type:
        """The same element without dimensions."""
        return replace(self, dims=())

    def over(self, *dims: Dim) -> Type:
        """The same element with `dims` put in front."""
        return replace(self, dims=tuple(dims) + self.dims)

    def drop(self, n: int = 1) -> Type:
        """The same element without its first `n` dimensions."""
        return replace(self, dims=self.dims[n:])

    def with_dims(self, dims: tuple[Dim, ...]) -> Type:
        return replace(self, dims=tuple(dims))

    @property
    def vocab(self) -> str:
        """The vocabulary a token-like element belongs to ('' if none)."""
        position = {
            "token": 0,
            "dist": 0,
            "draw": 0,
            "scores": 0,
            "path": 0,
            "tree": 2,
            "canvas": 1,
            "model": 1,
            "index": 1,
            "automaton": 0,
        }.get(self.elem)
        return str(self.of[position]) if position is not None and len(self.of) > position else ""

    @property
    def item(self) -> Type:
        """The type of a list's elements."""
        inner = self.of[0]
        assert isinstance(inner, Type)
        return inner

    @property
    def is_number(self) -> bool:
        return self.elem in ("int", "real", "prob")

    @property
    def is_token(self) -> bool:
        return self.elem in ("token", "draw")


INT, REAL, PROB, BOOL = Type("int"), Type("real"), Type("prob"), Type("bool")
TEXT, NONE, ANY, NOISE = Type("text"), Type("none"), Type("any"), Type("noise")
SET, TOPOLOGY, LEVEL, UNTIL = Type("set"), Type("topology"), Type("level"), Type("until")


def listing(elem: Type, bound: int | None = None) -> Type:
    """A list of values of one type (ragged, or of things that do not stack); `[]` has element `any`."""
    return Type("list", (elem, bound if bound is not None else -1))


class TypeError_(ValueError):
    """Two types that do not go together."""


def join_dims(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Dimensions that hold values of both; bounds are the larger; None when they do not match."""
    if len(a) != len(b):
        return None
    out = []
    for x, y in zip(a, b, strict=True):
        if x.same(y):
            bound = None if x.bound is None or y.bound is None else max(x.bound, y.bound)
            out.append(Dim(x.kind, x.of, bound))
        elif {x.kind, y.kind} <= {"k", "part", "nodes", "cells"}:
            bound = None if x.bound is None or y.bound is None else max(x.bound, y.bound)
            out.append(Dim("k", "", bound))
        else:
            return None
    return tuple(out)


def join(a: Type, b: Type) -> Type | None:
    """The smallest type that holds values of both, or None: int with real is real, draw with token is
    token."""
    if a == b:
        return a
    if a.elem == "any" and not a.dims:
        return b
    if b.elem == "any" and not b.dims:
        return a
    if a.elem == "none" or b.elem == "none":  # an optional value
        return b if a.elem == "none" else a
    if a.elem == "list" and b.elem == "list":
        inner = join(a.item, b.item)
        return None if inner is None else Type("list", (inner, -1))
    if a.elem == "list" or b.elem == "list":  # a vector joins a list of its elements
        lst, vec = (a, b) if a.elem == "list" else (b, a)
        if not vec.dims:
            return None
        inner = join(lst.item, vec.drop())
        return None if inner is None else (vec if lst.item == ANY else Type("list", (inner, -1)))
    dims = join_dims(a.dims, b.dims)
    if dims is None:
        return None
    if a.elem == b.elem:
        if a.elem == "dist" and a.of[0] == b.of[0]:
            return Type("dist", (a.of[0], a.of[1] if a.of[1] == b.of[1] else "shaped"), dims)
        if a.elem == "tree" and a.of[2] == b.of[2]:
            names = sorted({str(t.of[0]) for t in (a, b)} - {"%empty"}) or ["%empty"]
            return Type("tree", (names[0], a.of[1] if a.of[1] == b.of[1] else "any", a.of[2]), dims)
        return Type(a.elem, a.of, dims) if a.of == b.of else None
    order = ("int", "prob", "real")
    if a.elem in order and b.elem in order:
        return Type(order[max(order.index(a.elem), order.index(b.elem))], (), dims)
    if a.is_token and b.is_token and a.of == b.of:
        return Type("token", a.of, dims)
    return None


_TOKEN = re.compile(r"\s*([A-Za-z_][\w.:/$#~-]*|-?\d+|\"(?:[^\"\\]|\\.)*\"|<=|[<>\[\],])")


class _Reader:
    """Reads one type; every failure is a TypeError_ that says what was expected."""

    def __init__(self, text: str) -> None:
        self.items: list[str] = []
        self.text, at = text.strip(), 0
        while at < len(self.text):
            hit = _TOKEN.match(self.text, at)
            if not hit:
                raise TypeError_(f"not a type: {self.text!r} (at {self.text[at : at + 10]!r})")
            self.items.append(hit.group(1))
            at = hit.end()
        self.at = 0

    def peek(self) -> str:
        return self.items[self.at] if self.at < len(self.items) else ""

    def take(self, want: str | None = None) -> str:
        got = self.peek()
        if not got or (want is not None and got != want):
            expected = want or "a name"
            raise TypeError_(f"not a type: {self.text!r}: expected {expected}, got {got or 'the end'}")
        self.at += 1
        return got

    def name(self) -> str:
        got = self.take()
        if got.startswith('"'):
            return str(json.loads(got))
        if not _NAME.fullmatch(got):
            raise TypeError_(f"not a type: {self.text!r}: expected a name, got {got}")
        return got

    def number(self) -> int:
        got = self.take()
        if not re.fullmatch(r"-?\d+", got):
            raise TypeError_(f"not a type: {self.text!r}: expected a number, got {got}")
        return int(got)

    def several(self, close: str, one: Callable[[], T]) -> list[T]:
        """What `one` reads, between commas, up to and including `close`."""
        out = [one()]
        while self.peek() != close:
            self.take(",")
            out.append(one())
        self.take(close)
        return out

    def type(self) -> Type:
        elem = self.name()
        if elem not in ELEMENTS:
            raise TypeError_(f"unknown element {elem!r}; one of {', '.join(ELEMENTS)}")
        of: list[Arg] = []
        dims: list[Dim] = []
        if self.peek() == "<":
            self.take()
            of = self.several(">", lambda: self.arg(elem))
        if self.peek() == "[":
            self.take()
            dims = self.several("]", self.dim)
        return Type(elem, tuple(of), tuple(dims))

    def arg(self, elem: str) -> Arg:
        if re.fullmatch(r"-?\d+", self.peek()):
            return self.number()
        return self.type() if elem == "list" else self.name()

    def dim(self) -> Dim:
        kind, dot, of = self.take().partition(".")
        if kind not in DIM_KINDS:
            raise TypeError_(f"unknown dimension {kind!r}; one of {', '.join(DIM_KINDS)}")
        if dot and not of:
            of = self.name()
        bound = None
        if self.peek() == "<=":
            self.take()
            bound = self.number()
        return Dim(kind, of, bound)


def parse_type(text: str) -> Type:
    """The type that `text` prints; raises TypeError_ on anything else."""
    reader = _Reader(text)
    out = reader.type()
    if reader.peek():
        raise TypeError_(f"not a type: {text!r} (after {reader.items[reader.at - 1]!r})")
    return out


def parse_dim(text: str) -> Dim:
    """The dimension that `text` prints; raises TypeError_ on anything else."""
    reader = _Reader(text)
    out = reader.dim()
    if reader.peek():
        raise TypeError_(f"not a dimension: {text!r}")
    return out
