"""Generated drivers as programs: compiling, printing, and locating errors.

`--emit python` prints the text that runs, which is a module of its own: it can be saved, edited and run (generated.py). The
text is registered with linecache, so tracebacks, debuggers and profiles show it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, finalize

from decgraph.backends.torch import control_flow
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.header import Header
from decgraph.backends.torch.lowering import written
from decgraph.backends.torch.texts import function_name
from decgraph.backends.torch.values import literal
from decgraph.backends.torch.writer import Form, Writer
from decgraph.ir.values import Function, Module, Op
from decgraph.ir.walk import functions_of


def _call(w: Writer, op: Op, what: str, more: str = "", *, asks: bool = True) -> None:
    model, place, *rest = (w.use(v) for v in op.operands)
    named = [*zip(op.attrs.get("with", ()), rest), *([("queries", "True")] if op.attrs.get("queries") else [])]
    extra = ", ".join(f'"{k}": {v}' for k, v in named)
    w.asks |= asks
    given = f", {{{extra}}}" if extra else ""
    w.line(f"{w.name(op.result)} = {'yield ' if asks else ''}m.{what}({model}, {place}{given}{more})", op)


def evaluation(w: Writer, op: Op) -> None:
    """A call of a model at a place."""
    part = f", part={literal(op.attrs['part'])}" if op.attrs.get("part") else ""
    drafts = ", drafts=True" if op.attrs.get("drafts") else ""
    _call(w, op, "evaluate", part + drafts + ("" if op.attrs.get("joint") else ", alone=True"))


def reading(w: Writer, op: Op) -> None:
    """A call of a model after a text of its own."""
    each = ", each=True" if op.attrs.get("each") else ""
    given = f", {w.use(op.operands[2])}" if op.attrs.get("given") else ""
    _call(w, op, "read_tokens", given + each + ("" if op.attrs.get("joint") else ", alone=True"))


def fold(w: Writer, op: Op) -> None:
    """A number of every sequence of the batch, folded."""
    w.asks = True
    site = f"{w.f.name}:{op.loc.line}:{op.loc.column}"
    w.line(f"{w.name(op.result)} = yield m.fold({w.use(op.operands[0])}, {op.attrs['fn']!r}, {site!r})", op)


def top(w: Writer, op: Op) -> None:
    """The best candidates of the whole batch."""
    w.asks = True
    x, k, *by = (w.use(v) for v in op.operands)
    site = f"{w.f.name}:{op.loc.line}:{op.loc.column}"
    keys = "".join(f"{b}, " for b in by)
    w.line(f"{w.name(op.result)} = yield m.batch_top({x}, {k}, ({keys}), {site!r})", op)


def memory(w: Writer, op: Op) -> None:
    """A call of a model for its memory of a canvas; that of a text is its description, for which no engine is asked."""
    asks = op.operands[1].type.elem == "canvas"
    _call(w, op, "memory", ", alone=True" if asks and not op.attrs.get("joint") else "", asks=asks)


def evaluations(w: Writer, op: Op) -> None:
    """One call for several places of a model."""
    model, *rest = (w.use(v) for v in op.operands)
    w.asks = True
    parts, first = [], 0
    for names in op.attrs["parts"]:
        place, *extra = rest[first : first + 1 + len(names)]
        first += 1 + len(names)
        given = ", ".join(f'"{k}": {v}' for k, v in zip(names, extra))
        parts.append(f"({place}, {{{given}}})")
    alone = "" if op.attrs.get("joint") else ", alone=True"
    w.line(f"{w.values.targets(op)} = yield m.evaluate_together({model}, ({', '.join(parts)},){alone})", op)


CALLS: dict[str, Form] = {
    "batch.fold": fold,
    "batch.top": top,
    "model.eval": evaluation,
    "model.evals": evaluations,
    "model.memory": memory,
    "model.read": reading,
}


_SERIAL = count(1)
FORMS = {**control_flow.FORMS, **CALLS}
written("const", "segment", *FORMS)  # a constant stands where it is used, the ops of a segment in its place


class _Text:
    """What the functions of a generated text have in common."""


def compile_function(f: Function) -> Driver:
    """Generate and load the program of a function. Raises DecError for an op that the backend does not implement."""
    return loaded([f])[0]


_PROGRAMS: WeakKeyDictionary[Function, dict[Callable[[Function], Driver], Driver]] = WeakKeyDictionary()


def program_of(module: Module, name: str, compiled: Callable[[Function], Driver] = compile_function) -> Driver:
    """The program of a function, compiled on first use."""
    f = module.functions[name]
    made = _PROGRAMS.setdefault(f, {})
    if compiled not in made:
        made[compiled] = compiled(f)
    return made[compiled]


def printed(module: Module) -> str:
    """The text for a module: its main function, after the functions that it runs on scratch contexts."""
    return loaded(functions_of(module))[0].source


def loaded(functions: Sequence[Function]) -> list[Driver]:
    """The functions as one Python module, loaded."""
    header = Header(function_name(f.name) for f in functions)
    writer, titles = Writer(header, FORMS), []
    for f in functions:
        writer.lines.text += ["", ""]
        titles.append(writer.function(f))
    top = [f'"""{title(functions)}"""', "", *header.text().splitlines()]
    source = "\n".join([*top, *writer.lines.text]) + "\n"
    lines = {n + len(top): op for n, op in writer.lines.ops.items()}
    filename = f"<decgraph {functions[-1].name} {next(_SERIAL)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    text = _Text()  # lives as long as any function of the text
    finalize(text, linecache.cache.pop, filename, None).atexit = False
    scope: dict[str, Any] = {"__name__": f"decgraph.generated.{functions[-1].name}", "__text__": text}
    exec(compile(source, filename, "exec"), scope)  # our own text over our own functions
    return [
        Driver(f.name, source, filename, scope[driver], {s: scope[fn] for s, fn in starts.items()}, lines)
        for f, (driver, starts) in zip(functions, titles, strict=True)
    ]


def title(functions: Sequence[Function]) -> str:
    """The first line of a generated module: the algorithm, its source, and the version of decgraph."""
    main = functions[-1]
    path = main.loc.path.replace("\\", "\\\\") or "a module"  # it stands in a docstring
    return f"{main.name}, from {path}: generated by decgraph{installed()} for the torch backend."


def installed() -> str:
    """The version of decgraph, after a space; "" where it runs from a folder that is not installed."""
    try:
        return " " + version("decgraph")
    except PackageNotFoundError:
        return ""
