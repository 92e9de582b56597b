"""300 random combinations of an algorithm with a rule of verification or a cache policy that it was not written with, and with
settings of requests: all that is well typed runs on torch as on the reference, with passes and without."""

from __future__ import annotations

import random

import pytest
from lib.stdlib.combinations import composed, drawn, well_typed
from lib.stdlib.requests import V, done, heard
from lib.stdlib.sessions import session_of

from decgraph.api import Algorithm
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request

COUNT = 300


@pytest.mark.budget(6)
@pytest.mark.quick(first=10)
@pytest.mark.parametrize("n", range(COUNT))
def test_torch_does_what_the_reference_does(n: int) -> None:
    c = well_typed(n)
    algorithm = composed(c.name, c.rule, c.policy)
    assert isinstance(algorithm, Algorithm)
    rng = random.Random(c.seed)
    params = params_for(algorithm.function, c.seed)
    models = models_for(algorithm.function, V, c.seed, free=rng.random() < 0.5)
    requests = [
        heard(
            algorithm.function,
            Request(
                prompt=tuple(rng.randrange(V) for _ in range(size)),
                max_tokens=rng.randint(4, 10),
                seed=c.seed,
                request_id=i,
                **c.settings,
            ),
        )
        for i, size in enumerate((3, 6))
    ]

    wanted = [session_of(algorithm, models, params).run(r) for r in requests]
    alone = [session_of(algorithm, models, params, "torch").run(r) for r in requests]
    together = alone
    across = any(op.opcode.startswith("batch.") for op in algorithm.function.body.walk())
    if all(s.scope == "sequence" for s in algorithm.function.states) and not across:  # else a request reads what others do
        together = session_of(algorithm, models, params, "torch", Plan(passes=())).generate(requests, batch=2, keep_events=True)
    for want, one, row in zip(wanted, alone, together, strict=True):
        assert want.error is None, f"{c}\n{want.error}\n{params}"
        assert (one.tokens, one.reason, str(one.error)) == (want.tokens, want.reason, "None"), (c, params)
        assert done(one) == done(want), (c, params)
        assert (row.tokens, row.reason, str(row.error)) == (want.tokens, want.reason, "None"), (c, params)
        assert done(row) == done(want), (c, params)


def test_what_is_not_well_typed_is_told_where() -> None:
    """A combination that does not fit is an error with a message, not a program that goes wrong later."""
    rng = random.Random(0)
    refused = [c for c in (drawn(rng) for _ in range(120)) if isinstance(composed(c.name, c.rule, c.policy), DecError)]
    assert 5 <= len(refused) <= 60
    for c in refused:
        error = composed(c.name, c.rule, c.policy)
        assert "declares no canvas" in str(error) or "error[E" in str(error), str(error)


@pytest.mark.parametrize("rule", ["typical_longest", "block_rejection", "traverse", "match_longest"])
def test_a_rule_of_whole_trees_needs_every_node(rule: str) -> None:
    """PEARL asks for what was pending, and grows below it meanwhile: `rejection` stops where there is no evidence."""
    error = composed("pearl", rule, "")
    assert isinstance(error, DecError)
    assert f"rule `{rule}` reads the evidence after every node" in str(error)
    assert "against target(known)" in str(error)
    assert not isinstance(composed("pearl", "match", ""), DecError)


def test_most_algorithms_are_drawn() -> None:
    chosen = [drawn(random.Random(n)) for n in range(COUNT)]
    assert len({c.name for c in chosen}) > 90
    assert sum(bool(c.rule) for c in chosen) > 100
    assert sum(bool(c.policy) for c in chosen) > 40
