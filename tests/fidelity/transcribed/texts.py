"""Drafts that a text and the target's own calls give: TR-Jacobi."""

from __future__ import annotations

from fidelity.entry import Case, Columns, recorded
from fidelity.watched import run

from lab.recordings.tables import untied


def tr_jacobi(case: Case, backend: str) -> Columns:
    """Of a tree its leaves; up to the call in which the limit is reached, with the drafts that it accepts."""
    models, begun = {"target": untied(case["size"], case["seed"], window=case["window"])}, len(case["prompt"])
    limit = case["limit"] + 16
    done = run("tr_jacobi", case["prompt"], models, backend, max_tokens=limit, eos=case["eos"], k=case["k"])
    calls = [c for c in done.calls if c.past <= begun + case["limit"]]
    return {
        "tokens": done.tokens[: len(done.tokens) if done.tokens[-1] in case["eos"] else calls[-1].past + calls[-1].accepted],
        "drafted": [sorted(p for p in c.drafted if not any(q[:-1] == p for q in c.drafted)) for c in calls],
        "accepted": [c.accepted for c in calls],
    }


FIRST = (
    "noise_forward.py:93 takes the first of the longest accepted paths in its template's order, here they are ordered level by "
    "level: below the likeliest child of the root the first is another"
)
ENTRIES = [recorded("tr_jacobi", tr_jacobi, differs={("1 40 None", "drafted"): FIRST})]
