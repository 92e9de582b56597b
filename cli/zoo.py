"""decgraph zoo: The shipped models and the folders they lie in."""

from __future__ import annotations

from typing import Annotated

import typer

import decgraph
from decgraph.cli import output

app = typer.Typer(no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_models(json: Json = False) -> None:
    """Every shipped model and its folder; a model whose weights are not on this machine has none."""
    folders = {name: folder(name) for name in decgraph.zoo.names()}
    if json:
        output.emit_json([{"name": name, "path": path} for name, path in folders.items()])
    else:
        output.print_table(("model", "folder"), list(folders.items()))


def folder(name: str) -> str | None:
    """A shipped model's folder; None where its weights are not on this machine."""
    try:
        return str(decgraph.zoo.path(name))
    except decgraph.DecError:
        return None


@app.command("path")
def path_of(name: Annotated[str, typer.Argument(help="A name that `decgraph zoo list` prints.")], json: Json = False) -> None:
    """The folder of one model, as transformers' from_pretrained takes it."""
    path = str(decgraph.zoo.path(name))
    if json:
        output.emit_json({"name": name, "path": path})
    else:
        print(path)
