"""What an entry of the harness is: a recording, what replays it, and the columns in which both are compared."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from lab.recordings import plain

FOLDER = Path(__file__).parent
GOLDEN = FOLDER / "golden"
Case = dict[str, Any]
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The columns of one case: what the recording has and what decgraph gave."""

    recorded: Columns
    ours: Columns

    @property
    def differing(self) -> tuple[str, ...]:
        """The columns that are not equal."""
        assert self.recorded.keys() == self.ours.keys()
        return tuple(c for c in self.recorded if self.recorded[c] != self.ours[c])


@dataclass(frozen=True)
class Entry:
    """A recording and what replays it. Adding a file is one of these in a list `ENTRIES` of a module `causal_*.py`,
    `settings_*.py`, `rules_*.py` or `masked_*.py` beside this one, or in transcribed/.

    file: "ar/hf_assisted", under golden/. program: the stdlib program, or the rule, by the name that readers know. replay: from
    a case and a backend to both sides' columns. kind: the chapter of the page. backends: all that replay it; the first cases of
    every file also go through triton where `triton` says how many. differs: for (case, column) a sentence that says why the two
    differ; those columns must differ, all others must agree. leaves_out: cases that are not replayed, each with its reason.
    note: how official parameters map, where that needs saying.
    """

    file: str
    program: str
    replay: Callable[[Case, str], Outcome]
    kind: Literal["causal", "setting", "rule", "masked"] = "causal"
    backends: tuple[str, ...] = ("torch", "reference")
    triton: int = 0
    differs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    leaves_out: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def cases(self) -> list[Case]:
        """The cases that are replayed."""
        return [c for c in recording(self.file)["cases"] if str(c["id"]) not in self.leaves_out]

    @property
    def everywhere(self) -> tuple[str, ...]:
        """The backends that replay it, triton among them."""
        return (*self.backends, "triton") if self.triton else self.backends

    def replayed_on(self, backend: str) -> list[Case]:
        """The cases that a backend replays."""
        return self.cases[: self.triton] if backend == "triton" else self.cases

    def expected(self, case: Case) -> set[str]:
        """The columns in which a case is known to differ."""
        return {column for (name, column) in self.differs if name in (str(case["id"]), "*")}


class Parameters(dict[str, Any]):
    """The parameters of a case, which remember what was not looked at."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.unread = set(given)

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        self.unread.discard(name)
        return super().get(name, default)


def recorded(program: str, ours: Callable[[Case, str], Columns], file: str = "", **more: Any) -> Entry:
    """An entry of a file that lab/recordings wrote. ours: from a case's parameters and a backend to its columns. file: under
    golden/authors, else the program's name."""

    def replay(case: Case, backend: str) -> Outcome:
        return Outcome(case["columns"], plain(ours(case["parameters"], backend)))

    return Entry(f"authors/{file or program}", program, replay, **more)


@cache
def recording(file: str) -> dict[str, Any]:
    """A file of golden/."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{file}.json").read_text(encoding="utf-8"))
    return found


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, by chapter and file."""
    found: list[Entry] = []
    for pattern in ("causal_*", "transcribed/*", "settings_*", "rules_*", "masked_*"):
        for path in sorted(FOLDER.glob(f"{pattern}.py")):
            module = importlib.import_module(".".join(("fidelity", *path.relative_to(FOLDER).with_suffix("").parts)))
            found += getattr(module, "ENTRIES", [])
    return tuple(found)


@cache
def later() -> dict[str, str]:
    """Recordings without an entry, with what no program of stdlib says yet."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*_later.py")):
        found |= importlib.import_module(f"fidelity.{path.stem}").WITHOUT
    return found


def columns(entry: Entry) -> Sequence[str]:
    """The names of an entry's columns."""
    return list(entry.replay(entry.cases[0], entry.backends[0]).recorded)
