"""The syntax tree of expressions and types, and the base of all nodes (`dsl/syntax.py` has the whole)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from fractions import Fraction

from decgraph.dsl.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of a program."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Expr(Node):
    """Something with a value."""


@dataclass(frozen=True, slots=True)
class Named(Node):
    """Anything that declares a name."""

    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# ------------------------------------------------------------ expressions


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """`x`; also the words `done`, `root`, `ctx`, `none`, `yes`, `no`, `empty`: names with a meaning."""

    name: str


@dataclass(frozen=True, slots=True)
class Number(Expr):
    """`4`, `0.9`, `1e-3`, as written; `value` is exact."""

    text: str

    @property
    def value(self) -> int | Fraction:
        """An int where the text is an integer, the exact fraction otherwise."""
        return int(self.text) if self.text.isdigit() else Fraction(self.text)


@dataclass(frozen=True, slots=True)
class String(Expr):
    """A string literal; `value` is without quotes and with its escapes replaced."""

    value: str


@dataclass(frozen=True, slots=True)
class ListExpr(Expr):
    """`[a, b, c]`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Expr):
    """`[element for a, b in iter if cond]`."""

    element: Expr
    names: tuple[Name, ...]
    iter: Expr
    cond: Expr | None = None


@dataclass(frozen=True, slots=True)
class Keyword(Named):
    """`name = value` in a call, or a column of `grow ... with`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """`func(args, key = value)`; positional arguments come first."""

    func: Expr
    args: tuple[Expr, ...] = ()
    kwargs: tuple[Keyword, ...] = ()

    def kwarg(self, name: str) -> Expr | None:
        """The value of a keyword argument, or None."""
        return next((k.value for k in self.kwargs if k.name == name), None)


@dataclass(frozen=True, slots=True)
class Index(Expr):
    """`value[subs]`; a sub is an expression, a `Slice`, or in types an `UpTo`."""

    value: Expr
    subs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Slice(Expr):
    """`lo:hi` inside an index, either side absent."""

    lo: Expr | None = None
    hi: Expr | None = None


@dataclass(frozen=True, slots=True)
class UpTo(Expr):
    """`<= bound` as a dimension: a run-time length with a static bound."""

    bound: Expr


@dataclass(frozen=True, slots=True)
class Attr(Expr, Named):
    """`value.name`."""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """`-x` or `not x`; op is '-' or 'not'."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """op is one of `+ - * / % ^ ++` (`++` concatenates, `^` is a power)."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """op is one of `== != <= >= < > in not in`; comparisons do not chain."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class BoolOp(Expr):
    """`a and b and c`: op is 'and' or 'or', with at least two values."""

    op: str
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class IfExp(Expr):
    """`then if cond else orelse`."""

    cond: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True)
class Where(Expr):
    """`value where cond`: the elements of value at which cond holds."""

    value: Expr
    cond: Expr


@dataclass(frozen=True, slots=True)
class Range(Expr):
    """`lo..hi`."""

    lo: Expr
    hi: Expr


@dataclass(frozen=True, slots=True)
class Run(Expr):
    """`run A(args) from start until cond at most k`; start None means the committed context."""

    call: Call
    start: Expr | None
    until: Expr
    at_most: Expr


@dataclass(frozen=True, slots=True)
class Rest(Expr):
    """`the rest`: the positions that no other action of the clause names."""


@dataclass(frozen=True, slots=True)
class FromStart(Expr):
    """`from start`: every position at or after start."""

    start: Expr


# ------------------------------------------------------------ types


@dataclass(frozen=True, slots=True)
class TypeExpr(Node):
    """`name(args)[dims] with cap and cap -> returns in low..high?`, every part but the name optional.

    `name` may be dotted (`g.state`). `args` and `dims` are expressions, so a type inside them (`token[<= n]`
    in `list[token[<= n], <= k]`) reads as an `Index`, `Name` or `Call`. `with_` holds capabilities, each
    a `Name` or a `Call`. `low..high` bounds a number.
    """

    name: str
    args: tuple[Expr, ...] = ()
    dims: tuple[Expr, ...] = ()
    with_: tuple[Expr, ...] = ()
    returns: TypeExpr | None = None
    low: Expr | None = None
    high: Expr | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Param(Named):
    """`name: type per scope = default`. In an `extern` the name may be absent (''), the type alone given."""

    name: str
    type: TypeExpr | None = None
    default: Expr | None = None
    scope: str | None = None


def children(node: Node) -> Iterator[Node]:
    """The nodes directly inside a node, in the order of its fields."""
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple) and part.name not in ("span", "name_span"):
            yield from (item for item in value if isinstance(item, Node))


def walk(node: Node) -> Iterator[Node]:
    """The node and everything inside it, each before its children."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(tuple(children(top))))
