"""decgraph new: Write a commented file to start an algorithm of your own from."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from decgraph.cli import options, output
from decgraph.dsl.lexer import RESERVED
from decgraph.errors import DecError

START = '''\
# {name}: change the draft, then check whether the claim is still true.
#
#   decgraph run {file} --prompt "def fibonacci(n):"
#   decgraph check {file}
#   decgraph explain {file}
#
# The language is described in docs/language.md, a first algorithm in docs/tutorial.md.

algorithm {name}(target: causal, drafter: causal, gamma: int in 1..16 = 4):
    """What it does, in a sentence, and where it was published."""
    refines autoregressive(target) in distribution  # the claim that `decgraph check` decides

    while not done:  # until a stop token, a stop string or the limit
        draft t:  # a tree of guesses below what is committed
            repeat gamma:
                x ~ drafter(t.leaves)  # a draw at every leaf; it carries its distribution
                grow x
        verify t by rejection against target(t)  # rules: rejection, match, or one of your own
        commit t.accepted  # the accepted path, and the target's token after it
'''


def command(
    name: Annotated[str, typer.Argument(help="The algorithm's name; the file gets the ending .dec.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")] = False,
    json: options.Json = False,
) -> None:
    """Write a commented file to start an algorithm of your own from."""
    path = Path(name if name.endswith(".dec") else f"{name}.dec")
    word = path.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII) or word in RESERVED or keyword.iskeyword(word):
        suggestion = re.sub(r"\W+", "_", word, flags=re.ASCII).strip("_").lower() or "mine"
        if suggestion[0].isdigit() or suggestion in RESERVED or keyword.iskeyword(suggestion):
            suggestion = f"my_{suggestion}"
        raise DecError(f"{word!r} cannot be an algorithm's name", hint=f"decgraph new {suggestion}")
    if path.exists() and not force:
        raise DecError(f"{path} exists", hint="another name, or --force to overwrite it")
    output.write(path, START.format(name=word, file=path))
    if json:
        output.emit_json({"name": word, "file": str(path)})
    else:
        print(f"wrote {path}; next: decgraph run {path} --prompt 'def fibonacci(n):'")
