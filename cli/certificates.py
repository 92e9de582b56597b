"""Certificates on the command line: `decgraph check NAME --certificate FILE` writes them, `--verify FILE` checks them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import decgraph
from decgraph.check.certificate import verify
from decgraph.check.proof.certificates import certificates
from decgraph.cli import output


def check_place(path: Path | None, several: bool) -> None:
    """To be called before what takes minutes. Raises DecError where the certificates could not be written."""
    if path is None:
        return
    if not several:
        return output.check_writable(path, ".json")
    if not path.is_dir():
        raise decgraph.DecError(
            f"{path} is no folder", hint=f"of several algorithms there is a file for each: mkdir {path.with_suffix('')}"
        )


def write(path: Path, algorithms: Sequence[decgraph.Algorithm], several: bool, quiet: bool) -> None:
    """The certificates of each algorithm's derived claims: in a file, or of several in a file for each in a folder."""
    for algorithm in algorithms:
        made, notes = certificates(algorithm.module)
        place = path / f"{algorithm.name}.json" if several else path
        for note in notes if not quiet else ():
            print(f"{algorithm.name}: {note}", file=sys.stderr)
        if made["certificates"]:
            output.write(place, text(made) + "\n")
            if not quiet:
                print(f"wrote {place}: {len(made['certificates'])} of {algorithm.name}'s claims", file=sys.stderr)
        elif not several:
            print(f"{algorithm.name}: no claim has a derivation, so there is no certificate to write", file=sys.stderr)


def text(x: object, depth: int = 0) -> str:
    """JSON with a fact, an invariant or a proof on each line."""
    if depth == 5 or not isinstance(x, dict) and depth != 1 or not x or not isinstance(x, dict | list):
        return json.dumps(x, ensure_ascii=False)
    inner = (
        (f"{json.dumps(k, ensure_ascii=False)}: {text(y, depth + 1)}" for k, y in x.items()) if isinstance(x, dict) else None
    )
    lines = ",\n".join(" " * (depth + 1) + line for line in (inner or (text(y, depth + 1) for y in x)))
    return ("{\n%s\n%s}" if isinstance(x, dict) else "[\n%s\n%s]") % (lines, " " * depth)


def verified(algorithm: decgraph.Algorithm, path: Path, shown: bool) -> bool:
    """Whether a file's certificates show the algorithm's claims; each is said, and why not."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise decgraph.DecError(f"cannot read {path}: {error}", hint="decgraph check NAME --certificate writes one") from None
    lines, well = verify(algorithm.module, data)
    for line in lines if shown else ():
        print(line)
    return well
