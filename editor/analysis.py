"""A text as the editor sees it: the compiler's diagnostics, names, types, and the costs of its algorithms.

Definitions are lowered one by one and cached by the texts of themselves and of all that they name, so that an edit costs the
parse of the text and the lowering of what it is about. Nothing here raises on any text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import Collector, Diagnostic
from decgraph.dsl.lower.confidence import confidences
from decgraph.dsl.lower.labels import findings
from decgraph.dsl.lower.library import ItemsInReach
from decgraph.dsl.lower.module import check_item, finished, meant_as_algorithms, settings_taken
from decgraph.dsl.parse import Partly, parse_partly
from decgraph.dsl.source import Source, Span
from decgraph.editor.lowering import Watching
from decgraph.editor.names import NameIndex, index_of
from decgraph.errors import DecError
from decgraph.ir.types import Type
from decgraph.passes.cost import cost_of

MOST_KEPT = 400


class DefinitionAnalysis:
    """The analysis of one definition: its diagnostics, the types of its expressions by offsets, and the model calls of a step
    (model -> how often, in words). Offsets and lines are those of the text that it was lowered from. The checks of a whole
    algorithm, which cost more than its lowering, are made when somebody wants what they find."""

    def __init__(self, item: S.Item, source: Source, names: ItemsInReach, file: S.File, unknown: frozenset[str]) -> None:
        self.start, self.line = item.span.start, item.span.line
        watching = Watching(names, source, item.name, unknown)
        self.types: dict[tuple[int, int], Type] = watching.types
        self._faults: list[Diagnostic] = watching.faults
        self._whole: Callable[[], tuple[str, ...]] | None = None
        with _noting(watching, item):
            if isinstance(item, S.Algorithm):
                watching.need(item.name)
                if not watching.faults and not unknown:
                    self._whole = lambda: _finish(watching, item, source, names, file)
            elif isinstance(item, (S.Rule, S.Def, S.Policy)):
                check_item(watching, item, source)
        self._calls: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[str, ...]:
        """The model calls of an algorithm's step; () where it has mistakes."""
        if self._whole is not None:
            whole, self._whole = self._whole, None  # the tree that it was made of is let go
            self._calls = whole()
        return self._calls

    @property
    def faults(self) -> tuple[Diagnostic, ...]:
        """What is wrong."""
        _ = self.calls  # the checks of the whole
        return tuple(self._faults)


@contextmanager
def _noting(watching: Watching, item: S.Item) -> Iterator[None]:
    """Keeps an error as what is wrong with a definition, where nothing else is."""
    try:
        yield
    except DecError as error:
        if not watching.faults and not watching.unknown:
            watching.faults += [d for d in error.diagnostics if isinstance(d, Diagnostic)]
    except RecursionError:
        said = f"`{item.name}` is nested too deeply"
        watching.faults.append(Diagnostic("E007", said, item.name_span or item.span, help="move parts of it into a `def`"))


@dataclass
class Analysis:
    """The analysis of one version of a text."""

    source: Source
    partly: Partly
    names: ItemsInReach
    reading: Collector
    """What is wrong with the text before anything is lowered."""
    lowered: dict[str, tuple[DefinitionAnalysis, int, int]] = field(default_factory=dict)
    """By definition: its analysis, and how many characters and lines it moved since."""

    @property
    def file(self) -> S.File:
        return self.partly.parsed.file

    @cached_property
    def diagnostics(self) -> list[Diagnostic]:
        """What is wrong, in order."""
        collector = Collector(self.source)
        for problem in self.reading.sorted():
            collector.add(problem)
        for lowered, moved, lines in self.lowered.values():
            for fault in lowered.faults:
                collector.add(_moved(fault, self.source, moved, lines))
        for fault in meant_as_algorithms(self.file, self.source):
            collector.add(fault)
        return collector.sorted()

    @cached_property
    def index(self) -> NameIndex:
        """Every name of the text, with its symbol."""
        return index_of(self.file, params_in(self.names))

    def item_at(self, offset: int) -> S.Item | None:
        """The definition that an offset is in, or behind."""
        found = None
        for item in self.file.items:
            if isinstance(item, S.Item) and item.span.start <= offset:
                found = item
        return found

    def type_of(self, span: Span) -> Type | None:
        """The type of the expression at these offsets."""
        item = self.item_at(span.start)
        if item is None or item.name not in self.lowered:
            return None
        lowered, moved, _ = self.lowered[item.name]
        return lowered.types.get((span.start - moved, span.end - moved))

    def calls_of(self, name: str) -> tuple[str, ...]:
        """The model calls of an algorithm's step, a line for each model; () where it has mistakes."""
        return self.lowered[name][0].calls if name in self.lowered else ()


