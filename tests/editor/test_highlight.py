"""Colours: every text of the library without an error, half-written ones without a crash, and Pygments' view of both."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import guess_lexer
from pygments.token import Error, Keyword, Name, String
from quick import examples

from decgraph.editor.highlight import KINDS, pieces
from decgraph.editor.pygments_lexer import TOKENS, DecLexer

STDLIB = sorted((Path(__file__).parents[2] / "stdlib").glob("*.dec"))
LEXER = DecLexer(stripnl=False, ensurenl=False)
PROGRAM = '''extern looks(text, token[<= 3]) -> bool on host
algorithm f(target: causal with heads, g: int in 1..4 = 4):
    """It drafts."""
    while not done:
        state = target(ctx)  # a name here
        x ~ topk(state.raw, 2) as output
        commit x if g not in [1] else yes
'''


def test_every_file_of_the_standard_library_has_no_error_and_keeps_its_text() -> None:
    for path in STDLIB:
        text = path.read_text(encoding="utf-8")
        tokens = list(LEXER.get_tokens(text))
        assert "".join(value for _, value in tokens) == text
        assert not [value for kind, value in tokens if kind in Error], path


def test_words_are_what_they_are_where_they_stand() -> None:
    found = [(PROGRAM[p.start : p.end], p.kind) for p in pieces(PROGRAM)]
    assert found.count(("state", "name")) == 2
    for word, kind in [
        ("looks", "definition"), ("text", "type"), ("token", "type"), ("with", "keyword"), ("causal", "type"),
        ("done", "special"),
        ("not in", "word"), ("yes", "constant"), ("topk", "function"), ("target", "call"), ("raw", "attribute"),
        ("as", "keyword"),
    ]:  # fmt: skip
        assert (word, kind) in found


def test_pygments_gives_a_class_to_each_kind() -> None:
    assert set(TOKENS) == set(KINDS)
    kinds = {value: kind for kind, value in LEXER.get_tokens(PROGRAM)}
    assert kinds["algorithm"] is Keyword.Declaration
    assert kinds['"""It drafts."""'] is String.Doc
    assert kinds["topk"] is Name.Builtin
    assert isinstance(guess_lexer(PROGRAM[PROGRAM.index("algorithm") :]), DecLexer) or LEXER.analyse_text(PROGRAM) >= 0
    assert '<span class="kd">algorithm</span>' in highlight(PROGRAM, LEXER, HtmlFormatter())


def test_what_no_text_may_hold_is_an_error_and_the_next_line_is_read() -> None:
    text = "algorithm f(target: causal):\n    x = 3 $ 4\n    commit x\n"
    found = [(text[p.start : p.end], p.kind) for p in pieces(text)]
    assert ("$", "wrong") in found
    assert ("commit", "keyword") in found


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(STDLIB[::20]), st.data())
def test_half_written_texts_keep_every_character(path: Path, data: st.DataObject) -> None:
    text = path.read_text(encoding="utf-8")
    low = data.draw(st.integers(0, len(text)))
    high = data.draw(st.integers(low, len(text)))
    text = text[:low] + data.draw(st.text(max_size=3)) + text[high:]
    found = list(pieces(text))
    assert all(a.end <= b.start for a, b in zip(found, found[1:], strict=False))
    assert "".join(text.split()) == "".join("".join(text[p.start : p.end].split()) for p in found)
