"""Recordings of the authors' code: their own functions, run on tables of probabilities and on tiny models, written as data.

A file of this folder has a list RECORDINGS. Each names a program of stdlib, the repository, commit and function whose code
runs, and what runs it on a case. The code is read from a snapshot of the repository outside this project; data
alone is written here, to tests/fidelity/golden/authors, and `tests/fidelity` replays it through decgraph.

    python -m lab recordings --snapshots FOLDER adadec     run the authors' code, write its file
    python -m lab recordings --snapshots FOLDER --check    run all that have a snapshot, compare with what is written

A snapshot is a git directory `FOLDER/owner+name/repo`, or a checkout `FOLDER/name`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class Recording:
    """What of the authors' code runs, on which cases.

    program: of stdlib. repo, commit: "owner/name" and the full hash. function: file and function, for readers. run: from the
    code and a case's parameters to columns, JSON-like values that decgraph must give too. cases: parameters by name, JSON-like.
    scope: "greedy", "sampled" or "greedy, sampled", what the cases cover. notes: how parameters map, what was set or left out.
    name: of the file, where a program has several.
    """

    program: str
    repo: str
    commit: str
    function: str
    run: Callable[[Upstream, Case], Mapping[str, Any]]
    cases: Mapping[str, Case]
    scope: str
    notes: str = ""
    name: str = ""

    @property
    def path(self) -> Path:
        """The file under tests/fidelity/golden/authors."""
        return GOLDEN / f"{self.name or self.program}.json"

    def written(self, upstream: Upstream) -> dict[str, Any]:
        """The file's content, by running the authors' code."""
        cases = [
            {"id": name, "parameters": plain(case), "columns": plain(self.run(upstream, case))}
            for name, case in self.cases.items()
        ]
        source = {"repo": self.repo, "commit": self.commit, "function": self.function}
        head = {"algorithm": self.program, "source": source, "scope": self.scope, "date": date.today().isoformat()}
        return {**head, "notes": self.notes, "cases": cases}


def tabled(name: str, columns: str, rows: Sequence[Sequence[Any]], **shared: Any) -> dict[str, dict[str, Any]]:
    """Cases from the rows of a table. name: of a case, with its values in braces; shared: what all cases have."""
    cases = [{**shared, **dict(zip(columns.split(), row, strict=True))} for row in rows]
    return {name.format(**case): case for case in cases}


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


def recordings() -> list[Recording]:
    """All of them, by file."""
    found: list[Recording] = []
    for path in sorted(HERE.glob("*.py")):
        found += (
            getattr(importlib.import_module(f"lab.recordings.{path.stem}"), "RECORDINGS", []) if path.stem != "__init__" else []
        )
    return found


def command(
    names: Annotated[list[str] | None, typer.Argument(help="programs or files; none: all")] = None,
    snapshots: Annotated[Path, typer.Option(help="the folder of snapshots")] = Path("."),
    check: Annotated[bool, typer.Option(help="compare with what is written, and write nothing")] = False,
) -> None:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton
    every = [r for r in recordings() if not names or {r.program, r.path.stem} & {*names}]
    if names and (unknown := {*names} - {n for r in every for n in (r.program, r.path.stem)}):
        raise DecError(f"no recording is called {', '.join(sorted(unknown))}")
    same, other, left = 0, list[str](), list[str]()
    for one in every:
        with tempfile.TemporaryDirectory() as folder:
            upstream = Upstream.of(snapshots, one.repo, one.commit, Path(folder))
            if upstream is None:
                print(f"{one.path.stem}: no snapshot of {one.repo} at {one.commit[:8]} in {snapshots}", file=sys.stderr)
                left.append(one.path.stem)
                continue
            try:
                found = one.written(upstream)
            except DecError as error:
                print(f"{one.path.stem}: {error}", file=sys.stderr)
                left.append(one.path.stem)
                continue
        if check:
            cases = json.loads(one.path.read_text("utf-8"))["cases"]
            differing = [a["id"] for a, b in zip(cases, found["cases"], strict=True) if a != b]
            same, other = same + (not differing), [*other, *([one.path.stem] if differing else [])]
            print(f"{one.path.stem}: {len(cases) - len(differing)} of {len(cases)} cases the same {' '.join(differing)}")
        else:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in found.pop("cases"))
            head = json.dumps(found, separators=(",", ":"))
            one.path.write_text(f'{head[:-1]},"cases":[\n{lines}\n]}}\n', "utf-8")
            print(f"{one.path}: {len(one.cases)} cases")
    if left and (names or len(left) == len(every)):
        raise DecError(f"not run: {', '.join(left)}")
    if check and other:
        raise DecError(f"other values than recorded: {', '.join(other)} ({same} the same)")
