"""Runs with a cache key: they commit what runs without one commit, compute less, and leave nothing when forgotten."""

from __future__ import annotations

import random
from typing import Any

import pytest

import decgraph
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.prompts import request_for

TEXT = "def main():\n    for i in range(10):\n        print(i)\n\nclass A:\n    def f(self, x):\n        return x + 1\n"
NAMES = ("autoregressive", "speculative", "prompt_lookup", "eagle2", "medusa", "kangaroo", "eesd", "sequoia", "token_recycling",
         "recursive_sd", "jacobi", "llada", "fast_dllm")  # fmt: skip


def core_of(session: Any) -> Any:
    """The engine of the main model's weights."""
    engine = engine_of(next(iter(session.models.values())))
    return getattr(engine, "core", engine)


@pytest.mark.quick("autoregressive", "eagle2", "kangaroo", "llada")
@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("name", NAMES)
def test_a_conversation(name: str, temperature: float) -> None:
    """Prompts that go on, that change an early token, and that are cut short."""
    algorithm = decgraph.load(name)
    kept, fresh = algorithm.session(), algorithm.session()
    assert kept.tokenizer is not None
    drawn, prompt = random.Random(1), list(kept.tokenizer.encode(TEXT))
    for step in range(5):
        fields: Any = {"limit": 20, "temperature": temperature, "seed": step}
        result = kept.run(request_for(kept, prompt, **fields), cache_key="conversation")
        assert result.error is None, result.error
        assert result.tokens == fresh.run(request_for(fresh, prompt, **fields)).tokens, f"step {step}"
        if step == 2:
            prompt[len(prompt) // 2] = drawn.randrange(4, 200)  # far from the last tokens, which are as they were
        elif step == 3:
            prompt = prompt[:10]
        else:
            prompt = [*prompt, *result.tokens, *(drawn.randrange(4, 200) for _ in range(5))]
    kept.forget("conversation")
    fresh_slots = getattr(core_of(fresh), "_slots", {})
    assert not getattr(core_of(kept), "_slots", {}) and not fresh_slots


def test_only_new_tokens_are_computed() -> None:
    session = decgraph.load("autoregressive").session()
    core = core_of(session)
    first = session.run(decgraph.Request(tuple(range(5, 105)), limit=8, temperature=0), cache_key=1)
    before = core.counted.computed
    longer = (*range(5, 105), *first.tokens, 7, 8, 9)
    session.run(decgraph.Request(longer, limit=1, temperature=0), cache_key=1)
    assert core.counted.computed - before == 1 + 3  # the last committed token, which no call had read, and the new ones
    before = core.counted.computed
    session.run(decgraph.Request(longer, limit=1, temperature=0), cache_key=2)
    assert core.counted.computed - before == len(longer)
    session.forget(1)
    session.forget(2)
    session.forget("never seen")
    assert not core._slots
