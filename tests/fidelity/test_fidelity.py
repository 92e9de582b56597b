"""Recordings of published code, replayed: every column agrees, or differs as its entry says."""

from __future__ import annotations

from typing import Any

import pytest
from fidelity.entry import GOLDEN, Entry, entries, later, outcome, recording
from fidelity.page import PAGE, page


def every(backends: Any) -> list[Any]:
    return [
        pytest.param(e, c, b, id=f"{e.file} {c['id']} {e.program} {b}")
        for e in entries()
        for b in backends(e)
        for c in (e.cases[: e.triton] if b == "triton" else e.cases)
    ]


def agree(entry: Entry, case: Any, backend: str) -> None:
    found = outcome(entry, case, backend)
    expected = entry.expected(case)
    for column in found.recorded:
        if column in expected:
            assert found.ours[column] != found.recorded[column], f"{column} agrees: its reason is out of date"
        else:
            assert found.ours[column] == found.recorded[column], column


@pytest.mark.parametrize("entry, case, backend", every(lambda e: e.backends))
def test_a_recording_is_replayed(entry: Entry, case: Any, backend: str) -> None:
    agree(entry, case, backend)


@pytest.mark.parametrize("entry, case, backend", every(lambda e: ("triton",) if e.triton else ()))
def test_on_tritons_interpreter(entry: Entry, case: Any, backend: str) -> None:
    agree(entry, case, backend)


@pytest.mark.parametrize("entry", [pytest.param(e, id=f"{e.file} {e.program}") for e in entries()])
def test_what_is_excused_exists(entry: Entry) -> None:
    """A reason belongs to a case of the file, and what upstream marks as its bug is among them."""
    names = {str(c["id"]) for c in recording(entry.file)["cases"]}
    assert {name for name, _ in entry.differs} <= names | {"*"} and set(entry.leaves_out) <= names
    assert not {name for name, _ in entry.differs} & set(entry.leaves_out)


def test_masked_recordings_are_replayed_or_said_to_be_of_later_algorithms() -> None:
    files = {f"{p.parent.name}/{p.stem}" for p in GOLDEN.glob("dllm*/*.json") if p.stem != "index"}
    replayed = {e.file for e in entries()}
    assert not replayed & later().keys() and files <= replayed | later().keys()
    assert later().keys() <= {f"{p.parent.name}/{p.stem}" for p in GOLDEN.glob("*/*.json")}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/fidelity/page.py"
