"""decgraph export: Write an algorithm in the form that another library runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import decgraph
from decgraph.cli import options, output, parsing

app = typer.Typer(add_completion=False)


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
    from decgraph.hf.repository import call, export

    chosen = decgraph.load(algorithm)
    output.check_folder(out)
    say_refuted(chosen, algorithm)
    folder = out if out is not None else Path(chosen.name)
    files = export(chosen, folder, force=force)
    if json:
        output.emit_json({"name": chosen.name, "folder": str(folder), "files": [str(path) for path in files]})
    else:
        for path in files:
            print(f"wrote {path}")
        print(f"next, as its README.md says in full:\n{call(chosen, str(folder))}")


def say_refuted(chosen: decgraph.Algorithm, algorithm: str, values: Mapping[str, Any] | None = None) -> None:
    """A warning where a check of two seconds refutes a claim: the other library would run it all the same."""
    if chosen.check(params=values, models=2, seconds=2).verdict == "refuted":
        warnings.warn(f"what {chosen.name} claims is refuted: decgraph check {algorithm} shows a counterexample")


As = Annotated[str, typer.Option("--as", help="The interface: logits, drafts or dllm; default: the first one that fits.")]
To = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; default: ALGORITHM_ENGINE.py.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")]


@app.command("vllm")
def vllm(
    algorithm: Annotated[str, options.algorithm()],
    out: To = None,
    set_: options.Set = None,
    as_: As = "",
    force: Force = False,
    json: options.Json = False,
) -> None:
    """Write a file for vLLM: a logits processor, or a drafter."""
    write("vllm", algorithm, out, set_, as_, force=force, as_json=json)


@app.command("sglang")
def sglang(
    algorithm: Annotated[str, options.algorithm()],
    out: To = None,
    set_: options.Set = None,
    as_: As = "",
    force: Force = False,
    json: options.Json = False,
) -> None:
    """Write a file for SGLang: a custom logit processor, a speculative worker, or a dLLM algorithm."""
    write("sglang", algorithm, out, set_, as_, force=force, as_json=json)


def write(
    engine: str, algorithm: str, out: Path | None, set_: list[str] | None, key: str, *, force: bool, as_json: bool
) -> None:
    """Write an algorithm as a file of an engine. Raises DecError where it does not fit, and for a file that is there."""
    from decgraph.backends.seams.file import KINDS, exported

    chosen = decgraph.load(algorithm)
    values = parsing.known(chosen.function, parsing.pairs(set_ or (), "--set"))
    file = exported(engine, chosen.module, values, key=key, source=chosen.source, version=decgraph.__version__)
    path = out if out is not None else Path(f"{file.name}.py")
    if path.exists() and not force:
        raise decgraph.DecError(f"{path} is there already", hint="--force, or another --out")
    output.check_writable(path, ".py", what="Python")
    say_refuted(chosen, algorithm, values)
    output.write(path, file.text)
    one, found = file.interface, file.trial
    if as_json:
        about = {"interface": one.key, "made_for": one.made_for, "most": found.most or None, "open": list(found.open)}
        output.emit_json({"name": chosen.name, "file": str(path), "class": file.class_name, **about})
        return
    drafts = f", drafts of at most {found.most} tokens" if found.most else ""
    print(f"wrote {path}: {file.class_name}, {KINDS[one.key]}{drafts}, made for {one.made_for}")
    print(f"{one.ran} How it is started stands at its top.")
    if found.open:
        print(f"a request may set {', '.join(found.open)}; other parameters are as the file has them")
    shared = [state.name for state in chosen.function.states if state.scope == "session"]
    if shared:
        print(f"note: {', '.join(shared)}: kept per session; there each request is a session of its own")
    print(f"next: decgraph check {algorithm} --engine {engine}")
