"""Programs that read some of a context's keys and values: on all of them their tokens are the target's, on few they are not."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.target_tokens import PROMPTS, tokens

import decgraph

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cache_augmentation": ({"latents": 0}, {"latents": 4}),
    "kv_frequency": ({"capacity": 4096}, {"capacity": 6, "sinks": 1}),
    "kv_sparse_read": ({"heavy": 4096}, {"heavy": 1}),
    "parallel_context": ({"length": 4096, "question": 1}, {"shared": 1, "length": 4, "question": 2}),
    "sparse_prefill": ({"segment": 4, "block": 2, "budget": 4096}, {"segment": 4, "block": 2, "budget": 2, "dense": 0}),
}
"""By program: the setting at which it is the target, and one at which it is not."""


@pytest.mark.quick("kv_sparse_read")
@pytest.mark.parametrize("name", SETTINGS)
def test_on_everything_it_is_the_target(name: str) -> None:
    """On torch, with which the reference agrees (test_shelf.py)."""
    assert tokens(name, "torch", 0.8, SETTINGS[name][0]) == tokens("autoregressive", "torch", 0.8, {})


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_not_read_shows(name: str) -> None:
    def differ(temperature: float) -> bool:
        return tokens(name, "torch", temperature, SETTINGS[name][1]) != tokens("autoregressive", "torch", temperature, {})

    assert differ(0.0) or differ(0.8)


def test_a_sparse_draft_is_as_good_as_what_it_reads() -> None:
    """Drafts from everything are all accepted; from one position of the prompt fewer are, and the tokens stay the target's."""
    made = {
        n: decgraph.run("sparse_to_dense", PROMPTS[1], max_tokens=16, params={"budget": n, "question": 1}) for n in (4096, 1)
    }
    assert sum(made[4096].stats.accepted) == made[4096].stats.drafted > 0
    assert sum(made[1].stats.accepted) < made[1].stats.drafted
    assert made[1].tokens == made[4096].tokens == decgraph.run("autoregressive", PROMPTS[1], max_tokens=16).tokens
