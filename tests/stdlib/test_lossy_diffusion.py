"""Lossy masked decoders at the setting at which they are another one: the same cells call by call, on tables, greedily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from lib.stdlib.table_models import run, tables

from decgraph.runtime.trace import ModelCall, Unmasked

LENGTH, BLOCK = 8, 4
STATIC = ("static_masked", {"block": BLOCK})
WHOLE = ("static_masked", {"block": LENGTH})
EDITS = {"block": LENGTH + 2}  # its blocks are counted from the prompt's first token, of two
AT_ONCE = ("llada", {"block": BLOCK, "steps": LENGTH // BLOCK})

EQUAL: list[tuple[str, Mapping[str, Any], tuple[str, Mapping[str, Any]]]] = [
    ("local_leap", {"tau": 1, "relaxed": 1}, STATIC),
    ("local_leap", {"tau": 0.4, "relaxed": 0.4}, ("fast_dllm_uncached", {"tau": 0.4})),
    ("local_leap", {"tau": 0.4, "relaxed": 0, "radius": 0}, ("fast_dllm_uncached", {"tau": 0.4})),
    ("klass", {"tau": 1}, STATIC),
    ("klass", {"tau": 0, "epsilon": 0}, STATIC),
    ("credit_decoding", {"tau": 0.4, "alpha": 0}, ("fast_dllm_uncached", {"tau": 0.4})),
    ("dinfer_hierarchy", {"tau": 1, "low": 1}, STATIC),
    ("dinfer_hierarchy", {"tau": 0.4, "low": 1}, ("fast_dllm_uncached", {"tau": 0.4})),
    ("remdm_loop", {"k": 1, "rounds": 0}, WHOLE),
    ("maskgit", {"steps": LENGTH, "heat": 0, "power": 1}, WHOLE),
    ("eoser", {"steps": 6, "least": 1, "most": 1}, ("llada", {"steps": 6})),
    ("eoser_ass", {"steps": 1, "least": 0}, ("llada", {"block": LENGTH, "steps": 1})),
    ("dilated", {"base": BLOCK}, AT_ONCE),
    ("eb_sampler", {"gamma": 100}, ("llada", {"block": LENGTH, "steps": 1})),
    ("adablock", {"trust": 1, "tau": 0.4, "marks": []}, ("fast_dllm_uncached", {"tau": 0.4})),
    ("adablock", {"trust": 1, "tau": 1}, STATIC),
    ("explore_exploit", {"tau": 1, "least": 0}, STATIC),
    ("explore_exploit", {"tau": 0.4, "least": 0, "block": LENGTH}, ("fast_dllm_uncached", {"tau": 0.4, "block": LENGTH})),
    ("secondary_remask", {"steps": 2, "heat": 0, "again": False}, ("maskgit", {"steps": 2, "heat": 0})),
    ("set_block", {"k": LENGTH, "gamma": 0.5}, ("eb_sampler", {"gamma": 0.5})),
    ("coherent_contextual", {"steps": LENGTH, "warm": 64}, ("eb_sampler", {"gamma": 0})),
    ("r2_dllm", {"tau": 0.4, "spatial": 1, "clusters": False, "calm": 1000}, ("fast_dllm_uncached", {"tau": 0.4})),
    ("slow_fast", {"tau": 1, "explore": BLOCK}, STATIC),
    ("saber", {"n": 1, "block": 1}, ("static_masked", {"block": 1})),
    ("latent_refinement", {"rounds": 0, "feed": 0, "tolerance": 0, "block": LENGTH}, ("eb_sampler", {"gamma": 0})),
    ("latent_refinement", {"rounds": 0, "feed": 0, "tolerance": 0, "block": 1}, ("static_masked", {"block": 1})),
    ("joint_threshold", EDITS | {"tau": 0.41, "edit": 1, "rounds": 0}, ("fast_dllm_uncached", {"tau": 0.41, "block": LENGTH})),
    ("joint_threshold", EDITS | {"tau": 1, "edit": 1, "rounds": 0}, WHOLE),
    ("hyperschedule", {"steps": 1, "delay": 1, "block": 1}, ("static_masked", {"block": 1})),
    ("hyperschedule", {"steps": 1, "delay": 0, "block": 1}, ("llada", {"block": LENGTH, "steps": 1})),
    ("hyperschedule", {"steps": 1, "delay": 1}, AT_ONCE),
    ("dparallel", {"tau": 20}, AT_ONCE),
    ("dparallel", {"tau": 0, "block": LENGTH}, ("eb_sampler", {"gamma": 0})),
    ("group_masked", {"levels": 1, "coarse": LENGTH}, WHOLE),
    ("group_masked", {"levels": LENGTH, "coarse": 1}, ("static_masked", {"block": 1})),
    ("dkv_cache", {"reload": 1, "steps": LENGTH}, ("llada", {"steps": LENGTH})),
    ("d2f", {"block": LENGTH, "tau": 1}, WHOLE),
    ("fast_dllm_v2", {"small": BLOCK}, ("fast_dllm_v2", {"small": BLOCK, "hold": False})),
    ("sparse_dllm", {"keep": 1, "steps": LENGTH}, ("llada", {"steps": LENGTH})),
    ("recap", {"steps": 3, "cheap": 0, "heat": 0}, ("maskgit", {"steps": 3, "heat": 0, "power": 2.5})),
]


def decided(name: str, params: Mapping[str, Any], seed: int) -> tuple[list[list[int]], tuple[int, ...]]:
    """The cells that each call decides, and the tokens."""
    import decgraph

    known = {p.name for p in decgraph.load(name).module.entry.params}
    small = {k: v for k, v in {"length": LENGTH, "block": BLOCK, **params}.items() if k in known}
    result = run(name, tables(seed), small, max_tokens=LENGTH, temperature=0)
    order: list[list[int]] = []
    for event in result.events:
        if isinstance(event, ModelCall):
            order.append([])
        if isinstance(event, Unmasked):
            order[-1].append(event.position)
    return [sorted(o) for o in order], result.tokens


@pytest.mark.parametrize(("name", "params", "other"), EQUAL, ids=lambda x: x if isinstance(x, str) else None)
def test_at_this_setting_it_is_the_other(name: str, params: Mapping[str, Any], other: tuple[str, Mapping[str, Any]]) -> None:
    for seed in range(4):
        assert decided(name, params, seed) == decided(*other, seed), seed


AWAY: list[tuple[str, Mapping[str, Any]]] = [
    ("local_leap", {"tau": 0.45, "relaxed": 0.3}),
    ("klass", {"tau": 0.3, "epsilon": 50, "window": 1}),
    ("credit_decoding", {"tau": 0.45, "alpha": 5}),
    ("dinfer_hierarchy", {"tau": 1, "low": 0}),
    ("dilated", {"base": 2}),
    ("latent_refinement", {"rounds": 0, "feed": 0.2, "tolerance": 0, "block": 1}),
    ("adablock", {"trust": 0, "marks": [0, 1], "tau": 1}),
    ("explore_exploit", {"tau": 1, "least": 1}),
    ("r2_dllm", {"tau": 1, "spatial": 0.4}),
    ("r2_dllm", {"tau": 1, "spatial": 1, "clusters": False, "calm": 1, "temporal": 0}),
    ("slow_fast", {"tau": 0.35}),
    ("dkv_cache", {"block": LENGTH, "steps": LENGTH, "reload": 8}),
    ("recap", {"steps": LENGTH, "alone": 0, "cheap": 3, "heat": 0}),
    ("d2f", {"tau": 1}),
    ("joint_threshold", EDITS | {"tau": 1, "edit": 0}),
    ("sparse_dllm", {"keep": 0.2, "steps": LENGTH}),
    ("hyperschedule", {"steps": 4, "delay": 1, "block": 1, "eta": 0.5}),
]


@pytest.mark.parametrize(("name", "params"), AWAY, ids=lambda x: x if isinstance(x, str) else None)
def test_elsewhere_it_is_not_the_static_decoder(name: str, params: Mapping[str, Any]) -> None:
    assert any(decided(name, params, seed)[0] != decided(*STATIC, seed)[0] for seed in range(4))
