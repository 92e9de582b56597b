"""Tokens of another vocabulary than the target's: where they may not stand, with the place and the remedy."""

from __future__ import annotations

import pytest

from decgraph.dsl.lower import load_text
from decgraph.errors import DecError

TREE = "verify t by match against target(t)\n        commit t.accepted"
HEAD = """from autoregressive import autoregressive

algorithm a(target: causal, drafter: causal[other]):
    while not done:
        own = retokenize(ctx, drafter)
        q = drafter(own)
        y ~ q
        """


@pytest.mark.parametrize(
    ("lines", "code", "word"),
    [
        ("commit y", "E240", "retokenize(tokens, target)"),
        ("commit own", "E240", "tokens of `other`"),
        ("x ~ warp(q.logits, at = ctx)\n        commit x", "E240", "tokens of `other`"),
        ("x ~ drafter(ctx)\n        commit x", "E240", "drafter.speaking(target)"),
        ("x ~ drafter(prompt)\n        commit x", "E240", "these are of `V`"),
        ("x ~ target(own)\n        commit x", "E240", "these are of `other`"),
        (f"draft t:\n            x ~ drafter(t.leaves)\n            grow x\n        {TREE}", "E240", "these are of `V`"),
        (f"draft t:\n            grow chain(own)\n        {TREE}", "E210", "vocabulary other grow a tree over V"),
        ("x ~ target(ctx ++ own)\n        commit x", "E210", "do not go together"),
        ("x ~ target(ctx)\n        commit x if x.token == y.token else ctx.token", "E210", "of different vocabularies"),
        ("x ~ normalize(target(ctx) + q)\n        commit x", "E210", "over different vocabularies"),
        ("commit run autoregressive(drafter) from ctx until no at most 3", "E240", "drafter.speaking(target)"),
        ("model small = drafter.speaking(3)\n        x ~ small(ctx)\n        commit x", "E210", "the model whose tokens"),
        ("commit retokenize(3, target)", "E210", "tokens in a row"),
        ("commit retokenize(ctx, 3)", "E210", "whose tokens it makes"),
    ],
)
def test_tokens_of_another_vocabulary_are_refused(lines: str, code: str, word: str) -> None:
    with pytest.raises(DecError) as caught:
        load_text(HEAD + lines + "\n", "a.dec")
    assert caught.value.codes == (code,)
    assert word in str(caught.value)
    assert "a.dec:" in str(caught.value)


def test_a_helper_takes_the_model_whose_tokens_are_retokenized() -> None:
    body = "algorithm a(target: causal, drafter: causal[other]):\n    while not done:\n        commit back({})\n"
    with pytest.raises(DecError, match="no model here has that vocabulary") as caught:
        load_text("def back(to: causal[other]) -> token:\n    return retokenize(ctx, to)\n\n" + body.format("drafter"))
    assert caught.value.codes == ("E230",)
    load_text(HEAD + "commit retokenize(own, target)\n")
