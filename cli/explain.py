"""decgraph explain: Say what an algorithm does, in words and as a drawing of its step."""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated

import typer

import decgraph
from decgraph.cli import given, output

CODE = re.compile(r"[EW]\d{3}")


def command(
    algorithm: Annotated[
        str,
        typer.Argument(
            help="A name that `decgraph list` prints, a .dec file, or an error's code.", autocompletion=given.algorithms
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what an algorithm does, in words and as a drawing of its step; or what an error's code means."""
    if CODE.fullmatch(algorithm):
        text = page(algorithm)
        output.emit_json({"code": algorithm, "text": text}) if json else print(text)
        return
    chosen = decgraph.load(algorithm)
    explanation = chosen.explanation()
    if json:
        output.emit_json({**asdict(explanation), "file": chosen.path, "source": chosen.source})
        return
    from rich.text import Text

    shown = Text(explanation.text())
    shown.highlight_regex(r"(?m)^[a-z]\w*( \w+)*(, drawn)?$", "bold")
    shown.highlight_regex(r"(?m)^ {1,4}\d+  ", "dim")
    output.console().print(shown)


def page(code: str) -> str:
    """The page of a code: docs/errors, which the package carries as `error_pages`. Raises DecError where there is none."""
    path = files("decgraph") / "error_pages" / f"{code}.md"
    if not path.is_file():
        raise decgraph.DecError(f"there is no page about {code}", hint="codes look like E031; docs/errors lists them")
    return path.read_text(encoding="utf-8").rstrip()
