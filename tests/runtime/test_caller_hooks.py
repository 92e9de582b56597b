"""What a caller's library brings into a request: processors of logits, and functions that end a run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from lib.stdlib.table_models import FEW, NAMES, module, parameters, run, tables

from decgraph.backends.registry import machine
from decgraph.errors import DecError
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.shaping import raw_probs, shaped_probs
from decgraph.runtime.stop import StopMachine

SCORES = Scores(logits=np.array([0.0, 1.0, 2.0, 3.0]))


def test_processors_come_after_constraints_and_before_the_rest() -> None:
    seen: list[tuple[tuple[int, ...], list[float]]] = []

    def look(path: tuple[int, ...], logits: np.ndarray) -> np.ndarray:
        seen.append((path, logits.tolist()))
        return logits + 1

    request = Request((0, 1), bans=frozenset({3}), processors=(look, look), temperature=0.5, repetition_penalty=2.0)
    got = shaped_probs(SCORES, (0, 1, 2), request)
    assert seen == [((0, 1, 2), [0.0, 1.0, 2.0, -np.inf]), ((0, 1, 2), [1.0, 2.0, 3.0, -np.inf])]
    weights = np.exp(np.array([2.0, 3.0, 4.0]) / 2 / 0.5)  # every token is in the path, so each is halved
    np.testing.assert_allclose(got, [*(weights / weights.sum()), 0.0])
    assert len(seen) == 2
    np.testing.assert_allclose(raw_probs(SCORES, (0, 1, 2), request), shaped_probs(SCORES, (2,), Request((2,), bans={3})))
    assert len(seen) == 2, "the raw view is under the constraints alone"


@pytest.mark.parametrize(
    "processor",
    [lambda p, x: x[:2], lambda p, x: x * np.nan, lambda p, x: np.where(x == 3, np.inf, x), lambda p, x: x - np.inf],
)
def test_what_a_processor_may_not_give(processor: object) -> None:
    with pytest.raises(DecError, match="processor|no token"):
        shaped_probs(SCORES, (0,), Request((0,), processors=(processor,)))  # type: ignore[arg-type]


def test_exact_rows_refuse_processors() -> None:
    row = Scores(weights=(Fraction(1, 4),) * 4)
    assert raw_probs(row, (0,), Request((0,), processors=(lambda p, x: x,))) == row.weights
    with pytest.raises(DecError, match="exact arithmetic"):
        shaped_probs(row, (0,), Request((0,), processors=(lambda p, x: x,)))


def test_until_ends_a_run_at_its_token() -> None:
    asked: list[tuple[int, ...]] = []

    def ends(path: tuple[int, ...]) -> bool:
        asked.append(path)
        return len(path) == 5

    request = Request((7, 8), max_tokens=9, until=(ends,))
    kept, state = StopMachine.cut(StopMachine.start(request), [1, 2, 3, 4, 5])
    assert (kept, state.reason) == ((1, 2, 3), "until")
    assert asked == [(7, 8, 1), (7, 8, 1, 2), (7, 8, 1, 2, 3)]
    assert StopMachine.start(replace(request, until=())).path == ()


@pytest.mark.parametrize(("token", "reason"), [(5, "eos"), (3, "until")])
def test_an_end_of_text_wins_over_until_and_until_over_the_limit(token: int, reason: str) -> None:
    request = Request((7,), max_tokens=1, eos=frozenset({5}), until=(lambda path: True,))
    assert StopMachine.feed(StopMachine.start(request), token).reason == reason


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "eagle2", "pearl"])
def test_algorithms_obey_both(name: str) -> None:
    free = run(name, tables(), temperature=0, max_tokens=20).tokens
    cut = run(name, tables(), temperature=0, max_tokens=20, until=(lambda path: len(path) >= 9,))
    assert (cut.tokens, cut.reason) == (free[:7], "until")
    odd = run(
        name, tables(), max_tokens=20, processors=(lambda path, x: np.where(np.arange(4) % 2 == len(path) % 2, x, -np.inf),)
    )
    assert all(token % 2 == place % 2 for place, token in enumerate(odd.tokens))


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_backends_agree(name: str) -> None:
    """Where processors come in is seen in what is drafted, accepted and unmasked by the raw face."""
    pytest.importorskip("torch")
    entry = module(name).entry
    have = tables()
    models = {p.name: have[p.name] for p in entry.params if p.value.type.elem == "model"}
    for temperature in (0, 1):
        request = Request((0, 1), max_tokens=12, temperature=temperature, seed=3, processors=(alternate,), until=(long_enough,))
        bound = [Session(module(name), models, parameters(name), machine=machine(b)) for b in ("reference", "torch")]
        runs = [session.run(request) for session in bound]
        assert [r.error for r in runs] == [None, None]
        assert runs[0].tokens == runs[1].tokens
        assert runs[0].results == runs[1].results
        assert runs[0].reason == runs[1].reason


def alternate(path: tuple[int, ...], logits: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(logits)) % 2 == len(path) % 2, logits, -np.inf)


def long_enough(path: tuple[int, ...]) -> bool:
    return len(path) > 12
