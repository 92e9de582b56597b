"""States of a session over several requests, on the device and by the driver: what one request leaves, the next one reads."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

STEP = "    while not done:\n        x ~ target(ctx) as output\n"
PROGRAMS = {
    "written behind the last commit": "    state n: int per session = 0\n"
    + STEP
    + "        commit x\n        n = n + 1\n        if n == 9:\n            commit x\n",
    "a vector of one size": "    state xs: int[4] per session = zeros(4)\n"
    + STEP
    + "        commit x\n        xs[1] = xs[1] + 1\n        if xs[1] == 9:\n            commit x\n",
    "a table of tokens": "    state next: token[vocab] per session = 0\n"
    + STEP
    + "        if next[x] > 0 and next[next[x]] > 0:\n            commit next[x]\n        next[x] = x\n        commit x\n",
    "a token": "    state a: token per session = 3\n    state n: int per sequence = 0\n"
    + STEP
    + "        commit x\n        n = n + 1\n        if n == 2:\n            a = x\n        if x == a:\n            commit a\n",
}


def session(name: str, backend: str) -> Session:
    text = f'algorithm sessions(target: causal):\n    """{name}"""\n{PROGRAMS[name]}'
    return decgraph.parse(text).session(backend=backend)


def asked(session: Session, *, eager: bool = False, limit: int = 6) -> tuple[int, ...]:
    """The tokens of a request. eager: with a listener of every event, which the driver runs."""
    request = Request((5, 9, 11, 5, 9, 11), max_tokens=limit, temperature=0)
    result = session.run(request, listener=(lambda event: None) if eager else None, keep_events=False)
    assert result.error is None, result.error
    assert session.machine.name != "triton" or (result.mode == "graph mode") is not eager, result.mode
    assert {type(token) for token in result.tokens} == {int}
    return result.tokens


@pytest.mark.parametrize("order", ["gge", "geg", "eeg"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_requests_read_what_the_last_one_left(name: str, order: str) -> None:
    """order: in which mode each request runs, graph or eager."""
    reference, torch, triton = (session(name, backend) for backend in ("reference", "torch", "triton"))
    for mode in order:
        expected = asked(reference)
        assert asked(torch) == expected
        assert asked(triton, eager=mode == "e") == expected


def test_noise_by_the_number_of_the_request() -> None:
    """A later request with the same seed draws anew, and where each runs changes nothing."""
    text = """algorithm draws(target: causal):
    state n: int per session = 0
    while not done:
        x ~ target(ctx)
        n = n + 1
        commit x
"""
    request = Request((5, 9, 11), max_tokens=6, seed=3)

    def tokens(backend: str, order: str) -> list[tuple[int, ...]]:
        one = decgraph.parse(text).session(backend=backend)
        found = [one.run(request, listener=None if mode == "g" else print, keep_events=False) for mode in order]
        assert backend != "triton" or [r.mode == "graph mode" for r in found] == [mode == "g" for mode in order]
        return [r.tokens for r in found]

    expected = tokens("reference", "gg")
    assert expected[0] != expected[1]
    assert all(tokens("triton", order) == expected for order in ("gg", "ge", "eg"))


def test_sessions_of_the_same_models_have_states_of_their_own() -> None:
    """Requests of both go through the lanes of one program."""
    made = session("written behind the last commit", "triton")
    algorithm = decgraph.parse(f"algorithm sessions(target: causal):\n{PROGRAMS['written behind the last commit']}")
    first, second = (algorithm.session(made.models, backend="triton") for _ in range(2))
    for one, limit in ((first, 6), (second, 5), (first, 6)):
        asked(one, limit=limit)
    assert [int(str(s.shared["sessions", "n"])) for s in (first, second)] == [11, 5]


@pytest.mark.parametrize("limit", [4, 6])
def test_calls_behind_the_end_of_a_text_count(limit: int) -> None:
    text = (
        "        commit x\n        n = n + 1\n        if n >= 2:\n            y ~ target(ctx) as output\n            commit y\n"
    )
    algorithm = decgraph.parse(f"algorithm calls(target: causal):\n    state n: int per sequence = 0\n{STEP}{text}")
    counts = []
    for backend in ("torch", "triton"):
        (result,) = algorithm.session(backend=backend).generate([[5, 9, 11]], max_tokens=limit, temperature=0)
        assert result.error is None, result.error
        counts.append(result.stats.calls)
    assert counts[0] == counts[1] and counts[0]["target"] >= limit
