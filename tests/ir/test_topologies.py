"""Trees by name: those of the papers' code are what that code was recorded with, others say that they are ours."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lib.stdlib.table_models import NAMES, module

from decgraph.errors import DecError
from decgraph.ir.data.topology import ACCEPTANCE, PUBLISHED, Topology

GOLDEN = Path(__file__).parents[1] / "fidelity" / "golden"
RECORDED = [
    ("eagle_25", "heads/eagle1", "0", [4, 8, 8, 3, 2]),
    ("medusa_63", "ar/medusa_greedy", "0", [10, 28, 23, 2]),
    ("medusa_63", "heads/medusa_greedy", "0", [10, 28, 23, 2]),
    ("recycling_80", "ar/token_recycling", "0", [8, 21, 25, 15, 8, 3]),
]


def flat(shape: Topology) -> list[int]:
    """The parent of every node, level by level, -1 for the root's."""
    out, first, above = [-1], 0, 1
    for level in shape.levels:
        out += [first + p for p in level.parent]
        first, above = first + above, len(level.parent)
    return out


@pytest.mark.parametrize(("name", "file", "case", "widths"), RECORDED)
def test_published_trees_are_those_that_were_recorded(name: str, file: str, case: str, widths: list[int]) -> None:
    cases = json.loads((GOLDEN / f"{file}.json").read_text(encoding="utf-8"))["cases"]
    found: Any = next(c for c in cases if c["id"] == case)
    shape = Topology.of(name)
    assert [len(level.parent) for level in shape.levels] == widths
    assert flat(shape) == found["tree_parents"]
    for level in shape.levels:  # siblings are a node's first guesses
        for parent, many in Counter(level.parent).items():
            assert [r for p, r in zip(level.parent, level.rank, strict=True) if p == parent] == list(range(many))


READ = {"falcon_165": [20, 15, 19, 23, 21, 23, 21, 23]}
"""Published trees of which there is no recording, with the widths of their levels."""


def test_other_published_trees_have_the_published_levels() -> None:
    for name, widths in READ.items():
        assert [len(level.parent) for level in Topology.of(name).levels] == widths


def test_a_name_says_how_many_nodes() -> None:
    assert {*READ, *(name for name, *_ in RECORDED)} == set(PUBLISHED)
    for name in (*PUBLISHED, *(f"{kind}_{n}" for kind in ACCEPTANCE for n in (1, 16, 63))):
        assert Topology.of(name).size == int(name.rpartition("_")[2])


@pytest.mark.parametrize("name", ["medusa_62", "recycling_16", "sequoia_64", "medusa", "heads_0"])
def test_no_tree_of_ours_goes_by_an_algorithm_name(name: str) -> None:
    with pytest.raises(DecError, match="not a topology|1 to 1024"):
        Topology.of(name)


def test_default_trees_have_a_name_that_is_known() -> None:
    shapes = {p.default for n in NAMES for p in module(n).entry.params if p.value.type.elem == "topology"}
    assert {"medusa_63", "recycling_80"} <= shapes
    for shape in shapes:
        assert Topology.of(shape).size > 0
