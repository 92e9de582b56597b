"""decgraph new: Write a commented file to start an algorithm of your own from."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from decgraph.cli import completion, options, output, parsing
from decgraph.dsl.lexer import RESERVED
from decgraph.errors import DecError

STARTERS = Path(__file__).parent / "starters"
"""A file for each kind, whose algorithm is called `mine`."""
KINDS = tuple(sorted(path.stem for path in STARTERS.glob("*.dec")))


def command(
    name: Annotated[str, typer.Argument(help="The algorithm's name; the file gets the ending .dec.")],
    kind: Annotated[
        str, options.option("--kind", help=f"What to start from: {', '.join(KINDS)}.", autocompletion=completion.choice(*KINDS))
    ] = "speculative",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")] = False,
    json: options.Json = False,
) -> None:
    """Write a commented file to start an algorithm of your own from."""
    parsing.one_of("kind", kind, KINDS)
    path = Path(name if name.endswith(".dec") else f"{name}.dec")
    word = path.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII) or word in RESERVED or keyword.iskeyword(word):
        suggestion = re.sub(r"\W+", "_", word, flags=re.ASCII).strip("_").lower() or "mine"
        if suggestion[0].isdigit() or suggestion in RESERVED or keyword.iskeyword(suggestion):
            suggestion = f"my_{suggestion}"
        raise DecError(f"{word!r} cannot be an algorithm's name", hint=f"decgraph new {suggestion}")
    if path.exists() and not force:
        raise DecError(f"{path} exists", hint="another name, or --force to overwrite it")
    start = (STARTERS / f"{kind}.dec").read_text(encoding="utf-8")
    text = re.sub(r"\bmine(\.dec)?", lambda found: str(path) if found[1] else word, start)
    output.write(path, text)
    if json:
        output.emit_json({"name": word, "file": str(path)})
    else:
        print(f"wrote {path}; next: {next(line[1:].strip() for line in text.splitlines() if 'decgraph run' in line)}")
