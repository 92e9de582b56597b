"""Lowering for editors: it continues after a mistake, and records the type of everything it sees.

The compiler stops at the first mistake of an algorithm. Here a statement that fails is left out and the next one is read. What
it would have named is unknown from there on, so what later statements have against those names is not said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lower.expr import expr
from decgraph.dsl.lower.flow import assigned
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.lower.module import ModuleLowering
from decgraph.dsl.lower.state import Lowering, StateInfo
from decgraph.dsl.lower.statements import statement
from decgraph.dsl.parse import FILLER
from decgraph.dsl.source import Source
from decgraph.errors import DecError
from decgraph.ir.types import ANY, Type
from decgraph.ir.values import Claim, Function, Param, StateDecl, Value

TYPED = (S.Name, S.Attr, S.Call, S.Index)
KEPT = ("env", "counters", "prefix", "trees", "source", "drafting", "calls", "callers", "path_scope", "counts", "opened",
        "narrowed", "lane_var", "lane_names", "in_batch", "decided", "span")  # fmt: skip
"""What a statement that fails midway may leave changed."""


class Watching(ModuleLowering):
    """One definition of a file, lowered as far as possible. `unknown`: names that are missing from it."""

    def __init__(self, names: ItemsInReach, source: Source, item: str, unknown: frozenset[str] = frozenset()) -> None:
        super().__init__(names)
        self.source, self.item, self.unknown = source, item, set(unknown)
        self.faults: list[Diagnostic] = []
        self.types: dict[tuple[int, int], Type] = {}

    def lowering(self, source: Source, name: str) -> Lowering:
        if name != self.item:
            return super().lowering(source, name)
        return Lowering(source, self.names, name, self, self._expr, self._statement)

    def algorithm(self, item: S.Algorithm, source: Source) -> Function:
        if item.name != self.item or source is not self.source:
            return super().algorithm(item, source)
        try:
            return super().algorithm(item, source)
        except DecError as error:
            if not self.faults and not self.unknown:
                self._note(error, ())
            raise

    # ---- declarations

    def param(self, lw: Lowering, p: S.Param) -> Param:
        if lw.function != self.item:
            return super().param(lw, p)
        try:
            made = super().param(lw, p)
        except DecError as error:
            self._note(error, _names(p))
            self.unknown.add(p.name)
            value = lw.env[p.name] = Value(Type("any"), p.name)
            return Param(value, None, None, None, True)
        if p.name_span:
            self.types[p.name_span.start, p.name_span.end] = made.value.type
        return made

    def state(self, lw: Lowering, s: S.State) -> StateDecl:
        if lw.function != self.item:
            return super().state(lw, s)
        depth, env = lw.b.depth, dict(lw.env)
        try:
            made = super().state(lw, s)
        except DecError as error:
            lw.b.unwind(depth)
            lw.env = env
            self._note(error, _names(s))
            self.unknown.add(s.name)
            lw.states[s.name] = StateInfo(ANY, s.scope or "sequence", s.span)
            lw.b.open()
            return StateDecl(s.name, ANY, s.scope or "sequence", lw.b.close())
        if s.name_span:
            self.types[s.name_span.start, s.name_span.end] = made.type
        return made

    def claim(self, lw: Lowering, s: S.Stmt, params: tuple[Param, ...]) -> Claim:
        if lw.function != self.item:
            return super().claim(lw, s, params)
        depth, env = lw.b.depth, dict(lw.env)
        try:
            return super().claim(lw, s, params)
        except DecError as error:
            lw.b.unwind(depth)
            lw.env = env
            self._note(error, _names(s))
            return Claim("ensures", "")

    # ---- statements and expressions

    def _expr(self, lw: Lowering, e: S.Node) -> Value:
        value = expr(lw, e)
        if lw.source is self.source and isinstance(e, TYPED):
            self.types[e.span.start, e.span.end] = value.type
        return value

    def _statement(self, lw: Lowering, s: S.Stmt) -> None:
        if lw.source is not self.source or lw.calls:
            statement(lw, s)
            return
        if isinstance(s, S.Do) and isinstance(s.call.func, S.Name) and s.call.func.name == FILLER:
            return
        depth, kept = lw.b.depth, {name: _copy(getattr(lw, name)) for name in KEPT}
        try:
            statement(lw, s)
        except DecError as error:
            lw.b.unwind(depth)
            for name, value in kept.items():
                setattr(lw, name, value)
            self._note(error, _names(s))
            self.unknown.update(assigned([s]))
            return
        for name, value in _declared(s):
            if name in lw.env and value:
                self.types[value.start, value.end] = lw.env[name].type

    def _note(self, error: DecError, names: Any) -> None:
        """Keeps what is wrong, unless it is about names that an earlier mistake left unknown."""
        if self.unknown.intersection(names):
            return
        for d in error.diagnostics:
            if isinstance(d, Diagnostic) and all((f.code, f.span) != (d.code, d.span) for f in self.faults):
                self.faults.append(d)


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, (dict, list, set)) else value


def _names(node: S.Node) -> frozenset[str]:
    """The names that a statement itself reads or writes, not those of the statements inside it."""
    found: set[str] = set()
    for field in fields(node):
        if field.name in ("body", "branches", "orelse"):
            continue
        for part in _nodes(getattr(node, field.name)):
            found.update(n.name for n in S.walk(part) if isinstance(n, S.Name))
    if isinstance(node, S.If):
        found.update(n.name for b in node.branches for n in S.walk(b.cond) if isinstance(n, S.Name))
    return frozenset(found)


def _nodes(value: Any) -> Iterator[S.Node]:
    if isinstance(value, S.Node):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _nodes(part)


def _declared(s: S.Stmt) -> Iterator[tuple[str, Any]]:
    """The names that a statement gives a value, with their places."""
    if isinstance(s, (S.Draw, S.Assign)):
        for target in s.targets:
            if isinstance(target, S.Name):
                yield target.name, target.span
    elif isinstance(s, (S.Canvas, S.ModelDecl, S.NoiseDecl)):
        yield s.name, s.name_span
    elif isinstance(s, S.Draft):
        yield s.tree, s.name_span
