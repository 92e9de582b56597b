"""Whatever a text is, it is read or refused with a place; nothing else comes out, and soon."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.call_counts import counted
from lib.programs.corpus import NAMES, program

from decgraph.dsl.format import format_source
from decgraph.dsl.lexer import lex
from decgraph.dsl.parse import literals, parse_text
from decgraph.dsl.source import Source
from decgraph.dsl.syntax import File
from decgraph.errors import DecError

_ODD = "\x00\t\r\n \ufeff\u202e\ud800é漢𝔘“\\\"'#()[]:=~+-*/.,<>^?_09aZ"


def _spans(text: str) -> list[tuple[int, int]]:
    tokens = lex(Source(text), literals()).tokens
    return [(t.span.start, t.span.end) for t in tokens if t.text]


def mutate(text: str, rng: random.Random) -> str:
    """A text with one to three small damages."""
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(_DAMAGES)(text, rng)
    return text


def _flip(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_ODD) + text[at + rng.randint(0, 1) :]


def _cut(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.choice((1, 2, 5, 40)) :]


def _end(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _swap(text: str, rng: random.Random) -> str:
    spans = _spans(text)
    if len(spans) < 2:
        return text
    (a, b), (c, d) = sorted(rng.sample(spans, 2))
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]


def _drop(text: str, rng: random.Random) -> str:
    spans = _spans(text)
    if not spans:
        return text
    start, end = rng.choice(spans)
    return text[:start] + text[end:]


def _double(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    return "\n".join(lines[: at + 1] + lines[at:])


def _shift(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((" ", "    ", "\t", "")) + lines[at].lstrip(rng.choice((" ", "")))
    return "\n".join(lines)


_DAMAGES = (_flip, _cut, _end, _swap, _drop, _drop, _double, _shift)


def check(text: str) -> bool:
    """Reads a text; True if it is a program. Fails unless the outcome is one of the two allowed."""
    try:
        with counted() as calls:
            file = parse_text(text, "fuzz.dec")
    except DecError as error:
        rendered = str(error)
        for diagnostic in error.diagnostics:
            if not isinstance(diagnostic, str):
                lines = diagnostic.render().split("\n")
                assert diagnostic.code and diagnostic.span, rendered
                assert lines[1].lstrip().startswith("┌─ fuzz.dec:")
                assert any("│" in line and "^" in line for line in lines), rendered
                assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
        rendered.encode("utf-8")
        assert "Traceback" not in rendered and "dsl/" not in rendered
        found = False
    else:
        assert isinstance(file, File)
        found = True
    assert calls.total() < 150 * (len(text) + 100)
    return found


def _fuzz(cases: int, seed: int) -> None:
    rng = random.Random(seed)
    texts = [program(name) for name in NAMES]
    read = 0
    for case in range(cases):
        text = mutate(rng.choice(texts), rng)
        if check(text):
            read += 1
            if case % 10 == 0:
                once = format_source(text)
                assert format_source(once) == once
    assert cases / 50 < read < cases / 2  # the damages are neither harmless nor all fatal at once


@pytest.mark.quick("1")
@pytest.mark.parametrize("seed", (1, 3, 4, 5))
def test_damaged_programs(seed: int) -> None:
    _fuzz(750, seed)


@pytest.mark.nightly
def test_many_damaged_programs() -> None:
    _fuzz(100_000, seed=2)


@given(st.text())
def test_any_text(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from([*literals(), "x", "3", '"s"', "\n", "\n    ", "#", " "])).map(" ".join))
def test_any_words(text: str) -> None:
    check(text)


@pytest.mark.parametrize("piece", ["(", "[", "x(", '"', '"""', "a.b.", "if x:\n", "#", "x[", " ", "\n", "\r", "\t", "1..", "é"])
def test_the_same_again_and_again(piece: str) -> None:
    check(piece * 20_000)
    check("algorithm f():\n    x = " + piece * 20_000)
