"""Notebooks: `%load_ext decgraph`, then a cell that starts with `%%dec` is an algorithm, bound to its own name.

    %%dec                    parse the cell
    %%dec --check            and decide its claims
    %%dec --name mine        and call it so here

What is wrong with a cell is shown with its line and caret, without a traceback.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from decgraph.api import Algorithm, parse
from decgraph.dsl import syntax as S
from decgraph.dsl.parse import parse_text
from decgraph.editor.fragments import diagnostics, fragment
from decgraph.errors import DecError

OPTIONS = "%%dec [--check] [--name NAME] [--quiet] [--seconds N]"


class ShownHtml:
    """A piece of HTML, and the same as text for terminals."""

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


class _Options(argparse.ArgumentParser):
    """Options of the magic: mistakes in them are reported as all others."""

    def error(self, message: str) -> Any:
        raise DecError(f"%%dec: {message}", hint=OPTIONS)


def options(line: str) -> argparse.Namespace:
    """The words after `%%dec`. Raises DecError for others."""
    parser = _Options(prog="%%dec", add_help=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--name", default="")
    parser.add_argument("--seconds", type=float, default=None)
    try:
        given = parser.parse_args(shlex.split(line))
    except ValueError as error:  # a quote that is still open
        raise DecError(f"%%dec: {error}", hint=OPTIONS) from None
    if given.name and not given.name.isidentifier():
        raise DecError(f"`{given.name}` cannot be a name of Python")
    return given


def read(cell: str, number: int | str = "") -> dict[str, Algorithm]:
    """The algorithms of a cell by name, in order. Raises DecError with everything that is wrong with it."""
    path = f"<cell {number}>" if number else "<cell>"
    last = parse(cell, path=path)
    names = [item.name for item in parse_text(cell, path).items if isinstance(item, S.Algorithm)]
    if not names:
        raise DecError("this cell has no algorithm", hint="algorithm name(target: causal): ...")
    return {name: last if name == last.name else parse(cell, path=path, main=name) for name in names}


def dec(shell: Any, line: str, cell: str) -> None:
    """The cell magic: parses, shows, and binds the algorithms of a cell in a shell."""
    from IPython.display import display

    try:
        given = options(line)
        found = read(cell, shell.execution_count)
        last = list(found)[-1]
        shell.push({given.name if given.name and name == last else name: value for name, value in found.items()})
        if given.check:
            for value in found.values():
                report = value.check(**({} if given.seconds is None else {"seconds": given.seconds}))
                display(ShownHtml(fragment(report), verdict(report)))
        elif not given.quiet:
            display(ShownHtml(fragment(found[last]), repr(found[last])))
    except DecError as error:
        display(ShownHtml(diagnostics(error), str(error)))


def verdict(report: Any) -> str:
    """A check's verdict as text, with the counterexample."""
    said = f"{report.verdict} {report.name}"
    return said if report.counterexample is None else f"{said}\n\n{report.counterexample.render()}"


def load(shell: Any) -> None:
    """Registers the magic, colours of `%%dec` cells are the notebook's own; errors lose their tracebacks."""
    shell.register_magic_function(lambda line, cell: dec(shell, line, cell), "cell", "dec")

    def told(shell: Any, kind: object, error: DecError, traceback: object, tb_offset: object = None) -> None:
        from IPython.display import display

        display(ShownHtml(diagnostics(error), str(error)))

    shell.set_custom_exc((DecError,), told)
