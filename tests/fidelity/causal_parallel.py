"""Drafters beside the target: those that go on while it verifies (lab/recordings/side_by_side.py), and a diffusion model
(lab/recordings/canvases.py)."""

from __future__ import annotations

from fidelity.entry import Case, Columns, recorded
from fidelity.watched import run

from decgraph import stdlib
from lab.recordings.canvases import canvas
from lab.recordings.tables import untied


def speculative_speculative(case: Case, backend: str) -> Columns:
    """A chain was there where the target's own token was a drafted one, which is then accepted, too."""
    models = {
        "target": untied(case["size"], case["seed"], window=None),
        "drafter": untied(case["size"], case["seed"], window=None, blend=(99, case["apart"]), name="drafter"),
    }
    limit = case["calls"] * (case["gamma"] + 1) + case["gamma"] + 2
    params = {name: case[name] for name in ("gamma", "fan")}
    done = run("speculative_speculative", case["prompt"], models, backend, max_tokens=limit, **params)
    calls = list(zip(done.calls, done.committed, strict=True))[: case["calls"]]
    return {
        "pending": [max(call.drafted, key=len) for call, _ in calls],
        "committed": [tokens for _, tokens in calls],
        "there": [False, *(call.accepted == len(tokens) for call, tokens in calls[:-1])],
    }


def linear_spec(case: Case, backend: str) -> Columns:
    """The first call, which gives the seed, is before the recorded ones: its token is the prompt's last here."""
    models = {
        "target": untied(case["size"], case["seed"], window=None),
        "drafter": canvas(case["size"], case["seed"]),
    }
    limit = (case["calls"] + 1) * case["block"]
    text = stdlib.text("linear_spec").replace("    x ~ target(ctx) as output\n    commit x\n", "")
    done = run("", case["prompt"], models, backend, max_tokens=limit, text=text, block=case["block"])
    calls = list(zip(done.calls, done.committed, strict=True))[: case["calls"]]
    return {"drafted": [max(c.drafted, key=len) for c, _ in calls], "committed": [tokens for _, tokens in calls]}


ENTRIES = [
    recorded("speculative_speculative", speculative_speculative),
    recorded("linear_spec", linear_spec, note="without its first line, which gives the seed that a recording begins with"),
]
