"""The programs of tests/dsl/programs: algorithms of the literature, policies, and one file with every construct."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from decgraph.dsl.lower import load_text
from decgraph.ir.values import Module

FOLDER = Path(__file__).parents[2] / "dsl" / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.dec"))


def program(name: str) -> str:
    """The text of a program."""
    return (FOLDER / f"{name}.dec").read_text(encoding="utf-8")


@cache
def lowered(name: str) -> Module:
    """The module of a program, lowered once."""
    return load_text(program(name), f"{name}.dec")


def many_lines(least: int) -> str:
    """A text of at least so many lines: the programs again and again, each time with other names."""
    texts: list[str] = []
    lines = number = 0
    while lines < least:
        for name in NAMES:
            for line in program(name).split("\n"):
                word, _, rest = line.partition(" ")
                if word in ("algorithm", "rule", "def", "policy", "extern"):
                    line = f"{word} {rest.replace('(', f'_{number}(', 1)}"
                texts.append(line)
                lines += 1
            number += 1
    return "\n".join(line for line in texts if not line.startswith("from "))
