"""Masked decoders: schedules that are drawn, what caches compute and change, and where the limit cuts a canvas. Published rules
are held to recordings and transcriptions (tests/fidelity)."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import V, layered, run, tables

from decgraph.runtime.trace import ModelCall, Unmasked

PROMPT = (0, 1)
SEEDS = range(6)


def test_llada_at_random_keeps_the_schedule_and_the_blocks() -> None:
    orders = set()
    for seed in SEEDS:
        result = run("llada", tables(1), {"length": 12, "block": 6, "steps": 4, "random": True}, seed=seed, temperature=0)
        at = [e.position for e in result.events if isinstance(e, Unmasked)]
        assert sorted(at[:6]) == list(range(6))
        assert sorted(at[6:]) == list(range(6, 12))
        orders.add(tuple(at))
    assert len(orders) == len(SEEDS)


def test_dream_by_origin_decides_at_the_schedules_rate() -> None:
    """A quarter of the cells in each of four steps, on the average, and all in the end."""
    first, seen = [0] * 4, 0
    for seed in range(60):
        result = run("dream_origin", tables(1), {"length": 12, "steps": 4, "eps": 0}, seed=seed)
        assert sum(isinstance(e, Unmasked) for e in result.events) == 12
        if result.stats.target_calls < 4:  # a step that decides nothing: the next one asks for a canvas that is remembered
            continue
        seen, step = seen + 1, -1
        for event in result.events:
            step += isinstance(event, ModelCall)
            first[step] += isinstance(event, Unmasked)
    assert seen > 45  # of 12 cells none in one of three steps: in 10 of 100 runs
    assert all(0.8 < n / (3 * seen) < 1.2 for n in first)  # 3 expected a run, standard deviation of the ratio 0.07


@pytest.mark.parametrize(
    ("name", "again"),
    [("fast_dllm", "the block"), ("fast_dllm_prefix", "the block and what follows"), ("fast_dllm_uncached", "everything")],
)
def test_what_a_cached_call_computes(name: str, again: str) -> None:
    """Cells given to the model in each call of the second block: everything when it starts, then the policy's part."""
    result = run(name, tables(2), {"length": 12, "block": 4, "tau": 1}, prompt=PROMPT, temperature=0)
    calls = [e for e in result.events if isinstance(e, ModelCall)][4:8]
    rest = {"the block": 4, "the block and what follows": 8, "everything": 14}[again]
    assert [e.cells for e in calls] == [14] * 4  # read, from the cache or computed
    assert [e.cells if e.computed is None else e.computed for e in calls] == [14, rest, rest, rest]


def test_caches_are_approximate_where_there_are_layers() -> None:
    """On the free model a stale row shows: the three disagree once a block has begun."""
    texts = {
        n: run(n, layered("free"), {"length": 12, "block": 6, "tau": 1}, temperature=0).tokens
        for n in ("fast_dllm", "fast_dllm_prefix", "fast_dllm_uncached")
    }
    assert len(set(texts.values())) == 3


def test_limit_cuts_the_canvas() -> None:
    """A canvas longer than the request's limit has the limit's length; no cell past it is computed."""
    for name in ("llada", "dream", "fast_dllm_uncached", "prophet", "static_masked"):
        result = run(name, tables(3), None, max_tokens=5)
        assert len(result.tokens) == 5
        assert {e.cells for e in result.events if isinstance(e, ModelCall)} == {7}
        assert {e.position for e in result.events if isinstance(e, Unmasked)} == set(range(5))
    assert V == 4
