"""The tables of docs/benchmarks.md are what the results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.bench_runs import run_of_two

from lab import table


def test_tables_are_made_from_the_results(tmp_path: Path) -> None:
    page = "before\n<!-- table shipped -->\nold\n<!-- end -->\nafter\n<!-- table compiling -->\n<!-- end -->\n"
    (tmp_path / "decoding.json").write_text(json.dumps({"runs": [{"name": "shipped", **run_of_two()}]}))
    made = table.written(page, tmp_path)
    assert made.startswith("before\n<!-- table shipped -->\ntiny (0.0M parameters)")
    assert "| speculative | 2.50 | 120.0 | 2.00 (1.50 to 2.50) |" in made
    assert "old" not in made and "after\n<!-- table compiling -->\n(not measured)\n" in made
    assert table.written(made, tmp_path) == made
    with pytest.raises(KeyError):
        table.written("<!-- table nothing -->\n<!-- end -->", tmp_path)


def test_the_page_says_what_the_results_say() -> None:
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.written(page) == page, "run: python -m lab.table"
