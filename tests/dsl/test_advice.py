"""What near misses are told to try: the advice, applied, gives a program."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.errors import DecError

HEAD = "algorithm f(target: causal):\n"
LOOP = "    while not done:\n        x ~ target(ctx)\n        commit x\n"
CANVAS = """algorithm f(model: masked, length: int in 1..8 = 4):
    canvas c: length
    while any(c.masked):
        p = model(c)
        x ~ p
        unmask c where c.masked with x
"""
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
    "the mask as a token": (
        CANVAS + "        c[[0]] = mask_\n        c[[0]] = x[[0]]\n    commit c\n",
        "remask c[ps] where yes",
        CANVAS + "        remask c[[0]] where yes\n        c[[0]] = x[[0]]\n    commit c\n",
    ),
    "an edit that masks": (
        CANVAS + "        draft v of c:\n            grow edit(c.all[0], mask_) at root\n        q = model(v)\n    commit c\n",
        "remask c[[i]] where yes",
        CANVAS + "        remask c[[0]] where yes\n        q = model(c)\n        c[[0]] = x[[0]]\n    commit c\n",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_advice_is_told_and_works(case: str) -> None:
    wrong, advice, right = WRONG[case]
    with pytest.raises(DecError) as raised:
        decgraph.parse(wrong)
    assert advice in str(raised.value)
    decgraph.parse(right)
