"""Recordings of the authors' code: their own functions, run on tables of probabilities and on tiny models, written as data.

A file of tests/fidelity/golden/authors says what ran: the program of stdlib, the repository, commit and function, what the
cases cover ("greedy", "sampled" or both), notes on how parameters map and what was set or left out, and cases with their
parameters. A file of this folder has by its name what runs the authors' code on a case, in RECORDINGS; the code is read
from a snapshot of the repository outside this project. What it gave, the columns of a case, is written to the file, and
`tests/fidelity` replays it through decgraph. For a new recording the file is written without columns, a case a line.

    python -m lab recordings --snapshots FOLDER adadec     run the authors' code, write the columns of its file
    python -m lab recordings --snapshots FOLDER --check    run all that have a snapshot, compare with what is written

A snapshot is a git directory `FOLDER/owner+name/repo`, or a checkout `FOLDER/name`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from decgraph.errors import DecError
from lab.recordings.upstream import Upstream

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "tests" / "fidelity" / "golden" / "authors"
Case = Mapping[str, Any]


Run = Callable[[Upstream, Case], Mapping[str, Any]]
"""From the authors' code and a case's parameters to its columns, JSON-like values that decgraph must give too."""


@dataclass(frozen=True)
class Recording:
    """A file under tests/fidelity/golden/authors, as it is written, and what runs the authors' code on its cases."""

    path: Path
    said: dict[str, Any]
    run: Run

    def written(self, upstream: Upstream) -> list[dict[str, Any]]:
        """The file's cases, by running the authors' code. Lists of parameters reach it as tuples."""
        return [{**case, "columns": plain(self.run(upstream, _tuples(case["parameters"])))} for case in self.said["cases"]]


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """A value as JSON has it: lists for tuples, sorted lists for sets, numbers for arrays and tensors of one, nine digits."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(v) for v in value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return float(f"{value:.9g}") if isinstance(value, float) else value


def runs() -> dict[str, Run]:
    """By the name of a file of data what runs it."""
    found: dict[str, Run] = {}
    for path in sorted(HERE.glob("*.py")):
        if path.stem != "__init__":
            found |= getattr(importlib.import_module(f"lab.recordings.{path.stem}"), "RECORDINGS", {})
    return found


def recordings() -> list[Recording]:
    """All of them."""
    files = ((GOLDEN / f"{name}.json", run) for name, run in runs().items())
    return [Recording(path, json.loads(path.read_text("utf-8")), run) for path, run in files]


def command(
    names: Annotated[list[str] | None, typer.Argument(help="programs or files; none: all")] = None,
    snapshots: Annotated[Path, typer.Option(help="the folder of snapshots")] = Path("."),
    check: Annotated[bool, typer.Option(help="compare with what is written, and write nothing")] = False,
) -> None:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton
    every = [r for r in recordings() if not names or {r.said["algorithm"], r.path.stem} & {*names}]
    if names and (unknown := {*names} - {n for r in every for n in (r.said["algorithm"], r.path.stem)}):
        raise DecError(f"no recording is called {', '.join(sorted(unknown))}")
    same, other, left = 0, list[str](), list[str]()
    for one in every:
        repo, commit = one.said["source"]["repo"], one.said["source"]["commit"]
        with tempfile.TemporaryDirectory() as folder:
            upstream = Upstream.of(snapshots, repo, commit, Path(folder))
            if upstream is None:
                print(f"{one.path.stem}: no snapshot of {repo} at {commit[:8]} in {snapshots}", file=sys.stderr)
                left.append(one.path.stem)
                continue
            try:
                cases = one.written(upstream)
            except DecError as error:
                print(f"{one.path.stem}: {error}", file=sys.stderr)
                left.append(one.path.stem)
                continue
        if check:
            differing = [a["id"] for a, b in zip(one.said["cases"], cases, strict=True) if a != b]
            same, other = same + (not differing), [*other, *([one.path.stem] if differing else [])]
            print(f"{one.path.stem}: {len(cases) - len(differing)} of {len(cases)} cases the same {' '.join(differing)}")
        else:
            lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
            head = {name: value for name, value in one.said.items() if name != "cases"} | {"date": date.today().isoformat()}
            text = json.dumps(head, separators=(",", ":"))
            one.path.write_text(f'{text[:-1]},"cases":[\n{lines}\n]}}\n', "utf-8")
            print(f"{one.path}: {len(cases)} cases")
    if left and (names or len(left) == len(every)):
        raise DecError(f"not run: {', '.join(left)}")
    if check and other:
        raise DecError(f"other values than recorded: {', '.join(other)} ({same} the same)")
