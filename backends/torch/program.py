"""From an IR function to a Python program: a generated driver, a generator of model calls, readable and steppable.

Control flow becomes Python's; runs of pure ops that the placement pass outlined become fx GraphModules (segments.py); names
come from the source, and marks say which line of the `.dec` file a line of the driver is for. The driver is registered with
linecache, so tracebacks, debuggers and profiles show it.
"""
from __future__ import annotations

import keyword
import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from decgraph.backends.torch.lowering import TEMPLATES, lower
from decgraph.backends.torch.names import Names
from decgraph.backends.torch.segments import build_segment
from decgraph.errors import DecError
from decgraph.ir.values import Function, Module, Op, Region, Value

_SERIAL = count(1)


@dataclass
class Program:
    """A compiled function. `driver(m, *parameters)` is a generator; `starts` give states their first values; `source` is
    the text, `segments` the fx graphs that it calls."""

    name: str
    source: str
    filename: str
    driver: Callable[..., Any]
    starts: dict[str, Callable[..., Any]]
    segments: dict[str, Any]
    lines: dict[int, Op] = field(repr=False, default_factory=dict)

    def place(self, error: BaseException) -> tuple[str, str] | None:
        """(source place, opcode) of the line of this program that an error came through last."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename == self.filename and frame.lineno in self.lines:
                op = self.lines[frame.lineno]
                return (str(op.loc) if op.loc.line else "", op.opcode)
        return None


_PROGRAMS: WeakKeyDictionary[Function, Program] = WeakKeyDictionary()


def program_of(module: Module, name: str) -> Program:
    """The program of a function, compiled on first use."""
    f = module.functions[name]
    if f not in _PROGRAMS:
        _PROGRAMS[f] = compile_function(f)
    return _PROGRAMS[f]


def compile_function(f: Function) -> Program:
    """Generate and load the program of a function. Raises DecError for what the backend cannot do."""
    return _Writer(f).program()


class _Writer:
    def __init__(self, f: Function) -> None:
        self.function = f
        self.names = Names()
        self.env: dict[Value, str] = {}
        self.out: list[str] = []
        self.depth = 0
        self.lines: dict[int, Op] = {}
        self.scope: dict[str, Any] = {}
        self.segments: dict[str, Any] = {}
        self.marked: tuple[str, int] = ("", 0)
        self.hint = ""   # what values without a name of their own are called

    # -- text
    def line(self, text: str, op: Op | None = None) -> None:
        mark = ""
        if op is not None and op.loc.line:
            here = (op.loc.path, op.loc.line)
            if here != self.marked:
                mark = f"  # {op.loc.path.rsplit('/', 1)[-1]}:{op.loc.line}"
                self.marked = here
        self.out.append("    " * self.depth + text + mark)
        if op is not None:
            self.lines[len(self.out)] = op

    def name(self, v: Value) -> str:
        if v not in self.env:
            self.env[v] = self.names.fresh(v.name or self.hint)
        return self.env[v]

    def use(self, v: Value) -> str:
        return self.env[v] if v in self.env else self.name(v)

    def uses(self, vs: Any) -> str:
        return ", ".join(self.use(v) for v in vs)

    def bring(self, name: str, value: Any) -> str:
        """A name in the driver's scope for a Python object."""
        name = f"{name}_" if keyword.iskeyword(name) else name
        for k in (name, *(f"{name}_{i}" for i in range(2, 10_000))):
            if k not in self.scope:
                self.names.taken.add(k)
            if self.scope.setdefault(k, value) is value:
                return k
        raise DecError(f"too many functions called {name}")

    # -- the program
    def program(self) -> Program:
        f = self.function
        params = [self.name(p.value) for p in f.params]
        self.line(f"def {self.names.fresh(f.name)}({', '.join(['m', *params])}):")
        title = self.out[-1].split("(")[0].removeprefix("def ")
        self.depth += 1
        if f.doc:
            self.line(repr(f.doc.splitlines()[0].strip()))
        self.region(f.body)
        self.line("return")
        self.line("yield  # a generator also where no model is called")
        self.depth -= 1
        starts = {}
        for s in f.states:
            self.out.append("")
            start = self.names.fresh(f"start_{s.name}")
            self.line(f"def {start}({', '.join(['m', *params])}):")
            self.depth += 1
            self.region(s.init)
            self.line(f"return {self.use(s.init.yields[0])}")
            self.depth -= 1
            starts[s.name] = start
        source = "\n".join(self.out) + "\n"
        filename = f"<decgraph {f.name} {next(_SERIAL)}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.scope)  # noqa: S102  (our own text, names and constants only)
        return Program(f.name, source, filename, self.scope[title], {k: self.scope[v] for k, v in starts.items()},
                       self.segments, self.lines)

    def region(self, region: Region) -> None:
        before = len(self.out)
        for op in region.ops:
            self.hint = str(op.attrs.get("fn") or op.opcode.rsplit(".", 1)[-1]) + "_"
            self.op(op)
        if len(self.out) == before and not region.yields and self.depth:
            self.line("pass")

    def assign(self, targets: list[str], values: list[str], op: Op | None = None) -> None:
        pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
        if pairs:
            self.line(f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}", op)

    def op(self, op: Op) -> None:
        special = getattr(self, "op_" + op.opcode.replace(".", "_"), None)
        if special is not None:
            special(op)
            return
        low = lower(op)
        args = [self.use(v) for v in op.operands]
        if low.fn in TEMPLATES:
            call = TEMPLATES[low.fn].format(*args)
        else:
            kwargs = [f"{k}={self.literal(v)}" for k, v in low.kwargs.items()]
            first = ["m"] if low.machine else []
            call = f"{self.bring(low.name, low.fn)}({', '.join([*first, *args, *kwargs])})"
        self.line(f"{', '.join(self.name(r) for r in op.results)} = {call}" if op.results else call, op)

    def literal(self, v: Any) -> str:
        if isinstance(v, tuple) and all(isinstance(x, str | int | bool) for x in v):
            return repr(v)
        if v is None or isinstance(v, bool | int | str) or isinstance(v, float) and abs(v) != float("inf") and v == v:
            return repr(v)
        return self.bring("constant", v)

    # -- ops with a form of their own
    def op_const(self, op: Op) -> None:
        v = op.attrs["value"]
        if v in ("inf", "-inf") and op.attrs["type"].elem != "text":
            v = float(v)
        elif isinstance(v, list | tuple):
            v = np.array([float(x) if isinstance(x, Fraction) else x for x in v]) if v else []
        elif isinstance(v, Fraction):
            v = float(v)
        text = self.literal(v) if not (isinstance(v, list) and not v) else "[]"
        self.env[op.result] = f"({text})" if text.startswith("-") else text

    def op_for(self, op: Op) -> None:
        lo, hi, *init = op.operands
        region, results = op.regions[0], [self.name(r) for r in op.results]
        self.assign(results, [self.use(v) for v in init], op)
        counter, *carried = region.args
        for arg, r in zip(carried, results):
            self.env[arg] = r
        self.line(f"for {self.name(counter)} in range({self._int(lo)}, {self._int(hi)}):", op)
        self.depth += 1
        before = len(self.out)
        self.region(region)
        self._turned(op, region.yields, results)
        if len(self.out) == before:
            self.line("pass")
        self.depth -= 1

    def _int(self, v: Value) -> str:
        text = self.use(v)
        return text if v.type.elem == "int" or text.isdigit() else f"int({text})"

    def _turned(self, op: Op, yields: tuple[Value, ...], results: list[str]) -> None:
        """The end of a turn: carried values, and whether to stop."""
        stops = bool(op.attrs.get("stops"))
        stop = self.use(yields[0]) if stops else ""
        if stops and stop in results:
            self.line(f"stop = {stop}")
            stop = "stop"
        self.assign(results, [self.use(y) for y in yields[1 if stops else 0:]])
        if stops and stop not in ("False",):
            self.line(f"if {stop}:")
            self.depth += 1
            self.line("break")
            self.depth -= 1

    def op_while(self, op: Op) -> None:
        init = list(op.operands)
        limit = self.use(init.pop(0)) if op.attrs.get("limited") else None
        cond, body = op.regions
        results = [self.name(r) for r in op.results]
        self.assign(results, [self.use(v) for v in init], op)
        counter = self.name(cond.args[0])
        self.env[body.args[0]] = counter
        for region in (cond, body):
            for arg, r in zip(region.args[1:], results):
                self.env[arg] = r
        self.line(f"{counter} = 0")
        self.line(f"while {counter} < {limit}:" if limit else "while True:", op)
        self.depth += 1
        self.region(cond)
        self.line(f"if not {self.use(cond.yields[0])}:")
        self.depth += 1
        self.line("break")
        self.depth -= 1
        where = repr(str(op.loc))
        self.line(f"m.turn({where}, {counter})" if op.attrs.get("bound") == "done" else f"m.bounded({where}, {counter})")
        self.region(body)
        self._turned(op, body.yields, results)
        self.line(f"{counter} += 1")   # last: what a turn yields may be its number
        self.depth -= 1

    def op_if(self, op: Op) -> None:
        results = [self.name(r) for r in op.results]
        self.line(f"if {self.use(op.operands[0])}:", op)
        for n, region in enumerate(op.regions):
            if n == 1:
                if not region.ops and not region.yields:
                    continue
                self.line("else:")
            self.depth += 1
            before = len(self.out)
            self.region(region)
            self.assign(results, [self.use(y) for y in region.yields])
            if len(self.out) == before:
                self.line("pass")
            self.depth -= 1

    def op_each(self, op: Op) -> None:
        from decgraph.backends.torch.ops.vectors import elements, stacked
        region = op.regions[0]
        items = self.names.fresh("items")
        self.line(f"{items} = []", op)
        i, x = (self.name(a) for a in region.args)
        self.line(f"for {i}, {x} in enumerate({self.bring('elements', elements)}({self.use(op.operands[0])})):", op)
        self.depth += 1
        self.region(region)
        if op.attrs.get("filtered"):
            self.line(f"if {self.use(region.yields[1])}:")
            self.depth += 1
        self.line(f"{items}.append({self.use(region.yields[0])})")
        if op.attrs.get("filtered"):
            self.depth -= 1
        self.depth -= 1
        result = self.name(op.result)
        as_list = op.result.type.elem == "list"
        self.line(f"{result} = {items}" if as_list else f"{result} = {self.bring('stacked', stacked)}(m, {items})", op)

    def function_of(self, region: Region, name: str, op: Op) -> str:
        """A nested function for a region; returns its name."""
        if any(o.opcode in ("model.eval", "model.evals", "run") for o in region.walk()):
            raise DecError(f"{op.loc}: the torch backend cannot call a model inside `{op.opcode}`",
                           hint="evaluate it before, at every node, and look the rows up")
        fn = self.names.fresh(name)
        self.line(f"def {fn}({', '.join(self.name(a) for a in region.args)}):", op)
        self.depth += 1
        self.region(region)
        self.line(f"return {self.uses(region.yields)}")
        self.depth -= 1
        return fn

    def op_tree_walk(self, op: Op) -> None:
        from decgraph.backends.torch.walk import walk
        rule = self.function_of(op.regions[0], str(op.attrs.get("rule") or "rule").replace(".", "_"), op)
        tree, evidence = (self.use(v) for v in op.operands[:2])
        self.line(f"{self.name(op.result)} = {self.bring('walk', walk)}(m, {tree}, {evidence}, {rule}, "
                  f"scope={op.attrs['scope']!r})", op)

    def op_run(self, op: Op) -> None:
        until = self.function_of(op.regions[0], "until", op)
        start, bound, *rest = (self.use(v) for v in op.operands)
        n = len(op.attrs["args"])
        tree = rest[n] if op.attrs["has_tree"] else "None"
        counters = rest[n + 1 if op.attrs["has_tree"] else n:]
        args = ", ".join(f"{k!r}: {v}" for k, v in zip(op.attrs["args"], rest))
        listed = "".join(f"{c}, " for c in counters)
        self.line(f"{self.name(op.result)} = yield from m.run({op.attrs['callee']!r}, {op.attrs['site']!r}, {start}, "
                  f"int({bound}), {{{args}}}, {tree}, ({listed}), {until})", op)

    def _asked(self, op: Op, what: str, more: str = "") -> None:
        model, place, *rest = (self.use(v) for v in op.operands)
        extra = ", ".join(f"{k!r}: {v}" for k, v in zip(op.attrs.get("with", ()), rest))
        self.line(f"{self.name(op.result)} = yield m.{what}({model}, {place}, {{{extra}}}{more})", op)

    def op_model_eval(self, op: Op) -> None:
        part = f", part={op.attrs['part']!r}" if op.attrs.get("part") else ""
        self._asked(op, "evaluate", part + (", alone=True" if op.attrs.get("joint") is False else ""))

    def op_model_memory(self, op: Op) -> None:
        self._asked(op, "memory")

    def op_segment(self, op: Op) -> None:
        segment = build_segment(op)
        name = self.bring(str(op.attrs["name"]), segment.call)
        self.segments[name] = segment
        self.line(f"{self.targets(op)} = {name}(m{''.join(', ' + self.use(v) for v in op.operands)})", op)

    def targets(self, op: Op) -> str:
        """The names of an op's results; one of several keeps its comma."""
        return ", ".join(self.name(r) for r in op.results)

    def op_model_evals(self, op: Op) -> None:
        model, *rest = (self.use(v) for v in op.operands)
        parts, first = [], 0
        for names in op.attrs["parts"]:
            n = 1 + len(names)
            place, *extra = rest[first:first + n]
            first += n
            parts.append(f"({place}, {{{', '.join(f'{k!r}: {v}' for k, v in zip(names, extra))}}})")
        self.line(f"{self.targets(op)} = yield m.evaluate_together({model}, ({', '.join(parts)},))", op)
