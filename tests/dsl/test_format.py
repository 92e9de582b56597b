"""House layout: comments, blank lines, long lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.programs.corpus import NAMES, program

from decgraph.dsl.format import WIDTH, format_source, wrap
from decgraph.dsl.lexer import Lexeme, lex
from decgraph.dsl.parse import literals, parse_text
from decgraph.dsl.source import Source
from decgraph.errors import DecError

MESSY = '''\
# at the top

#   second
algorithm  f( target :causal, # inside the head
     x:int in 1..3=4) : # behind the head
  # before the docstring
  """Doc
  keeps  its lines."""  # behind it


  # first
  x=(3+   4 # inside
     +5)  # tail
  y   =   x
  # second

  while not done: commit x  # one line
  if a: # if
     x ~ p



     # end of if
  # before else
  else:  # else
     y=3
       # deep
  # end of f
# between

from a import b # import
from c import d

extern ff(text)->bool
policy   dual(b:span):
  """doc"""
  on enter b: recompute all # clause
  # before otherwise
  otherwise: # head
     recompute b # action
     reuse the rest
  # end of policy
def g(a): return [a, # b
  # c
]   # d
# at the end'''


def comments(text: str) -> list[str]:
    return [c.text for c in lex(Source(text), literals()).comments]


def test_comments_and_blank_lines(golden: Callable[[str, str], None]) -> None:
    once = format_source(MESSY)
    golden("messy.dec", once)
    assert format_source(once) == once
    assert sorted(comments(once)) == sorted(comments(MESSY))
    assert parse_text(once) == parse_text(MESSY)


@given(st.data())
def test_comments_anywhere_stay(data: st.DataObject) -> None:
    text = program(data.draw(st.sampled_from(NAMES)))
    tokens = [t for t in lex(Source(text), literals()).tokens if t.text and t.kind != "_INDENT"]
    chosen = data.draw(st.lists(st.sampled_from(tokens), max_size=6, unique=True).map(by_place))
    for number, token in enumerate(reversed(chosen)):
        end = token.span.end
        line = text.find("\n", end)
        if not text[end:line].strip(" ") or data.draw(st.booleans()):
            text = f"{text[:line]}  # note {number}{text[line:]}"
        else:
            start = text.rfind("\n", 0, token.span.start) + 1
            text = f"{text[:start]}{' ' * data.draw(st.integers(0, 9))}# note {number}\n{text[start:]}"
    try:
        file = parse_text(text)
    except DecError:
        return  # the comment fell into a docstring and broke nothing else
    once = format_source(text)
    assert format_source(once) == once
    assert parse_text(once) == file
    assert sorted(comments(once)) == sorted(comments(text))


def by_place(tokens: list[Lexeme]) -> list[Lexeme]:
    return sorted(tokens, key=lambda t: t.span.start)


def test_layout_of_the_writer_does_not_matter() -> None:
    for name in NAMES:
        text = program(name)
        tight = text.replace("    ", " ").replace(" = ", "=").replace(", ", ",")
        if parse_text(tight) == parse_text(text):  # not where a string or docstring changed
            assert format_source(tight.replace("\n", "\r\n")) == format_source(tight)


def test_long_lines_break_inside_brackets() -> None:
    head = ", ".join(f"parameter_{i}: int in 1..{i + 2} = {i + 1}" for i in range(9))
    text = format_source(f"algorithm f({head}):\n    commit g({head.replace(': int in 1..', ' * ').replace(' = ', ' + ')})\n")
    assert all(len(line) <= WIDTH for line in text.split("\n"))
    lines = text.split("\n")
    assert {line.index("parameter") for line in lines[:3]} == {len("algorithm f(")}
    assert all(line.endswith((",", ":")) for line in lines[:3])


@pytest.mark.parametrize("size", [10, 100, 119, 120, 121, 200])
def test_what_has_no_bracket_stays_long(size: int) -> None:
    assert wrap("x" * size, 0) == ["x" * size]
    assert wrap(" ".join("x" * 9 for _ in range(size)), 4)[0].startswith("    x")


def test_strings_are_not_broken() -> None:
    line = 'f("' + "a b, " * 40 + '", 1)'
    assert wrap(line, 0) == [line[:-3], "  1)"]


def test_a_text_with_mistakes_is_refused() -> None:
    with pytest.raises(DecError):
        format_source("algorithm f(:\n")
