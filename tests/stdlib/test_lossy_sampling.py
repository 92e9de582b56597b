"""Lossy samplers: at a setting where they equal something, and with a mechanism that changes the text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from lib.stdlib.table_models import module, tables

from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.reading import Confidence, Reading
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.text import detokenizer_of

SEEDS = range(6)


class Says(Reading):
    """A head that always says the same."""

    def __init__(self, target: Model, value: Any) -> None:
        super().__init__(target, "prob", "says")
        self.value = value

    def read(self, paths: Sequence[tuple[int, ...]]) -> list[Any]:
        return [self.value] * len(paths)


class Letters:
    """A tokenizer of two letters, a full stop and a line feed."""

    detokenizer = detokenizer_of(["a", "b", ".", "\n"])

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenizer.text(tokens)


def tokens(
    name: str, seed: int, params: dict[str, Any] | None = None, swap: bool = False, head: Any = None, **request: Any
) -> tuple[int, ...]:
    """The tokens that a program commits with table models; `swap` exchanges target and drafter. head: what all heads say; None:
    what the target's distribution does."""
    have = tables(seed)
    if swap:
        have["target"], have["drafter"] = have["drafter"], have["target"]
    needs = [p.name for p in module(name).entry.params if p.value.type.elem == "model"]
    of = {p.name: str(p.value.type.of[0]) for p in module(name).entry.params if p.name in needs}
    for n in needs:
        if of[n] == "head":
            have[n] = Confidence(have["target"], "prob") if head is None else Says(have["target"], head)
        elif n not in have or of[n] != have[n].kind:
            have[n] = have["target"]
    bound = Session(
        module(name),
        {n: have[n] for n in needs},
        params or {},
        machine=machine("reference"),
        tokenizer=Letters(),
        externs=outside(module(name))["externs"],
    )
    result = bound.run(Request(**{"prompt": (0, 1), "max_tokens": 12, "seed": seed, **request}))
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
    ("judge_decoding", {"tau": 1}, {}),
    ("autodeco", {}, {"head": 0, **GREEDY}),
    ("arbitrage", {}, {"head": 1, **GREEDY}),
    ("arbitrage", {"tau": 0.5}, {"head": 0.5, **GREEDY}),  # from the threshold on
    ("reward_guided_sd", {}, {"head": 0, **GREEDY}),
    ("discriminator_guided", {"k": 3}, GREEDY),
    ("adadec", {"tau": 20}, GREEDY),
    ("adadec", {"k": 1}, GREEDY),
    ("mirostat", {"tau": 0, "eta": 0}, GREEDY),
    ("kgw_watermark", {"delta": 0}, {}),
    ("lookahead_reasoning", {"mark": ".", "depth": 0}, GREEDY),
    ("superposed", {"k": 1, "alpha": 0}, GREEDY),
    ("superposed", {"k": 1, "alpha": 0}, {"eos": (2, 3), "min_length": 5, "max_tokens": 5, **GREEDY}),
]
"""A program, parameters, and a request: it commits what the target alone does."""


@pytest.mark.parametrize("name, params, request_", EQUAL)
def test_equal_to_the_target_alone(name: str, params: dict[str, Any], request_: dict[str, Any]) -> None:
    for seed in SEEDS:
        assert tokens(name, seed, params, **request_) == tokens("autoregressive", seed, **request_)


GREEDILY_EQUAL = {"discriminator_guided"}
"""At temperature 0 all its candidates are one: what it changes shows in what is sampled."""


WHATEVER = {"lookahead_reasoning"}
"""Without drafted steps it commits the target's own."""
SHOWN = dict.fromkeys((n, "temperature" in r) for n, _, r in EQUAL if "head" not in r and n not in WHATEVER)


@pytest.mark.parametrize("name, greedy", SHOWN)
def test_elsewhere_it_changes_the_text(name: str, greedy: bool) -> None:
    request = GREEDY if greedy and name not in GREEDILY_EQUAL else {}
    assert any(tokens(name, s, **request) != tokens("autoregressive", s, **request) for s in SEEDS)


def test_heads_that_say_the_settings_are_followed() -> None:
    assert any(tokens("autodeco", s, head=1) != tokens("autodeco", s, head=0) for s in SEEDS)


@pytest.mark.parametrize("name, head", [("arbitrage", 0), ("reward_guided_sd", 1)])
def test_a_head_that_likes_the_draft_leaves_it(name: str, head: int) -> None:
    for seed in SEEDS:
        assert tokens(name, seed, head=head, **GREEDY) == tokens("autoregressive", seed, swap=True, **GREEDY)


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


def rewarded(params: dict[str, Any], reward: Any) -> list[tuple[int, ...]]:
    """The tokens of `soft_value` with a reward of texts, on tables."""
    out = []
    for seed in range(6):
        bound = Session(
            module("soft_value"),
            {"model": tables(seed)["model"]},
            {"length": 8, "steps": 4, **params},
            machine=machine("reference"),
            tokenizer=Letters(),
            externs={"reward": reward},
        )
        result = bound.run(Request(prompt=(0, 1), max_tokens=8, seed=seed))
        assert result.error is None, result.error
        out.append(tuple(result.tokens))
    return out


def test_one_candidate_is_the_model_whatever_the_reward() -> None:
    assert rewarded({"m": 1}, lambda text: text.count("a")) == rewarded({"m": 1}, lambda text: -text.count("a"))


def test_more_candidates_and_a_smaller_alpha_raise_the_reward() -> None:
    def total(**params: Any) -> int:
        return sum(tokens.count(0) for tokens in rewarded(params, lambda text: text.count("a")))

    assert total(m=8) > total(m=8, alpha=4.0) > total(m=1)
