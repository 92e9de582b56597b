"""The TextMate grammar of .dec texts, for VS Code, Sublime Text and other editors that read such grammars.

    python -m decgraph.editor.textmate     # writes vscode/syntaxes/dec.tmLanguage.json

A TextMate grammar is a list of regular expressions without a parser, so whether a word is a keyword depends on the text
around it; tests/editor/test_textmate.py compares its result with the compiler's lexer on every file of stdlib/.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from decgraph.dsl.lexer import DECLARING
from decgraph.editor.words import CLAUSES, CONSTANTS, JOINTS, RESERVED, STATEMENTS, TYPES, VALUES, functions

SCOPE = "source.dec"
FILE = Path(__file__).parent / "vscode" / "syntaxes" / "dec.tmLanguage.json"

_ASSIGNED = r"(?![ \t]*(?:=(?!=)|~|\+=|-=|\+\+=|,|\.(?!\.)))"


def _any(words: Any) -> str:
    return "|".join(sorted(words, key=lambda word: (-len(word), word)))


def rules() -> list[tuple[str, str, str, dict[str, str]]]:
    """Name, scope, regular expression and scopes of its groups, first match first, valid in Oniguruma and Python."""
    starts = (*STATEMENTS, *CLAUSES)
    plain = [w for w in starts if w not in RESERVED and w not in DECLARING]
    declaring = [w for w in starts if w in DECLARING]
    at_start = r"^([ \t]*|[ \t]*(?:on[ \t].*|when[ \t].*|otherwise)(?:[:,])[ \t]*)"
    return [
        ("doc", "string.quoted.triple.dec", r'"""(?:[^"\\]|\\.|"(?!""))*"""', {}),
        ("comment", "comment.line.number-sign.dec", r"#.*", {}),
        ("string", "string.quoted.double.dec", r'"(?:[^"\\]|\\.)*"', {}),
        (
            "definition",
            "",
            r"^(algorithm|rule|policy|def|extern)[ \t]+([A-Za-z_]\w*)",
            {"1": "storage.type.dec", "2": "entity.name.function.dec"},
        ),
        (
            "import",
            "",
            r"^(from)[ \t]+([A-Za-z_][\w.]*)[ \t]+(import)\b",
            {"1": "keyword.control.import.dec", "2": "entity.name.namespace.dec", "3": "keyword.control.import.dec"},
        ),
        ("attribute", "variable.other.member.dec", r"(?<=[\w)\]]\.)[A-Za-z_]\w*", {}),
        (
            "declares",
            "",
            at_start + rf"({_any(declaring)})(?=[ \t]+[A-Za-z_]|[ \t]*(?:[#:]|$)){_ASSIGNED}\b",
            {"2": "keyword.control.dec"},
        ),
        ("states", "", at_start + rf"({_any(plain)})\b{_ASSIGNED}", {"2": "keyword.control.dec"}),
        ("action", "keyword.control.dec", r"\b(?:recompute|reuse|forget)\b(?=[ \t]+[A-Za-z_])", {}),
        ("word", "keyword.operator.word.dec", r"\b(?:and|or|not|in)\b", {}),
        ("reserved", "keyword.control.dec", rf"\b(?:{_any(set(RESERVED) - {'and', 'or', 'not', 'in'})})\b", {}),
        ("growing", "keyword.control.dec", r"(?<== )grow\b(?= )|\brun\b(?=[ \t]+[A-Za-z_])", {}),
        (
            "type",
            "",
            rf"((?<=[\w])[ \t]*:[ \t]*|->[ \t]*)({_any(TYPES)})\b(?![ \t]*:)",
            {"1": "keyword.operator.dec", "2": "storage.type.dec"},
        ),
        ("inside", "storage.type.dec", rf"(?:(?<=list\[)|(?<=lru\[))(?:{_any(TYPES)})\b", {}),
        ("of_extern", "storage.type.dec", rf"\b(?:{_any(TYPES)})\b(?=[^()]*\)[ \t]*->)(?![ \t]*:)", {}),
        ("most", "keyword.control.dec", r"\bat[ \t]+most\b|\bthe[ \t]+rest\b", {}),
        (
            "joint",
            "keyword.control.dec",
            rf"(?<=[\w)\]\"?] )(?:{_any(set(JOINTS) - {'and', 'or', 'in'})})\b(?=[ \t]+[\w(\[\"-])",
            {},
        ),
        ("constant", "constant.language.dec", rf"\b(?:{_any(CONSTANTS)})\b", {}),
        ("value", "variable.language.dec", rf"\b(?:{_any(VALUES)})\b(?!\()", {}),
        ("function", "support.function.dec", rf"\b(?:{_any(functions())})\b(?=\()", {}),
        ("call", "entity.name.function.call.dec", r"\b[A-Za-z_]\w*(?=\()", {}),
        ("number", "constant.numeric.dec", r"\b[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\b", {}),
        ("name", "variable.other.dec", r"\b[A-Za-z_]\w*\b", {}),
        ("operator", "keyword.operator.dec", r"\+\+=|\+\+|\+=|-=|->|==|!=|<=|>=|\.\.|[-+*/%^=<>~?]", {}),
    ]


def grammar() -> dict[str, Any]:
    """The grammar as JSON has it."""
    doc = {
        "name": "string.quoted.triple.dec",
        "begin": '"""',
        "end": '"""',
        "patterns": [{"name": "constant.character.escape.dec", "match": r"\\."}],
    }
    repository: dict[str, Any] = {}
    for name, scope, match, groups in rules():
        if name == "doc":
            repository[name] = doc
            continue
        entry: dict[str, Any] = {"match": match}
        if scope:
            entry["name"] = scope
        if groups:
            entry["captures"] = {number: {"name": inner} for number, inner in groups.items()}
        repository[name] = entry
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "decgraph",
        "scopeName": SCOPE,
        "fileTypes": ["dec"],
        "patterns": [{"include": f"#{name}"} for name in repository],
        "repository": repository,
    }


def text() -> str:
    """The file as it is committed."""
    return json.dumps(grammar(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
