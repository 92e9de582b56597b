"""Programs are short: half of them have 18 lines of code or fewer, without claims, docstring and blank lines."""

from __future__ import annotations

import re
from statistics import median

from decgraph import stdlib

LONGER = {
    "constrained_beam": "phrases and the sizes of banks, as the authors' code has them",
    "parallel_branches": "titles are found, cut and refused as the authors' code does, before branches are written",
    "self_infilling": "two passes between marks, with the authors' tests of where each begins and breaks off",
    "cs_drafting": "three programs: a statistical model, its reviewer, the target's step",
}


def code(name: str) -> int:
    """Lines of a program that are neither blank nor comments, imports, claims or docstrings."""
    text = re.sub(r'"""[^"]*"(?:[^"]+"[^"]*)*"""\n', "", stdlib.text(name))
    claim = re.compile(r"\s*(#|$|from |refines |keeps |ensures )")
    return sum(not claim.match(line) for line in text.splitlines())


def test_a_program_is_a_page_at_most_and_half_of_them_are_eighteen_lines_of_code() -> None:
    lines = {name: code(name) for name in stdlib.names()}
    assert {name: n for name, n in lines.items() if n > 40}.keys() == LONGER.keys()
    assert median(lines.values()) <= 18
