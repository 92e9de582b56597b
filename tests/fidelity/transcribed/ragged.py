"""Batches whose sequences wait for one another: EQSPEC, whose drafts are as long as the fullest sequence allows."""

from __future__ import annotations

from fidelity.causal_batches import steps
from fidelity.entry import Case, Columns, recorded

import decgraph
from decgraph.runtime.request import Request
from lab.recordings.chains import models


def exspec(case: Case, backend: str) -> Columns:
    session = decgraph.load("exspec").session(models(case), backend=backend, gamma=case["gamma"])
    more = {"max_tokens": case["limit"], "eos": frozenset(case["eos"]), "temperature": 0}
    requests = [Request(prompt=tuple(p), request_id=i, **more) for i, p in enumerate(case["prompts"])]
    got = session.generate(requests, batch=len(requests), keep_events=True)
    texts = [[*q.prompt, *r.tokens] for q, r in zip(requests, got, strict=True)]
    return {"texts": texts, "verified and accepted": [steps(r) for r in got]}


LAST = (
    "src/custom/verification.py:291 leaves out the last draft also where all drafts of the batch have ended before the "
    "limit: the target writes the end token itself, here it is verified"
)
ENTRIES = [recorded("exspec", exspec, differs={("7 5 False", "verified and accepted"): LAST})]
