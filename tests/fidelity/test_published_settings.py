"""The settings that authors' functions and scripts have are settings of the programs: published_settings.csv, a row for each
parameter of a program, under our name; `where` says the repository and their name."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.runtime.session import check_params

TABLE = Path(__file__).parent / "published_settings.csv"
ROWS: list[dict[str, str]] = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def read(text: str) -> Any:
    """A value of the table: yes, no, a number or a word."""
    if text in ("yes", "no"):
        return text == "yes"
    try:
        return int(text) if text.lstrip("-").isdigit() else float(Fraction(text))
    except ValueError:
        return text


@pytest.mark.parametrize("name", sorted({row["program"] for row in ROWS}))
def test_published_settings_are_taken(name: str) -> None:
    function = decgraph.load(name).function
    for row in ROWS:
        if row["program"] == name:
            for value in row["values"].split():
                taken = check_params(function, {row["parameter"]: read(value)})[row["parameter"]]
                assert (taken if isinstance(taken, str | bool) else float(taken)) == read(value), row


def test_the_table_is_of_programs_and_says_where_its_values_are_from() -> None:
    assert {row["program"] for row in ROWS} <= set(stdlib.names())
    assert len({(row["program"], row["parameter"]) for row in ROWS}) == len(ROWS)
    assert all(row["values"].split() and "/" in row["where"] for row in ROWS)


def test_what_is_outside_of_a_range_is_refused() -> None:
    """The test above would see it."""
    with pytest.raises(decgraph.DecError, match="must be in"):
        check_params(decgraph.load("d3llm_cache").function, {"delay": -1})
