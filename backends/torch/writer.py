"""From an IR function to the text of a Python driver: a generator of model calls, readable and steppable.

Control flow becomes Python's (control_flow.py), calls of models become `yield`s (program.py), other ops become expressions
(expressions.py) or calls of their lowerings; names come from the source, and marks give the line of the `.dec` file that a line
is for.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from decgraph.backends.torch.expressions import expression
from decgraph.backends.torch.header import GENERATED, OPS, Header, reserved
from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.texts import UniqueNames, closing, folded, function_name, hint_of, summary
from decgraph.backends.torch.values import NESTED, Values, literal
from decgraph.ir.values import Function, Op, Region, Value


def without_segments(f: Function) -> tuple[Function, dict[Value, Value]]:
    """The function with the ops of every segment in its place, and the value that stands in the place of each segment's result.
    Nothing is batched between the ops of a torch segment: a call of its own would buy nothing there, and a reader would have to
    look for every straight line in two places."""
    same: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        while v in same:
            v = same[v]
        return v

    def region(r: Region) -> Region:
        ops = tuple(o for op in r.ops for o in written(op))
        return Region(r.args, ops, tuple(value(v) for v in r.yields))

    def written(op: Op) -> list[Op]:
        if op.opcode == "segment":
            inner = [o for step in op.regions[0].ops for o in written(step)]
            for r, y in zip(op.results, op.regions[0].yields, strict=True):
                same[r] = value(y)
            return inner
        return [replace(op, operands=tuple(value(v) for v in op.operands), regions=tuple(region(r) for r in op.regions))]

    states = tuple(replace(s, init=region(s.init)) for s in f.states)
    return replace(f, states=states, body=region(f.body)), same


LONGEST = 110


class Lines:
    """A text that grows line by line. text: the lines so far; ops: by the number of a line the op that it was written for."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.ops: dict[int, Op] = {}
        self.depth = 0
        self.marked = ("", 0)
        """The line of the source that the last mark names."""

    def add(self, text: str, op: Op | None = None) -> None:
        """A statement, marked with the source line of the op that it is for where that is another than before."""
        mark = ""
        if op is not None and op.loc.line:
            here = (op.loc.path, op.loc.line)
            if here != self.marked:
                mark = f"  # {op.loc.path.rsplit('/', 1)[-1]}:{op.loc.line}"
                self.marked = here
        for n, part in enumerate(self._wrapped(text)):
            self.text.append("    " * self.depth + part + (mark if n == 0 else ""))
            if op is not None:
                self.ops[len(self.text)] = op

    def _wrapped(self, text: str) -> list[str]:
        """A statement; where it is long and ends with a call, the arguments on a line of their own."""
        if 4 * self.depth + len(text) <= LONGEST or not text.endswith(")"):
            return [text]
        for at in (n for n, c in enumerate(text) if c == "("):
            if closing(text, at) == len(text) - 1:
                return [text[: at + 1], "    " + text[at + 1 : -1], ")"]
        return [text]

    @contextmanager
    def block(self) -> Iterator[None]:
        """What is written inside stands one level deeper."""
        self.depth += 1
        yield
        self.depth -= 1

    def assign(self, targets: list[str], values: list[str], op: Op | None = None) -> None:
        """An assignment of those variables that change."""
        pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
        if pairs:
            self.add(f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}", op)

    def docstring(self, text: str) -> None:
        """The docstring of a function."""
        lines = textwrap.wrap(text.replace("\\", "\\\\").replace('"""', "''"), LONGEST, break_long_words=False)
        self.add('"""' + lines[0] + ('"""' if len(lines) == 1 and not lines[0].endswith('"') else ""))
        for line in lines[1:]:
            self.add(line)
        if len(lines) > 1 or lines[0].endswith('"'):
            self.add('"""')


