"""The tables of docs/benchmarks.md are what the results say, and result files are read as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib.bench_runs import run_of_two

from lab import benchmarks, pages


def test_tables_are_made_from_the_results(tmp_path: Path) -> None:
    page = "before\n<!-- table shipped -->\nold\n<!-- end -->\nafter\n<!-- table compiling -->\n<!-- end -->\n"
    pages.keep(tmp_path / "decoding.json", {"runs": [{"name": "shipped", **run_of_two()}]})
    made = benchmarks.written(page, tmp_path)
    assert made.startswith("before\n<!-- table shipped -->\ntiny (0.0M parameters)")
    assert "| speculative | 2.50 | 120.0 | 2.00 (1.50 to 2.50) |" in made
    assert "old" not in made and "after\n<!-- table compiling -->\n(not measured)\n" in made
    assert benchmarks.written(made, tmp_path) == made
    with pytest.raises(KeyError):
        benchmarks.written("<!-- table nothing -->\n<!-- end -->", tmp_path)


def test_the_page_says_what_the_results_say() -> None:
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    assert benchmarks.written(page) == page, "run: python -m lab benchmarks"


def test_a_result_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    document = {
        "rows": [{"name": "x" * 600, "of": [1, 2.5, None]}] * 3,
        "empty": [],
        "facts": {},
        "long": ["y" * 900, "z" * 900],
    }
    path = pages.keep(tmp_path / "made.json", document)
    assert pages.read(path) == document and len(path.read_text().splitlines()) > 5
    assert pages.read(tmp_path / "none.json") == {}
