"""Programs that attack the check: a wrong one is neither proved nor holds, and its true twin, which looks much the same, is."""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph

FOLDER = Path(__file__).parent / "attacks"
FINE = ("proved", "holds")
NAMES = sorted(path.stem for path in (FOLDER / "wrong").glob("*.dec"))
REFUSED = {"refines_itself": "refine itself", "noise_once_for_all_steps_draft": "E031"}
"""Wrong programs, by the beginnings of their names, that are refused before any check, and what the message says."""


def verdict(path: Path) -> str:
    """What the check says of a program; `refused` where it does not take the claim at all."""
    try:
        return str(decgraph.check(path).verdict)
    except decgraph.DecError:
        return "refused"


def test_every_wrong_program_has_a_true_twin() -> None:
    assert [path.stem for path in sorted((FOLDER / "true").glob("*.dec"))] == NAMES
    assert len(NAMES) >= 146


@pytest.mark.budget()
@pytest.mark.parametrize("side", ["wrong", "true"])
@pytest.mark.parametrize("name", NAMES)
def test_the_programs_load(name: str, side: str) -> None:
    said = [message for start, message in REFUSED.items() if name.startswith(start)]
    if side == "wrong" and said:
        with pytest.raises(decgraph.DecError, match=said[0]):
            decgraph.load(FOLDER / side / f"{name}.dec")
        return
    assert decgraph.load(FOLDER / side / f"{name}.dec").name == name


@pytest.mark.quick("vocab_4_size")
@pytest.mark.parametrize("name", [name for name in NAMES[::24] if not name.startswith(tuple(REFUSED))])
def test_some_pairs_are_told_apart(name: str) -> None:
    """A sample of the two slow tests below."""
    wrong = decgraph.check(FOLDER / "wrong" / f"{name}.dec").verdict
    right = decgraph.check(FOLDER / "true" / f"{name}.dec").verdict
    assert wrong in ("refuted", "undecided") and right in FINE


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_program_is_not_said_to_hold(name: str) -> None:
    legal = ("refuted", "undecided", "refused") if name.startswith(tuple(REFUSED)) else ("refuted", "undecided")
    assert verdict(FOLDER / "wrong" / f"{name}.dec") in legal


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_its_true_twin_is_proved_or_holds(name: str) -> None:
    assert verdict(FOLDER / "true" / f"{name}.dec") in FINE
