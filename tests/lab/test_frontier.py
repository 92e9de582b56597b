"""Quality against parallelism: figures of decoders that are known, what a frontier is, and the leaderboard's page."""

from __future__ import annotations

import pytest
from lib.bench_runs import run_of_two

import decgraph
from decgraph import stdlib
from decgraph.bench.benchmark import causal
from decgraph.errors import DecError
from lab import frontier, leaderboard
from lab.frontier import Point
from lab.tradeoffs.masked import settings_of


@pytest.mark.slow
def test_deciding_everything_at_once_costs_answers() -> None:
    one, all_at_once = frontier.measure(["fast_dllm_uncached:tau=0"], per_kind=1)
    assert (one.label, one.agreement, one.calls) == ("llada", 1.0, 32.0) and one.accuracy > 0.8
    assert all_at_once.calls == 1.0 and 0 < all_at_once.agreement < 1
    assert all_at_once.kept_per_call == pytest.approx(32 * all_at_once.agreement)


def test_a_causal_algorithm_is_refused() -> None:
    with pytest.raises(DecError, match="does not decode with a masked model"):
        frontier.measure(["speculative"], per_kind=0)


def test_the_frontier_is_what_nothing_beats_in_both() -> None:
    points = [
        Point("base", 1, 32, 1.0, 32),
        Point("good", 1, 8, 0.9, 8),
        Point("bad", 1, 9, 0.8, 9),
        Point("fast", 1, 1, 0.5, 1),
        Point("broken", failed="why"),
    ]
    assert [p.label for p in frontier.frontier(points)] == ["fast", "good", "base"]
    headings, rows = frontier.table(points)
    assert [row[0] for row in rows] == ["fast *", "good *", "bad", "base *"] and len(headings) == len(rows[0])


def test_what_the_leaderboard_runs() -> None:
    every = causal()
    assert {"speculative", "eagle2", "medusa", "kangaroo"} <= set(every) and not set(every) & set(leaderboard.masked())
    assert {"autoregressive", "prompt_lookup"} <= set(leaderboard.alone()) <= set(every) - {"speculative", "medusa"}
    assert {"llada", "fast_dllm", "freedave"} <= set(leaderboard.masked()) <= set(stdlib.names())


def test_the_page_ranks_by_processor_time() -> None:
    run = run_of_two(("chat", "copy-edit"))
    headings, rows = leaderboard.ranked(run)
    assert [row[0] for row in rows] == ["speculative"] and len(headings) == len(rows[0])
    document = {
        "commands": {"chat": "it", "frontier": "that"},
        "runs": [{"name": "chat", **run}],
        "frontier": [vars(Point("llada", 1, 32, 1, 32))],
    }
    page = leaderboard.page(document)
    assert "| speculative | refines autoregressive(target) in distribution |" in page and "images/frontier.png" in page


def test_a_setting_beyond_a_decoders_range_leaves_its_default() -> None:
    """`eoser_ass` has at most 16 steps."""
    assert settings_of(decgraph.load("eoser_ass").function) == {"length": "32"}
    assert settings_of(decgraph.load("fast_dllm").function) == {"length": "32", "block": "32"}
