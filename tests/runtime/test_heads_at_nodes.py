"""Heads asked at several nodes of a tree: for every node the heads after its own path, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import shaped_probs

PROGRAM = """
algorithm guesses(target: causal with heads):
    keeps support of target

    draft t:
        grow topk(target(t.leaves).raw, 3)
        h = target.heads(t.leaves)
        y ~ h[{leaf}][{head}]
    commit y
"""
PROMPT = (3, 1)


@pytest.mark.parametrize("backend", ["torch", "reference", "triton"])
@pytest.mark.parametrize("seed", range(4))
def test_every_node_has_its_own_heads(backend: str, seed: int) -> None:
    model = TableModel(6, seed, heads=2, name="target")
    request = Request(PROMPT, max_tokens=1, temperature=0, repetition_penalty=9)
    guesses = np.argsort(-model.eval([PROMPT])[0].to_float().logits, kind="stable")[:3]
    given, wanted = [], []
    for leaf, token in enumerate(guesses):
        path = (*PROMPT, int(token))
        for head, scores in enumerate(model.heads(path)):
            algorithm = decgraph.parse(PROGRAM.format(leaf=leaf, head=head))
            result = algorithm.session({"target": model}, plan=Plan(backend=backend)).run(request)
            assert result.error is None, result.error
            given.append(result.tokens)
            wanted.append((int(np.argmax(shaped_probs(scores.to_float(), path, request))),))
    assert given == wanted and len(set(wanted)) > 1
