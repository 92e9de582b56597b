"""The programs of tests/dsl/programs, every construct of the language among them: the torch backend as the reference."""

from __future__ import annotations

from functools import cache

import pytest
from lib.programs.corpus import lowered
from lib.programs.corpus_runs import RUN, V, in_world

from decgraph.api import parse
from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.values import Module
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

REQUESTS = [
    Request(prompt=(0, 1, 2, 0, 1), max_tokens=5, seed=11),
    Request(prompt=(2, 1, 3), max_tokens=4, seed=12, temperature=0),
    Request(prompt=(2, 1, 3, 1, 3), max_tokens=6, seed=13, temperature=0.7, top_p=0.9, eos=frozenset({3}), min_length=2),
]
UNREADABLE = {"a_star", "reward_guided"}
"""Other vocabularies and text, which tables have not: both backends must refuse these, in the same words."""


RETURNED_ONLY = {"diverse_beam", "superposed"}
"""They commit nothing."""
STUCK = {("apd", 1), ("d2f", 0), ("sequoia", 1)}
"""Runs that the program itself cannot finish in these worlds: no mass left, no progress, a row that was not computed."""


@cache
def optimised(name: str) -> Module:
    return optimise(lowered(name))[0]


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")  # scores of two impossible tokens
@pytest.mark.parametrize("passes", [False, True], ids=["plain", "passes"])
@pytest.mark.parametrize("name", RUN)
def test_program_runs_as_on_the_reference(name: str, passes: bool) -> None:
    module = lowered(name)
    made = optimised(name) if passes else module
    for n, request in enumerate(REQUESTS):
        for function, f in module.functions.items():
            if any(lookup(op.opcode).unavailable for op in f.body.walk()):
                for backend in ("reference", "torch"):
                    with pytest.raises(DecError, match=rf"{name}.dec:\d+:\d+: [a-z.]+: no model adapter returns"):
                        in_world(made, made.functions[function], n, request, backend)
                continue
            wanted = in_world(module, f, n, request)
            got = in_world(made, made.functions[function], n, request, "torch")
            assert (got.tokens, got.reason, got.results) == (wanted.tokens, wanted.reason, wanted.results), got.error
            assert bool(got.error) == bool(wanted.error), (got.error, wanted.error)
            if wanted.error is not None:
                assert function in UNREADABLE or (function, n) in STUCK, wanted.error
                assert function not in UNREADABLE or "tokenizer" in str(wanted.error), wanted.error
                continue
            assert (len(wanted.tokens) > 0) != (function in RETURNED_ONLY)
            assert len(wanted.tokens) <= request.max_tokens and all(0 <= t < V for t in wanted.tokens)


COINS = """
algorithm coins(target: causal):
    while not done:
        y = topk(target(ctx).raw, 4)
        thrown = bernoulli([0.5 for n in 0..4])
        commit y[count(thrown) % 4]
"""


def test_every_coin_of_a_vector_has_its_own_noise() -> None:
    algorithm = parse(COINS)
    models = models_for(algorithm.function, 7, 1)
    wanted, got = (algorithm.session(models, backend=b).run(Request((1, 2, 3), max_tokens=12)) for b in ("reference", "torch"))
    assert got.tokens == wanted.tokens and wanted.error is None


TWINS = """
rule last(p: dist, children: draws):
    if len(children) > 0:
        accept children[len(children) - 1]
    y ~ p as output
    emit y

algorithm twins(target: causal):
    while not done:
        draft t:
            grow point(0) at root
            grow point(0) at root
            grow point(1) at t.leaves[1]
        verify t by last against target(t)
        commit t.accepted
"""


def test_of_siblings_with_equal_tokens_the_one_that_was_accepted_is_followed() -> None:
    """They are grown one after the other, and only below the second is another node."""
    module, request = load_text(TWINS, "twins.dec", check_labels=False), Request((1, 2, 3), max_tokens=12)
    models = models_for(module.entry, 7, 1)
    wanted, got = (Session(module, models, machine=machine(b)).run(request) for b in ("reference", "torch"))
    assert got.tokens == wanted.tokens and wanted.tokens[:2] == (0, 1)
