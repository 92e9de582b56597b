"""The edges of reading: line ends, tabs, marks, comments, words that are keywords only in places."""

from __future__ import annotations

import pytest

from decgraph.dsl import syntax as s
from decgraph.dsl.parse import parse_text
from decgraph.errors import DecError

PLAIN = 'algorithm f():\n    """Doc\n    two."""\n    x = [1,\n         2]\n    if x:\n        commit x\n'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.rstrip("\n"),
        PLAIN + "\n\n   \n\t\n",
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        "\ufeff" + PLAIN,
        "\ufeff\n" + PLAIN,
        PLAIN.replace("    x", "\tx")
        .replace("        commit", "\t  commit")
        .replace("    if", "\tif")
        .replace('    """D', '\t"""D'),
        "# one\n\n" + PLAIN.replace("x = [1,", "x = [1,  # two") + "# three",
        PLAIN.replace("if x:", "if x: # why") + "        # deep\n  # shallow\n",
        PLAIN.replace("    if x:\n        commit x", "    if x: commit x"),
        PLAIN.replace("[1,\n         2]", "[\n1\n,\n\n2,\n# no\n]"),
    ],
)
def test_layout_does_not_matter(text: str) -> None:
    assert parse_text(text) == parse_text(PLAIN)


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", "   ", "# only\n  # comments", "\r\n\r\n", "\t\n \n"])
def test_nothing_is_an_empty_file(text: str) -> None:
    assert parse_text(text) == s.File(())


def test_spans_count_code_points_whatever_ends_the_lines() -> None:
    text = 'algorithm f():\r\n\tx = "漢字"\r\r\n\ty = 3\r\n'
    (item,) = parse_text(text).items
    assert isinstance(item, s.Algorithm)
    first, second = item.body
    assert (first.span.line, first.span.column) == (2, 2)
    assert (second.span.line, second.span.column) == (4, 2)
    assert text[second.span.start : second.span.end] == "y = 3"


def test_a_mark_at_the_start_is_not_a_column() -> None:
    with pytest.raises(DecError, match=r"<text>:1:7\b"):
        parse_text("\ufeffrule f")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("state = 3", s.Assign((s.Name("state"),), "=", (s.Number("3"),))),
        ("commit ~ p", s.Draw((s.Name("commit"),), s.Name("p"))),
        ("model(c)", s.Do(s.Call(s.Name("model"), (s.Name("c"),)))),
        ("noise[i] = 0", s.Assign((s.Index(s.Name("noise"), (s.Name("i"),)),), "=", (s.Number("0"),))),
        ("draft.x += 1", s.Assign((s.Attr(s.Name("draft"), "x"),), "+=", (s.Number("1"),))),
        ("emit, y = a, b", s.Assign((s.Name("emit"), s.Name("y")), "=", (s.Name("a"), s.Name("b")))),
        ("commit emit", s.Commit(s.Name("emit"))),
        ("commit run", s.Commit(s.Name("run"))),
        ("commit where(at, by)", s.Commit(s.Call(s.Name("where"), (s.Name("at"), s.Name("by"))))),
        ("commit t.at[of.in]", s.Commit(s.Index(s.Attr(s.Name("t"), "at"), (s.Attr(s.Name("of"), "in"),)))),
        ("grow x at at with at = at", s.Grow(s.Name("x"), s.Name("at"), (s.Keyword("at", s.Name("at")),))),
        ("draft to of of:\n        grow x", s.Draft("to", s.Name("of"), None, (s.Grow(s.Name("x")),))),
        ("return", None),
        ("while = 3", None),
        ("x = not", None),
        ("for in in x:\n        commit x", None),
    ],
)
def test_words_are_keywords_only_in_their_places(line: str, wanted: s.Stmt | None) -> None:
    text = f"algorithm f():\n    {line}\n"
    if wanted is None:
        with pytest.raises(DecError):
            parse_text(text)
    else:
        assert parse_text(text).items == (s.Algorithm("f", (), (wanted,)),)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("-a ^ b ^ -c", "(-(a ^ (b ^ (-c))))"),
        ("a ++ b where c and d", "((a ++ b) where (c and d))"),
        ("a where b if c where d else e where f", "((a where b) if (c where d) else (e where f))"),
        ("a if b else c if d else e", "(a if b else (c if d else e))"),
        ("not a in b and c == d or e", "(((not (a in b)) and (c == d)) or e)"),
        ("a..b + 1 in c", "((a..(b + 1)) in c)"),
        ("a[b].c(d)[e]", "(((a[b]).c)(d))[e]"),
        ("run a(b) from c until d or e at most f", "(run a(b) from c until (d or e) at most f)"),
    ],
)
def test_what_binds_tighter(text: str, wanted: str) -> None:
    def value(expression: str) -> object:
        return parse_text(f"def f():\n    return {expression}\n").items

    assert value(text) == value(wanted)


def test_numbers_are_exact() -> None:
    from fractions import Fraction

    values = {"4": 4, "007": 7, "0.1": Fraction(1, 10), "2.50e-1": Fraction(1, 4), "1e3": 1000}
    for text, value in values.items():
        assert s.Number(text).value == value
    assert isinstance(s.Number("4").value, int)


def test_strings_know_their_escapes() -> None:
    text = 'def f():\n    return "a\\n\\t\\r\\\\\\"\\u00e9#", """b"\n\\"""c"""\n'
    (item,) = parse_text(text).items
    assert isinstance(item, s.Def)
    assert item.body == (s.Return((s.String('a\n\t\r\\"é#'), s.String('b"\n"""c'))),) or item.body == (
        s.Return((s.String('a\n\t\r\\"é#'), s.String('b"\n"'))),
    )
