"""A memory of a canvas that no call of its model made is a call like any other; one of the call before is none."""

from __future__ import annotations

import pytest
from lib.models.masked_models import masked

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime import trace
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

HEAD = "algorithm keeps(model: masked, length: int in 1..64 = 8):\n    canvas c: length\n"
LOOP = """        for i in 0..2:
            p = model(c, at = b, given = m.without(b))
            x ~ p
            unmask c[b] where rank(p.raw[x]) < 2 with x
"""
ALONE = HEAD + "    for b in blocks(c, 4):\n        m = model.memory(c)\n" + LOOP + "    commit c\n"
AFTER = HEAD + "    for b in blocks(c, 4):\n        q = model(c)\n        m = model.memory(c)\n" + LOOP + "    commit c\n"
BEHIND = HEAD + (
    "    m = model.memory(c)\n    for b in blocks(c, 4):\n"
    + LOOP
    + "            m = model.memory(c, at = b, given = m.without(b))\n    commit c\n"
)


@pytest.mark.parametrize("passes", [None, ()], ids=["all passes", "without passes"])
@pytest.mark.parametrize(("text", "most"), [(ALONE, 6), (AFTER, 6), (BEHIND, 9)], ids=["alone", "after", "behind"])
@pytest.mark.parametrize("table", [False, True], ids=["transformer", "table"])
def test_what_is_computed_for_a_memory_is_counted(text: str, most: int, passes: tuple[str, ...] | None, table: bool) -> None:
    """torch's statistics are its engine's forwards and cells, and the reference says the same."""
    model: Model = TableModel(10, 3, kind="masked", name="model") if table else masked(3)[0]
    found = {}
    for backend in ("reference", "torch"):
        engine = engine_of(model)
        forwards, cells = engine.counted.calls, engine.counted.computed
        session = decgraph.parse(text).session({"model": model}, plan=Plan(backend=backend, passes=passes), length=8)
        result = session.run(Request((5, 9, 2), max_tokens=8, eos=frozenset(), temperature=0))
        assert result.error is None, result.error
        told = [e for e in result.events if isinstance(e, trace.ModelCall)]
        found[backend] = (result.tokens, result.stats.calls)
        assert result.stats.target_calls == len(told) <= most
        if backend == "torch":
            assert result.stats.target_calls == engine.counted.calls - forwards
            assert sum(e.computed or 0 for e in told) == engine.counted.computed - cells
    assert found["reference"] == found["torch"]