class Writer:
    """Writes one function after the other into a module; see `program.py`. lines: the module's text; values: the texts of the
    values of the function that is being written; forms: how ops are written that take more than an expression or a call."""

    f: Function
    values: Values

    def __init__(self, header: Header, forms: Mapping[str, Form]) -> None:
        self.header, self.forms = header, {"const": Writer.constant, **forms}
        self.shared = UniqueNames()
        self.shared.taken |= header.titles
        self.lines = Lines()
        self.line = self.lines.add
        self.around: list[Sequence[str] | None] = []
        """Of the rule and the loops around: the names that an early end assigns; None: a block whose end is its own."""
        self.looped: Region | None = None
        """The body of the loop around, where it may stop."""
        self.ended = False
        """Whether what was written last ends a loop or a rule."""
        self.skipped: Op | None = None
        """The op that takes an element, which the head of its loop does."""
        self.asks = False
        """Whether the function that is being written waits for an answer."""

    def function(self, f: Function) -> tuple[str, dict[str, str]]:
        """Write a function and the initial values of its states; returns the driver's name and by state those of the initial
        values."""
        self.f, same = without_segments(f)
        self.values = values = Values(self.f, self.shared.taken, same)
        self.use, self.name = values.use, values.name
        ops = (op for r in (self.f.body, *(s.init for s in self.f.states)) for op in r.walk())
        values.names.taken |= reserved(op for op in ops if values.expression(op) is None)
        self.lines.marked = ("", 0)
        self.asks = False
        title = function_name(f.name)
        values.names.taken.add(title)
        params = [self.name(p.value) for p in self.f.params]
        self.line(f"def {title}({', '.join(['m', *params])}):")
        with self.lines.block():
            if f.doc:
                self.lines.docstring(summary(f.doc))
            self.region(self.f.body)
            if not self.asks:
                self.line("return")
                self.line("yield  # no model is called, and yet a generator")
        starts = {}
        for s in self.f.states:
            self.lines.text += ["", ""]
            usual = f"start_{s.name}"
            starts[s.name] = start = values.names.fresh(usual if usual not in self.shared.taken else f"start_{title}_{s.name}")
            self.line(f"def {start}({', '.join(['m', *params])}):")
            with self.lines.block():
                self.region(s.init)
                self.line(f"return {self.use(s.init.yields[0])}")
        self.shared.taken |= {title, *starts.values(), *self.header.declared.values()}
        return title, starts

    def support(self, name: str) -> str:
        """A name of generated.py, imported."""
        return self.header.need(name, GENERATED)

    def region(self, region: Region, into: Sequence[tuple[str, Value | None] | None] = ()) -> None:
        """Write a region's ops. into: for each of its yields the name after the region, and the value that has that name until
        then."""
        self.values.yielded(region, into)
        for n, op in enumerate(region.ops):
            self.values.place, self.values.hint = (region, n), hint_of(op, self.values.texts)
            self.op(op)
            if self.ended:
                return

    def op(self, op: Op) -> None:
        if op is self.skipped:
            return
        written = self.forms.get(op.opcode)
        if written is not None:
            written(self, op)
        else:
            self.plain(op)

    def plain(self, op: Op) -> None:
        """An op as an expression, or as a call of its lowering."""
        args = [self.use(v) for v in op.operands]
        if op.opcode == "map" and op.attrs["fn"] in ("not", "and", "or") and not op.result.type.dims:
            if known := folded(str(op.attrs["fn"]), args):
                self.values.texts[op.result] = known
                return
        text = expression(op, args, self.values.producers)
        if text is not None:
            text = self.imports_of(text)
            if self.values.inlined(op, text):
                return
        else:
            text = self.called(op, args)
            if op.opcode in NESTED and self.values.inlined(op, text):
                return
        self.line(f"{self.values.targets(op)} = {text}" if op.results else text, op)

    def called(self, op: Op, args: Sequence[str]) -> str:
        """An op as a call of its lowering."""
        low = lower(op)
        name = self.header.call(op, low, self.values.names)
        typed = name in self.header.declared.values()
        kwargs = [] if typed else [f"{k}={literal(v)}" for k, v in low.kwargs.items()]
        return f"{name}({', '.join(['m', *args, *kwargs])})"

    def imports_of(self, text: str) -> str:
        """Import the functions that an expression calls; returns the expression."""
        for word in re.findall(r"\b(np|torch)\.", text):
            self.header.need(word)
        for name, module in {"law": "draws", "probability": "distributions"}.items():
            if text.startswith(f"{name}("):
                text = self.header.need(name, f"{OPS}.{module}") + text[len(name) :]
        return text

    def constant(self, op: Op) -> None:
        v = op.attrs["value"]
        if not isinstance(v, list | tuple):
            self.values.constant(op)
        else:
            self.values.texts[op.result] = f"{self.header.need('np')}.array({literal(list(v))})" if v else "[]"


Form = Callable[[Writer, Op], None]
"""Writes an op as statements."""
