"""Lossy programs that leave out layers, keys or values: at the setting at which they leave out nothing their tokens are the
target's, and at another one they are not."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.target_tokens import tokens

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "depth_decay": ({"alpha": 1.0}, {"alpha": 0.9}),
    "direct_multi_token": ({"horizon": 1}, {"horizon": 4}),
    "ffn_skip": ({"skips": 0}, {"alike": 0.5, "skips": 4}),
    "first_router": ({"tau": 0.0}, {"tau": 1.0}),
    "free": ({"tau": 1.0}, {"tau": 0.2, "exit": 4}),
    "kv_evict": ({"prefill": 4096, "recent": 4096}, {"window": 1, "prefill": 2, "heavy": 1, "recent": 2}),
    "kv_quantized": ({"residual": 4096}, {"bits": 2, "residual": 1}),
    "overfill": ({"pruned": 0.0}, {"pruned": 0.6}),
    "unified_skip": ({"speedup": 1.0}, {"speedup": 2.0}),
}
"""By program: the setting at which it is the target, and one at which it is not."""


@pytest.mark.quick("free-torch", "kv_evict-torch")
@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_left_out_is_the_target(name: str, backend: str) -> None:
    assert tokens(name, backend, 0.8, SETTINGS[name][0]) == tokens("autoregressive", backend, 0.8, {})


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_left_out_shows(name: str) -> None:
    both = [[tokens(n, "torch", t, s) for n, s in ((name, SETTINGS[name][1]), ("autoregressive", {}))] for t in (0.0, 0.8)]
    assert any(ours != theirs for ours, theirs in both)
