"""Programs are short: what a reader has in front of him, with claims, docstring and blank lines."""

from __future__ import annotations

from statistics import median

from decgraph import stdlib


def test_a_program_is_a_page_at_most_and_half_of_them_are_eighteen_lines() -> None:
    lines = {name: stdlib.text(name).count("\n") for name in stdlib.names()}
    assert {name: n for name, n in lines.items() if n > 40} == {}
    assert median(lines.values()) <= 18
