"""The programs parse, are in house layout, and print back to equal trees."""

from __future__ import annotations

import pytest
from lib.call_counts import work
from lib.programs.corpus import NAMES, many_lines, program

from decgraph.dsl import syntax as s
from decgraph.dsl.format import format_source, format_tree
from decgraph.dsl.parse import parse_text


def test_all_programs_are_here() -> None:
    items = [item for name in NAMES for item in parse_text(program(name)).items]
    algorithms = {item.name for item in items if isinstance(item, s.Algorithm)}
    assert len(NAMES) == 44
    assert len(algorithms) == 48  # the 46 of the research page, and two of ours
    assert {"eagle2", "medusa", "fast_dllm", "elastic_cache", "lookahead_reasoning"} <= algorithms


@pytest.mark.parametrize("name", NAMES)
def test_program_is_in_house_layout(name: str) -> None:
    text = program(name)
    assert format_source(text, name) == text


@pytest.mark.parametrize("name", NAMES)
def test_tree_prints_and_parses_back(name: str) -> None:
    file = parse_text(program(name), name)
    printed = format_tree(file)
    assert parse_text(printed) == file
    assert format_source(printed) == printed


def test_shape_of_a_program() -> None:
    file = parse_text(program("eagle2"))
    eagle = file.named("eagle2")
    assert isinstance(eagle, s.Algorithm)
    assert [p.name for p in eagle.params] == ["target", "head", "depth", "k", "budget"]
    assert eagle.params[1].type == s.TypeExpr("features", args=(s.Name("target"),))
    claim, loop = eagle.body
    spec = s.Call(s.Name("autoregressive"), (s.Name("target"),))
    assert claim == s.Refines(spec, "tokens")
    assert isinstance(loop, s.While) and loop.cond == s.Unary("not", s.Name("done"))
    draft, verify, commit = loop.body
    assert isinstance(draft, s.Draft) and draft.tree == "t" and draft.of is None
    assert verify == s.Verify(s.Name("t"), s.Name("match"), s.Call(s.Name("target"), (s.Name("t"),)))
    assert commit == s.Commit(s.Attr(s.Name("t"), "accepted"))


@pytest.mark.slow
def test_five_thousand_lines_parse_in_linear_time() -> None:
    small, large = many_lines(1_000), many_lines(5_000)
    few, many = (work(lambda text=text: parse_text(text)) for text in (small, large))
    assert many < 1.1 * few * large.count("\n") / small.count("\n")
    assert many < 60 * len(large)
