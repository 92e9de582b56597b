"""Jacobi decoding: guesses that are iterated, block after block, or verified against the step before."""

from __future__ import annotations

from typing import Any

from fidelity import recorded_noise
from fidelity.entry import Case, Columns, recorded
from fidelity.recorded_noise import Recorded
from fidelity.watched import run

from lab.recordings.jacobi_windows import alone, uniforms
from lab.recordings.tables import untied


def gs_jacobi(case: Case, backend: str) -> Columns:
    """Published code throws away what it reads behind the last token of its last block, and calls for that again."""
    block, length = case["block"], 1 + case["expected"]
    models = {"target": untied(case["size"], case["seed"], window=None)}
    limit, rounds = 600 if case["eos"] else case["expected"], -(-length // block)
    done = run("gs_jacobi", case["prompt"], models, backend, max_tokens=limit, eos=case["eos"], block=block, rounds=rounds)
    guesses = [max(c.drafted, key=len, default=()) for c in done.calls if c.past - 1 + block < length]
    return {"tokens": done.tokens, "guesses": guesses}


def speculative_jacobi(case: Case, backend: str) -> Columns:
    """A draw is known by its step, its kind, and its place in the window: a coin's and a new guess's own, that of the row for
    what is drawn again, or none for the residual."""
    seed, w, reached = case["seed"], case["w"], [0]

    def given(key: Recorded, n: int) -> Any:
        site, step = str(key.site), key.counters[0]
        if "/rejection" in site:
            reached[0] = key.counters[1]
        if "/rejection" in site and n == 1:
            return uniforms(seed, step, "coin", reached[0], n)
        if "/rejection" in site:
            return uniforms(seed, step, *(("row", w) if reached[0] == w else ("rest", 0)), n)
        return uniforms(
            seed, step, *(("guess", key.lane[-1]) if site.endswith(".1") else ("row", reached[0] + 1 + key.lane[-1])), n
        )

    def reading(kind: Any) -> Any:
        class Reading(kind):  # type: ignore[misc]
            def key(self, *what: Any, **more: Any) -> Any:
                return recorded_noise.at(super().key(*what, **more), 0, (), (), given)

        return Reading

    models, begun = {"target": untied(case["size"], seed, window=None)}, alone(case)
    with recorded_noise.given():
        limit = case["limit"] + 2 * w
        done = run("speculative_jacobi", begun, models, backend, max_tokens=limit, temperature=1, change=reading, w=w)
    calls = [c for c in done.calls if c.past < len(begun) + case["limit"]]
    return {
        "tokens": done.tokens[: calls[-1].past + calls[-1].accepted + 1],
        "guesses": [max(c.drafted, key=len, default=()) for c in calls],
        "accepted": [c.accepted for c in calls],
    }


TWICE = "hybrid_jacobi.py:142 reads the last token of the last block a second time, and goes on behind both"
ENTRIES = [
    recorded("gs_jacobi", gs_jacobi, differs={("7 3 5", "tokens"): TWICE}),
    recorded(
        "speculative_jacobi", speculative_jacobi, note="ours begins behind the tokens that are drawn alone at first there"
    ),
]
