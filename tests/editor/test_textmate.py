"""The TextMate grammar: generated from the language's tables, and of one mind with the compiler's lexer."""

from __future__ import annotations

import json
from pathlib import Path

from lib.textmate_lines import scopes

from decgraph.editor import textmate
from decgraph.editor.highlight import pieces

STDLIB = sorted((Path(__file__).parents[2] / "stdlib").glob("*.dec"))
WANTED: dict[str, tuple[str, ...]] = {
    "comment": ("comment.line",),
    "doc": ("string.quoted.triple",),
    "string": ("string.quoted.double",),
    "number": ("constant.numeric",),
    "declaration": ("storage.type",),
    "import": ("keyword.control.import",),
    "keyword": ("keyword.control",),
    "word": ("keyword.operator.word",),
    "operator": ("keyword.operator",),
    "definition": ("entity.name.function",),
    "type": ("storage.type",),
    "constant": ("constant.language",),
    "special": ("variable.language",),
    "function": ("support.function",),
    "call": ("entity.name.function.call",),
    "attribute": ("variable.other.member",),
    "name": ("variable.other.dec", "entity.name.namespace"),
}


def test_the_committed_grammar_is_the_generated_one() -> None:
    assert textmate.FILE.read_text(encoding="utf-8") == textmate.text(), "python -m decgraph.editor.textmate"
    assert json.loads(textmate.text())["scopeName"] == "source.dec"


def test_every_word_of_the_standard_library_is_what_the_lexer_says() -> None:
    wrong = []
    for path in STDLIB[::4]:
        text = path.read_text(encoding="utf-8")
        found = scopes(text)
        for piece in pieces(text):
            if piece.kind != "punctuation" and not found.get(piece.start, "").startswith(WANTED[piece.kind]):
                wrong.append(f"{path.name}: {text[piece.start : piece.end]!r} is {piece.kind}, {found.get(piece.start)}")
    assert not wrong, "\n".join(wrong)


def test_a_keyword_that_is_a_name_here_is_no_keyword() -> None:
    found = scopes("algorithm f(target: causal):\n    state = 3\n    verify t by match against target(t)\n")
    assert found[33] == "variable.other.dec"
    assert found[47] == "keyword.control.dec"
