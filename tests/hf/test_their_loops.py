"""transformers' own decoding loops: the program of the same name writes the same tokens with as many calls of the target, on a
hundred random prompts.

Counted are the module's own forwards on their side, and the target calls of the statistics on ours. Of the loops that issue
lists have named, transformers 5 has these; diverse and constrained beams, contrastive search and DoLa left it for
repositories on the hub (tests/fidelity replays what they decided).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from lib.models import hf_models

import decgraph
from decgraph.models import bind

PROMPTS = 100
LIMIT = 20


@dataclass(frozen=True)
class Loop:
    """An algorithm with parameters, and what asks transformers for the same."""

    algorithm: str
    theirs: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    drafting: Mapping[str, Any] | None = None
    """Settings of the drafter's own generation_config, which is where transformers reads them; None without a drafter."""


FIXED = {"num_assistant_tokens": 5, "num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.0}
SCHEDULED = {
    "num_assistant_tokens": 4,
    "num_assistant_tokens_schedule": "heuristic_transient",
    "assistant_confidence_threshold": 0.4,
}
LOOPS = {
    "greedy": Loop("autoregressive", {}),
    "assisted": Loop("speculative", {}, {"gamma": 5}, FIXED),
    "assisted, scheduled": Loop("assisted", {}, {"gamma": 4, "schedule": True}, SCHEDULED),
    "prompt lookup": Loop("prompt_lookup", {"prompt_lookup_num_tokens": 6, "max_matching_ngram_size": 2}, {"k": 6, "reach": 2}),
    "early exit": Loop("speculative", {"assistant_early_exit": 2}, {"gamma": 5}, FIXED),
    "beams": Loop("beam", {"num_beams": 4, "early_stopping": True}, {"k": 4}),
    "patient beams": Loop("beam", {"num_beams": 3, "early_stopping": False}, {"k": 3, "patient": True}),
    "hopeful beams": Loop(
        "beam",
        {"num_beams": 3, "early_stopping": "never", "length_penalty": 0.6},
        {"k": 3, "patient": True, "hopeful": True, "alpha": 0.6},
    ),
}


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    """A target of three layers and a drafter that often guesses right. What pads ends the text too: where a text has the token
    that only pads, transformers' drafter leaves it out of its attention."""
    made = [hf_models.llama(5, layers=3, pad_token_id=2) for _ in range(2)]
    return made[0], hf_models.noisy(made[1], 0.01)


def prompts(count: int) -> list[list[int]]:
    """Texts of a few words that come again: something to look up."""
    rng = random.Random(count)
    out = []
    for _ in range(count):
        words = [[rng.randrange(3, hf_models.V) for _ in range(rng.randint(1, 3))] for _ in range(3)]
        out.append([t for _ in range(rng.randint(2, 6)) for t in rng.choice(words)])
    return out


@pytest.mark.parametrize("count", [8, pytest.param(PROMPTS, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", LOOPS)
def test_tokens_and_calls_are_theirs(name: str, count: int, pair: tuple[Any, Any]) -> None:
    loop, (target, drafter) = LOOPS[name], pair
    models: dict[str, Any] = {"target": target}
    theirs = dict(loop.theirs)
    early = theirs.get("assistant_early_exit")
    for setting, value in (loop.drafting or {}).items():
        setattr((target if early else drafter).generation_config, setting, value)
    if early:
        models["drafter"] = (
            bind(decgraph.load("autoregressive").function, {"target": target}).models["target"].derive("exit", early)
        )
    elif loop.drafting is not None:
        models["drafter"] = theirs["assistant_model"] = drafter
    session = decgraph.load(loop.algorithm).session(models, **loop.params)
    calls = 0

    def count_call(*_: Any) -> None:
        nonlocal calls
        calls += 1

    saved = 0
    for prompt in prompts(count):
        mine = session.run(decgraph.Request(prompt=tuple(prompt), max_tokens=LIMIT, temperature=0, eos={2}))
        assert mine.error is None
        ids = torch.tensor([prompt])
        calls = 0
        hook = target.model.layers[-1].register_forward_hook(count_call)
        with torch.no_grad():
            out = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=LIMIT, **theirs)
        hook.remove()
        assert list(mine.tokens) == out[0, len(prompt) :].tolist(), prompt
        assert mine.stats.target_calls == calls, prompt
        saved += len(mine.tokens) - calls
    if loop.algorithm in ("speculative", "assisted", "prompt_lookup"):
        assert saved > count / 2  # what is compared is more than one token a call
