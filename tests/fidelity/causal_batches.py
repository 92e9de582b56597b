"""Sequences of a batch that read one another: TETRIS, whose recording has four sequences stepping together."""

from __future__ import annotations

from fidelity.entry import GOLDEN, Case, Columns, Entry, Outcome, recorded

import decgraph
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.trace import Accepted, Committed, Drafted, Pruned
from lab.recordings.load import prompts
from lab.recordings.tables import untied

MODELS = GOLDEN / "ar/models"


def steps(result: Result) -> list[tuple[int, int]]:
    """How many drafts each decoding step verified and accepted."""
    out, kept, accepted = [], 0, 0
    for event in result.events:
        kept += isinstance(event, Drafted) - (event.dropped if isinstance(event, Pruned) else 0)
        accepted += isinstance(event, Accepted)
        if isinstance(event, Committed):
            out.append((kept, accepted))
            kept = accepted = 0
    return out


def tetris(case: Case, backend: str) -> Outcome:
    """The recording ends while all sequences go on, so ours may generate more."""
    models = {name: str(MODELS / name) for name in ("target", "drafter")}
    session = decgraph.load("tetris").session(models, backend=backend, gamma=case["gamma"], capacity=case["capacity"])
    requests = [Request(prompt=tuple(p), max_tokens=60, temperature=0, request_id=n) for n, p in enumerate(case["prompts"])]
    got = session.generate(requests, batch=len(requests), keep_events=True)
    rows = [steps(r) for r in got]
    calls = range(len(case["steps"]))
    return Outcome(
        {
            "output": case["texts"],
            "verified": [s["verified"] for s in case["steps"]],
            "accepted": [s["accepted"] for s in case["steps"]],
        },
        {
            "output": [[*q.prompt, *r.tokens][: len(t)] for q, r, t in zip(requests, got, case["texts"], strict=True)],
            "verified": [[row[n][0] for row in rows] for n in calls],
            "accepted": [[row[n][1] for row in rows] for n in calls],
        },
    )


def draft_by_load(case: Case, backend: str) -> Columns:
    """The recording ends while all sequences go on."""
    models = {
        "target": untied(case["size"], case["seed"], window=None),
        "drafter": untied(case["size"], case["seed"], window=None, blend=(99, case["apart"]), name="drafter"),
    }
    theirs = {"interval": "update_interval", "warmup": "warmup_batches", "alpha": "ema_alpha"}
    session = decgraph.load("draft_by_load").session(
        models, backend=backend, start=case["start"], **{ours: case[name] for ours, name in theirs.items()}
    )
    calls, texts = range(case["calls"]), prompts(case)
    requests = [Request(prompt=p, max_tokens=8 * (case["calls"] + 1), temperature=0, request_id=n) for n, p in enumerate(texts)]
    got = session.generate(requests, batch=len(requests), keep_events=True)
    for r in got:
        if r.error is not None:
            raise r.error
    rows = [steps(r)[: case["calls"]] for r in got]
    kept = [sum(accepted + 1 for _, accepted in row) for row in rows]
    assert all({row[i][0] for row in rows} == {rows[0][i][0]} for i in calls)
    return {
        "lengths": [rows[0][i][0] for i in calls],
        "accepted": [[row[i][1] for row in rows] for i in calls],
        "texts": [(*p, *r.tokens[:n]) for p, r, n in zip(texts, got, kept, strict=True)],
    }


ENTRIES = [
    Entry("more/tetris", "tetris", tetris, triton=1, note="all sequences of a case are one batch"),
    recorded("draft_by_load", draft_by_load, note="all sequences of a case are one batch"),
]
