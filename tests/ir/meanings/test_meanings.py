"""Every op means what its documentation says, by computations that share nothing with the op table's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meanings import canvases, distributions, hidden, host, limits, models, paths, selection, stores, trees, vectors
from meanings.registry import ELSEWHERE, LAWS, MEANINGS, REFUSED
from meanings.running import check
from quick import examples

from decgraph.backends.torch import lowering
from decgraph.ir.table import TABLE

TOPICS = (canvases, distributions, hidden, host, limits, models, paths, selection, stores, trees, vectors)
ROOT = Path(__file__).parents[3]
CASES = [pytest.param(f, id=f"{op} {f.__module__.rpartition('.')[2]}.{f.__name__}") for op, fs in MEANINGS.items() for f in fs]


def test_every_op_has_a_meaning_of_its_own() -> None:
    covered = [set(MEANINGS), set(ELSEWHERE), LAWS - set(MEANINGS), REFUSED]
    missing = {f"{op} in tests/ir/meanings/{row.topic}.py" for op, row in TABLE.items() if op not in set.union(*covered)}
    assert not missing, f"write the meaning of {', '.join(sorted(missing))}"
    assert set.union(*covered) <= set(TABLE), set.union(*covered) - set(TABLE)
    assert sum(map(len, covered)) == len(TABLE), "an op stands in two lists"
    assert all((ROOT / file).is_file() for file, _ in ELSEWHERE.values())


def test_what_torch_runs_by_its_numpy_meaning_has_one_of_its_own() -> None:
    """There "torch equals the reference" says nothing: both run the same function."""
    lowering.load()
    assert lowering.HOSTED.keys() <= MEANINGS.keys() | LAWS


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
