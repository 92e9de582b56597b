"""Spans are exact: a node's text, read alone, is the node."""

from __future__ import annotations

import textwrap
from itertools import pairwise

import pytest
from lib.programs.corpus import NAMES, program

from decgraph.dsl import syntax as s
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source


@pytest.mark.parametrize("name", NAMES)
def test_spans_nest_and_know_their_line(name: str) -> None:
    text = program(name)
    source = Source(text, name)
    for node in s.walk(parse_text(text)):
        if isinstance(node, s.File):
            continue
        assert node.span.start < node.span.end
        assert source.locate(node.span.start) == (node.span.line, node.span.column)
        inner = [child.span for child in s.children(node)]
        assert all(node.span.start <= child.start and child.end <= node.span.end for child in inner)
        if not isinstance(node, (s.IfExp, s.While, s.Loop, s.Comprehension)):  # fields in another order than the text
            assert all(a.end <= b.start for a, b in pairwise(inner))
        if isinstance(node, s.Named) and getattr(node, "name", ""):
            assert text[slice(*node.name_span[:2])] == getattr(node, "name", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_an_expression_is_the_expression(name: str) -> None:
    text = program(name)
    for node in s.walk(parse_text(text)):
        piece = text[node.span.start : node.span.end]
        if isinstance(node, (s.Slice, s.UpTo)):
            piece, wanted = f"x[{piece}]", s.Index(s.Name("x"), (node,))
        elif isinstance(node, s.Expr) and not isinstance(node, (s.Rest, s.FromStart)):
            wanted = node
        else:
            continue
        (found,) = parse_text(f"def f():\n    return (\n{piece})").items
        assert found.body == (s.Return((wanted,)),)


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_statement_is_the_statement(name: str) -> None:
    text = program(name)
    for node in s.walk(parse_text(text)):
        if isinstance(node, s.Stmt):
            piece = textwrap.dedent(" " * (node.span.column - 1) + text[node.span.start : node.span.end])
            if isinstance(node, s.Assign) and isinstance(node.values[0], s.Grow):
                assert piece.count("grow") == 1
            (found,) = parse_text("def f():\n" + textwrap.indent(piece, "  ")).items
            assert found.body == (node,)


def test_span_of_brackets_and_blocks() -> None:
    text = "algorithm f():\n    y = (a + b) * c\n\n    # end\n\n\nrule g():\n    emit x\n"
    f, g = parse_text(text).items
    assert text[f.span.start : f.span.end] == "algorithm f():\n    y = (a + b) * c"
    assert (g.span.line, g.span.column, g.name_span.column) == (7, 1, 6)
    (assign,) = f.body
    product = assign.values[0]
    assert text[product.span.start : product.span.end] == "(a + b) * c"
    assert text[product.left.span.start : product.left.span.end] == "a + b"


def test_nodes_without_text_have_no_place() -> None:
    assert not s.Name("x").span
    assert parse_text("").items == ()
    assert s.Name("x") == parse_text("def f():\n  return x").items[0].body[0].values[0]
