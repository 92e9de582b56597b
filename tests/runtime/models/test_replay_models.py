"""Models of small folders do what replay_models.tsv says: tokens, calls, positions computed and moved, log-probabilities."""

from __future__ import annotations

import pytest
import replay_models

NAMES = replay_models.names()
FIRST = {f"{name} | {case.algorithms[0]} | batch" for name, case in replay_models.CASES.items()}


def test_the_table_has_a_row_for_each() -> None:
    assert list(replay_models.committed()) == NAMES


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in FIRST else pytest.mark.nightly) for name in NAMES]
)
def test_a_row_is_as_committed(name: str) -> None:
    """`python tests/replay_models.py --write` accepts a change; the commit says why."""
    assert not replay_models.difference(replay_models.row(name), replay_models.committed()[name])
