"""Reads a page of docs/recipes, does what it says in a copy of the repository, and runs the commands that it shows.

A page's fenced blocks are its instructions; nothing else is. The first word is the
language, for the reader; the mark says what to do:

    python new=passes/doubling.py       the block is a new file (any language: dec, toml, ...)
    dec try=mine.dec                    a file of the reader's own that tries it: written, not counted
    diff edit=passes/manager.py         lines with `+` go in, lines with `-` go out, the rest says where: the old lines
                                        must stand in the file together, exactly once. `@@` separates places
    console                             every line that starts with `$ ` is run in the copy and must end with 0
    console exit=1                      ... must end with that code
    console output                      ... and must print what follows it; `...` stands for anything

`Touches N files` stands on the page, once, and is how many files `new=` and `edit=` name.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib.waiting import SECONDS

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ \t]*$", re.M | re.S)
COMMAND = re.compile(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n)*)", re.M)
TOUCHES = re.compile(r"\bTouches (\d+) files?\b")
MODULES = ("decgraph", "pytest", "ruff", "mypy")
"""What a command may begin with, beside `python`: each is run as `python -m`, so that the copy is what runs."""


@dataclass(frozen=True)
class Block:
    """A fenced block that says something to do. `line` is the page's line of its first line."""

    line: int
    marks: tuple[str, ...]
    body: str

    def value(self, key: str) -> str | None:
        return next((m.split("=", 1)[1] for m in self.marks if m.startswith(f"{key}=")), None)


@dataclass(frozen=True)
class Recipe:
    """A page: its blocks in order, and how many files it says it touches."""

    page: Path
    blocks: tuple[Block, ...]
    touches: int

    @property
    def files(self) -> set[str]:
        """The files that the page makes or changes."""
        return {name for b in self.blocks if (name := b.value("new") or b.value("edit"))}


class Fault(Exception):
    """A page that cannot be followed; says the page's line."""


def read(page: Path) -> Recipe:
    """The recipe on a page. Raises Fault where a block has no instruction or the page's count of files is missing."""
    text = page.read_text(encoding="utf-8")
    blocks, prose = [], FENCE.sub("", text)
    for match in FENCE.finditer(text):
        words = tuple(match["info"].split())
        line = text.count("\n", 0, match.start("body")) + 1
        block = Block(line, words, match["body"])
        name = block.value("new") or block.value("try") or block.value("edit")
        if words[:1] != ("console",) and not name:
            raise Fault(f"{page.name}:{line}: a block with neither new=, try=, edit= nor console")
        if name and f"`{name}`" not in prose:
            raise Fault(f"{page.name}:{line}: a reader does not see marks: the text has to name `{name}`")
        blocks.append(block)
    said = TOUCHES.findall(text)
    if len(said) != 1:
        raise Fault(f"{page.name}: `Touches N files` stands there {len(said)} times")
    return Recipe(page, tuple(blocks), int(said[0]))


def copy_repository(folder: Path) -> Path:
    """The files that git tracks or would (links stay links), copied from ROOT into `folder`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if not name or not os.path.lexists(source):  # deleted, not yet committed
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, folder / name, follow_symlinks=False)
    return folder


def follow(recipe: Recipe, copy: Path) -> None:
    """Do what the page says, in its order. Raises Fault at the first thing that does not go as the page says."""
    for block in recipe.blocks:
        where = f"{recipe.page.name}:{block.line}"
        if name := block.value("new") or block.value("try"):
            if (copy / name).exists():
                raise Fault(f"{where}: {name} is there already")
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_text(block.body, encoding="utf-8")
        elif name := block.value("edit"):
            old = (copy / name).read_text(encoding="utf-8")
            (copy / name).write_text(edited(old, block.body, f"{where}: {name}"), encoding="utf-8")
        else:
            run(block, copy, where)


def edited(text: str, patch: str, where: str) -> str:
    """`text` with every place of `patch` changed. Raises Fault where a place does not stand there exactly once."""
    for place in re.split(r"^@@.*\n", patch, flags=re.M):
        lines = place.splitlines()
        if odd := [line for line in lines if line and line[0] not in " +-"]:
            raise Fault(f"{where}: a line of a diff begins with a space, + or -: {odd[0]!r}")
        old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
        new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
        if not lines:
            continue
        if (times := len(list(starts(text, old)))) != 1:
            raise Fault(f"{where}: these lines stand there {times} times, not once:\n{old}")
        at = next(starts(text, old))
        text = text[:at] + new + text[at + len(old) :]
    return text


def starts(text: str, lines: str) -> Iterator[int]:
    """Where these whole lines begin in the text."""
    at = text.find(lines)
    while at >= 0:
        if at == 0 or text[at - 1] == "\n":
            yield at
        at = text.find(lines, at + 1)


def run(block: Block, copy: Path, where: str) -> None:
    """Run a console block's commands in the copy. Raises Fault for another exit code or other output."""
    paths = os.pathsep.join((str(copy), str(copy / "tests")))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "COLUMNS": "120", "NO_COLOR": "1"}
    for name in [n for n in environment if n.startswith("PYTEST_")]:
        del environment[name]
    for command, expected in COMMAND.findall(block.body):
        words = shlex.split(command, comments=True)
        if words[0] not in (*MODULES, "python"):
            raise Fault(f"{where}: `{command}`: a command begins with python, {', '.join(MODULES)}")
        start = (
            ["-c", "from decgraph.cli.main import main; raise SystemExit(main())"]
            if words[0] == "decgraph"
            else ["-m", words[0]]
        )
        words = [sys.executable, *(words[1:] if words[0] == "python" else [*start, *words[1:]])]
        done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True, timeout=600, check=False)
        printed = done.stdout + done.stderr
        if done.returncode != int(block.value("exit") or 0):
            raise Fault(f"{where}: `{command}` exits {done.returncode}\n{printed}")
        if "output" in block.marks and not same(expected, printed):
            raise Fault(f"{where}: `{command}` prints\n{printed}")


def same(expected: str, got: str) -> bool:
    def bare(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"

    return doctest.OutputChecker().check_output(bare(expected), bare(got), doctest.ELLIPSIS)
