"""From an IR function to a Python program: a generated driver, a generator of model calls, readable and steppable.

Control flow becomes Python's; runs of pure ops that the placement pass outlined become fx GraphModules (segments.py); names
come from the source, and marks say which line of the `.dec` file a line of the driver is for. The driver is registered with
linecache, so tracebacks, debuggers and profiles show it.
"""

from __future__ import annotations

import linecache
import re
import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from decgraph.backends.torch.chains import Chain, chain_of
from decgraph.backends.torch.kit import TORCH, Kit
from decgraph.backends.torch.lowering import TEMPLATES, not_
from decgraph.backends.torch.names import Names
from decgraph.backends.torch.segments import Segment, build_segment
from decgraph.backends.torch.texts import atom, function_name, hint_of, negated, summary
from decgraph.backends.torch.uses import Uses
from decgraph.errors import DecError
from decgraph.ir.places import loop_tree
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import functions_of

_SERIAL = count(1)
SHORT = {"done", "context", "len"}
"""Calls that are written where their value is used, like arithmetic on numbers."""
READ_LATER = {"while", "each", "run", "tree.walk"}
"""Ops that read operands again, or after other lines of theirs."""


@dataclass
class Program:
    """A compiled function. `driver(m, *parameters)` is a generator; `starts` give states their first values; `source` is
    the text, `segments` the fx graphs that it calls."""

    name: str
    source: str
    filename: str
    driver: Callable[..., Any]
    starts: dict[str, Callable[..., Any]]
    segments: dict[str, Segment]
    lines: dict[int, Op] = field(repr=False, default_factory=dict)

    def text(self) -> str:
        """All of it for a reader: the segments, then the driver that calls them, as one Python text."""
        return "\n\n".join([*(s.source for s in self.segments.values()), self.source])

    def place(self, error: BaseException) -> tuple[str, str] | None:
        """(source place, opcode) of the line of this program, or of a segment, that an error came through last."""
        files = {self.filename: self.lines, **{s.filename: s.lines for s in self.segments.values()}}
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            op = files.get(frame.filename, {}).get(frame.lineno or 0)
            if op is not None:
                return (str(op.loc) if op.loc.line else "", op.opcode)
        return None


_PROGRAMS: WeakKeyDictionary[Function, dict[Kit, Program]] = WeakKeyDictionary()


def program_of(module: Module, name: str, kit: Kit = TORCH) -> Program:
    """The program of a function, compiled on first use."""
    f = module.functions[name]
    made = _PROGRAMS.setdefault(f, {})
    if kit not in made:
        made[kit] = compile_function(f, kit)
    return made[kit]


def programs_of(module: Module, kit: Kit = TORCH) -> list[Program]:
    """The programs of what a module runs: its main function, after the functions that it runs on scratch contexts."""
    return [program_of(module, f.name, kit) for f in functions_of(module)]


def compile_function(f: Function, kit: Kit = TORCH) -> Program:
    """Generate and load the program of a function. Raises DecError for what the backend cannot do."""
    return _Writer(f, kit).program()


