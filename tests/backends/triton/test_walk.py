"""Rules that are evaluated at all nodes of a tree at once (ops/walk.py): lanes of different lengths, settings and ends in
one batch, against the reference."""

from __future__ import annotations

from typing import Any

import pytest

from decgraph.api import load, parse
from decgraph.backends.triton.ops import walk
from decgraph.check.worlds import models_for, params_for
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result

VOCAB = 5

RAGGED = [
    Request((1, 2, 3), max_tokens=9, seed=1, temperature=1, eos=frozenset({4})),
    Request((2,), max_tokens=4, seed=2, temperature=0, request_id=1),
    Request((3, 0, 1, 2), max_tokens=12, seed=3, temperature=0.5, top_k=3, eos=frozenset({0, 2}), request_id=2),
    Request((0, 1), max_tokens=1, seed=4, temperature=1, request_id=3),
]


def ran(name: str, backend: str, models: dict[str, Any], **params: Any) -> list[Result]:
    session = load(name).session(models, backend=backend, **params)
    return session.generate(RAGGED, batch=len(RAGGED))


def outcomes(results: list[Result]) -> list[object]:
    return [(r.tokens, r.reason, r.stats.drafted, r.stats.accepted) for r in results]


@pytest.mark.parametrize("name", ["speculative", "eagle2", "prompt_lookup"])
def test_lanes_end_where_they_do_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes of different lengths, settings and ends in one batch; the rule is evaluated once a step."""
    algorithm, once = load(name), list[object]()
    everywhere = walk._everywhere
    monkeypatch.setattr(walk, "_everywhere", lambda *args: once.append(out := everywhere(*args)) or out)
    models, params = models_for(algorithm.function, VOCAB, 3), params_for(algorithm.function, 3, vocab=VOCAB)
    got = ran(name, "triton", models, **params)
    assert {r.mode for r in got} == {"graph mode"} and once and None not in once
    assert outcomes(got) == outcomes(ran(name, "reference", models, **params))


def test_all_drafts_of_the_target_itself_are_accepted() -> None:
    """Of a drafter that is the target all drafts are accepted, and what is left of the target's rows has no mass."""
    algorithm = load("speculative")
    models = models_for(algorithm.function, VOCAB, 5)
    models["drafter"] = models["target"]
    got = ran("speculative", "triton", models, gamma=4)
    assert {r.mode for r in got} == {"graph mode"}
    assert all(r.stats.accepted == r.stats.tested for r in got[:1])
    assert outcomes(got) == outcomes(ran("speculative", "reference", models, gamma=4))


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("same", [False, True])
def test_chains_of_one_draft(gamma: int, same: bool) -> None:
    """The only draft's node is the last, and has no child."""
    models = models_for(load("speculative").function, VOCAB, 7)
    models["drafter"] = models["target"] if same else models["drafter"]
    got = ran("speculative", "triton", models, gamma=gamma)
    assert {r.mode for r in got} == {"graph mode"}
    assert outcomes(got) == outcomes(ran("speculative", "reference", models, gamma=gamma))


STRICT = """rule same(p: dist, children: draws):
    y ~ p
    for x in children:
        if x == y:
            accept x
    emit y

algorithm strict(target: causal, drafter: causal, gamma: int in 1..8 = 3, floor: prob = 0.3):
    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        p = normalize(relu(target(t) - floor))
        verify t by same against p
        commit t.accepted
"""


def test_a_row_without_mass_is_an_error_where_a_lane_comes_to_it() -> None:
    """The rows of all nodes are drawn from; one that has no mass counts at the nodes of the accepted path alone."""
    algorithm = parse(STRICT)
    models = models_for(algorithm.function, VOCAB, 4)
    reference, steps = (algorithm.session(models, backend=backend, gamma=3, floor=0.3) for backend in ("reference", "triton"))
    seen = {True: 0, False: 0}
    for n in range(60):
        request = Request((n % VOCAB, n // VOCAB % VOCAB), max_tokens=3, seed=n, temperature=1, request_id=n)
        want, got = reference.run(request), steps.run(request, keep_events=False)
        assert (got.tokens, got.reason) == (want.tokens, want.reason)
        assert (got.mode == "graph mode") == (want.error is None)
        seen[want.error is None] += 1
    assert min(seen.values()) > 3, seen
