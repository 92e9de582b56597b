"""What every program becomes, and how often it calls its models, is what tests/replay.tsv says."""

from __future__ import annotations

import pytest
import replay

from decgraph import stdlib


@pytest.mark.budget()
@pytest.mark.slow
def test_no_program_changed_unnoticed() -> None:
    rows = {name: replay.row(name) for name in stdlib.names()}
    changed = replay.differences(rows, replay.committed())
    assert not changed, "\n".join([*changed, "meant so? `python tests/replay.py --write`; `--against main` shows the texts"])


def test_a_changed_a_new_and_a_lost_program_are_named() -> None:
    before = {"a": ("a", "1", "2", "3", "9", "target:9"), "b": ("b", "1", "2", "3", "9", "target:9")}
    after = {"a": ("a", "1", "2", "4", "9", "target:8"), "c": ("c", "1", "2", "3", "9", "target:9")}
    assert replay.differences(after, before) == ["a: python 3 -> 4, calls target:9 -> target:8", "b: gone", "c: new"]
