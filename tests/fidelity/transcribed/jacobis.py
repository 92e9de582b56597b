"""Jacobi decoding: guesses that are iterated, block after block, or verified against the step before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity import recorded_noise
from fidelity.entry import Case, recorded
from fidelity.recorded_noise import Recorded
from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.watched import run

from decgraph.runtime.models.table import TableModel
from lab.recordings.grids import drawn, uniforms
from lab.recordings.tables import untied

SIZE = 6


def target(case: Mapping[str, Any]) -> TableModel:
    """A table of the last two tokens, so that guesses from a wrong text are sometimes right."""
    return TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")


def gs_jacobi(case: Case, backend: str) -> Columns:
    """Published code throws away what it reads behind the last token of its last block, and calls for that again."""
    block, length = case["block"], 1 + case["expected"]
    models = {"target": untied(case["size"], case["seed"], window=None)}
    limit, rounds = 600 if case["eos"] else case["expected"], -(-length // block)
    done = run("gs_jacobi", case["prompt"], models, backend, max_tokens=limit, eos=case["eos"], block=block, rounds=rounds)
    guesses = [max(c.drafted, key=len, default=()) for c in done.calls if c.past - 1 + block < length]
    return {"tokens": done.tokens, "guesses": guesses}


def speculative_jacobi(case: Mapping[str, Any]) -> Columns:
    """A guess is accepted against what it was drawn from a step ago, a random one against a one-hot law; what follows the first
    refusal is drawn anew from this step's distributions."""
    seed, model, text = case["seed"], target(case), list(case["prompt"])
    end, ahead, laws = len(text) + case["limit"], [], []
    drafted, accepted, step = [], [], 0
    while len(text) < end:
        for lane in range(case["w"]):
            if len(ahead) < case["w"]:
                token = drawn(np.full(SIZE, 1 / SIZE), uniforms(seed, step, (lane,), SIZE, "guess"))
                ahead.append(token)
                laws.append(np.eye(SIZE)[token])
            else:
                break
        used = ahead[: end - len(text)]
        drafted.append(sorted(tuple(used[: i + 1]) for i in range(len(used))))
        p = [after(model, (*text, *used[:i])) for i in range(len(used) + 1)]
        n = 0
        while n < len(used) and uniforms(seed, step, (n,), 1, "coin")[0] < p[n][used[n]] / laws[n][used[n]]:
            n += 1
        rest = p[n] if n == len(used) else np.maximum(p[n] - laws[n], 0)
        last = drawn(rest / rest.sum(), uniforms(seed, step, (n,), SIZE, "last"))
        text += [*used[:n], last]
        accepted.append(n)
        laws = p[n + 1 :]
        ahead = [drawn(q, uniforms(seed, step, (lane,), SIZE, "again")) for lane, q in enumerate(laws)]
        step += 1
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def speculative_jacobi_ours(case: Mapping[str, Any], backend: str) -> Columns:
    """A draw is known by its step, its place in the window and its kind."""

    def given(key: Recorded, n: int) -> Any:
        site, rule, step = str(key.site).rsplit(".", 1)[1], "/rejection" in str(key.site), key.counters[0]
        if rule:
            return uniforms(case["seed"], step, (key.counters[1],), n, "coin" if n == 1 else "last")
        return uniforms(case["seed"], step, (key.lane[-1],), n, "guess" if site == "1" else "again")

    def reading(kind: Any) -> Any:
        class Reading(kind):  # type: ignore[misc]
            def key(self, *what: Any, **more: Any) -> Any:
                return recorded_noise.at(super().key(*what, **more), 0, (), (), given)

        return Reading

    with recorded_noise.given():
        done = run(
            "speculative_jacobi", case["prompt"], {"target": target(case)}, backend,
            max_tokens=case["limit"], temperature=1, change=reading, w=case["w"],
        )  # fmt: skip
    return {
        "tokens": done.tokens,
        "drafted": [sorted(c.drafted) for c in done.calls],
        "accepted": [c.accepted for c in done.calls],
    }


TWICE = "hybrid_jacobi.py:142 reads the last token of the last block a second time, and goes on behind both"
ENTRIES = [recorded("gs_jacobi", gs_jacobi, differs={("7 3 5", "tokens"): TWICE})]

COMPARED = [
    Compared(
        "speculative_jacobi",
        "tyshiwo1/Accelerating-T2I-AR-with-SJD b389cfb, scheduler/jacobi_iteration_lumina_mgpt.py, SpeculativeSampler",
        speculative_jacobi,
        speculative_jacobi_ours,
        {
            f"seed{s} w{w}": {"seed": s, "prompt": (1, s), "limit": 14, "w": w}
            for s, w in ((1, 2), (2, 3), (3, 5), (4, 8), (5, 15))
        },
        "the window there counts the last token; the residual is not shaped again, and no token is drawn alone at first",
    ),
]  # fmt: skip
