"""Recordings of published code, replayed: every column agrees, or differs as its entry says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from fidelity.entry import GOLDEN, Entry, Parameters, entries, later, recording
from fidelity.page import PAGE, Agreeing, page, said
from fidelity.transcribed.compared import Compared, comparisons
from fidelity.unread import surprising

from decgraph import stdlib


def every(backends: Callable[[Entry], Sequence[str]]) -> list[Any]:
    """Every case on every backend; the first of a recording on its first backend is quick."""
    return [
        pytest.param(
            e,
            c,
            b,
            id=f"{e.file} {c['id']} {e.program} {b}",
            marks=pytest.mark.slow if i or b not in (e.backends[0], "triton") else (),
        )
        for e in entries()
        for b in backends(e)
        for i, c in enumerate(e.replayed_on(b))
    ]


def agree(entry: Entry, case: Any, backend: str) -> None:
    parameters = Parameters(case.get("parameters", {}))
    found = entry.replay(dict(case, parameters=parameters), backend)
    left = surprising(entry.file, {n: v for n, v in case.get("parameters", {}).items() if n in parameters.unread})
    assert not left, "parameters of the recording that the entry does not look at (tests/fidelity/unread.py)"
    expected = entry.expected(case)
    for column in found.recorded:
        if column in expected:
            assert found.ours[column] != found.recorded[column], f"{column} agrees: its reason is out of date"
        else:
            assert found.ours[column] == found.recorded[column], column
    shown = on_page()(entry, backend)
    if case["id"] == entry.cases[0]["id"]:
        usual = {} if backend == entry.backends[0] else on_page()(entry, entry.backends[0])
        assert shown.keys() == {*usual, *found.recorded}, "python tests/fidelity/page.py"


def test_the_catalogue_says_recorded_of_what_was_recorded() -> None:
    """Of programs of stdlib whose own text is replayed; a linked program is another."""
    mine = [e.program for e in entries() if not e.program.startswith("[")]
    words = {word for program in mine for word in re.findall(r"\w+", program)}
    assert {row.name for row in stdlib.catalogue().values() if row.status == "recorded"} == words & set(stdlib.names())


@pytest.mark.budget(25)
@pytest.mark.parametrize(
    "pair, case, backend",
    [
        pytest.param(c, case, b, id=f"{c.program} {name} {b}", marks=pytest.mark.slow if i or n else ())
        for c in comparisons()
        for n, (name, case) in enumerate(c.cases.items())
        for i, b in enumerate(c.backends)
    ],
)
def test_a_transcription_agrees(pair: Compared, case: Any, backend: str) -> None:
    assert pair.ours(case, backend) == pair.authors(case)


def test_the_catalogue_says_compared_of_what_was_transcribed() -> None:
    """A stand-in may be compared in what it has."""
    rows = stdlib.catalogue().values()
    transcribed = {c.program for c in comparisons()}
    assert {row.name for row in rows if row.status == "compared"} <= transcribed
    assert transcribed <= {row.name for row in rows if row.status in ("recorded", "compared", "stand-in")}


@cache
def on_page() -> Agreeing:
    return said(PAGE.read_text(encoding="utf-8"))


@pytest.mark.budget(14)
@pytest.mark.parametrize("entry, case, backend", every(lambda e: e.backends))
def test_a_recording_is_replayed(entry: Entry, case: Any, backend: str) -> None:
    agree(entry, case, backend)


LONG_ON_TRITON = {"heads/eagle1", "ar/eagle2", "ar/mcsd_greedy", "ar/swift_fixed_layers", "ar2/sequoia_greedy"}
"""Recordings that Triton's interpreter takes 10 to 40 seconds for; other trees and chains are replayed in `make slow`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry, case, backend", every(lambda e: ("triton",) if e.triton and e.file not in LONG_ON_TRITON else ())
)
def test_on_tritons_interpreter(entry: Entry, case: Any, backend: str) -> None:
    agree(entry, case, backend)


@pytest.mark.nightly
@pytest.mark.parametrize("entry, case, backend", every(lambda e: ("triton",) if e.triton and e.file in LONG_ON_TRITON else ()))
def test_long_ones_on_tritons_interpreter(entry: Entry, case: Any, backend: str) -> None:
    agree(entry, case, backend)


@pytest.mark.parametrize("entry", [pytest.param(e, id=f"{e.file} {e.program}") for e in entries()])
def test_what_is_excused_exists(entry: Entry) -> None:
    """A reason belongs to a case of the file, and what upstream marks as its bug is among them."""
    names = {str(c["id"]) for c in recording(entry.file)["cases"]}
    assert {name for name, _ in entry.differs} <= names | {"*"} and set(entry.leaves_out) <= names
    assert not {name for name, _ in entry.differs} & set(entry.leaves_out)


NO_SNAPSHOT = {"dllm/localleap", "dllm2/dilated"}
"""Repositories of which no file with numbered lines is to be had: an excuse names the function."""


@pytest.mark.parametrize("entry", [pytest.param(e, id=f"{e.file} {e.program}") for e in entries() if e.differs or e.leaves_out])
def test_an_excuse_names_a_line_of_upstream(entry: Entry) -> None:
    """A file of the authors' code, and the line of it that makes the difference."""
    place = r"[\w./-]+\.py, \w+" if entry.file in NO_SNAPSHOT else r"[\w./-]+\.(py|rs|cc):\d+"
    for why in {*entry.differs.values(), *entry.leaves_out.values()}:
        assert re.search(place, why), why


def test_masked_recordings_are_replayed_or_said_to_be_of_later_algorithms() -> None:
    files = {f"{p.parent.name}/{p.stem}" for p in GOLDEN.glob("dllm*/*.json") if p.stem != "index"}
    replayed = {e.file for e in entries()}
    assert not replayed & later().keys() and files <= replayed | later().keys()
    assert later().keys() <= {f"{p.parent.name}/{p.stem}" for p in GOLDEN.glob("*/*.json")}


def test_the_page_is_up_to_date() -> None:
    """Its numbers are what the entries say, which every replay above is held to."""
    assert PAGE.read_text(encoding="utf-8") == page(on_page()), "python tests/fidelity/page.py"


@pytest.mark.nightly
def test_replaying_everything_writes_the_page() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
