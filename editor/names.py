"""What every name of a text stands for: its definition and its occurrences. Definition, references and rename use it.

A name is visible in its whole definition (a parameter, a state, a variable), in its comprehension, or in its file (an
algorithm, a rule, a helper, an import). `p` and `x` of `ensures` and `path` of `run ... until` are the language's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from decgraph.dsl import syntax as S
from decgraph.dsl.expressions import children
from decgraph.dsl.source import Span

ENSURED = ("p", "x")


class Symbol(NamedTuple):
    """A thing with a name: `scope` is the definition that it is visible in ("" for the file), `kind` what it is (`algorithm`,
    `rule`, `policy`, `def`, `extern`, `import`, `parameter`, `state`, `canvas`, `model`, `noise`, `tree`, `variable`)."""

    scope: str
    name: str
    part: int = 0  # the offset of the comprehension that it is visible in


class Occurrence(NamedTuple):
    """An occurrence of a symbol, or a name that the text does not define (`symbol.scope` is "?")."""

    span: Span
    symbol: Symbol
    defines: bool


@dataclass
class NameIndex:
    """All occurrences in order, the kind of every symbol, and the file's definitions that each definition names."""

    occurrences: list[Occurrence] = field(default_factory=list)
    kinds: dict[Symbol, str] = field(default_factory=dict)
    mentions: dict[str, set[str]] = field(default_factory=dict)

    def at(self, offset: int) -> Occurrence | None:
        """The name at an offset, or that ends there."""
        found = None
        for o in self.occurrences:
            if o.span.start <= offset <= o.span.end and (found is None or offset < o.span.end):
                found = o
        return found

    def of(self, symbol: Symbol) -> list[Occurrence]:
        """All occurrences of a symbol."""
        return [o for o in self.occurrences if o.symbol == symbol]

    def in_scope(self, item: str) -> dict[str, str]:
        """The names that are visible inside a definition, with their kinds; those of the file too."""
        return {s.name: kind for s, kind in self.kinds.items() if s.scope in ("", item) and not s.part}


def index_of(file: S.File, params_of: Callable[[str], tuple[str, ...]] = lambda name: ()) -> NameIndex:
    """The names of a file; `params_of` knows the parameters of what it does not define."""
    index = NameIndex()
    params: dict[str, tuple[str, ...]] = {}
    for item in file.items:
        if isinstance(item, S.Import):
            for name in item.names:
                _define(index, Symbol("", name.name), "import", name.span)
        else:
            _define(index, Symbol("", item.name), type(item).__name__.lower(), item.name_span)
            params[item.name] = tuple(p.name for p in item.params)
    for item in file.items:
        if isinstance(item, S.Item):
            _Scope(index, item, params, params_of).read()
    places: dict[Span, Occurrence] = {}
    for o in index.occurrences:  # a target is found as what it defines, and once more as a name
        if o.defines or o.span not in places:
            places[o.span] = o
    index.occurrences = sorted(places.values(), key=lambda o: (o.span.start, o.span.end))
    return index


def _define(index: NameIndex, symbol: Symbol, kind: str, span: Span) -> None:
    index.kinds.setdefault(symbol, kind)
    if span:
        index.occurrences.append(Occurrence(span, symbol, True))


