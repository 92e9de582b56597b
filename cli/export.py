"""decgraph export: Write an algorithm in the form that another library runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph.cli import given, output

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Write an algorithm in the form that another library runs."""


@app.command("hf")
def hf(
    algorithm: Annotated[str, given.algorithm()],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write; default: the algorithm's name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a folder for transformers: model.generate(..., custom_generate=FOLDER, trust_remote_code=True)."""
    from decgraph.hf.repository import export

    chosen = decgraph.load(algorithm)
    folder = out if out is not None else Path(chosen.name)
    files = export(chosen, folder, force=force)
    if json:
        output.emit_json({"name": chosen.name, "folder": str(folder), "files": [str(path) for path in files]})
    else:
        for path in files:
            print(f"wrote {path}")
        print(f'next: model.generate(ids, custom_generate="{folder}", trust_remote_code=True)')
