"""The LALR table of grammar.lark, read from grammar.json.

lark makes the table (`python tests/grammar_table.py`; a test asks that the two files agree) and is not needed to run: loading
lark and its table costs 70 to 110 ms of every start, this file 4, and nothing has to be cached in the user's home.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

PASS, ONLY, LIST, NODE = range(4)
"""What reducing by a rule does to the values: nothing; take the one that counts; make a list; call the builder."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a rule is reduced: pop `size`, collect `slots`, do as `kind` says, go on as `origin`.

    A slot is an index into the popped values, -1 for an absent optional part (None), and `-2 - i` for a list
    at index i whose items are taken one by one.
    """

    origin: str
    build: str
    kind: int
    size: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """actions: state -> terminal -> `n >= 0` shift to state n, `n < 0` reduce by rule `-1 - n`; gotos: state
    -> rule name -> state; literals: the text of a keyword or symbol -> its terminal's name.
    """

    actions: list[dict[str, int]]
    gotos: list[dict[str, int]]
    shapes: list[Shape]
    literals: dict[str, str]
    start: int
    end: int


@lru_cache(maxsize=1)
def load_table() -> Table:
    """The table of this version's grammar."""
    data = json.loads(files("decgraph.dsl").joinpath("grammar.json").read_text(encoding="utf-8"))
    shapes = [Shape(origin, build, kind, size, tuple(slots)) for origin, build, kind, size, slots in data["shapes"]]
    return Table(data["actions"], data["gotos"], shapes, data["literals"], data["start"], data["end"])
