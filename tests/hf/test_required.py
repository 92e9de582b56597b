"""`require`: an algorithm that does not keep the target's distribution, or is not proved to (or does not hold), is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import decgraph
from decgraph.errors import DecError

EXAMPLE = Path(__file__).parents[2] / "examples" / "forgets_the_residual.dec"


@pytest.mark.slow
def test_what_is_proved_is_given() -> None:
    assert decgraph.hf("speculative", require="proved", drafter="drafter", gamma=2).algorithm.name == "speculative"
    assert decgraph.hf("autoregressive", require="proved").algorithm.name == "autoregressive"


@pytest.mark.parametrize("name", ["beam_patience", "medusa", "llada", "freedave"])
def test_other_claims_are_refused_without_a_check(name: str) -> None:
    with pytest.raises(DecError, match="not known to keep the target's distribution"):
        decgraph.hf(name, require="proved")


def test_a_claim_that_does_not_hold_is_refused() -> None:
    with pytest.raises(DecError, match="is refuted"):
        decgraph.hf(EXAMPLE, drafter="drafter", require="proved")


def test_another_word_is_refused() -> None:
    with pytest.raises(DecError, match="require is 'tested'"):
        decgraph.hf("speculative", drafter="drafter", require="tested")  # type: ignore[arg-type]


OPEN = """algorithm twice(target: causal):
    refines autoregressive(target) in tokens

    while not done:
        x ~ target(ctx) as output
        commit argmax(onehot(x))
"""


def test_what_holds_without_a_derivation_is_given_where_that_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "twice.dec"
    path.write_text(OPEN, encoding="utf-8")
    with pytest.raises(DecError, match="and it holds in .* worlds: contexts up to .*: no derivation: line ") as refused:
        decgraph.hf(path, require="proved")
    assert 'require="holds"' in str(refused.value)
    assert decgraph.hf(path, require="holds").algorithm.name == "twice"


RAW = """algorithm raw_logarithm(target: causal):
    refines autoregressive(target) in tokens

    while not done:
        p = target(ctx)
        x ~ warp(log(p.raw), at = ctx) as output
        commit x
"""


def test_what_is_proved_under_a_premise_is_given_to_requests_that_meet_it(target: Any) -> None:
    """With a penalty its greedy tokens are others than plain decoding's, on any module."""
    prompt = torch.tensor([[5, 6, 7, 5, 6]])
    settings = {"max_new_tokens": 3, "do_sample": False}
    decode = decgraph.hf(decgraph.parse(RAW), require="proved")
    assert torch.equal(target.generate(prompt, custom_generate=decode, **settings), target.generate(prompt, **settings))
    shaping: list[dict[str, Any]] = [{"repetition_penalty": 1.5}, {"logits_processor": [lambda ids, scores: scores * 2]}]
    for shaped in shaping:
        with pytest.raises(DecError, match="only under a premise: with a repetition penalty or processors: for models"):
            target.generate(prompt, custom_generate=decode, **settings, **shaped)
        for text, least in ((RAW.replace("log(p.raw)", "p.logits"), "proved"), (RAW, "holds")):
            other: Any = decgraph.hf(decgraph.parse(text), require=least)  # type: ignore[arg-type]
            target.generate(prompt, custom_generate=other, **settings, **shaped)
    with pytest.raises(DecError, match="only under a premise"):
        decgraph.parse(RAW).require("proved")
