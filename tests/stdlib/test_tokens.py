"""What refines another algorithm in tokens commits that one's tokens, whatever is drafted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from lib.stdlib.table_models import claim_of, layered, module, parameters, refining, run, session, tables

from decgraph.runtime.models.interface import Model

IN_TOKENS = refining("tokens")
TEMPERATURES = (0, 1, 0.5, 2)


def both(name: str, models: Mapping[str, Model], **request: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens of an algorithm and of the one that it refines, with the parameters that the claim hands on."""
    params, claim = parameters(name), claim_of(name, "tokens")
    known = {p.name: p.default for p in module(name).entry.params if p.has_default} | params
    spec = {k: known[v] for k, (kind, v) in claim.args if kind == "param" and v in known}
    return run(name, models, params, **request).tokens, run(claim.spec, models, spec, **request).tokens


def test_which_refine_in_tokens() -> None:
    assert all(claim_of(name, "tokens") for name in IN_TOKENS)
    assert set(IN_TOKENS) >= {
        "eagle2",
        "medusa_match",
        "kangaroo",
        "prompt_lookup",
        "lookahead",
        "jacobi",
        "gs_jacobi",
        "token_recycling",
        "freedave",
    }


@pytest.mark.quick("lookahead")
@pytest.mark.parametrize("name", IN_TOKENS)
def test_fifty_tables(name: str) -> None:
    masked = claim_of(name, "tokens").spec != "autoregressive"
    for seed in range(50):
        request: dict[str, Any] = {"seed": seed, "max_tokens": 7 if masked else 12, "prompt": (seed % 4, 1, 2)}
        request["temperature"] = TEMPERATURES[seed % 4]
        ours, theirs = both(name, tables(seed, zeros=seed % 3 == 0), **request)
        assert ours == theirs, (seed, request)


@pytest.mark.parametrize("name", IN_TOKENS)
def test_shaped_requests(name: str) -> None:
    shapes: list[dict[str, Any]] = [
        {"top_k": 2},
        {"top_p": 0.6},
        {"bans": {2}},
        {"eos": {3}, "min_length": 4},
        {"repetition_penalty": 2},
        {"presence_penalty": 1.5},
        {"bias": {1: 2.0}, "eos": {0}},
    ]
    for seed, shape in enumerate(shapes):
        ours, theirs = both(name, tables(seed), seed=seed, max_tokens=7, **shape)
        assert ours == theirs, shape


@pytest.mark.parametrize("name", IN_TOKENS)
def test_free_models(name: str) -> None:
    for seed in range(3):
        ours, theirs = both(name, layered("free"), seed=seed, max_tokens=6)
        assert ours == theirs


@pytest.mark.parametrize("name", refining(r"\w+", "autoregressive"))
def test_lossless_methods_agree_when_greedy(name: str) -> None:
    """Every one of them, those in distribution too: at temperature 0 there is one text."""
    for seed in range(20):
        models = tables(seed, zeros=seed % 2 == 0)
        request: dict[str, Any] = {"temperature": 0, "seed": seed, "prompt": (seed % 4, 3), "eos": {seed % 4}}
        assert run(name, models, **request).tokens == run("autoregressive", models, **request).tokens


def test_session_state_changes_no_token() -> None:
    """Token Recycling's table lives on between requests."""
    shared = session("token_recycling", tables(5))
    for seed in range(6):
        request: dict[str, Any] = {"seed": seed, "prompt": (seed % 4, 1)}
        tokens = shared(**request).tokens
        assert tokens == run("autoregressive", tables(5), **request).tokens