class _Scope:
    """One definition: first the symbols that it defines, then their occurrences."""

    def __init__(
        self,
        index: NameIndex,
        item: S.Item,
        params: dict[str, tuple[str, ...]],
        params_of: Callable[[str], tuple[str, ...]],
    ) -> None:
        self.index, self.item, self.params, self.params_of = index, item, params, params_of
        self.mentions = index.mentions.setdefault(item.name, set())

    def read(self) -> None:
        """Notes every name of the definition."""
        if not isinstance(self.item, S.Extern):
            for p in self.item.params:
                self._declare(p.name, "parameter", p.name_span)
        for node in S.walk(self.item):
            for name, kind, span in _declared(node):
                self._declare(name, kind, span)
        for child in children(self.item):
            self._names(child, {})

    def _declare(self, name: str, kind: str, span: Span) -> None:
        _define(self.index, Symbol(self.item.name, name), kind, span)

    def _names(self, node: S.Node, inner: dict[str, Symbol]) -> None:
        """The names in a node; `inner`: those of the comprehensions and conditions around it."""
        if isinstance(node, S.Name):
            self._name(node, inner)
            return
        if isinstance(node, S.Comprehension):
            here = dict(inner)
            for name in node.names:
                here[name.name] = Symbol(self.item.name, name.name, node.span.start)
                _define(self.index, here[name.name], "variable", name.span)
            self._names(node.iter, inner)
            for part in (node.element, *(() if node.cond is None else (node.cond,))):
                self._names(part, here)
            return
        if isinstance(node, S.Ensures):
            inner = {**inner, **{name: Symbol("?", name) for name in ENSURED}}
        elif isinstance(node, S.Run):
            self._names(node.until, {**inner, "path": Symbol("?", "path")})
            for part in (node.call, node.start, node.at_most):
                if part is not None:
                    self._names(part, inner)
            return
        elif isinstance(node, S.Call) and isinstance(node.func, S.Name):
            self._keywords(node.func.name, node.kwargs)
        for child in _children(node):
            self._names(child, inner)

    def _keywords(self, callee: str, kwargs: tuple[S.Keyword, ...]) -> None:
        """`f(x = 1)` names the parameter x of f."""
        if Symbol(self.item.name, callee) in self.index.kinds:
            return
        params = self.params[callee] if callee in self.params else self.params_of(callee)
        for k in kwargs:
            if k.name in params and k.name_span:
                self.index.occurrences.append(Occurrence(k.name_span, Symbol(callee, k.name), False))

    def _name(self, node: S.Name, inner: dict[str, Symbol]) -> None:
        name = node.name
        own, outer = Symbol(self.item.name, name), Symbol("", name)
        if name in inner:
            symbol = inner[name]
        elif own in self.index.kinds:
            symbol = own
        elif outer in self.index.kinds:
            symbol = outer
            self.mentions.add(name)
        else:
            symbol = Symbol("?", name)
        if node.span:
            self.index.occurrences.append(Occurrence(node.span, symbol, False))


def _children(node: S.Node) -> Iterator[S.Node]:
    """The parts of a node that hold names of values: not capabilities, vocabularies and streams."""
    if isinstance(node, S.TypeExpr):
        yield from node.args
        if node.name not in ("causal", "masked", "set_block_lm"):
            yield from node.dims
        yield from (e for e in (node.low, node.high, node.returns) if e is not None)
    elif isinstance(node, S.Draw):
        yield from (*node.targets, node.dist, *(() if node.using is None else (node.using,)))
        if isinstance(node.stream, S.Call):
            yield from node.stream.args
    else:
        yield from children(node)


def _declared(node: S.Node) -> Iterator[tuple[str, str, Span]]:
    """The names that a statement gives a meaning in its definition."""
    if isinstance(node, S.State):
        yield node.name, "state", node.name_span
    elif isinstance(node, S.Canvas):
        yield node.name, "canvas", node.name_span
    elif isinstance(node, S.ModelDecl):
        yield node.name, "model", node.name_span
    elif isinstance(node, S.NoiseDecl):
        yield node.name, "noise", node.name_span
    elif isinstance(node, S.Draft):
        yield node.tree, "tree", node.name_span
    elif isinstance(node, S.Lanes):
        yield node.name, "variable", node.name_span
    elif isinstance(node, (S.Draw, S.Assign)):
        for target in node.targets:
            root: Any = target
            while isinstance(root, (S.Index, S.Attr)):
                root = root.value
            if isinstance(root, S.Name) and (root is target or isinstance(target, S.Index)):
                yield root.name, "variable", root.span if root is target else Span(0, 0, 0, 0)
    elif isinstance(node, S.For):
        for name in node.names:
            yield name.name, "variable", name.span
