"""Many requests at a time: texts become requests, memory is bounded, progress is shown, compiling is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.models import request_for
from decgraph.runtime.models.engine.of import engine_of

TEXTS = ["def f(x):", "import os", "Once upon a time there was a", "1, 2, 3, 4, 5,", "class A:"]


@pytest.fixture(scope="module")
def session() -> Any:
    return decgraph.load("speculative").session(gamma=2, backend="torch")


def test_texts_become_numbered_requests(session: Any) -> None:
    together = session.generate(TEXTS, batch=3, max_tokens=8, temperature=1, seed=4)
    alone = [session.run(request_for(session, text, max_tokens=8, temperature=1, seed=4, request_id=n))
             for n, text in enumerate(TEXTS)]  # fmt: skip
    assert [r.tokens for r in together] == [r.tokens for r in alone]
    assert together[0].stats == alone[0].stats
    assert not together[0].events


def test_a_budget_bounds_what_is_held(session: Any) -> None:
    """Too many sequences for the memory: some are computed again, none fails, and the tokens are the same."""
    free = session.generate(TEXTS, batch=5, max_tokens=12)
    store = engine_of(session.models["target"]).store
    before, few = store.budget, 2 * 128 * store.layout.cell_bytes
    try:
        tight = decgraph.load("speculative").session(session.models, gamma=2, tokenizer=session.tokenizer)
        session.shared.clear()
        store.__init__(store.layout, few)  # an engine that has not grown yet
        bounded = tight.generate(TEXTS, batch=5, max_tokens=12, budget=few)
        assert store.slots * store.rows * store.layout.cell_bytes <= few
    finally:
        store.budget = before
    assert [r.tokens for r in bounded] == [r.tokens for r in free]


def test_too_little_memory_for_one_names_the_request(session: Any) -> None:
    store = engine_of(session.models["target"]).store
    before = store.budget
    try:
        store.__init__(store.layout, 1000)
        (result,) = session.generate(TEXTS[:1], max_tokens=4, budget=1000)
        assert result.error is not None and "has no room for request" in str(result.error)
    finally:
        store.__init__(store.layout, before)
        session.generate(TEXTS[:1], max_tokens=2, budget=before)


def test_progress_is_shown_where_it_can_be_seen(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[int] = []
    session.generate(TEXTS[:3], batch=2, max_tokens=4, progress=True, finished=lambda n, result: told.append(n))
    assert sorted(told) == [0, 1, 2]
    assert capsys.readouterr().out == "", "the bar is on stderr"


def test_compiling_needs_the_torch_backend() -> None:
    with pytest.raises(decgraph.DecError, match="compiles nothing"):
        decgraph.load("autoregressive").session(backend="reference", compile=True)


def test_a_plan_says_backend_and_batch(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.passes.plan import Plan

    algorithm = decgraph.load("speculative")
    planned = algorithm.session(session.models, gamma=2, tokenizer=session.tokenizer, plan=Plan.parse("batch = 2"))
    widths: list[int] = []
    run_many = planned.machine.run_many
    monkeypatch.setattr(planned.machine, "run_many", lambda waiting, width, ended: (widths.append(width),
                                                                                  run_many(waiting, width, ended)))  # fmt: skip
    planned.generate(TEXTS[:3], max_tokens=3)
    session.generate(TEXTS[:3], max_tokens=3)
    session.generate(TEXTS[:3], max_tokens=3, batch=5)
    assert widths == [2, 8, 5]
    slow = algorithm.session(session.models, tokenizer=session.tokenizer, plan=Plan.parse("backend = reference"))
    assert "reference" in slow.machine.__module__
    fast = algorithm.session(session.models, tokenizer=session.tokenizer, backend="torch", plan=Plan(backend="reference"))
    assert "torch" in fast.machine.__module__, "what the call says goes before the plan"
