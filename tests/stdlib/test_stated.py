"""Distributions that a program stores at nodes, and tokens whose distribution it states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decgraph.backends.registry import machine
from decgraph.check import check_algorithm
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

SIBLINGS = """algorithm siblings(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            t.rest[root] = drafter(root)
            repeat 2:
                q = t.rest[root]
                break if max(q) == 0  # one token has all the probability
                x ~ q
                grow x at root
                t.rest[root] = {kept}
        verify t by rejection against target(t)
        commit t.accepted
"""
INNER = """algorithm twice(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

    while not done:
        draft u:
            x ~ uniform(vocab)
            grow x
        q = drafter(u)
        verify u by {rule} against q
        draft t:
            grow chain(drawn(u.accepted, {law}))
        verify t by rejection against target(t)
        commit t.accepted
"""
RESTED = "normalize(where(onehot(x) > 0, 0.0, q))"
STATED = "q[:len(u.accepted)]"
LIKELY = """rule likely(p: dist, children: draws):
    for x in children:
        if p[x] > 0.1:
            accept x
    y ~ p
    emit y

"""


def runs(text: str, backend: str, **request: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    module = load_text(text)
    if backend != "reference":
        module = optimise(module)[0]
    session = Session(module, models_for(module.entry, 4, 3), {}, machine=machine(backend))
    results = [session.run(Request(prompt=(0, 1), max_tokens=8, seed=s, **request)) for s in range(4)]
    for error in (r.error for r in results if r.error):
        raise error
    return [(tuple(r.tokens), tuple(r.stats.accepted)) for r in results]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (SIBLINGS.format(kept=RESTED), "proved"),
        pytest.param(SIBLINGS.format(kept="normalize(q * q)"), "proved", marks=pytest.mark.nightly),  # whatever is stored
        pytest.param(INNER.format(rule="rejection", law=STATED), "holds", marks=pytest.mark.nightly),
        pytest.param(INNER.format(rule="rejection", law=STATED + ".raw"), "refuted", marks=pytest.mark.nightly),
        (INNER.format(rule="rejection", law="target(u)[:len(u.accepted)]"), "refuted"),
        (INNER.format(rule="likely", law=STATED), "refuted"),  # an inner rule that does not keep the distribution it states
    ],
)
def test_a_stored_distribution_and_a_stated_one_are_decided_by_the_check(text: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "program.dec"
    path.write_text(LIKELY + text, encoding="utf-8")
    assert check_algorithm(path, models=2).verdict == wanted


@pytest.mark.parametrize("text", [SIBLINGS.format(kept=RESTED), INNER.format(rule="rejection", law=STATED)])
def test_backends_agree(text: str) -> None:
    for request in ({}, {"temperature": 0}, {"temperature": 0.7, "top_k": 2}):
        found = runs(text, "reference", **request)
        assert runs(text, "torch", **request) == found
        assert sum(sum(accepted) for _, accepted in found) > 0


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INNER.format(rule="rejection", law="q"), "drawn got . tokens and 2 distributions"),
        (SIBLINGS.format(kept=RESTED).replace("q = t.rest[root]", "q = t.rest[t.nodes[-1]]"), "column rest was not set"),
    ],
)
def test_what_is_stated_or_stored_wrong_is_an_error_of_the_program(text: str, message: str, backend: str) -> None:
    """In a draft, which goes on without it; where requests are strict it is the run's."""
    with pytest.raises(DecError, match=message):
        runs(text, backend, strict=True)


def test_numbers_over_the_vocabulary_are_no_column() -> None:
    with pytest.raises(DecError, match="column `rest` cannot hold"):
        load_text(SIBLINGS.format(kept="1 - q"))
