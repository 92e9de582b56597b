"""Modules, functions, regions, ops and values: SSA with structured regions. Everything here is immutable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from decgraph.ir.memo import Memo
from decgraph.ir.types import Type

Constant = bool | int | float | Fraction | str | Sequence["Constant"] | frozenset["Constant"] | None
"""A value that a program or a caller writes: of a constant, a parameter, its default."""
Condition = tuple[Any, ...]
"""A condition of a claim as nested tuples: ir/settings.py says of what."""


@dataclass(frozen=True)
class Loc:
    """Where a value comes from: file, 1-based line and column, and the end (for carets)."""

    path: str
    line: int
    column: int
    end_line: int = 0
    end_column: int = 0
    called: Loc | None = field(default=None, compare=False, repr=False)
    """Of a rule or helper of another file: the line of the program that uses it. It is not part of a module's text."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    @property
    def told(self) -> str:
        """The place for an author: the program's own line, and behind it that of the rule or helper that the line uses."""
        return f"{self.called}: in {self}" if self.called is not None else str(self)


NOWHERE = Loc("", 0, 0)


@dataclass(frozen=True, eq=False)
class Value:
    """One SSA value. Equality is identity; `name` comes from the source and need not be unique."""

    type: Type
    name: str = ""

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"


@dataclass(frozen=True, eq=False)
class Region:
    """A block with arguments, ops in order, and the values it yields."""

    args: tuple[Value, ...]
    ops: tuple[Op, ...]
    yields: tuple[Value, ...]

    def walk(self) -> Iterator[Op]:
        """Every op, outer before inner, in order."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(frozen=True, eq=False)
class Op:
    """One operation: opcode from the op table, operands, static attributes, regions, results, source position."""

    opcode: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    regions: tuple[Region, ...]
    results: tuple[Value, ...]
    loc: Loc = NOWHERE
    memo: Memo = field(default_factory=Memo, init=False, repr=False)
    """What backends have computed of the operation: kernels, compiled rules."""

    @property
    def result(self) -> Value:
        return self.results[0]


@dataclass(frozen=True)
class Param:
    """A parameter: its value inside the body, and for scalars the declared range and default."""

    value: Value
    low: float | int | Fraction | None = None
    high: float | int | Fraction | None = None
    default: Constant = None
    has_default: bool = False
    scope: str = "sequence"

    @property
    def name(self) -> str:
        return self.value.name


@dataclass(frozen=True)
class StateDecl:
    """A piece of state: scope (sequence, session, batch), type with its capacity, and the function giving its start."""

    name: str
    type: Type
    scope: str
    init: Region


@dataclass(frozen=True)
class Claim:
    """What an algorithm says of itself.

    kind: 'refines' (spec: name of the specification function, args: its arguments by our parameter names or constants,
    mode: tokens | distribution | greedy), 'ensures' (region over the committed token), 'keeps_support' (of models),
    'calls' (at most `bound` calls of a model, a request or, mode token, for each committed token), 'remasked' (at most `bound`
    cells are masked again in a request).

    when: the condition as it is written, which may ask for greedy requests; setting: its part over the parameters
    (ir/settings.py), () where the claim is for all values of them. mode is greedy for the same tokens of greedy requests alone.
    bound: a number over the parameters and the request, as the parts of conditions are.
    """

    kind: str
    text: str
    spec: str = ""
    args: tuple[tuple[str, tuple[str, Constant]], ...] = ()
    mode: str = ""
    when: str = ""
    models: tuple[str, ...] = ()
    region: Region | None = None
    loc: Loc = NOWHERE
    setting: Condition = ()
    bound: Condition = ()

    @property
    def for_greedy(self) -> bool:
        """Whether it speaks of greedy requests alone."""
        return self.mode == "greedy" or "greedy" in self.when.split()

    @property
    def conditional(self) -> bool:
        """Whether it holds only for some requests, or for some values of the parameters."""
        return bool(self.when or self.setting or self.mode == "greedy")


@dataclass(frozen=True)
class Function:
    """An algorithm in the IR."""

    name: str
    params: tuple[Param, ...]
    states: tuple[StateDecl, ...]
    body: Region
    claims: tuple[Claim, ...] = ()
    doc: str = ""
    loc: Loc = NOWHERE
    policies: tuple[tuple[str, str], ...] = ()

    def param(self, name: str) -> Param:
        for p in self.params:
            if p.name == name:
                return p
        raise KeyError(name)


@dataclass(frozen=True)
class Module:
    """Functions by name; `main` is the one a file is about (its last algorithm)."""

    functions: dict[str, Function]
    main: str
    path: str = ""
    externs: dict[str, tuple[tuple[Type, ...], Type]] = field(default_factory=dict)

    @property
    def entry(self) -> Function:
        return self.functions[self.main]
