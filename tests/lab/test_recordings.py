"""lab/recordings has what runs the authors' code for every file of data, and a file says what ran; none of it is run here."""

from __future__ import annotations

import pytest

from lab.recordings import GOLDEN, Recording, recordings, runs

EVERY = recordings()


def test_every_file_has_what_wrote_it() -> None:
    assert sorted(runs()) == sorted(p.stem for p in GOLDEN.glob("*.json"))


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.path.stem)
def test_a_file_says_what_ran_on_which_cases(one: Recording) -> None:
    assert [*one.said] == ["algorithm", "source", "scope", "date", "notes", "cases"]
    repo, commit, function = (one.said["source"][name] for name in ("repo", "commit", "function"))
    assert repo.count("/") == 1 and commit and function
    assert {*one.said["scope"].split(", ")} <= {"greedy", "sampled", "parts"}, one.said["scope"]
    assert len({case["id"] for case in one.said["cases"]}) == len(one.said["cases"])
    assert all([*case] == ["id", "parameters", "columns"] for case in one.said["cases"])
