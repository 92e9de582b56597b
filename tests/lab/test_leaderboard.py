"""The leaderboard: when an algorithm ends, what a second start measures, what the page says; and figures of masked decoders."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.bench import compare
from decgraph.bench.measure import BenchWork
from lab import frontier, leaderboard
from lab.tradeoffs.masked import Masked, settings_of

ROW = {"kind": "all", "whole": True, "prompts": 40, "tokens_per_call": 2.5,
       "ratio": {"value": 1.5, "low": 1.25, "high": 1.75, "n": 40},
       "tokens_equal": {"same": 39, "near_ties": 1, "different": 0}}  # fmt: skip


@pytest.mark.parametrize(
    ("ratios", "batch", "seconds", "ends"),
    [
        ([0.1] * 4, 1, 4.0, False),
        ([0.1] * 5, 1, 5.0, True),  # more than three times as slow, after five prompts
        ([0.1], 1, 30.0, True),  # or as soon as it takes long
        ([0.9, 2.0], 1, 60.0, False),
        ([0.9] * 10, 1, 10.0, True),  # not 5% faster, after ten prompts
        ([1.2] * 10, 1, 10.0, False),
        ([0.9] * 9 + [3.0], 1, 10.0, False),  # its interval reaches higher
        ([0.9] * 11, 1, 11.0, False),  # that was asked after ten
        ([0.9, 0.8], 8, 16.0, True),
        ([0.9, 1.1], 8, 16.0, False),
    ],
)
def test_an_algorithm_ends_where_nothing_is_left_to_see(ratios: list[float], batch: int, seconds: float, ends: bool) -> None:
    assert leaderboard.enough(ratios, batch, seconds) is ends


def test_the_first_prompts_are_of_all_kinds() -> None:
    work = BenchWork(tuple([(n,)] for n in range(5)), ("a", "a", "a", "b", "b"))
    found = leaderboard.in_turns(work)
    assert found.kinds == ("a", "b", "a", "b", "a") and [group[0][0] for group in found.groups] == [0, 3, 1, 4, 2]


class FakeBoard:
    """Two algorithms whose measuring is counted."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.limit = 48
        self.weights: Any = type("Weights", (), {"facts": lambda self: {"target": 5e6}})()

    def settings(self) -> dict[str, Any]:
        return {"limit": self.limit, "prompts": [40, "ab" * 32], "versions": {"torch": "2"}}

    def served(self) -> tuple[dict[str, Any], dict[str, str]]:
        return {one.label: one for one in compare.candidates(["prompt_lookup", "mirostat"], {})}, {
            "speculative": "speculative needs a drafter (`drafter`)", "medusa": "medusa needs heads"}  # fmt: skip

    def measured(self, one: Any) -> dict[str, Any]:
        self.ran.append(one.label)
        stopped = {**ROW, "whole": one.label != "mirostat"}
        rows = [stopped, {**stopped, "kind": "chat"}, {**stopped, "kind": "copy-edit"}]
        return {
            "started": "2026-11-30 20:00",
            "processor": "Abacus",
            "load": [1.0, 2.5],
            "cpu_seconds": 60,
            "batches": {"1": rows},
        }


def test_a_second_start_goes_on() -> None:
    board = FakeBoard()
    first = next(leaderboard.measure(board, {}))  # type: ignore[arg-type]
    assert board.ran == ["prompt_lookup"] == list(first["entries"])
    (second,) = leaderboard.measure(board, first)  # type: ignore[arg-type]
    assert board.ran == ["prompt_lookup", "mirostat"] == list(second["entries"])
    assert list(leaderboard.measure(board, second)) == []  # type: ignore[arg-type]
    second["entries"]["mirostat"]["of"] = {"sha256": "of another text"}
    assert len(list(leaderboard.measure(board, second))) == 1 and board.ran[2:] == ["mirostat"]  # type: ignore[arg-type]
    board.limit = 16
    assert len(list(leaderboard.measure(board, second))) == 2  # type: ignore[arg-type]
    with pytest.raises(decgraph.DecError, match="nobody is not measured here"):
        next(leaderboard.measure(board, second, ["nobody"]))  # type: ignore[arg-type]


def test_the_page_says_what_was_measured() -> None:
    *_, document = leaderboard.measure(FakeBoard(), {})  # type: ignore[arg-type, list-item]
    found = leaderboard.page({**document, "frontier": {"llada": {"calls": 32.0, "agreement": 1.0, "accuracy": 0.5}}})
    assert "| [prompt_lookup](gallery/prompt_lookup.md) | 1.50 (1.25–1.75) | - | 2.50 |" in found
    assert "| [prompt_lookup](gallery/prompt_lookup.md) | 1.50 | 1.50 |" in found  # by kind
    assert "| [mirostat](gallery/mirostat.md) | 1.50 | - | 39 of 40 |" in found
    assert "but for 1 that differ" in found and "load 1.0 to 2.5" in found and "2 minutes of CPU" in found
    assert "draft: [speculative](gallery/speculative.md)\n" in found and "[medusa](gallery/medusa.md)\n" in found
    assert "| [llada](gallery/llada.md) * | 1.00 | 1.00 | 32.0 | 0.50 |" in found


@pytest.mark.slow
def test_a_board_measures_in_turns() -> None:
    board = leaderboard.Board("target", {}, most=1)
    served, absent = board.served()
    assert {"prompt_lookup", "transformers generate"} <= set(served) and "needs a drafter" in absent["speculative"]
    entry = board.measured(served["prompt_lookup"])
    assert [row["kind"] for row in entry["batches"]["1"]] == ["all", "chat", "code", "copy-edit", "summary", "json"]
    assert all(row["tokens_equal"]["different"] == 0 for rows in entry["batches"].values() for row in rows)
    assert entry["batches"]["1"][0]["tokens_per_call"] > 1


@pytest.mark.slow
def test_deciding_everything_at_once_costs_answers() -> None:
    measure = Masked(5, 1)
    assert {"llada", "fast_dllm", "freedave"} <= set(every := frontier.decoders()) and "speculative" not in every
    known = {name: {"sha256": one.facts()["sha256"]} for name in every for one in compare.candidates([name], {})}
    del known["llada"]
    (found,) = frontier.measured(known, measure)
    assert found["llada"]["agreement"] == 1 and found["llada"]["calls"] == 32 and frontier.kept(found["llada"]) == 1


def test_the_frontier_is_what_nothing_beats_in_both() -> None:
    numbers = {"base": (32, 1.0), "good": (8, 0.9), "bad": (9, 0.8), "fast": (1, 0.5)}
    rows: dict[str, Any] = {
        name: {"calls": calls, "agreement": share, "accuracy": 1.0} for name, (calls, share) in numbers.items()
    }
    rows["broken"] = {"failed": "why"}
    assert frontier.frontier(rows) == {"base", "good", "fast"}
    headings, found = frontier.table(rows)
    assert [row[0] for row in found] == ["fast *", "good *", "bad", "base *"] and len(headings) == len(found[0])


def test_a_setting_beyond_a_decoders_range_leaves_its_default() -> None:
    """`eoser_ass` has at most 16 steps."""
    assert settings_of(decgraph.load("eoser_ass").function) == {"length": "32"}
    assert settings_of(decgraph.load("fast_dllm").function) == {"length": "32", "block": "32"}
