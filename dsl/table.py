"""The LALR table of grammar.lark: made by lark, kept as plain data, and remembered in the user's cache
folder.

Building the table takes about half a second, reading it back a few milliseconds, and then lark is not even
imported. The remembered file is JSON under a name with the grammar's hash, carries its own checksum, and may
vanish or be unwritable at any time: nothing but the half second depends on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

FORMAT = 1
"""Part of the hash: change it with the meaning of the fields below."""

PASS, ONLY, LIST, NODE = range(4)
"""What reducing by a rule does to the values: nothing; take the one that counts; make a list; call the
builder.
"""


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
    """The table of this version's grammar, from the cache folder if it is there, made and remembered
    otherwise.
    """
    grammar = grammar_text()
    key = hashlib.sha256(f"{FORMAT}\n{grammar}".encode()).hexdigest()[:24]
    path = cache_folder() / f"grammar-{key}.json"
    data = _read(path)
    if data is None:
        data = make_table(grammar)
        _write(path, data)
    shapes = [Shape(o, b, k, n, tuple(slots)) for o, b, k, n, slots in data["shapes"]]
    return Table(data["actions"], data["gotos"], shapes, data["literals"], data["start"], data["end"])


def grammar_text() -> str:
    """The text of grammar.lark."""
    return files("decgraph.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")


def cache_folder() -> Path:
    """The folder for what can be made again: $XDG_CACHE_HOME, or the platform's usual place, and `decgraph`
    in it.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    if home and os.path.isabs(home):
        return Path(home) / "decgraph"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or tempfile.gettempdir()) / "decgraph"
    base = os.path.expanduser("~")
    return (Path(base) if os.path.isabs(base) else Path(tempfile.gettempdir())) / ".cache" / "decgraph"


def make_table(grammar: str) -> dict[str, Any]:
    """The table as JSON data. Raises lark's GrammarError where the grammar has a conflict."""
    from lark import Lark
    from lark.lexer import Lexer, PatternStr
    from lark.parsers.lalr_analysis import Shift

    class _NoLexer(Lexer):
        """lexer.py makes the tokens; lark is asked for the table alone."""

        def __init__(self, conf: Any) -> None:
            pass

        def lex(self, lexer_state: Any, parser_state: Any) -> Any:
            return iter(())

    lark = Lark(grammar, parser="lalr", lexer=_NoLexer, maybe_placeholders=True, strict=True)
    table = lark.parser.parser._parse_table
    number = {rule: i for i, rule in enumerate(lark.rules)}
    through = _passing(lark.rules)
    actions: list[dict[str, int]] = [{} for _ in table.states]
    gotos: list[dict[str, int]] = [{} for _ in table.states]
    nonterminals = {rule.origin.name for rule in lark.rules}
    for state, row in table.states.items():
        for symbol, (action, arg) in row.items():
            if symbol in nonterminals:
                gotos[state][symbol] = arg
            else:
                actions[state][symbol] = arg if action is Shift else -1 - number[arg]
    order = _in_order(actions, gotos, table.start_states["start"])
    new = {old: i for i, old in enumerate(order)}
    return {
        "actions": [{t: new[n] if n >= 0 else n for t, n in sorted(actions[s].items())} for s in order],
        "gotos": [{name: new[n] for name, n in sorted(gotos[s].items())} for s in order],
        "shapes": [_shape(rule, through) for rule in lark.rules],
        "literals": {t.pattern.value: t.name for t in lark.terminals if isinstance(t.pattern, PatternStr)},
        "start": new[table.start_states["start"]],
        "end": new[table.end_states["start"]],
    }


def _in_order(actions: list[dict[str, int]], gotos: list[dict[str, int]], start: int) -> list[int]:
    """The states as a walk from the start meets them: lark numbers them differently each time."""
    order, seen = [start], {start}
    for state in order:
        steps = sorted([*actions[state].items(), *gotos[state].items()])
        for _, n in steps:
            if n >= 0 and n not in seen:
                seen.add(n)
                order.append(n)
    return order


def _passing(rules: list[Any]) -> set[str]:
    """The `_rules` that only stand for other rules: all their alternatives are one symbol."""
    hidden = {rule.origin.name for rule in rules if rule.origin.name.startswith("_")}
    return (
        hidden
        - {rule.origin.name for rule in rules if len(rule.expansion) != 1}
        - {name for name in hidden if name.startswith("__")}
    )


def _shape(rule: Any, through: set[str]) -> tuple[str, str, int, int, list[int]]:
    """lark's rule as the fields of a `Shape`."""
    options, origin, size = rule.options, rule.origin.name, len(rule.expansion)
    flags = options.empty_indices or (False,) * size
    slots: list[int] = []
    symbols = iter(enumerate(rule.expansion))
    for absent in flags:
        if absent:
            slots.append(-1)
            continue
        index, symbol = next(symbols)
        if symbol.is_term:
            if options.keep_all_tokens or not symbol.filter_out:
                slots.append(index)
        elif symbol.name.startswith("_") and symbol.name not in through:
            slots.append(-2 - index)
        else:
            slots.append(index)
    if origin in through:
        kind = PASS
    elif origin.startswith("_"):
        kind = LIST
    elif options.expand1 and not rule.alias and len(slots) == 1 and slots[0] >= 0:
        kind = PASS if size == 1 else ONLY
    else:
        kind = NODE
    return str(origin), str(rule.alias or origin), kind, size, slots


def _read(path: Path) -> dict[str, Any] | None:
    """What a remembered file holds, or None if it is absent or not what was written."""
    try:
        checksum, _, body = path.read_text(encoding="utf-8").partition("\n")
        if hashlib.sha256(body.encode()).hexdigest() != checksum:
            return None
        data: dict[str, Any] = json.loads(body)
        return data
    except (OSError, ValueError, RuntimeError):
        return None


def _write(path: Path, data: dict[str, Any]) -> None:
    """Remembers the table; another process may do the same at the same time, and either file is good."""
    body = json.dumps(data, separators=(",", ":"))
    text = f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}"
    name = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError:
        # A read-only home or a full disk costs the next start half a second, nothing else.
        if name:
            _forget(name)


def _forget(name: str) -> None:
    try:
        os.unlink(name)
    except OSError:
        pass  # the folder went away meanwhile
