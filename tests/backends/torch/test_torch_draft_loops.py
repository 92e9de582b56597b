"""A draft loop is one call of the engine, and commits, reports and computes what the loop does."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.backends.torch.control_flow import chain_of
from decgraph.backends.torch.engines import Engines
from decgraph.models import request_for
from decgraph.runtime.models.engine.of import engine_of

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1, "seed": 3},
    {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.2, "seed": 5},
    {"temperature": 1, "bans": frozenset({5, 9}), "min_length": 6, "eos": frozenset(range(0, 2048, 7)), "seed": 1},
]


@pytest.mark.parametrize(("name", "passes"), [("speculative", True), ("speculative", False), ("pearl", True)])
def test_loops_that_are_chains(name: str, passes: bool) -> None:
    algorithm = decgraph.load(name)
    module = algorithm.optimised({"gamma": 3}) if passes else algorithm.module
    loops = [op for op in module.entry.body.walk() if op.opcode == "for" and "tree" in str(op.operands[-1].type.elem)]
    assert any(chain_of(op) is not None for op in loops)


@pytest.mark.parametrize("name", ["kangaroo", "eagle2", "sequoia", "recursive_sd", "token_recycling", "eesd"])
def test_loops_that_are_more_than_chains(name: str) -> None:
    for op in decgraph.load(name).module.entry.body.walk():
        assert op.opcode != "for" or chain_of(op) is None


@pytest.fixture(scope="module")
def sessions() -> dict[str, Any]:
    first = decgraph.load("speculative").session(gamma=3, backend="torch")
    return {"speculative": first, "pearl": decgraph.load("pearl").session(first.models, gamma=3, backend="torch",
                                                                         tokenizer=first.tokenizer)}  # fmt: skip


@pytest.mark.quick(first=1, each="name")
@pytest.mark.parametrize("name", ["speculative", "pearl"])
@pytest.mark.parametrize("fields", SETTINGS)
def test_a_roll_is_the_loop(name: str, fields: dict[str, Any], sessions: dict[str, Any],
                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    session = sessions[name]
    requests = [request_for(session, text, **{"max_tokens": 14 + n, "eos": (), "request_id": n, **fields})
                for n, text in enumerate(["def f(x):", "import os", "Once"])]  # fmt: skip
    drafter = engine_of(session.models["drafter"])

    def run() -> Any:
        before = (drafter.counted.calls, drafter.counted.computed)
        alone = [session.run(r) for r in requests]
        calls = (drafter.counted.calls - before[0], drafter.counted.computed - before[1])
        return alone, calls, session.generate(requests)

    rolled, counted, together = run()
    monkeypatch.setattr(Engines, "for_loops", lambda *_: None)
    looped, as_counted, _ = run()

    assert [r.tokens for r in rolled] == [r.tokens for r in looped] == [r.tokens for r in together]
    assert all(r.error is None for r in rolled)
    assert counted == as_counted, "as many forwards, over as many cells"
    assert [r.stats for r in rolled] == [r.stats for r in looped]
    for mine, theirs in zip(rolled, looped, strict=True):
        assert [_plain(e) for e in mine.events] == [_plain(e) for e in theirs.events]


LATER = """
algorithm later(target: causal, drafter: causal):
    while not done:
        draft t:
            for i in 2..5:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
"""


def test_a_roll_that_begins_later_has_the_noise_of_its_iterations(
    sessions: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sessions["speculative"]
    session = decgraph.parse(LATER).session(first.models, backend="torch", tokenizer=first.tokenizer)
    requests = [request_for(session, "import os", max_tokens=12, temperature=1, seed=n) for n in range(2)]
    rolled = [session.run(r) for r in requests]
    assert all(r.stats.drafted > 0 for r in rolled)
    monkeypatch.setattr(Engines, "for_loops", lambda *_: None)
    looped = [session.run(r) for r in requests]
    assert [(r.tokens, r.stats) for r in rolled] == [(r.tokens, r.stats) for r in looped]


def _plain(event: Any) -> Any:
    """An event without the cells of a call, which a roll does not make an ask for."""
    kept = {k: round(v, 5) if isinstance(v, float) else v for k, v in vars(event).items() if k not in ("cells", "computed")}
    return type(event).__name__, kept
