"""The syntax tree: one frozen class per construct, each with the span of text it was read from.

Spans do not take part in equality, so `parse(a) == parse(b)` says that two texts are the same program.
Sequences are tuples, an absent part is None, an absent suite (). What declares a name has a `name_span` too.
Expressions and types stand in `decgraph.dsl.expressions`; this module has everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from decgraph.dsl.expressions import *  # noqa: F403 (the whole tree is one module for whoever reads or builds it)
from decgraph.dsl.expressions import Call, Expr, Keyword, Name, Named, Node, Param, TypeExpr


@dataclass(frozen=True, slots=True)
class Stmt(Node):
    """A line or block of a body."""


# ------------------------------------------------------------ claims and declarations


@dataclass(frozen=True, slots=True)
class Refines(Stmt):
    """`refines spec(args) in mode when cond`; mode is 'tokens', 'distribution' or None."""

    spec: Call
    mode: str | None = None
    when: Expr | None = None


@dataclass(frozen=True, slots=True)
class Ensures(Stmt):
    """`ensures expr when cond`, for every committed token."""

    expr: Expr
    when: Expr | None = None


@dataclass(frozen=True, slots=True)
class KeepsSupport(Stmt):
    """`keeps support of a or b when cond`."""

    models: tuple[Expr, ...]
    when: Expr | None = None


@dataclass(frozen=True, slots=True)
class AtMost(Stmt):
    """`at most bound calls of model a token when cond`, or `at most bound remasked`; per is 'token' or None."""

    bound: Expr
    what: str
    model: Name | None = None
    per: str | None = None
    when: Expr | None = None


Claim = Refines | Ensures | KeepsSupport | AtMost


@dataclass(frozen=True, slots=True)
class State(Stmt, Named):
    """`state name: type per scope = init`; scope is 'sequence', 'session', 'batch' or None."""

    name: str
    type: TypeExpr
    scope: str | None = None
    init: Expr | None = None


@dataclass(frozen=True, slots=True)
class Canvas(Stmt, Named):
    """`canvas name: length growing to grow_to`."""

    name: str
    length: Expr
    grow_to: Expr | None = None


@dataclass(frozen=True, slots=True)
class CachePolicy(Stmt):
    """`cache model by policy`; the policy is a Name or a Call."""

    model: Expr
    policy: Expr


@dataclass(frozen=True, slots=True)
class ModelDecl(Stmt, Named):
    """`model name = value`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class NoiseDecl(Stmt, Named):
    """`noise name[dims]: kind`."""

    name: str
    dims: tuple[Expr, ...]
    kind: str


# ------------------------------------------------------------ simple statements


@dataclass(frozen=True, slots=True)
class Note(Stmt, Named):
    """`note name = value`: a figure of the run, for people."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Verify(Stmt):
    """`verify tree by rule against evidence`; the rule is a Name or a Call."""

    tree: Expr
    rule: Expr
    against: Expr


@dataclass(frozen=True, slots=True)
class Prune(Stmt):
    """`prune tree to nodes`."""

    tree: Expr
    to: Expr


@dataclass(frozen=True, slots=True)
class Commit(Stmt):
    """`commit value`."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Accept(Stmt):
    """`accept value`, in rules."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Emit(Stmt):
    """`emit value`, in rules."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Return(Stmt):
    """`return a, b`: at least one value."""

    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Break(Stmt):
    """`break` or `break if cond`."""

    cond: Expr | None = None


@dataclass(frozen=True, slots=True)
class Draw(Stmt):
    """`targets ~ dist as stream using noise`; stream is a Name or a Call (`output`, `output(i)`)."""

    targets: tuple[Expr, ...]
    dist: Expr
    stream: Expr | None = None
    using: Expr | None = None


