"""Generated drivers as programs: compiling, printing, and locating errors.

`--emit python` prints the text that runs, which is a module of its own: it can be saved, edited and run (generated.py). The
text is registered with linecache, so tracebacks, debuggers and profiles show it.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from types import FrameType, GeneratorType
from typing import Any
from weakref import WeakKeyDictionary, finalize

from decgraph.backends.torch.header import Header
from decgraph.backends.torch.kit import TORCH, Kit
from decgraph.backends.torch.texts import function_name
from decgraph.backends.torch.writer import Writer
from decgraph.ir.values import Function, Module, Op
from decgraph.ir.walk import functions_of

_SERIAL = count(1)


@dataclass
class Driver:
    """A compiled function. `driver(m, *parameters)` is a generator of model calls; `starts` give states their first values;
    `source` is the text of the module that they are in."""

    name: str
    source: str
    filename: str
    driver: Callable[..., Any]
    starts: dict[str, Callable[..., Any]]
    lines: dict[int, Op] = field(repr=False, default_factory=dict)

    def place(self, error: BaseException) -> tuple[str, str] | None:
        """(source place, opcode) of the line of this program that an error came through last."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            op = self.lines.get(frame.lineno or 0) if frame.filename == self.filename else None
            if op is not None:
                return (op.loc.told if op.loc.line else "", op.opcode)
        return None

    def ops(self, waiting: Generator[Any, Any, Any] | None = None) -> Iterator[Op]:
        """The operations of this program's lines that are being run, the innermost first. waiting: the run, which waits
        for a model call while nothing of it is on the stack.

        Only generators that are suspended are asked what they wait for: CPython 3.11 reads `gi_yieldfrom` of a running one
        from the inline cache after its call instruction, and where those bits look like an instruction, follows a wild pointer.
        """
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        suspended: list[FrameType] = []
        inner: Any = waiting
        while isinstance(inner, GeneratorType) and inner.gi_frame is not None and not inner.gi_running:
            suspended.insert(0, inner.gi_frame)
            inner = inner.gi_yieldfrom
        for frame in (*frames, *suspended):
            if frame.f_code.co_filename == self.filename:
                above = range(frame.f_lineno, frame.f_code.co_firstlineno, -1)  # a line may be a part of a statement
                op = next((self.lines[n] for n in above if n in self.lines and self.lines[n].loc.line), None)
                if op is not None:
                    yield op


_PROGRAMS: WeakKeyDictionary[Function, dict[Kit, Driver]] = WeakKeyDictionary()


def program_of(module: Module, name: str, kit: Kit = TORCH) -> Driver:
    """The program of a function, compiled on first use."""
    f = module.functions[name]
    made = _PROGRAMS.setdefault(f, {})
    if kit not in made:
        made[kit] = kit.program(f) or compile_function(f, kit)
    return made[kit]


class _Text:
    """What the functions of a generated text have in common."""


def compile_function(f: Function, kit: Kit = TORCH) -> Driver:
    """Generate and load the program of a function. Raises DecError for an op that the backend does not implement."""
    return loaded([f], kit)[0]


def printed(module: Module, kit: Kit = TORCH) -> str:
    """The text for a module: its main function, after the functions that it runs on scratch contexts."""
    return loaded(functions_of(module), kit)[0].source


def loaded(functions: Sequence[Function], kit: Kit) -> list[Driver]:
    """The functions as one Python module, loaded."""
    header = Header(function_name(f.name) for f in functions)
    writer, titles = Writer(header, kit), []
    for f in functions:
        writer.out += ["", ""]
        titles.append(writer.function(f))
    top = [f'"""{title(functions)}"""', "", *header.text().splitlines()]
    source = "\n".join([*top, *writer.out]) + "\n"
    lines = {n + len(top): op for n, op in writer.lines.items()}
    filename = f"<decgraph {functions[-1].name} {next(_SERIAL)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    text = _Text()  # lives as long as any function of the text
    finalize(text, linecache.cache.pop, filename, None).atexit = False
    scope = {"__name__": f"decgraph.generated.{functions[-1].name}", "__text__": text, **header.brought}
    exec(compile(source, filename, "exec"), scope)  # our own text over our own functions
    return [
        Driver(f.name, source, filename, scope[driver], {s: scope[fn] for s, fn in starts.items()}, lines)
        for f, (driver, starts) in zip(functions, titles, strict=True)
    ]


def title(functions: Sequence[Function]) -> str:
    """The first line of a generated module: the algorithm, its source, and the version of decgraph."""
    main = functions[-1]
    return f"{main.name}, from {main.loc.path or 'a module'}: generated by decgraph{installed()} for the torch backend."


def installed() -> str:
    """The version of decgraph, after a space; "" where it runs from a folder that is not installed."""
    try:
        return " " + version("decgraph")
    except PackageNotFoundError:
        return ""
