"""vLLM's adaptive verification: how many drafts a step verifies, by what calls cost and what the last drafts were worth."""

from __future__ import annotations

from fidelity.entry import Case, Columns, recorded
from fidelity.transcribed.compared import by_chain
from fidelity.watched import run

from lab.recordings.adaptive import models


def adaptive_verification(case: Case, backend: str) -> Columns:
    """Calls are padded to the next of the curve's widths."""
    drafting, verifying = case["drafting"], case["verifying"]
    externs = {"milliseconds": lambda rows, tokens: drafting + next(ms for width, ms in verifying if width >= tokens)}
    params = {name: case[name] for name in ("gamma", "capacity", "interval", "damping")}
    limit = case["limit"] + 16
    done = run("adaptive_verification", case["prompt"], models(case), backend, max_tokens=limit, externs=externs, **params)
    found = by_chain(done, case)
    return {"tokens": found["tokens"], "verified": [len(c) for c in found["chains"]], "accepted": found["accepted"]}


ENTRIES = [recorded("adaptive_verification", adaptive_verification)]
