"""Printing a tree and reading it back gives the tree, for every tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from lib.programs.syntax_trees import expressions, files, statements
from quick import examples

from decgraph.dsl import syntax as s
from decgraph.dsl.format import format_source, format_tree
from decgraph.dsl.parse import parse_text

# hypothesis prints strategies for its messages; this one is as large as the language
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


@settings(max_examples=examples(50))
@given(files)
def test_parse_undoes_print(file: s.File) -> None:
    text = format_tree(file)
    assert parse_text(text) == file
    assert format_source(text) == text


@settings(max_examples=examples(200))
@given(expressions)
def test_every_nesting_of_expressions(node: s.Expr) -> None:
    file = s.File((s.Def("f", (), None, (s.Return((node,)),)),))
    assert parse_text(format_tree(file)) == file


@settings(max_examples=examples(80))
@given(statements)
def test_every_nesting_of_statements(node: s.Stmt) -> None:
    file = s.File((s.Algorithm("f", (), (node, node)),))
    assert parse_text(format_tree(file)) == file
