"""Lossy programs that leave out layers, keys or values: at the setting at which they leave out nothing their tokens are the
target's, and at another one they are not."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.models import request_for

PROMPTS = ("def mean(values):\n    ", "import os\nimport sys\n\nclass Reader:\n    def read(self, path):\n")
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "depth_decay": ({"alpha": 1.0}, {"alpha": 0.9}),
    "direct_multi_token": ({"horizon": 1}, {"horizon": 4}),
    "free": ({"tau": 1.0}, {"tau": 0.2}),
    "kv_evict": ({"prefill": 4096, "recent": 4096}, {"sinks": 0, "prefill": 2, "recent": 2}),
    "kv_quantized": ({"residual": 4096}, {"bits": 2, "residual": 1}),
    "overfill": ({"pruned": 0.0}, {"pruned": 0.6}),
    "unified_skip": ({"speedup": 1.0}, {"speedup": 2.0}),
}
"""By program: the setting at which it is the target, and one at which it is not."""


def tokens(name: str, backend: str, temperature: float, params: dict[str, Any]) -> list[tuple[int, ...]]:
    session = decgraph.load(name).session(backend=backend, **params)
    results = [session.run(request_for(session, prompt=p, limit=10, seed=5, temperature=temperature)) for p in PROMPTS]
    assert all(r.error is None for r in results), [r.error for r in results]
    return [tuple(r.tokens) for r in results]


@pytest.mark.quick("free-torch", "kv_evict-torch")
@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_left_out_is_the_target(name: str, backend: str) -> None:
    assert tokens(name, backend, 0.8, SETTINGS[name][0]) == tokens("autoregressive", backend, 0.8, {})


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_left_out_shows(name: str) -> None:
    both = [[tokens(n, "torch", t, s) for n, s in ((name, SETTINGS[name][1]), ("autoregressive", {}))] for t in (0.0, 0.8)]
    assert any(ours != theirs for ours, theirs in both)
