"""`eos` of a request without an end token: nothing equals it, and what needs a token is refused, on reference and torch (a step
on the device leaves `eos` to the host)."""

from __future__ import annotations

import pytest

from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

HEAD = """algorithm ends(target: causal, k: int in 1..32 = 20):
    while not done:
        p = target(ctx)
        x ~ p as output
"""
COMPARED = {
    "commit 0 if x == eos else 1": 1,
    "commit 0 if x != eos else 1": 0,
    "commit 0 if x in [eos] else 1": 1,
    "commit 0 if eos >= 0 else 1": 1,
    "commit argmax(p.raw * (1 - onehot(eos))) * 0 if eos >= 0 else 1": 1,
    "z = 1\n        if eos >= 0:\n            z = int(eos)\n        commit z": 1,
    "commit count(topk(p.raw, 4) == eos)": 0,
    "commit where(count(ctx.last(2) == eos) > 0, 0, 1)": 1,
}
NEEDED = ("commit eos", "commit argmax(p.raw * (1 - onehot(eos)))", "commit 1 if p[eos] > 0 else 0", "commit point(eos)")


def run(use: str, backend: str, eos: frozenset[int] = frozenset()) -> Result:
    module = load_text(f"{HEAD}        {use}\n", "ends.dec", check_labels=False)
    models = models_for(module.entry, 4, 3)
    return Session(module, models, {}, machine=machine(backend)).run(Request(prompt=(0, 1, 2), max_tokens=3, seed=1, eos=eos))


@pytest.mark.parametrize("backend", ("reference", "torch"))
def test_nothing_equals_an_end_token_that_is_not_there(backend: str) -> None:
    for use, token in COMPARED.items():
        result = run(use, backend)
        assert (result.error, result.tokens) == (None, (token,) * 3), use


@pytest.mark.parametrize("backend", ("reference", "torch"))
def test_what_needs_the_end_token_is_refused_at_its_line(backend: str) -> None:
    for use in NEEDED:
        said = str(run(use, backend).error)
        assert "ends.dec:5:" in said and "the request has no end token" in said and "if eos >= 0" in said
        assert run(use, backend, frozenset({3})).error is None


@pytest.mark.parametrize("backend", ("reference", "torch"))
def test_topk_wider_than_the_vocabulary_is_all_of_it(backend: str) -> None:
    wide, narrow = run("commit topk(p.raw, k)[3]", backend), run("commit topk(p.raw, 4)[3]", backend)
    assert wide.error is None and wide.tokens == narrow.tokens
    assert run("commit len(topk(p.raw, k)) - 1", backend).tokens == (3, 3, 3)
