"""From an IR function to the text of a Python driver: a generator of model calls, readable and steppable.

Control flow becomes Python's (control_flow.py), calls of models become `yield`s (model_calls.py), other ops become expressions
(expressions.py) or calls of their lowerings; names come from the source, and marks give the line of the `.dec` file that a line
is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from decgraph.backends.torch.expressions import expression
from decgraph.backends.torch.header import GENERATED, OPS, Header, reserved
from decgraph.backends.torch.inlining import without_segments
from decgraph.backends.torch.kit import Kit
from decgraph.backends.torch.lines import Lines
from decgraph.backends.torch.texts import UniqueNames, folded, function_name, hint_of, summary
from decgraph.backends.torch.values import NESTED, Values, literal
from decgraph.ir.values import Function, Op, Region, Value


class Writer:
    """Writes one function after the other into a module; see `program.py`. lines: the module's text; values: the texts of the
    values of the function that is being written; forms: how ops are written that take more than an expression or a call."""

    f: Function
    values: Values

    def __init__(self, header: Header, kit: Kit, forms: Mapping[str, Form]) -> None:
        self.header, self.kit, self.forms = header, kit, {"const": Writer.constant, "segment": Writer.segment, **forms}
        self.shared = UniqueNames()
        self.lines = Lines()
        self.line = self.lines.add
        self.around: list[Sequence[str] | None] = []
        """Of the rule and the loops around: the names that an early end assigns; None: a block whose end is its own."""
        self.looped: Region | None = None
        """The body of the loop around, where it may stop."""
        self.left = False
        """Whether what was written last ends a loop or a rule."""
        self.skipped: Op | None = None
        """The op that takes an element, which the head of its loop does."""
        self.asks = False
        """Whether the function that is being written waits for an answer."""

    def function(self, f: Function) -> tuple[str, dict[str, str]]:
        """Write a function and the initial values of its states; returns the driver's name and by state those of the initial
        values."""
        self.original = f
        self.f, self.origin, same = without_segments(f, lambda op: self.kit.fused(op) is not None)
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
            starts[s.name] = start = values.names.fresh(f"start_{s.name}")
            self.line(f"def {start}({', '.join(['m', *params])}):")
            with self.lines.block():
                self.region(s.init)
                self.line(f"return {self.use(s.init.yields[0])}")
        self.shared.taken |= {title, *starts.values(), *self.header.declared.values(), *self.header.brought}
        return title, starts

    def support(self, name: str) -> str:
        """A name of generated.py, imported."""
        return self.header.need(name, GENERATED)

    def region(self, region: Region, into: Sequence[tuple[str, Value | None] | None] = ()) -> None:
        """Write a region's ops. into: for each of its yields the name after the region, and the value that has that name until
        then."""
        self.values.yielded(region, into)
        for n, op in enumerate(region.ops):
            self.values.here, self.values.hint = (region, n), hint_of(op, self.values.texts)
            self.op(op)
            if self.left:
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
        low = self.kit.lower(self.origin.get(op, op))
        args = [self.use(v) for v in op.operands]
        if op.opcode == "map" and (
            known := folded(str(op.attrs["fn"]), args) if op.attrs["fn"] in ("not", "and", "or") else None
        ):
            self.values.texts[op.result] = known
            return
        text = None if low.own else expression(op, args, self.values.producers)
        if text is not None:
            text = self.imports_of(text)
            if self.values.inlined(op, text):
                return
        else:
            text = self.called(op, args)
            if op.opcode in NESTED and not low.own and self.values.inlined(op, text):
                return
        self.line(f"{self.values.targets(op)} = {text}" if op.results else text, op)

    def called(self, op: Op, args: Sequence[str]) -> str:
        """An op as a call of its lowering."""
        low = self.kit.lower(self.origin.get(op, op))
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

    def segment(self, op: Op) -> None:
        """A segment for which a backend has one call; others are written in place (inlining.py)."""
        fused = self.kit.fused(self.origin.get(op, op))
        assert fused is not None
        name = self.header.object(fused.name, fused.fn, self.values.names)
        for r, y in zip(op.results, op.regions[0].yields, strict=True):
            made = self.values.producer(op.regions[0], y)
            self.values.hint = y.name or (
                hint_of(op.regions[0].ops[made], self.values.texts) if made is not None else self.values.hint
            )
            self.name(r)
        self.line(f"{self.values.targets(op)} = {name}({', '.join(['m', *map(self.use, op.operands)])})", op)


Form = Callable[[Writer, Op], None]
"""Writes an op as statements."""
