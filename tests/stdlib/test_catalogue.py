"""The catalogue of published algorithms: what has a program, what is owed, and `decgraph list` of both."""

from __future__ import annotations

import csv
import json
from datetime import date

import pytest

from decgraph import stdlib
from decgraph.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_every_program_has_a_row_and_a_row_without_one_says_why() -> None:
    rows = stdlib.catalogue()
    assert set(stdlib.names()) <= set(rows)
    for row in rows.values():
        assert row.status in stdlib.STATUSES, row.name
        assert (row.status == "none") == (row.name not in stdlib.names()), row.name
        if row.status in ("none", "stand-in"):
            assert row.note, f"say in stdlib/catalogue.csv what {row.name} lacks"
        if row.status in ("recorded", "compared", "not compared"):
            assert row.code or row.status == "recorded", f"{row.name}: where is the authors' code?"
        # what `decgraph list` says of it: a few words that stand on a line beside the longest name
        assert bool(row.about) == (row.status != "none"), f"say in stdlib/catalogue.csv what {row.name} does"
        assert not row.about or 3 <= len(row.about.split()) <= 9 and len(row.about) <= 56, row.name
        # no claim that there is no code: the day and the searches that found none
        assert bool(row.searched) == (row.status == "as the paper"), f"say in stdlib/searches.csv how {row.name} was looked for"


def test_a_row_of_searches_says_when_and_how() -> None:
    rows = stdlib.catalogue()
    with (stdlib.FOLDER / "searches.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert row["id"] in rows and date.fromisoformat(row["date"]) and len(row["searches"].split()) > 3, row["id"]
            assert rows[row["id"]].searched == f"none was found on {row['date']} by these searches: {row['searches']}"


def test_list_by_family_and_what_is_owed(capsys: Capture) -> None:
    assert main(["list", "--family", "heads", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "eagle2" in {entry["name"] for entry in found} and {entry["family"] for entry in found} == {"heads"}
    assert main(["list", "--status", "recorded", "--json"]) == 0
    assert {e["name"] for e in json.loads(capsys.readouterr().out)} >= {"eagle2", "speculative", "llada"}
    assert main(["list", "--status", "recorder"]) == 2
    assert "one of recorded" in capsys.readouterr().err
    assert main(["list", "--owed", "--json"]) == 0
    owed = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in owed} == {row.name for row in stdlib.owed()} and "stream_k" in {row["name"] for row in owed}
    assert main(["list", "--family", "haeds"]) == 2
    assert "one of" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ("explain", "run", "check", "compile"))
def test_what_is_owed_is_told_as_owed(verb: str, capsys: Capture) -> None:
    for row in stdlib.owed():
        assert main([verb, row.name, *(["-p", "a"] if verb == "run" else [])]) == 2
        said = capsys.readouterr().err
        assert "not in the library yet, because" in said and row.note.split(":")[0] in said
        assert "did you mean" not in said


def test_a_misspelt_name_finds_what_is_owed_too() -> None:
    assert "elastic_cache (not in the library yet)" in str(stdlib.missing("elastic_cach"))
    assert "did you mean speculative" in str(stdlib.missing("speculativ"))
