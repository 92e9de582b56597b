"""Runs with a cache key: they commit what runs without one commit, compute less, and leave nothing when forgotten."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from lib.lazily import transformers

import decgraph
from decgraph.bench.agreement import Agreement
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
        fields: Any = {"max_tokens": 20, "temperature": temperature, "seed": step}
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


@pytest.mark.quick("prompt_lookup", "kangaroo")
@pytest.mark.parametrize("name", ["autoregressive", "speculative", "prompt_lookup", "eagle2", "kangaroo", "sequoia"])
def test_a_conversation_is_what_generate_writes(name: str, theirs: Any) -> None:
    """Turns on one kept cache against transformers' `generate` on the whole text, near-ties excepted."""
    session = decgraph.load(name).session()
    assert session.tokenizer is not None
    prompt, found = list(session.tokenizer.encode(TEXT)), Agreement(theirs)
    for turn in range(4):
        result = session.run(request_for(session, prompt, max_tokens=20, temperature=0, eos=()), cache_key="conversation")
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            made = theirs.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=1
            )
        found.compare(prompt, result.tokens, made[0, len(prompt) :].tolist())
        # One turn goes on, one goes on from a text that was edited in its middle, one is cut short.
        prompt = [*prompt, *result.tokens, 17, 23] if turn != 2 else prompt[:30]
        prompt[len(prompt) // 2] = 40 + turn if turn == 1 else prompt[len(prompt) // 2]
    assert found.different == 0, found.first
    assert found.same >= 3


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The shipped target as transformers loads it."""
    return transformers.AutoModelForCausalLM.from_pretrained(decgraph.zoo.path("target"), dtype=torch.float32).eval()


def test_only_new_tokens_are_computed() -> None:
    session = decgraph.load("autoregressive").session()
    core = core_of(session)
    first = session.run(decgraph.Request(tuple(range(5, 105)), max_tokens=8, temperature=0), cache_key=1)
    before = core.counted.computed
    longer = (*range(5, 105), *first.tokens, 7, 8, 9)
    session.run(decgraph.Request(longer, max_tokens=1, temperature=0), cache_key=1)
    assert core.counted.computed - before == 1 + 3  # the last committed token, which no call had read, and the new ones
    before = core.counted.computed
    session.run(decgraph.Request(longer, max_tokens=1, temperature=0), cache_key=2)
    assert core.counted.computed - before == len(longer)
    session.forget(1)
    session.forget(2)
    session.forget("never seen")
    assert not core._slots
