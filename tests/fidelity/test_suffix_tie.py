"""Of two suffix trees from which as many tokens are expected this text's own is verified: what is certain sums to one token in
both, however it is rounded."""

from __future__ import annotations

from fidelity import models
from fidelity.watched import run

from decgraph.backends.torch.suffixes import Suffixes


def test_a_texts_own_tree_is_verified_in_a_tie() -> None:
    past = Suffixes(64).learn([6, 5])
    params = {"budget": 16, "factor": 1.0, "offset": 1.0, "least": 0.1, "reach": 64}
    target = {"target": models.causal("target")}
    done = run("suffix_decoding", [6, 6, 6], target, "torch", max_tokens=60, shared={"past": past}, **params)
    assert {path[0] for path in done.calls[0].drafted} == {6}
