"""lab/recordings and the files that it wrote are of one another; what ran the authors' code is not run here."""

from __future__ import annotations

import json

import pytest

from lab.recordings import GOLDEN, Recording, plain, recordings

EVERY = recordings()


def test_every_file_has_what_wrote_it() -> None:
    assert sorted(r.path.name for r in EVERY) == sorted(p.name for p in GOLDEN.glob("*.json"))


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.path.stem)
def test_a_file_says_what_its_recording_says(one: Recording) -> None:
    written = json.loads(one.path.read_text("utf-8"))
    assert written["source"] == {"repo": one.repo, "commit": one.commit, "function": one.function}
    assert (written["algorithm"], written["scope"], written["notes"]) == (one.program, one.scope, one.notes)
    assert {c["id"]: c["parameters"] for c in written["cases"]} == plain(one.cases), "python -m lab recordings NAME"
