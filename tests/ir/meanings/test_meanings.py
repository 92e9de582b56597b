"""Every op means what its documentation says, by computations that share nothing with the op table's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meanings import canvases, distributions, host, limits, models, paths, selection, stores, trees, vectors
from meanings.registry import ELSEWHERE, LAWS, MEANINGS, REFUSED
from meanings.running import check
from quick import examples

from decgraph.ir.table import load

TOPICS = (canvases, distributions, host, limits, models, paths, selection, stores, trees, vectors)
ROOT = Path(__file__).parents[3]
CASES = [pytest.param(f, id=f"{op} {f.__module__.rpartition('.')[2]}.{f.__name__}") for op, fs in MEANINGS.items() for f in fs]


def test_every_op_has_a_meaning_of_its_own() -> None:
    covered = [set(MEANINGS), set(ELSEWHERE), LAWS - set(MEANINGS), REFUSED]
    assert set(load()) == set.union(*covered), set(load()) ^ set.union(*covered)
    assert sum(map(len, covered)) == len(load()), "an op stands in two lists"
    assert all((ROOT / file).is_file() for file, _ in ELSEWHERE.values())


def test_meanings_do_not_ask_the_op_table() -> None:
    """What registers here imports no op's meaning."""
    for topic in TOPICS:
        text = Path(str(topic.__file__)).read_text(encoding="utf-8")
        assert "ir.ops" not in text and "lookup" not in text.split("import")[0] and ".meaning" not in text


@pytest.mark.parametrize("meaning", CASES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_the_meaning(meaning: Any, data: st.DataObject) -> None:
    check(meaning(data.draw))
