"""Arithmetic of scores where tokens have no mass: a coefficient of 0 contributes nothing, and what one operand rules out stays
out. Every backend computes the same, in rows, in products of numbers, and in the draws that follow."""

from __future__ import annotations

from fractions import Fraction

import pytest

import decgraph
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.check.chances import ByChance
from decgraph.errors import DecError
from decgraph.runtime.models.table import TableModel

TEXT = """
algorithm scored(target: causal, drafter: causal, zero: float in 0..1 = 0, half: float in 0..1 = 0.5):
    while not done:
        p = target(ctx)
        q = drafter(ctx)
        a = log(p.raw)
        b = log(q.raw)
        x ~ warp({}, at = ctx)
        commit x
"""
P = (Fraction(0), Fraction(1, 4), Fraction(1, 4), Fraction(1, 2), Fraction(0))
Q = (Fraction(1, 2), Fraction(0), Fraction(1, 4), Fraction(1, 4), Fraction(0))
# token:  the drafter's alone, the target's alone, both, both, neither's
BOTH = {2, 3}
CASES: dict[str, set[int]] = {
    "a - zero * b": {1, 2, 3},
    "zero * a + b": {0, 2, 3},
    "(1 - zero) * a - zero * b": {1, 2, 3},
    "a - half * b": BOTH,
    "half * a + half * b": BOTH,
    "b - a": BOTH,
    "a + b": BOTH,
    "(1 + half) * p.logits - half * q.logits": BOTH,
    "2 * a - (2 - 1) * b": BOTH,
    "zero * (a - b) + a": {1, 2, 3},
    "b + zero * (a - b)": {0, 2, 3},
    "a + counts(topk(p, 1).token) * half": {1, 2, 3},
    "a + zero * log(max(0 * p.raw))": {1, 2, 3},
    "a - where(q.raw > 0, 0, inf)": BOTH,
}


def backends(text: str, temperature: Fraction, seed: int, names: tuple[str, ...]) -> dict[str, object]:
    """The token that each backend draws, or why it draws none."""
    algorithm = decgraph.parse(text)
    models = {n: TableModel(5, table={(0,): row}, name=n) for n, row in (("target", P), ("drafter", Q))}
    request = decgraph.Request((0,), max_tokens=1, temperature=temperature, seed=seed)
    out: dict[str, object] = {}
    for backend in names:
        result = algorithm.session(**models, backend=backend).run(request)
        out[backend] = str(result.error) if result.error is not None else result.tokens[0]
    world = World(coupled=True)
    world.restart(ByChance(seed))
    try:
        machine = ExactMachine(
            algorithm.module, algorithm.module.entry.name, models, {"zero": Fraction(0), "half": Fraction(1, 2)}, request
        ).on(world)
        machine.run()
        out["exact"] = machine.context()[1]
    except DecError as error:
        out["exact"] = str(error)
    return out


@pytest.mark.budget(8)
@pytest.mark.quick("a - half * b", "a - zero * b", "b - a")
@pytest.mark.parametrize("scores", CASES)
def test_what_is_ruled_out_stays_out(scores: str) -> None:
    drawn: dict[str, set[object]] = {}
    for temperature, seed in ((Fraction(0), 0), *((Fraction(1), seed) for seed in range(40))):
        names = ("reference", "torch", "triton") if seed < 3 else ("reference", "torch")
        got = backends(TEXT.format(scores), temperature, seed, names)
        for backend, token in got.items():
            drawn.setdefault(backend, set()).add(token)
        assert all(got[n] == got["reference"] for n in names), (temperature, seed, got)
    assert drawn["reference"] == drawn["exact"] == CASES[scores], drawn


@pytest.mark.parametrize("scores", ["-a", "where(p.raw > 0, a, inf)", "-a / zero", "0 * p.raw / (0 * p.raw)"])
def test_infinities_and_no_numbers_are_still_refused(scores: str) -> None:
    said = backends(TEXT.format(scores), Fraction(1), 0, ("reference", "torch"))
    assert all("NaN or an infinity" in str(x) for x in said.values()), said


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.quick("p.raw / q.raw")
@pytest.mark.parametrize("weights", ["p.raw / q.raw", "p.raw / (0 * q.raw)", "max(p.raw, 0 / q.raw)"])
def test_nothing_is_drawn_of_infinite_weights_or_of_none(weights: str) -> None:
    """`keeps support of target` may be derived of the first: a backend that draws from it commits what has no mass."""
    text = TEXT.replace("warp({}, at = ctx)", f"normalize({weights})")
    said = backends(text, Fraction(1), 3, ("reference", "torch", "triton"))
    assert all("without mass" in str(x) for x in said.values()), said
