"""How often the models are called: what the publications say a step costs."""

from __future__ import annotations

from itertools import groupby

import pytest
from lib.stdlib.table_models import run

from decgraph.runtime.trace import Accepted, Committed, ModelCall


def target_calls(name: str, **request: object) -> list[int]:
    """Calls of the target in each step, a step being what leads to a commit."""
    steps, now = [], 0
    for event in run(name, **request).events:
        if isinstance(event, ModelCall) and event.role == "target":
            now += 1
        if isinstance(event, Committed):
            steps.append(now)
            now = 0
    return steps


@pytest.mark.parametrize(
    "name",
    [
        "autoregressive",
        "speculative",
        "eagle2",
        "token_recycling",
        "prompt_lookup",
        "kangaroo",
        "recursive_sd",
        "rsd_s",
        "sequoia",
        "pearl",
        "speculative_jacobi",
        "eesd",
    ],
)
def test_one_target_call_a_step(name: str) -> None:
    for seed in range(3):
        assert set(target_calls(name, seed=seed, max_tokens=20)) == {1}


@pytest.mark.parametrize("name", ["medusa", "medusa_match"])
def test_heads_cost_a_call_for_the_first_token_and_one_a_step(name: str) -> None:
    """The heads ride in the call that verified: their rows are no call of the target."""
    for seed in range(3):
        assert set(target_calls(name, seed=seed, max_tokens=20)) == {1}


def test_lookahead_asks_at_two_trees_that_one_call_can_serve() -> None:
    """The window and the guesses do not depend on each other; tree fusion makes one call of them."""
    steps = target_calls("lookahead", max_tokens=20)
    assert set(steps) == {2}


def test_speculative_drafts_gamma_tokens_a_step() -> None:
    result = run("speculative", params={"gamma": 3}, max_tokens=20)
    assert result.stats.draft_calls == 3 * result.stats.target_calls


def test_kangaroo_stops_after_an_unsure_token_and_keeps_it() -> None:
    events = run("kangaroo", params={"exit": 1, "gamma": 6, "eta": 1.0}, max_tokens=20).events
    kinds = [k for k, _ in groupby(type(e).__name__ for e in events if type(e).__name__ in ("Drafted", "Committed"))]
    drafted = sum(type(e).__name__ == "Drafted" for e in events)
    steps = sum(isinstance(e, Committed) for e in events)
    assert kinds[:2] == ["Drafted", "Committed"]
    assert drafted == steps - (len(events[-2].tokens) == 1)  # for the last place alone nothing is drafted


def test_kangaroo_drafts_on_while_it_is_sure() -> None:
    result = run("kangaroo", params={"exit": 1, "gamma": 4, "eta": 0.0}, max_tokens=20)
    left, drafted = 20, 0
    for tokens in (e.tokens for e in result.events if isinstance(e, Committed)):
        drafted, left = drafted + min(4, left - 1), left - len(tokens)  # the last place is the target's
    assert result.stats.drafted == drafted > 2 * result.stats.target_calls


def test_repetition_pays_for_prompt_lookup() -> None:
    """A target that repeats its prompt's cycle: k drafts and the bonus are committed every step."""
    from decgraph.runtime.models.table import TableModel

    cycle = {(a,): [1 if v == (a + 1) % 4 else 0 for v in range(4)] for a in range(4)}
    target = TableModel(4, table=cycle, window=1, name="target")
    result = run("prompt_lookup", {"target": target}, {"k": 3}, prompt=(0, 1, 2, 3, 0, 1, 2, 3), max_tokens=12)
    assert result.tokens == (0, 1, 2, 3) * 3
    assert result.stats.target_calls == 3


def test_lookahead_finds_its_own_n_grams() -> None:
    """On a target with a cycle the pool fills with true n-grams, and a step commits whole ones."""
    from decgraph.runtime.models.table import TableModel

    cycle = {(a,): [1 if v == (a + 1) % 4 else 0 for v in range(4)] for a in range(4)}
    target = TableModel(4, table=cycle, window=1, name="target")
    result = run("lookahead", {"target": target}, {"w": 4, "n": 4, "g": 3}, prompt=(0, 1), max_tokens=40)
    assert result.tokens == tuple((2 + i) % 4 for i in range(40))
    assert any(isinstance(e, Accepted) and e.depth == 3 for e in result.events)
    steps = [len(e.tokens) for e in result.events if isinstance(e, Committed)]
    assert steps[:2] == [1, 1]  # the window fills first
    assert set(steps[4:-1]) == {4}  # three of the n-gram and the token after it


def test_freedave_takes_fewer_steps_than_one_at_a_time() -> None:
    """A model whose cells do not depend on each other: d cells a loop. The next loop's drafts are of a canvas that the
    verification has seen, which is no call of its own."""
    from decgraph.runtime.models.free import small_weights
    from decgraph.runtime.models.table import TableModel

    class Apart(TableModel):
        def eval_canvas(self, cells, at, memory=None):  # type: ignore[no-untyped-def]
            from decgraph.runtime.models.interface import Scores

            return [Scores(weights=small_weights(f"cell {i}", 4)) for i in at]

    model = Apart(4, 1, kind="masked", name="model")
    result = run("freedave", {"model": model}, {"length": 8, "block": 8, "d": 4}, max_tokens=8, temperature=0)
    assert (
        result.tokens == run("static_masked", {"model": model}, {"length": 8, "block": 8}, max_tokens=8, temperature=0).tokens
    )
    assert result.stats.target_calls == 3
