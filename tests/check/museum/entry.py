"""An entry of the museum: one bug that an engine shipped, the programs that have it, and what finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """A program of this folder and the verdict on it: proved, holds, refuted, or the code of the error that refuses it.
    options: of `decgraph.check`. outside: it asks for something that the language has no words for."""

    name: str
    verdict: str
    options: Mapping[str, Any] = field(default_factory=dict)
    outside: bool = False


@dataclass(frozen=True)
class Entry:
    """One bug. wrong: what was wrong, in a sentence. tests: functions of tests/check/test_museum_engine.py that look for it
    in our engine. why: what keeps it out, where that is not plain."""

    number: str
    source: str
    wrong: str
    programs: tuple[Program, ...] = ()
    tests: tuple[str, ...] = ()
    why: str = ""

    @property
    def status(self) -> tuple[str, ...]:
        """How it is found or kept out: refuted, refused, outside (of the language), engine test."""
        verdicts = [
            ("outside" if p.outside else "refuted" if p.verdict == "refuted" else "refused")
            for p in self.programs
            if p.verdict not in ("proved", "holds")
        ]
        found = [*dict.fromkeys(verdicts)]
        return (*found, *(["engine test"] if self.tests else []))


def wrong(name: str, twin: str = "proved", **options: Any) -> tuple[Program, Program]:
    """A refuted program and its right twin, which is proved, or holds where it has no derivation."""
    return Program(name, "refuted", options), Program(f"{name}_right", twin, options)


def attempt(name: str, code: str) -> tuple[Program]:
    """Something that the language has no words for."""
    return (Program(name, code, outside=True),)