class Analyser:
    """Analyses texts, and keeps what definitions were found to be."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, ...], DefinitionAnalysis] = OrderedDict()

    def analyse(self, text: str, path: str = "<text>") -> Analysis:
        """The analysis of a text. Never raises for any text."""
        source = Source(text, path)
        partly = parse_partly(source)
        collector = Collector(source)
        for problem in partly.problems:
            collector.add(problem)
        names = names_of(partly.parsed.file, source, collector)
        found = Analysis(source, partly, names, collector)
        for item in partly.parsed.file.items:
            if isinstance(item, S.Item):
                self._lower(found, item)
        return found

    def _lower(self, analysis: Analysis, item: S.Item) -> None:
        key = self._key(analysis, item)
        lowered = self._cache.get(key)
        if lowered is None:
            unknown = analysis.partly.patched.get(item.name, frozenset())
            lowered = DefinitionAnalysis(item, analysis.source, analysis.names, analysis.file, unknown)
            self._cache[key] = lowered
            while len(self._cache) > MOST_KEPT:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        moved, lines = item.span.start - lowered.start, item.span.line - lowered.line
        analysis.lowered[item.name] = (lowered, moved, lines)

    def _key(self, analysis: Analysis, item: S.Item) -> tuple[str, ...]:
        """What a definition and everything that it may name in its file are written like."""
        text = analysis.source.text
        needed, todo = {item.name}, [item]
        items = {other.name: other for other in analysis.file.items if isinstance(other, S.Item)}
        while todo:
            for name in analysis.index.mentions.get(todo.pop().name, ()):
                if name in items and name not in needed:
                    needed.add(name)
                    todo.append(items[name])
        imports = [text[i.span.start : i.span.end] for i in analysis.file.items if isinstance(i, S.Import)]
        others = [text[items[n].span.start : items[n].span.end] for n in sorted(needed - {item.name})]
        unknown = sorted(analysis.partly.patched.get(item.name, ()))
        return (analysis.source.path, *imports, *others, " ".join(unknown), text[item.span.start : item.span.end])


def params_in(names: ItemsInReach) -> Callable[[str], tuple[str, ...]]:
    """The parameters of what a file can name and does not define, by its name."""
    return lambda name: () if (item := names.get(name)) is None else tuple(p.name for p in item.params)


def names_of(file: S.File, source: Source, collector: Collector) -> ItemsInReach:
    """What the file can name; imports that lead nowhere are reported and left out."""
    items: list[S.Item | S.Import] = []
    seen: set[str] = set()
    for item in file.items:
        if isinstance(item, S.Import):
            try:
                ItemsInReach(S.File((item,)), source)
            except DecError as error:
                for diagnostic in error.diagnostics:
                    collector.add(diagnostic)
                continue
        elif item.name in seen:  # the parser has reported it
            continue
        else:
            seen.add(item.name)
        items.append(item)
    return ItemsInReach(S.File(tuple(items)), source)


def _finish(watching: Watching, item: S.Algorithm, source: Source, names: ItemsInReach, file: S.File) -> tuple[str, ...]:
    """The checks of a whole algorithm; the calls of its step."""
    externs = S.File(tuple(i for i in file.items if isinstance(i, S.Extern)))
    with _noting(watching, item):
        module = finished(watching, externs, source, item.name, check_labels=False)
        watching.faults += [*findings(module, names, source), *confidences(module, source), *settings_taken(item, source)]
        if all(d.severity != "error" for d in watching.faults):
            return tuple(
                f"{c.times} x {c.model}" + (f" (at most {c.most})" if c.most and str(c.most) != c.times else "")
                for c in cost_of(module).calls
            )
    return ()


def _moved(d: Diagnostic, source: Source, offset: int, lines: int) -> Diagnostic:
    """A diagnostic of a text, in the text that its definition moved in."""
    if d.source is not None and d.source.path != source.path:
        return d

    def there(span: Span) -> Span:
        return span._replace(start=span.start + offset, end=span.end + offset, line=span.line + lines) if span else span

    inside = tuple(
        (source, there(span), label) if other.path == source.path else (other, span, label) for other, span, label in d.inside
    )
    notes = tuple((there(span), text) for span, text in d.notes)
    return replace(d, span=there(d.span), notes=notes, inside=inside, source=source)
