"""Reuse on the free model, whose answers are hashes of what they were computed from: what is exact, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decgraph.check.algorithm import find
from decgraph.check.claims import decide
from decgraph.check.distributions import RunTally
from decgraph.check.report import cases
from decgraph.check.worlds import models_for
from decgraph.runtime.models.free import FreeModel

paths = st.lists(st.integers(0, 2), min_size=2, max_size=6).map(tuple)


@given(st.integers(0, 100), paths, st.integers(1, 5))
def test_a_causal_prefix_that_is_kept_changes_nothing(seed: int, path: tuple[int, ...], kept: int) -> None:
    model = FreeModel(seed, 3)
    kept = min(kept, len(path) - 1)
    memory = model.memory(path[:kept])
    assert model.eval([path], memory)[0].weights == model.eval([path])[0].weights


@given(st.integers(0, 100), paths)
def test_a_prefix_of_another_path_shows(seed: int, path: tuple[int, ...]) -> None:
    model = FreeModel(seed, 3)
    other = ((path[0] + 1) % 3, *path[1:])
    stale = model.memory(other[:-1])
    keys = [model.memory(path, None, m).layers for m in (stale, model.memory(path[:-1]))]
    assert keys[0] != keys[1]


@given(st.integers(0, 100), paths)
def test_an_early_exit_reads_the_targets_memory_exactly_and_a_skip_does_not(seed: int, path: tuple[int, ...]) -> None:
    target = FreeModel(seed, 3)
    memory = target.memory(path[:-1])
    leave = target.derive("exit", 1)
    assert leave.eval([path], memory)[0].weights == leave.eval([path])[0].weights
    skip = target.derive("skip", frozenset({0}), frozenset({0}))
    assert skip.memory(path, None, memory).layers != skip.memory(path).layers


TEXT = """
algorithm whole(model: {model}, length: int in 1..8 = 4, block: int in 1..8 = 2):
    canvas c: length
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c)[b]
            x ~ p
            unmask c[b] where sure(p.raw[x], 1.0) with x
    commit c

algorithm kept(model: {model}, length: int in 1..8 = 4, block: int in 1..8 = 2):
    refines whole(model, length, block) in tokens
    canvas c: length
    cache model by {policy}
    for b in blocks(c, block):
        while any(c.masked[b]):
            p = model(c, at = b)
            x ~ p
            unmask c[b] where sure(p.raw[x], 1.0) with x
    commit c
"""


def changed(model: str, policy: str, worlds: int = 12) -> int:
    """In how many greedy worlds of free models a cache policy changes a token."""
    module, _ = find(TEXT.format(model=model, policy=policy))
    claim = module.entry.claims[0]
    made = cases(module, claim, vocab=3, models=3 * worlds, params={"length": 4, "block": 2})
    count = 0
    for i, case in enumerate(c for c in made if c.request.greedy):
        free = replace(case, models=models_for(module.entry, 3, i, free=True), request=replace(case.request, prompt=(0, 1)))
        count += decide(free, RunTally()) is not None
    return count


@pytest.mark.parametrize("policy", ["dual", "prefix"])
def test_policies_change_the_tokens_of_a_model_that_sees_everything(policy: str) -> None:
    assert changed("masked", policy) > 0


def test_a_prefix_is_exact_for_a_model_that_does_not_look_ahead() -> None:
    """Block-causal: what lies before a block was computed without it."""
    assert changed("masked with block_causal(2)", "prefix") == 0


@pytest.mark.parametrize("name", ["eagle2", "kangaroo"])
def test_claims_of_what_reads_memories_are_decided_on_free_models_too(name: str) -> None:
    module, _ = find(name)
    made = cases(module, module.entry.claims[0], vocab=3, models=6, params=None)
    free = [c for c in made if isinstance(c.models["target"], FreeModel)]
    assert len(free) == 2
    assert [decide(c, RunTally()) for c in free] == [None, None]
