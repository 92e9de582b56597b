"""The catalogue of published algorithms: what has a program, what is owed, and `decgraph list` of both."""

from __future__ import annotations

import json

import pytest

from decgraph import stdlib
from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_every_row_is_here_or_owed_with_a_reason() -> None:
    rows, owed = stdlib.catalogue(), {row.name for row in stdlib.owed()}
    assert len(rows) == 189
    assert owed == set(rows) - set(stdlib.names())
    assert [row.name for row in stdlib.owed() if not row.lacks] == [], "say in stdlib/catalogue.csv what it lacks"


def test_programs_are_of_the_catalogues_families() -> None:
    rows = stdlib.catalogue()
    for name in set(rows) & set(stdlib.names()):
        entry = stdlib.entry(name)
        assert (entry.family, entry.wave) == (rows[name].family, rows[name].wave), name


def test_list_by_family_and_what_is_owed(capsys: Capture) -> None:
    assert main(["list", "--family", "heads", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "eagle2" in {entry["name"] for entry in found} and {entry["family"] for entry in found} == {"heads"}
    assert {entry["name"]: entry["catalogue"] for entry in found}["medusa_match"] is None  # of ours, beside the catalogue
    assert main(["list", "--owed", "--json"]) == 0
    owed = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in owed} == {row.name for row in stdlib.owed()} and "stream_k" in {row["name"] for row in owed}
    assert main(["list", "--family", "haeds"]) == 1
    assert "one of" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ("explain", "run", "check", "compile"))
def test_what_is_owed_is_told_as_owed(verb: str, capsys: Capture) -> None:
    for row in stdlib.owed():
        assert main([verb, row.name, *(["-p", "a"] if verb == "run" else [])]) == 1
        said = capsys.readouterr().err
        assert "not in the library yet, because" in said and row.lacks.split(":")[0] in said
        assert "did you mean" not in said


def test_a_misspelt_name_finds_what_is_owed_too() -> None:
    assert "elastic_cache (not in the library yet)" in str(stdlib.missing("elastic_cach"))
    assert "did you mean speculative" in str(stdlib.missing("speculativ"))
