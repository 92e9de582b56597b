"""Programs whose states outlive a request, in two requests with one seed and one id: the second one draws as the target does.

The laws are exact, over every outcome of all noise of both requests together: noise that both read would be one choice.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from decgraph.check.case import Case
from decgraph.check.distributions import RunTally, whole_distribution
from decgraph.check.initial_states import Start
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

SETTINGS: dict[str, dict[str, Any]] = {
    "online_sd": {"gamma": 1, "every": 1, "rate": 1.0},
    "bass": {"gamma": 1, "up": 1, "most": 2},
}
FIRST_DRAW = """algorithm first_draw(target: causal):
    refines autoregressive(target) in distribution
    state first: int per session = -1
    while not done:
        x ~ target(ctx)
        y ~ target(ctx)
        if first < 0:
            first = int(x)
        if first == 0:
            commit x
        else:
            commit y
"""
BACKENDS = ["reference", "torch", "triton"]


def law_of_second(algorithm: Any, models: Any, params: Any, tokens: int) -> dict[tuple[int, ...], Fraction]:
    """Of what the second request of a session commits."""
    own = {p.name: p.default for p in algorithm.function.params if p.has_default} | dict(params)
    request, start = Request((0,), max_tokens=tokens, seed=0, request_id=0), Start(before=(0,))
    case = Case(algorithm.module, algorithm.function, algorithm.function.claims[0], models, own, request, start=start)
    law = whole_distribution(case.program(), request, 200_000, RunTally(), case.setup())
    return {text: mass for (text, _), mass in law.items()}


@pytest.mark.quick(but=("bass",))
@pytest.mark.parametrize("name", ["first_draw", *SETTINGS])
def test_the_second_of_two_requests_with_one_seed(name: str) -> None:
    algorithm = decgraph.parse(FIRST_DRAW) if name == "first_draw" else decgraph.load(name)
    target = TableModel(2, 1, {(): (4, 1)}, window=0, vocab="V")
    models = {"target": target, "drafter": TableModel(2, 2, {(): (1, 1)}, window=0, vocab="V")}
    used = {p.name: models[p.name] for p in algorithm.function.params if p.value.type.elem == "model"}
    law = law_of_second(algorithm, used, SETTINGS.get(name, {}), 1 if name != "bass" else 2)
    assert sum(law.values()) == 1
    for tokens, mass in law.items():
        wanted = Fraction(1)
        for token in tokens:
            wanted *= Fraction(4 - 3 * token, 5)
        assert mass == wanted, (tokens, mass)


@pytest.mark.slow
def test_every_program_of_stdlib_with_such_states_and_draws_is_above() -> None:
    found = set()
    for name in stdlib.names():
        module = decgraph.load(name).module
        lasting = any(s.scope != "sequence" for s in module.entry.states)
        drawn = any(op.opcode == "noise" and op.attrs["kind"] != "output" for op in module.entry.body.walk())
        if lasting and drawn and any(c.mode == "distribution" for c in module.entry.claims):
            found.add(name)
    assert found == set(SETTINGS)


def by_number(backend: str) -> dict[tuple[str, str], list[Any]]:
    """The tokens of two requests with one seed, by the scope of the program's state and its stream of noise."""
    rows = {(): (3, 2, 2, 1, 1, 1, 1, 1)}
    models = {"target": TableModel(8, 1, rows, window=0, vocab="V")}
    text = """algorithm a(target: causal):
    STATE
    while not done:
        x ~ target(ctx)OUTPUT
        n = n + 1
        commit x
"""
    made: dict[tuple[str, str], Any] = {}
    for scope in ("sequence", "session"):
        for stream in ("", " as output"):
            state = f"state n: int per {scope} = 0"
            session = decgraph.parse(text.replace("STATE", state).replace("OUTPUT", stream)).session(models, backend=backend)
            made[scope, stream] = [session.run(Request((0,), max_tokens=12, seed=5)).tokens for _ in range(2)]
    return made


@pytest.mark.parametrize("backend", BACKENDS)
def test_noise_by_the_number_of_the_request(backend: str) -> None:
    """A later request of a session draws anew, on every backend alike; a first one, and the stream `output`, as ever."""
    made = by_number(backend)
    first, second = made["session", ""]
    assert first != second and made["sequence", ""] == [first, first]
    assert made["session", " as output"] == made["sequence", " as output"]
    assert backend == "reference" or made == by_number("reference")
