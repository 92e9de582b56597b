"""How messages are gathered and drawn."""

from __future__ import annotations

import pytest

from decgraph.dsl.diagnostics import MOST, Collector, Diagnostic, render
from decgraph.dsl.source import NOWHERE, Source, Span, screen_width
from decgraph.errors import DecError

TEXT = "a\n\tbb ccc\n" + "\n" * 7 + "漢字 d\n"


def _at(source: Source, piece: str) -> Span:
    start = source.text.index(piece)
    return source.span(start, start + len(piece))


def test_lines_and_columns() -> None:
    source = Source("a\r\nbb\rc\n", "x.dec")
    assert [source.line(i) for i in range(6)] == ["", "a", "bb", "c", "", ""]
    assert source.line_count == 4
    assert [source.locate(o) for o in (-5, 0, 3, 5, 6, 99)] == [(1, 1), (1, 1), (2, 1), (2, 3), (3, 1), (4, 1)]
    assert source.line_start(3) == 6
    assert source.place(source.span(4, 5)) == "x.dec:2:2"
    assert source.place(NOWHERE) == "x.dec"
    assert source.span(1, 2).to(source.span(4, 6)) == Span(1, 6, 1, 2)


def test_columns_are_those_of_the_screen() -> None:
    source = Source(TEXT)
    assert source.screen_column(_at(source, "ccc").start) == 12
    assert source.screen_column(_at(source, "d").start) == 6
    assert screen_width("\ta\t") == 16
    assert screen_width("e\u0301\u200bｆ") == 3


def test_a_diagnostic_in_full() -> None:
    source = Source(TEXT, "a.dec")
    diagnostic = Diagnostic(
        "E031",
        "it looks",
        _at(source, "d"),
        label="here",
        notes=((_at(source, "bb"), "drawn"), (_at(source, "漢字"), "wide")),
        why="one\ntwo",
        help="less",
    )
    assert render(diagnostic, source).split("\n") == [
        "error[E031]: it looks",
        "  ┌─ a.dec:10:6",
        " 2│         bb ccc",
        "  │         -- drawn",
        "10│ 漢字 d",
        "  │ ---- wide",
        "  │      ^ here",
        "  = why: one",
        "         two",
        "  = try: less",
    ]


def test_without_a_source_or_a_place() -> None:
    assert str(Diagnostic("E1", "no", help="yes")) == "error[E1]: no\n = try: yes"
    assert render(Diagnostic("", "no", severity="warning"), Source("", "p.dec")) == "warning: no\n ┌─ p.dec"


def test_an_end_of_text_has_a_caret() -> None:
    source = Source("abc")
    assert render(Diagnostic("E1", "no", source.span(3, 3)), source).split("\n")[-1] == " │    ^"


def test_long_lines_are_cut_around_the_place() -> None:
    source = Source("x" * 500 + "HERE" + "y" * 500)
    _, _, shown, marks = render(Diagnostic("E1", "no", _at(source, "HERE")), source).split("\n")
    assert len(shown) < 170
    assert shown[marks.index("^") :].startswith("HERE")
    assert marks.count("^") == 4
    wide = render(Diagnostic("E1", "no", source.span(0, 1004)), source).split("\n")
    assert all(len(line) < 170 for line in wide)


def test_text_that_is_not_safe_to_show() -> None:
    source = Source("a\x1b[31m\u202eb \ud800", "p\x1b.dec")
    text = render(Diagnostic("E1", "no", source.span(7, 8)), source)
    text.encode("utf-8")
    assert "\x1b" not in text and "\u202e" not in text


def test_collector_sorts_and_counts() -> None:
    source = Source("x" * 100)
    collector = Collector(source)
    collector.raise_if_any()
    for at in reversed(range(MOST + 5)):
        collector.error("E1", "no", source.span(at, at + 1))
        collector.error("E1", "again", source.span(at, at + 1))
    collector.add(Diagnostic("W1", "hm", severity="warning"))
    assert len(collector.diagnostics) == MOST + 6
    with pytest.raises(DecError) as caught:
        collector.raise_if_any()
    shown = caught.value.diagnostics
    assert [d.span.start for d in shown[:MOST]] == list(range(MOST))
    assert shown[MOST:] == ("error: 5 more, not shown; the first ones usually cause the rest",)


def test_warnings_alone_raise_nothing() -> None:
    collector = Collector(Source(""))
    collector.add(Diagnostic("W1", "hm", severity="warning"))
    collector.raise_if_any()
    assert collector.errors == []