class _Writer:
    def __init__(self, f: Function, kit: Kit) -> None:
        self.function, self.kit = f, kit
        self.names = Names()
        self.env: dict[Value, str] = {}
        self.out: list[str] = []
        self.depth = 0
        self.lines: dict[int, Op] = {}
        self.scope: dict[str, Any] = {}
        self.segments: dict[str, Segment] = {}
        self.marked: tuple[str, int] = ("", 0)
        self.hint = ""  # what values without a name of their own are called
        self.flow = Uses(f)
        self.wishes: dict[Value, str] = {}  # names that values are to have because they are yielded under them
        self.holders: dict[str, Value | None] = {}  # who has such a name until then
        self.here: tuple[Region, int] = (f.body, 0)  # the op that is being written
        self.asks = False
        # Functions choose names first, and variables leave them alone.
        self.kept = {function_name(op.opcode.replace(".", "_")) for op in f.body.walk()} - self.names.taken
        self.names.taken |= self.kept

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
            self.env[v] = self.wishes[v] if v in self.wishes else self.names.fresh(v.name or self.hint)
        return self.env[v]

    def use(self, v: Value) -> str:
        return self.env[v] if v in self.env else self.name(v)

    def uses(self, vs: Any) -> str:
        return ", ".join(self.use(v) for v in vs)

    def bring(self, name: str, value: Any) -> str:
        """A name in the driver's scope for a Python object."""
        name = function_name(name)
        for k in (name, *(f"{name}_{i}" for i in range(2, 10_000))):
            if k in self.scope:
                if self.scope[k] is value:
                    return k
            elif k in self.kept or k not in self.names.taken:  # a variable may have it
                self.names.taken.add(k)
                self.kept.discard(k)
                self.scope[k] = value
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
            self.docstring(summary(f.doc))
        self.region(f.body)
        if not self.asks:
            self.line("return")
            self.line("yield  # no model is called, and yet a generator")
        self.depth -= 1
        starts = {}
        for s in f.states:
            self.out += ["", ""]
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
        exec(compile(source, filename, "exec"), self.scope)
        return Program(
            f.name,
            source,
            filename,
            self.scope[title],
            {k: self.scope[v] for k, v in starts.items()},
            self.segments,
            self.lines,
        )

    def docstring(self, text: str) -> None:
        lines = textwrap.wrap(text.replace("\\", "\\\\").replace('"""', "''"), 110)
        self.line('"""' + lines[0] + ('"""' if len(lines) == 1 and not lines[0].endswith('"') else ""))
        for text in lines[1:]:
            self.line(text)
        if len(lines) > 1 or lines[0].endswith('"'):
            self.line('"""')

    def region(self, region: Region, into: Sequence[tuple[str, Value | None] | None] = ()) -> None:
        """Write a region's ops. into: for each of its yields the name that it goes on under, and the value that has that name
        until then."""
        for y, goal in zip(region.yields, into):
            if goal is not None and self.flow.may_take(region, y, goal[1]):
                self.wishes[y], self.holders[goal[0]] = goal
        for n, op in enumerate(region.ops):
            self.here, self.hint = (region, n), hint_of(op, self.env)
            self.op(op)

    def block(self, region: Region, into: Sequence[tuple[str, Value | None]]) -> None:
        """A region whose yields are then assigned."""
        self.region(region, into)
        self.assign([name for name, _ in into], [self.use(y) for y in region.yields])

    def inlined(self, op: Op, text: str) -> bool:
        """Whether an op's value is written where it is used, at once and only there; no line is written for it then."""
        region, n = self.here
        v = op.result
        after = self.flow.next_alone(region, n, v)
        at_once = after is not None and after.opcode not in READ_LATER or self.flow.only_yielded(region, n, v)
        if v in self.wishes or not at_once:
            return False
        self.env[v] = text
        return True

    def assign(self, targets: list[str], values: list[str], op: Op | None = None) -> None:
        pairs = [(t, v) for t, v in zip(targets, values, strict=True) if t != v]
        if pairs:
            self.line(f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}", op)

    def op(self, op: Op) -> None:
        special = getattr(self, "op_" + op.opcode.replace(".", "_"), None)
        if special is not None:
            special(op)
            return
        low = self.kit.lower(op)
        args = [self.use(v) for v in op.operands]
        if low.fn is not_:
            call = negated(args[0])
        elif low.fn in TEMPLATES:
            call = TEMPLATES[low.fn].format(*map(atom, args))
        else:
            kwargs = [f"{k}={self.literal(v)}" for k, v in low.kwargs.items()]
            first = ["m"] if low.machine else []
            call = f"{self.bring(low.name, low.fn)}({', '.join([*first, *args, *kwargs])})"
        if not ((low.fn in TEMPLATES or op.opcode in SHORT) and self.inlined(op, call)):
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

    def started(self, op: Op, init: Sequence[Value]) -> list[str]:
        """The names of a loop's results, with their first values assigned. A value that nothing else uses gives its name."""
        region, _ = self.here
        names = []
        for r, v in zip(op.results, init, strict=True):
            mine, maker = self.env.get(v, ""), self.flow.maker(region, v)
            if (
                r not in self.wishes
                and mine.isidentifier()
                and self.flow.once(v)
                and maker is not None
                and (region.ops[maker].opcode != "const")
            ):
                self.env[r] = mine
            else:
                self.hint = hint_of(op, self.env)
            names.append(self.name(r))
        self.assign(names, [self.use(v) for v in init], op)
        return names

    def op_for(self, op: Op) -> None:
        chain = chain_of(op) if self.kit.rolls else None
        if chain is not None:
            self.rolled(op, chain)
            return
        lo, hi, *init = op.operands
        ends = [self._int(lo), self._int(hi)]
        region, results = op.regions[0], self.started(op, init)
        counter, *carried = region.args
        self.env.update(zip(carried, results, strict=True))
        self.hint = "n"
        self.line(f"for {self.name(counter)} in range({', '.join(ends if ends[0] != '0' else ends[1:])}):", op)
        self.depth += 1
        before = len(self.out)
        self.filled(op, results)
        self.turned(op, region, results, carried)
        if len(self.out) == before:
            self.line("pass")
        self.depth -= 1

    def filled(self, op: Op, results: Sequence[str]) -> None:
        """No turn of a loop that drafts where nothing fits any more."""
        if "fills" in op.attrs and loop_tree(op) >= 0:
            self.line(f"if m.full({results[loop_tree(op)]}, {op.attrs['fills'].rpartition('.')[2]!r}):")
            self.depth += 1
            self.line("break")
            self.depth -= 1

    def rolled(self, op: Op, chain: Chain) -> None:
        """A loop that drafts a chain, said to the machine as one thing (rolls.py)."""
        lo, hi, tree = op.operands
        noise = self.kit.lower(chain.noise)
        counter, keys = self.name(op.regions[0].args[0]), self.names.fresh("noise_of")
        args = [counter if v is op.regions[0].args[0] else self.use(v) for v in chain.noise.operands]
        kwargs = [f"{k}={self.literal(v)}" for k, v in noise.kwargs.items()]
        if not self.out[-1].endswith(":"):
            self.out.append("")
        self.line(f"def {keys}({counter}):", chain.noise)
        self.depth += 1
        self.line(f"return {self.bring(noise.name, noise.fn)}({', '.join(['m', *args, *kwargs])})", chain.noise)
        self.depth -= 1
        self.out.append("")
        result = self.started(op, [tree])[0]
        alone = ["alone=True"] if chain.alone else []
        told = [self.use(chain.model), self.use(tree), self._int(lo), self._int(hi), keys, *alone]
        self.line(f"{result} = yield from m.roll({', '.join(told)})", op)

    def _int(self, v: Value) -> str:
        text = self.use(v)
        return text if v.type.elem == "int" or text.isdigit() else f"int({text})"

    def turned(self, op: Op, body: Region, results: list[str], carried: Sequence[Value]) -> None:
        """A turn: the body, carried values, and whether to stop."""
        into: list[tuple[str, Value | None] | None] = [*zip(results, carried, strict=True)]
        stops = bool(op.attrs.get("stops"))
        self.region(body, [None, *into] if stops else into)
        stop = self.use(body.yields[0]) if stops else "False"
        last = [self.use(y) for y in body.yields[1 if stops else 0 :]]
        changed = {name for name, v in zip(results, last, strict=True) if name != v}
        if changed & set(re.findall(r"\w+", stop)):
            self.line(f"stop = {stop}")
            stop = "stop"
        self.assign(results, last)
        if stop != "False":
            self.line(f"if {stop}:")
            self.depth += 1
            self.line("break")
            self.depth -= 1

    def op_while(self, op: Op) -> None:
        init = list(op.operands)
        limit = self.use(init.pop(0)) if op.attrs.get("limited") else None
        cond, body = op.regions
        results = self.started(op, init)
        self.hint = "turn"
        counter = self.name(cond.args[0])
        self.env[body.args[0]] = counter
        for region in (cond, body):
            self.env.update(zip(region.args[1:], results, strict=True))
        self.line(f"{counter} = 0")
        head, marked = len(self.out), self.marked
        self.line("while True:", op)
        self.depth += 1
        self.filled(op, results)
        self.region(cond)
        within = f"{counter} < {limit}" if limit else ""
        goes_on = self.use(cond.yields[0])
        if len(self.out) == head + 1:  # the condition is one expression
            del self.out[head]
            self.marked, self.depth = marked, self.depth - 1
            self.line(f"while {within + ' and ' + atom(goes_on) if within else goes_on}:", op)
            self.depth += 1
        else:
            self.out[head] = self.out[head].replace("while True:", f"while {within}:") if within else self.out[head]
            self.line(f"if {negated(goes_on)}:")
            self.depth += 1
            self.line("break")
            self.depth -= 1
        where = repr(str(op.loc))
        check = {"done": "check_progress", "cells": "check_waiting"}.get(str(op.attrs.get("bound")), "check_bound")
        self.line(f"m.{check}({where}, {counter})")
        self.turned(op, body, results, body.args[1:])
        self.line(f"{counter} += 1")  # last: what a turn yields may be its number
        self.depth -= 1

    def op_if(self, op: Op) -> None:
        into = []
        for r, y in zip(op.results, op.regions[0].yields, strict=True):
            self.hint = y.name or self.hint
            name = self.name(r)
            into.append((name, self.holders.get(name) if r in self.wishes else None))
        condition, head, marked = self.use(op.operands[0]), len(self.out), self.marked
        for n, region in enumerate(op.regions):
            line = f"if {condition}:" if n == 0 else "else:" if len(self.out) > head else f"if {negated(condition)}:"
            at, then = len(self.out), self.marked
            self.line(line, op if line != "else:" else None)
            self.depth += 1
            self.block(region, into)
            self.depth -= 1
            if len(self.out) == at + 1:  # nothing to do
                del self.out[at]
                self.marked = marked if n == 0 else then

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
            raise DecError(
                f"{op.loc}: the torch backend cannot call a model inside `{op.opcode}`",
                hint="evaluate it before, at every node, and look the rows up",
            )
        fn = self.names.fresh(name)
        if self.out and not self.out[-1].endswith(":"):
            self.out.append("")
        self.line(f"def {fn}({', '.join(self.name(a) for a in region.args)}):", op)
        self.depth += 1
        self.region(region)
        self.line(f"return {self.uses(region.yields)}")
        self.depth -= 1
        self.out.append("")
        return fn

    def op_tree_walk(self, op: Op) -> None:
        from decgraph.backends.torch.walk import walk

        made = self.kit.walk(op, self.function)
        if made is not None:
            given = "".join(f", {self.use(v)}" for v in (*op.operands[:2], *made.captured))
            self.line(f"{self.name(op.result)} = {self.bring(made.name, made.call)}(m{given})", op)
            return
        rule = self.function_of(op.regions[0], str(op.attrs.get("rule") or "rule").replace(".", "_"), op)
        tree, evidence = (self.use(v) for v in op.operands[:2])
        self.line(
            f"{self.name(op.result)} = {self.bring('walk', walk)}(m, {tree}, {evidence}, {rule}, scope={op.attrs['scope']!r})",
            op,
        )

    def op_run(self, op: Op) -> None:
        until = self.function_of(op.regions[0], "until", op)
        start, bound, *rest = (self.use(v) for v in op.operands)
        n = len(op.attrs["args"])
        tree = rest[n] if op.attrs["has_tree"] else "None"
        counters = rest[n + 1 if op.attrs["has_tree"] else n :]
        args = ", ".join(f"{k!r}: {v}" for k, v in zip(op.attrs["args"], rest))
        self.asks = True
        listed = "".join(f"{c}, " for c in counters)
        self.line(
            f"{self.name(op.result)} = yield from m.sub_run({op.attrs['callee']!r}, {op.attrs['site']!r}, {start}, "
            f"int({bound}), {{{args}}}, {tree}, ({listed}), {until})",
            op,
        )

    def _asked(self, op: Op, what: str, more: str = "") -> None:
        model, place, *rest = (self.use(v) for v in op.operands)
        extra = ", ".join(f"{k!r}: {v}" for k, v in zip(op.attrs.get("with", ()), rest))
        self.asks = True
        self.line(f"{self.name(op.result)} = yield m.{what}({model}, {place}, {{{extra}}}{more})", op)

    def op_model_eval(self, op: Op) -> None:
        part = f", part={op.attrs['part']!r}" if op.attrs.get("part") else ""
        self._asked(op, "evaluate", part + ("" if op.attrs.get("joint") else ", alone=True"))

    def op_model_memory(self, op: Op) -> None:
        self._asked(op, "memory", "" if op.attrs.get("joint") else ", alone=True")

    def op_segment(self, op: Op) -> None:
        fused = self.kit.fused(op)
        if fused is not None:
            name = self.bring(fused.name, fused.fn)
        else:
            segment = build_segment(op, {v: self.use(v) for v in op.operands}, self.kit)
            name = self.bring(segment.name, segment.call)
            for s in segment.all():
                self.segments.setdefault(s.name if s is not segment else name, s)
        region = op.regions[0]
        for r, y in zip(op.results, region.yields, strict=True):
            made = self.flow.maker(region, y)
            self.hint = y.name or (hint_of(region.ops[made], self.env) if made is not None else self.hint)
            self.name(r)
        self.line(f"{self.targets(op)} = {name}(m{''.join(', ' + self.use(v) for v in op.operands)})", op)

    def targets(self, op: Op) -> str:
        """The names of an op's results; one of several keeps its comma."""
        return ", ".join(self.name(r) for r in op.results)

    def op_model_evals(self, op: Op) -> None:
        model, *rest = (self.use(v) for v in op.operands)
        self.asks = True
        parts, first = [], 0
        for names in op.attrs["parts"]:
            n = 1 + len(names)
            place, *extra = rest[first : first + n]
            first += n
            parts.append(f"({place}, {{{', '.join(f'{k!r}: {v}' for k, v in zip(names, extra))}}})")
        alone = "" if op.attrs.get("joint") else ", alone=True"
        self.line(f"{self.targets(op)} = yield m.evaluate_together({model}, ({', '.join(parts)},){alone})", op)
