"""What near misses are told to try: the advice, applied, gives a program."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.errors import DecError

HEAD = "algorithm f(target: causal):\n"
LOOP = "    while not done:\n        x ~ target(ctx)\n        commit x\n"
WRONG = {
    "a condition added": (
        HEAD + "    n = 0 + (len(prompt) > 1)\n" + LOOP,
        "where(condition, 1, 0)",
        HEAD + "    n = 0 + where(len(prompt) > 1, 1, 0)\n" + LOOP,
    ),
    "an algorithm beside another": (
        "algorithm f(target: causal, g: automaton):\n    refines masked_tokens(target, g) in tokens\n" + LOOP,
        "from grammar import masked_tokens",
        "from grammar import masked_tokens\nalgorithm f(target: causal, g: automaton):\n"
        "    refines masked_tokens(target, g) in tokens\n" + LOOP,
    ),
    "a claim as a call": (
        HEAD + "    keeps_support(target)\n" + LOOP,
        "`keeps support of target`",
        HEAD + "    keeps support of target\n" + LOOP,
    ),
    "a tree indexed": (
        HEAD + "    draft t:\n        grow topk(target(ctx), 2)\n        n = t[t.leaves[0]]\n" + LOOP,
        "t.token[n]",
        HEAD + "    draft t:\n        grow topk(target(ctx), 2)\n        n = t.token[t.leaves[0]]\n" + LOOP,
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_advice_is_told_and_works(case: str) -> None:
    wrong, advice, right = WRONG[case]
    with pytest.raises(DecError) as raised:
        decgraph.parse(wrong)
    assert advice in str(raised.value)
    decgraph.parse(right)