@dataclass(frozen=True, slots=True)
class Grow(Stmt):
    """`grow what at nodes with column = value, ...`; alone, or the value of an `Assign`: the new nodes."""

    what: Expr
    at: Expr | None = None
    columns: tuple[Keyword, ...] = ()


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """`targets op values`, op one of `= += -= ++=`. A target is a Name, an Attr or an Index of those."""

    targets: tuple[Expr, ...]
    op: str
    values: tuple[Expr | Grow, ...]


@dataclass(frozen=True, slots=True)
class Unmask(Stmt):
    """`unmask c[b] where cond with x`: the target is an Index of a canvas, or the canvas."""

    target: Expr
    where: Expr | None
    with_: Expr


@dataclass(frozen=True, slots=True)
class Remask(Stmt):
    """`remask c[ps] where cond`."""

    target: Expr
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Do(Stmt):
    """A call for its effect: `c.extend(block)`."""

    call: Call


# ------------------------------------------------------------ compound statements


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """`while cond at most k:`."""

    cond: Expr
    body: tuple[Stmt, ...]
    at_most: Expr | None = None


@dataclass(frozen=True, slots=True)
class Loop(Stmt):
    """`loop at most k:`, left by `break`."""

    body: tuple[Stmt, ...]
    at_most: Expr | None = None


@dataclass(frozen=True, slots=True)
class Repeat(Stmt):
    """`repeat count while cond:`."""

    count: Expr
    cond: Expr | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for a, b in iter:`."""

    names: tuple[Name, ...]
    iter: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Lanes(Stmt, Named):
    """`lanes name in count:`: independent copies; count is a number of lanes or a vector to run over."""

    name: str
    count: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """`if cond:` or `elif cond:` with its body."""

    cond: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """One or more branches and an else suite (() where there is none)."""

    branches: tuple[Branch, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft(Stmt, Named):
    """`draft tree of canvas over steps:`; `of` is the canvas that a tree of edits starts from, or None."""

    tree: str
    of: Expr | None
    over: str | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Across(Stmt):
    """`across batch:`."""

    name: str
    body: tuple[Stmt, ...]


# ------------------------------------------------------------ cache policies


@dataclass(frozen=True, slots=True)
class Action(Node):
    """What a call does with some positions: verb is 'recompute', 'reuse' or 'forget' (not seen).

    `what` is an expression over positions (`all` is all of them), a `Rest` or a `FromStart`.
    """

    verb: str
    what: Expr


@dataclass(frozen=True, slots=True)
class Clause(Node):
    """`on enter b: actions`: event 'enter', subject b. The first clause that applies is taken.

    Also `on leave b:` ('leave'), `on every n:` ('every', each n-th call), `when cond:` ('when', subject
    the condition) and `otherwise:` ('otherwise', no subject).
    """

    event: str
    subject: Expr | None
    actions: tuple[Action, ...]


# ------------------------------------------------------------ files


@dataclass(frozen=True, slots=True)
class Item(Named):
    """A definition at the top of a file."""

    name: str
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Algorithm(Item):
    """`algorithm name(params):`."""

    body: tuple[Stmt, ...]
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Rule(Item):
    """`rule name(params):`."""

    body: tuple[Stmt, ...]
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Policy(Item):
    """`policy name(params):`."""

    clauses: tuple[Clause, ...]
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Def(Item):
    """`def name(params) -> returns:`, a pure helper."""

    returns: TypeExpr | None
    body: tuple[Stmt, ...]
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class Extern(Item):
    """`extern name(types) -> returns on where`: a Python function that the caller supplies."""

    returns: TypeExpr
    where: str | None = None


WithBody: TypeAlias = Algorithm | Rule | Def
"""Definitions of statements."""
WithDoc: TypeAlias = WithBody | Policy
"""Definitions that may have a docstring."""


@dataclass(frozen=True, slots=True)
class Import(Node):
    """`from module import a, b`; the module may be dotted."""

    module: str
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class File(Node):
    """A whole text, in order."""

    items: tuple[Item | Import, ...]

    def named(self, name: str) -> Item | None:
        """The definition of that name, or None."""
        return next((i for i in self.items if isinstance(i, Item) and i.name == name), None)
