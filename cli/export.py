"""decgraph export: Write an algorithm in the form that another library runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import decgraph
from decgraph.cli import options, output, parsing

if TYPE_CHECKING:
    from decgraph.backends.exports.file import Seam

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Write an algorithm in the form that another library runs."""


@app.command("hf")
def hf(
    algorithm: Annotated[str, options.algorithm()],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write; default: the algorithm's name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    json: options.Json = False,
) -> None:
    """Write a folder for transformers: model.generate(..., custom_generate=FOLDER, trust_remote_code=True)."""
    from decgraph.hf.repository import export

    chosen = decgraph.load(algorithm)
    output.check_folder(out)
    folder = out if out is not None else Path(chosen.name)
    files = export(chosen, folder, force=force)
    if json:
        output.emit_json({"name": chosen.name, "folder": str(folder), "files": [str(path) for path in files]})
    else:
        for path in files:
            print(f"wrote {path}")
        print(f'next: model.generate(ids, custom_generate="{folder}", trust_remote_code=True)')


@app.command("vllm")
def vllm(
    algorithm: Annotated[str, options.algorithm()],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; default: ALGORITHM_vllm.py.")] = None,
    set_: options.Set = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Write a drafter for vLLM (method custom_class), where the algorithm drafts a chain from token ids alone."""
    from decgraph.backends.exports.vllm import VLLM

    write(VLLM, algorithm, out, set_, force=force, as_json=json)


@app.command("sglang")
def sglang(
    algorithm: Annotated[str, options.algorithm()],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; default: ALGORITHM_sglang.py.")] = None,
    set_: options.Set = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Write a drafter for SGLang (a registered algorithm), where the algorithm drafts a chain from token ids alone."""
    from decgraph.backends.exports.sglang import SGLANG

    write(SGLANG, algorithm, out, set_, force=force, as_json=json)


def write(seam: Seam, algorithm: str, out: Path | None, set_: list[str] | None, *, force: bool, as_json: bool) -> None:
    """Write an algorithm as a drafter of an engine. Raises DecError where it does not fit, and for a file that is there."""
    from decgraph.backends.exports.file import exported
    from decgraph.passes.manager import optimise
    from decgraph.runtime.session import check_params

    chosen = decgraph.load(algorithm)
    params = check_params(chosen.function, parsing.known(chosen.function, parsing.pairs(set_ or (), "--set")))
    made = optimise(chosen.module, params, only=("simplify",))[0]
    file = exported(seam, made, params, source=chosen.source, version=decgraph.__version__)
    path = out if out is not None else Path(f"{file.name}.py")
    if path.exists() and not force:
        raise decgraph.DecError(f"{path} is there already", hint="--force, or another --out")
    output.check_writable(path, ".py", what="Python")
    output.write(path, file.text)
    if as_json:
        output.emit_json(
            {"name": chosen.name, "file": str(path), "class": file.class_name, "made_for": seam.made_for, "most": file.most}
        )
        return
    drafts = f"drafts of at most {file.most} tokens" if file.most else "drafts of no fixed length"
    print(f"wrote {path}: {file.class_name}, {drafts}, made for {seam.made_for}")
    print(f"{seam.run} How it is started stands at its top.")
