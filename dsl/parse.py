"""Text to syntax tree. `parse_text` is the way in; everything that is wrong with a text comes as one
`DecError`.

The parser runs lark's LALR table (table.py) with its own loop of 40 lines, which builds the tree as it goes. lark's own loop
would be the same length here, with its callbacks and positions, and cost every start the import of lark (70 ms and more).
After an error it goes on at the next definition, so several mistakes are shown at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decgraph.dsl.build import BUILD, Refused
from decgraph.dsl.diagnostics import MOST, Collector, Diagnostic
from decgraph.dsl.lexer import Comment, Lexed, Token, lex
from decgraph.dsl.mistakes import Stuck, explain
from decgraph.dsl.source import NOWHERE, Source, Span
from decgraph.dsl.syntax import File, Import, Item
from decgraph.dsl.table import NODE, ONLY, PASS, Table, load_table
from decgraph.dsl.words import ITEMS

__all__ = ["MAX_CHARACTERS", "Parsed", "parse_source", "parse_text"]

MAX_CHARACTERS = 4_000_000
"""The longest text that is read."""

_NEXT_ITEM = re.compile(rf"^(?:{'|'.join(ITEMS)})[ \t]+[A-Za-z_]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text's tree with what the tree leaves out: its tokens and comments, in order."""

    file: File
    source: Source
    tokens: list[Token]
    comments: list[Comment]


def parse_text(text: str, path: str = "<text>") -> File:
    """The syntax tree of a text.

    Raises DecError with one diagnostic for each mistake found (at most one in a definition, at most 20).

    >>> parse_text("from rules import match").items[0].names[0].name
    'match'
    """
    return parse_source(Source(text, path)).file


def parse_source(source: Source) -> Parsed:
    """The syntax tree of a source, with its tokens and comments. Raises DecError like `parse_text`."""
    collector = Collector(source)
    if len(source.text) > MAX_CHARACTERS:
        length = f"{len(source.text):,}".replace(",", " ")
        collector.error(
            "E001",
            f"this text has {length} characters; at most {MAX_CHARACTERS:,} are read".replace(",", " "),
            NOWHERE,
            help="split it into files and import what they share",
        )
        collector.raise_if_any()
    table = load_table()
    lexed = lex(source, table.literals)
    if lexed.problem is not None and lexed.problem.code == "E001":  # not worth parsing up to there
        collector.add(lexed.problem)
        collector.raise_if_any()
    file, problem = _parse(table, source, lexed)
    if file is None:
        while problem is not None:
            collector.add(problem)
            again = _NEXT_ITEM.search(source.text, problem.span.end)
            if again is None or len(collector.found) > MOST:
                break
            _, problem = _parse(table, source, lex(source, table.literals, again.start()))
        collector.raise_if_any()
    assert file is not None
    _check_names(file, collector)
    collector.raise_if_any()
    return Parsed(file, source, lexed.tokens, lexed.comments)


def _check_names(file: File, collector: Collector) -> None:
    """A name is defined or imported once in a file."""
    seen: dict[str, Span] = {}
    for item in file.items:
        named = [(n.name, n.span) for n in item.names] if isinstance(item, Import) else []
        if isinstance(item, Item):
            named.append((item.name, item.name_span))
        for name, span in named:
            if name in seen:
                collector.error(
                    "E016",
                    f"`{name}` is defined twice in this file",
                    span,
                    label="again here",
                    notes=((seen[name], "first here"),),
                    help="give one of them another name",
                )
            seen.setdefault(name, span)


def _parse(table: Table, source: Source, lexed: Lexed) -> tuple[File | None, Diagnostic | None]:
    """The tree of a token sequence, or what is wrong with it."""
    actions, gotos, shapes = table.actions, table.gotos, table.shapes
    states: list[int] = [table.start]
    values: list[Any] = []
    firsts: list[Span] = []
    lasts: list[Span] = []
    for position, token in enumerate(lexed.tokens):
        kind = token.kind
        while True:
            step = actions[states[-1]].get(kind)
            if step is None:
                return None, explain(_stuck(table, source, lexed.tokens, position, states))
            if step >= 0:
                states.append(step)
                values.append(token)
                firsts.append(token.span)
                lasts.append(token.span)
                break
            shape = shapes[-1 - step]
            size = shape.size
            if shape.kind == PASS:
                states.pop()
                states.append(gotos[states[-1]][shape.origin])
                continue
            if size:
                first, last = firsts[-size], lasts[-1]
                popped = values[-size:]
                del states[-size:], values[-size:], firsts[-size:], lasts[-size:]
            else:
                first = last = Span(0, 0, 1, 1)
                popped = []
            value: Any
            if shape.kind == ONLY:
                value = popped[shape.slots[0]]
            else:
                value = _collect(shape.slots, popped)
                if shape.kind == NODE:
                    try:
                        value = BUILD[shape.build](Span(first.start, last.end, first.line, first.column), value)
                    except Refused as refused:
                        return None, refused.diagnostic
            state = gotos[states[-1]][shape.origin]
            states.append(state)
            values.append(value)
            firsts.append(first)
            lasts.append(last)
            if state == table.end and kind == "$END":
                file: File = value
                return file, None
    return None, lexed.problem


def _collect(slots: Sequence[int], popped: list[Any]) -> list[Any]:
    """The parts of a rule, in order; a list that comes first is extended in place, so repetition takes linear
    time.
    """
    if slots and slots[0] == -2:
        parts: list[Any] = popped[0]
        slots = slots[1:]
    else:
        parts = []
    for slot in slots:
        if slot >= 0:
            parts.append(popped[slot])
        elif slot == -1:
            parts.append(None)
        else:
            parts.extend(popped[-2 - slot])
    return parts


def _stuck(table: Table, source: Source, tokens: list[Token], position: int, states: list[int]) -> Stuck:
    """What is known where no action fits."""
    accepted = frozenset(kind for kind in table.actions[states[-1]] if _accepts(table, states, kind))
    return Stuck(source, tokens, position, accepted, table.literals)


def _accepts(table: Table, states: list[int], kind: str) -> bool:
    """Whether a terminal could really be read next: reductions that look ahead may still run into nothing."""
    stack = list(states)
    while True:
        step = table.actions[stack[-1]].get(kind)
        if step is None:
            return False
        if step >= 0:
            return True
        shape = table.shapes[-1 - step]
        if shape.size:
            del stack[-shape.size :]
        stack.append(table.gotos[stack[-1]][shape.origin])
        if stack[-1] == table.end and kind == "$END":
            return True
