"""Lossy samplers: at a setting where they equal something, and with a mechanism that changes the text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from shelf import module, tables

from decgraph.backends.registry import machine
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.text import detokenizer_of

SEEDS = range(6)


class Letters:
    """A tokenizer of two letters, a full stop and a line feed."""

    detokenizer = detokenizer_of(["a", "b", ".", "\n"])

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenizer.text(tokens)


def tokens(name: str, seed: int, params: dict[str, Any] | None = None, swap: bool = False, **request: Any) -> tuple[int, ...]:
    """The tokens that a program commits with table models; `swap` exchanges target and drafter."""
    have = tables(seed)
    if swap:
        have["target"], have["drafter"] = have["drafter"], have["target"]
    needs = [p.name for p in module(name).entry.params if p.value.type.elem == "model"]
    bound = Session(module(name), {n: have[n] for n in needs}, params or {}, machine=machine("reference"), tokenizer=Letters())
    result = bound.run(Request(**{"prompt": (0, 1), "limit": 12, "seed": seed, **request}))
    assert result.error is None, result.error
    return tuple(result.tokens)


GREEDY: dict[str, Any] = {"temperature": 0}
EQUAL = [
    ("repetition_aware", {"mass": 1, "most": 1}, {}),
    ("cautious", {"most": 1}, {}),
    ("cautious", {"low": 19, "high": 20}, {}),
    ("frustratingly_simple", {"alpha": 0}, GREEDY),
    ("frustratingly_simple", {"k": 1}, GREEDY),
    ("momentum", {"alpha": 0}, GREEDY),
    ("momentum", {"k": 1}, GREEDY),
    ("foreal", {"gate": 1, "lead": 12}, GREEDY),
]
"""A program, parameters, and a request: it commits what the target alone does."""


@pytest.mark.parametrize("name, params, request_", EQUAL)
def test_equal_to_the_target_alone(name: str, params: dict[str, Any], request_: dict[str, Any]) -> None:
    for seed in SEEDS:
        assert tokens(name, seed, params, **request_) == tokens("autoregressive", seed, **request_)


@pytest.mark.parametrize("name, request_", dict.fromkeys((name, "temperature" in r) for name, _, r in EQUAL))
def test_elsewhere_it_changes_the_text(name: str, request_: bool) -> None:
    request = GREEDY if request_ else {}
    assert any(tokens(name, s, **request) != tokens("autoregressive", s, **request) for s in SEEDS)


def test_without_its_leader_foreal_is_the_drafter() -> None:
    for seed in SEEDS:
        assert tokens("foreal", seed, {"gate": 0}, **GREEDY) == tokens("autoregressive", seed, swap=True, **GREEDY)


def repeated(text: Sequence[int]) -> int:
    """How many pairs of tokens stand in it twice."""
    pairs = list(zip(text, text[1:], strict=False))
    return len(pairs) - len(set(pairs))


@pytest.mark.parametrize("name", ["frustratingly_simple", "momentum"])
def test_it_repeats_less_than_greedy(name: str) -> None:
    ours = sum(repeated(tokens(name, s, **GREEDY)) for s in SEEDS)
    assert ours < sum(repeated(tokens("autoregressive", s, **GREEDY)) for s in SEEDS)
