"""Random whole programs (tests/lib/random_programs/programs.py) do the same on every backend, before and after the
passes, alone and together.

`PYTHONPATH=.:tests python -m lib.random_programs.backends 1000 2000 25` runs other programs, every 25th on the triton machine
too; `PYTHONPATH=.:tests python -m lib.random_programs.programs 17` prints the one called 17.
"""

from __future__ import annotations

import pytest
from lib.random_programs.backends import fuzz
from lib.random_programs.programs import program

FOUND = (25, 70, 226, 325, 880, 79, 115, 157)
"""Programs that showed: edits told of in another order (and places that draws lost on triton), rows of nothing on torch, a
certain draw that was refused, a mixture over a span read at places, a turn that torch began with nothing to grow; on triton a
rule with the name of a helper, another draw without its places, and a last child that was none."""


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_programs_that_found_something() -> None:
    found = fuzz(FOUND, triton=1)
    assert found.ran == len(FOUND) and not found.faults, found.report()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "first", [pytest.param(5000, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.nightly) for n in (5012, 5024))]
)
def test_a_few_programs(first: int) -> None:
    found = fuzz(range(first, first + 12), triton=12)
    assert not found.faults, found.report()
    assert found.ran >= 10 and len(found.kinds) > 40, found.report()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_programs(hundred: int) -> None:
    found = fuzz(range(100 * hundred, 100 * hundred + 100), triton=20)
    assert not found.faults, found.report()
    assert found.ran >= 80, found.report()


def test_programs_have_every_construct() -> None:
    kinds = {k for seed in range(400) for k in program(seed).kinds}
    wanted = {
        "allow",
        "beams",
        "race",
        "remask",
        "memory given",
        "extern",
        "drafts of a run",
        "blocks",
        "lanes",
        "across batch",
        "speculative steps on canvases",
        "trees of canvases",
        "policy from outside",
        "memories of canvases",
        "small context",
    }
    assert wanted <= kinds and len(kinds) > 90


def test_a_number_names_a_program() -> None:
    assert [program(n).text for n in range(30)] == [program(n).text for n in range(30)]
    assert len({program(n).text for n in range(30)}) == 30
