"""Drafters that go on while the target verifies, as lab/recordings/side_by_side.py recorded their authors' code."""

from __future__ import annotations

from fidelity.entry import Case, Columns, recorded
from fidelity.watched import run

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


ENTRIES = [recorded("speculative_speculative", speculative_speculative)]
