"""decgraph fmt: Put .dec files into the house format; comments stay."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

import typer

from decgraph.cli import options, output
from decgraph.dsl.format import format_source
from decgraph.errors import DecError


def command(
    paths: Annotated[list[Path], typer.Argument(help="Files, folders (every .dec below), or - for stdin.")],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file would.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change.")] = False,
    json: options.Json = False,
) -> None:
    """Put .dec files into the house format; comments stay.

    A file that does not parse stays as it is and is reported; the others are still formatted.
    """
    if paths == [Path("-")]:
        sys.stdout.write(format_source(sys.stdin.read(), "<stdin>"))
        return
    write = not (check or diff)
    rows: list[dict[str, object]] = []
    faults: list[object] = []
    for path in expand(paths):
        try:
            old = read(path)
            new = format_source(old, str(path))
            changed = new != old
            if changed and write:
                output.write(path, new)
        except DecError as error:
            faults.extend(error.diagnostics)
            rows.append({"file": str(path), "changed": False, "error": str(error)})
            continue
        rows.append({"file": str(path), "changed": changed})
        if not json:
            tell(path, old, new, write=write, diff=diff)
    if json:
        output.emit_json({"files": rows})
    if faults:
        raise DecError(faults) if not json else typer.Exit(output.REFUSED)
    if check and any(row["changed"] for row in rows):
        raise typer.Exit(output.FAILED)


def expand(paths: list[Path]) -> list[Path]:
    """Files as named, folders as the .dec files below them, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        found.update(dict.fromkeys(sorted(path.rglob("*.dec")) if path.is_dir() else [path]))
    return list(found)


def read(path: Path) -> str:
    """The text of a file. Raises DecError where it cannot be read, and where it is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise DecError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DecError(f"{path} is not UTF-8 text (byte {error.start})") from None


def tell(path: Path, old: str, new: str, *, write: bool, diff: bool) -> None:
    """Print what became of a file: its name, or with `diff` the lines that change."""
    if old == new:
        return
    if diff:
        lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(path), f"{path} (formatted)")
        sys.stdout.writelines(line if line.endswith("\n") else f"{line}\n" for line in lines)
    else:
        print(f"{'formatted' if write else 'would format'} {path}")
