"""Programs that attack the check: a wrong one is never proved, and its true twin, which looks much the same, is."""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph

FOLDER = Path(__file__).parent / "attacks"
NAMES = sorted(path.stem for path in (FOLDER / "wrong").glob("*.dec"))


def test_every_wrong_program_has_a_true_twin() -> None:
    assert [path.stem for path in sorted((FOLDER / "true").glob("*.dec"))] == NAMES
    assert len(NAMES) >= 140


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_program_is_not_proved(name: str) -> None:
    assert decgraph.check(FOLDER / "wrong" / f"{name}.dec").verdict in ("refuted", "undecided")


@pytest.mark.parametrize("name", NAMES)
def test_its_true_twin_is_proved(name: str) -> None:
    assert decgraph.check(FOLDER / "true" / f"{name}.dec").verdict == "proved"
