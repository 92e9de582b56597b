"""What lowering carries about: the environment, the builder, where we are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import failure
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.source import NOWHERE, Source, Span
from decgraph.errors import DecError
from decgraph.ir.build import Builder
from decgraph.ir.opdef import TABLE, OpError
from decgraph.ir.types import BOOL, INT, REAL, TEXT, Type, TypeError_, join, parse_type
from decgraph.ir.values import NOWHERE as NO_LOC
from decgraph.ir.values import Constant, Loc, Op, Region, Value

if TYPE_CHECKING:
    from decgraph.ir.draft_ends import Block


_IR_TYPE = re.compile(r"\b[a-z]+(?:<[^<> ]*>(?:\[[^\] ]*\])?|\[[a-z][^\] ]*\])")


FLOAT_IN_INT = "`int(x)` cuts a float off; or declare it as float"


def unfit(declared: Type, got: Type) -> bool:
    """Whether a value of a type is no value of a declared one: of another kind, or a float for an int. Vectors of floats fit
    where ints are declared: `zeros(16)` is one."""
    return join(declared, got) is None or (declared.elem == "int" and not got.dims and got.elem == "real")


def show(t: Type) -> str:
    """A type as an author would say it."""
    names = {"k": "", "nodes": "nodes of", "part": "part of", "cells": "cells of", "vocab": "vocabulary", "layers": "layers"}
    base = {"list": "a list", "real": "float"}.get(t.elem, t.elem)
    if t.elem in ("token", "dist", "draw") and t.of and t.of[0] != "V":
        base += f"[{t.of[0]}]"
    dims = [f"{names[d.kind]} {d.of}".strip() or "many" for d in t.dims]
    return base + (f" over {', '.join(dims)}" if dims else "")


def spoken(message: str) -> str:
    """A message of the op table with its types as an author would say them."""

    def said(hit: re.Match[str]) -> str:
        try:
            return show(parse_type(hit.group()))
        except TypeError_:
            return hit.group()

    return _IR_TYPE.sub(said, message)


TEXTS = {
    "node": "its text is text_of(n), its last token n.token",
    "path": "its text is text_of(p), its tokens p.token",
    "dist": 'its likeliest token is argmax(p), the probability of a token p["the"]',
    **dict.fromkeys(("token", "draw"), "a text is a token of the first model: retokenize(tokens, target) makes others its"),
    **dict.fromkeys(("int", "real", "prob", "bool"), "a text is compared with a token, or with text_of(tokens)"),
}
"""What to compare with a text in the place of something else."""
MAX_CALL_DEPTH = 24
FROM_NUMBERS = frozenset(("normalize", "softmax", "warp", "renorm", "face", "draw", "draw.many", "draw.race", "topk"))
PLACELESS = frozenset(("normalize", "softmax", "renorm", "face"))  # of these warp alone gives numbers a place
"""Ops that keep the places of distributions, and have none for what is computed from plain numbers."""
POSITIONS = "a position is no number: int(i) is the number of the position i, c.all[n] the position of the number n"
RULE, UNTIL = "a rule", "the condition of a run"
REFUSED = {"commit": "tokens are committed", "return": "results are returned", "state": "a state is written"}
INSTEAD = {
    RULE: "accept a child or emit a token here, and commit t.accepted after the verify",
    UNTIL: "say when the run is over here, and commit what it returns after it: xs = run ..., commit xs",
}
BEYOND = 1 << 64
"""As a bound it says nothing: larger ones are not written out, since squares of squares have as many digits as one likes."""


@dataclass
class StateInfo:
    """A declared state: its type (which may widen), scope, and for a carried tree its name."""

    type: Type
    scope: str
    span: Span
    room: tuple[Value, ...] = ()  # its capacity in each dimension that was declared with one


class WholeProgram(Protocol):
    """What the lowering of one function knows of the whole program."""

    bounds: dict[Value, int]
    """The largest value of a whole number, where it is known."""

    signed: dict[Value, int]
    """Of a parameter whose range begins below 0, how far from 0 it may be."""

    drafts: list[Block]
    """The blocks that draft trees, as they were lowered."""

    def need(self, name: str, lw: Lowering, span: Span) -> None:
        """Lower an algorithm that this one runs or refines. Raises DecError where it runs itself."""


OWN = ("env", "states", "prefix", "trees", "source", "drafting", "decided", "counters", "exits")
"""What a helper or a rule has of its own."""


@dataclass
class Lowering:
    """The state of lowering one function. `env` maps names to SSA values; regions copy it.

    `lower_expr` and `lower_statement` are expr.py's and statements.py's: what lowers a part calls `lw.expr` and `lw.statement`
    for the parts inside it, and imports neither.
    """

    source: Source
    items: ItemsInReach
    function: str
    module: WholeProgram
    lower_expr: Callable[[Lowering, S.Node], Value]
    lower_statement: Callable[[Lowering, S.Stmt], None]
    b: Builder = field(default_factory=Builder)
    env: dict[str, Value] = field(default_factory=dict)
    states: dict[str, StateInfo] = field(default_factory=dict)
    counters: list[Value] = field(default_factory=list)
    sites: dict[tuple[str, int], int] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    span: Span = NOWHERE
    vocab: str = "V"
    gone: dict[str, str] = field(default_factory=dict)
    trees: list[str] = field(default_factory=list)  # drafted so far
    drafting: list[str] = field(default_factory=list)  # being drafted here, innermost last
    continued: set[str] = field(default_factory=set)  # states that several blocks draft
    policies: dict[str, tuple[S.Policy, dict[str, S.Expr]]] = field(default_factory=dict)
    history: list[Value] = field(default_factory=list)
    opened: dict[int, Value] = field(default_factory=dict)  # expressions `c.masked` inside `unmask` that mean these cells
    narrowed: dict[Value, Value] = field(default_factory=dict)  # open cells of a span, inside `unmask`: the span
    calls: list[str] = field(default_factory=list)
    callers: list[tuple[Source, Span]] = field(default_factory=list)  # of these: the text and the place of the call
    used: set[str] = field(default_factory=set)
    computed: dict[Value, Op] = field(default_factory=dict)  # whole numbers that are computed from others
    finite: dict[Value, float] = field(default_factory=dict)  # real numbers that are no infinity: constants, 0 for all others
    origin: dict[Value, Op] = field(default_factory=dict)  # every whole number's op
    constants: dict[Value, int] = field(default_factory=dict)
    texts: dict[Value, str] = field(default_factory=dict)  # constants that are texts
    chosen: dict[Value, tuple[Value, list[Value]]] = field(default_factory=dict)  # one of two of them: the condition, and both
    lists: dict[Value, tuple[Value, ...]] = field(default_factory=dict)  # lists with such constants
    filled: set[Value] = field(default_factory=set)  # starts of states, as large as the states
    lows: dict[str, float] = field(default_factory=dict)
    unplaced: set[Value] = field(default_factory=set)  # distributions and draws that do not know which cells they are of
    nowhere: dict[Value, bool] = field(default_factory=dict)  # distributions without a place in the text; False: on some ways
    columns: dict[tuple[str, str], Type] = field(default_factory=dict)
    lane_var: str = ""
    lane_names: set[str] = field(default_factory=set)
    in_batch: bool = False
    pure: str = ""  # what is lowered here, where nothing may be committed, returned or written to a state
    exits: list[tuple[str, ...]] = field(default_factory=list)  # of the rule and loops around here: the names that they yield
    exited: set[Value] = field(default_factory=set)  # flags of ways that have left a loop, a rule or a helper
    decided: bool = False  # in a rule: an accept or emit of this suite, or of one around it, has run
    path_scope: list[Value] = field(default_factory=list)
    counts: list[Value] = field(default_factory=list)  # of the counted loops around here, the outermost first

    # -- what is inside
    def expr(self, e: S.Node) -> Value:
        """The value of an expression. Raises DecError."""
        return self.lower_expr(self, e)

    def statement(self, s: S.Stmt) -> None:
        """Lower a statement. Raises DecError."""
        self.lower_statement(self, s)

    @contextmanager
    def effectless(self, what: str) -> Iterator[None]:
        """For the body of a rule or the condition of a run, which only say what is to be done: helpers that they call, too."""
        before, self.pure = self.pure, what
        try:
            yield
        finally:
            self.pure = before

    @contextmanager
    def called(self, name: str, env: dict[str, Value], span: Span) -> Iterator[None]:
        """For the body of a helper or rule: names, states and sites of its own. It returns values, and does not grow its
        caller's trees. What the caller had comes back after it."""
        kept = {n: getattr(self, n) for n in OWN}
        self.prefix = [*self.prefix, f"{name}@{self.site_number(span)}"]
        self.env, self.states, self.drafting, self.decided, self.exits = env, {}, [], False, []
        self.trees, self.counters = list(self.trees), list(self.counters)
        self.source = self.items.source(name) or self.source
        self.calls.append(name)
        self.callers.append((kept["source"], span))
        try:
            yield
        finally:
            self.calls.pop()
            self.callers.pop()
            for n, value in kept.items():
                setattr(self, n, value)

    def region(self, args: list[Value], e: S.Node, **names: Value) -> Region:
        """A region that yields an expression's value; `names` are known inside, and what it names is not known after it."""
        saved = dict(self.env)
        self.b.open(args)
        self.env.update(names)
        made = self.b.close([self.expr(e)])
        self.env = saved
        return made

    # -- places and errors
    def loc(self, span: Span | None = None) -> Loc:
        s = span or self.span
        if not s:
            return NO_LOC
        end_line, end_col = self.source.locate(s.end)
        user = self.user()
        called = Loc(user[0].path, user[1].line, user[1].column, *user[0].locate(user[1].end)) if user is not None else None
        return Loc(self.source.path, s.line, s.column, end_line, end_col, called)

    def user(self) -> tuple[Source, Span] | None:
        """Inside a rule or helper of another file: the program's text and the place in it that uses it."""
        if not self.callers or self.source is self.callers[0][0]:
            return None
        return next(c for c in reversed(self.callers) if c[0] is self.callers[0][0])

    def fail(
        self, span: Span, message: str, help: str = "", code: str = "E210", notes: tuple[tuple[Span, str], ...] = ()
    ) -> NoReturn:
        """Raise the author's error at a place; inside a rule or helper of another file at the line that uses it."""
        user = self.user()
        if user is not None:
            inside = ((self.source, span or self.span, f"in {self.calls[-1]}"),)
            raise failure(*user, message, help, code, inside=inside)
        raise failure(self.source, span or self.span, message, help, code, notes)

    # -- emitting
    def emit(
        self,
        opcode: str,
        *operands: Value,
        regions: tuple[Any, ...] = (),
        span: Span | None = None,
        names: tuple[str, ...] = (),
        **attrs: object,
    ) -> tuple[Value, ...]:
        """Append an op; an OpError becomes a diagnostic at the current place."""
        if self.pure and (effect := TABLE[opcode].effects) in REFUSED:
            self.fail(span or self.span, f"{REFUSED[effect]} inside {self.pure}", f"{INSTEAD[self.pure]}", code="E300")
        try:
            out = self.b.emit(opcode, operands, attrs, regions, loc=self.loc(span), names=names)
        except OpError as error:
            as_tokens = tuple(map(self.token, operands))
            fits = opcode != "map" or attrs["fn"] in ("eq", "ne") and all(v.type.is_token for v in as_tokens)
            if fits and as_tokens != operands:
                with suppress(DecError):  # neither does it take tokens
                    return self.emit(opcode, *as_tokens, regions=regions, span=span, names=names, **attrs)
            said = spoken(str(error))
            if opcode in ("map", "contains") and not error.hint and any(v in self.texts for v in operands):
                error.hint = next((TEXTS[v.type.elem] for v in operands if v.type.elem in TEXTS), "")
            mixed = {"position", "int"} <= set(re.findall(r"[a-z]+", said)) and "do not go together" in said
            self.fail(span or self.span, said, error.hint or (POSITIONS if mixed else ""), code="E210")
        if (
            opcode in FROM_NUMBERS
            and out[0].type.elem in ("dist", "draw")
            and (operands[0] in self.unplaced or operands[0].type.elem not in ("dist", "draw"))
        ):
            self.unplaced.add(out[0])
        if opcode == "list" and any(v in self.texts or v in self.chosen for v in operands):
            self.lists[out[0]] = operands
        if opcode == "if":
            for v, *ways in zip(out, *(r.yields for r in regions), strict=True):
                if all(w in self.texts or w in self.chosen for w in ways):
                    self.chosen[v] = operands[0], ways
                if any(w in self.nowhere for w in ways):
                    self.nowhere[v] = all(self.nowhere.get(w, False) for w in ways)
        elif opcode in PLACELESS and out[0].type.elem == "dist":
            if operands[0].type.elem != "dist" or operands[0] in self.nowhere:
                self.nowhere[out[0]] = self.nowhere.get(operands[0], True)
        if opcode == "map" and out[0].type == INT:
            self.computed[out[0]] = self.b.last
        self.origin.update((v, self.b.last) for v in out if v.type == INT)
        return out

    def token(self, v: Value) -> Value:
        """A text that is known as the token with that text, a list of such as tokens; any other value as it is."""
        if v in self.lists:
            return self.one("list", *map(self.token, self.lists[v]), name=v.name)
        if v in self.chosen:
            ways = [self.token(way) for way in self.chosen[v][1]]
            return self.emit("if", self.chosen[v][0], regions=tuple(Region((), (), (w,)) for w in ways), names=(v.name,))[0]
        return v if v not in self.texts else self.one("token", text=self.texts[v], vocab=self.vocab, name=v.name)

    def one(self, opcode: str, *operands: Value, span: Span | None = None, name: str = "", **attrs: Any) -> Value:
        return self.emit(opcode, *operands, span=span, names=(name,), **attrs)[0]

    def const(self, value: Constant, type: Type | None = None) -> Value:
        if type is None:
            type = (
                BOOL if isinstance(value, bool) else INT if isinstance(value, int) else TEXT if isinstance(value, str) else REAL
            )
        v = self.b.const(value, type, self.loc())
        if isinstance(value, str) and type == TEXT:
            self.texts[v] = value
        if type in (INT, REAL) and isinstance(value, int | float | Fraction) and isfinite(value):
            self.finite[v] = float(value)
        if type == INT and isinstance(value, int):
            self.constants[v] = value
            if value >= 0:
                self.module.bounds[v] = value
        return v

    def upper(self, v: Value) -> int | None:
        """The largest value of a number, where it is known: a constant, a parameter's range, sums and products of these."""
        known = self.module.bounds
        if v in known:
            return known[v]
        op = self.computed.get(v)
        if op is None or op.opcode != "map" or v.type.dims or v.type.elem != "int":
            return None
        parts = [self.upper(x) for x in op.operands]
        fn = op.attrs["fn"]
        whole = [x for x in parts if x is not None]
        out = None
        if fn == "minimum" and whole:
            out = min(whole)
        elif fn == "clamp" and parts[2] is not None:
            out = parts[2]
        elif fn == "sub" and parts[1] is not None and op.operands[1] not in self.computed:  # what is taken away is not negative
            out = parts[0]
        elif len(whole) == len(parts) and fn in ("add", "mul", "maximum"):
            out = whole[0] + whole[1] if fn == "add" else whole[0] * whole[1] if fn == "mul" else max(whole)
        if out is not None:
            out = known[v] = min(out, BEYOND)
        return out

    def site(self, span: Span, tag: str = "") -> str:
        """The name of a draw site: function, calls on the way, and the place's number in source order of first lowering."""
        key = ("/".join(self.prefix) + tag, span.start)
        number = self.sites.setdefault(key, len(self.sites))
        return "/".join([self.function, *self.prefix]) + f".{number}"

    def site_number(self, span: Span) -> int:
        return int(self.site(span, "call").rsplit(".", 1)[1])

    def noise(self, kind: str, span: Span, index: Value | None = None) -> Value:
        if kind == "output":
            return self.one("noise", *([index] if index is not None else []), span=span, kind="output", site="output")
        return self.one("noise", *self.counters, span=span, kind=kind, site=self.site(span))
