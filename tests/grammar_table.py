"""Makes dsl/grammar.json, the LALR table of dsl/grammar.lark: `python tests/grammar_table.py` after a change of the grammar.

tests/dsl/test_table.py makes it too and asks that the committed one is the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lark import Lark
from lark.lexer import Lexer, PatternStr
from lark.parsers.lalr_analysis import Shift

from decgraph.dsl.table import LIST, NODE, ONLY, PASS

GRAMMAR = Path(__file__).parent.parent / "dsl" / "grammar.lark"


class _NoLexer(Lexer):
    """dsl/lexer.py makes the tokens; lark is asked for the table alone."""

    def __init__(self, conf: Any) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        return iter(())


def make_table(grammar: str) -> dict[str, Any]:
    """The table as JSON data. Raises lark's GrammarError where the grammar has a conflict."""
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


def as_text(table: dict[str, Any]) -> str:
    """The table as JSON with one state or rule a line, so that a change of the grammar shows as a change of lines."""

    def lines(value: Any) -> str:
        if not isinstance(value, list):
            return json.dumps(value)
        return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in value) + "\n]"

    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(value)}" for key, value in table.items()) + "\n}\n"


if __name__ == "__main__":
    path = GRAMMAR.with_suffix(".json")
    path.write_text(as_text(make_table(GRAMMAR.read_text("utf-8"))), "utf-8")
    print(f"written {path}")
