"""Drafting while the target verifies: PEARL, DuoDecoding, SpecBranch.

In published code the text holds what is pending; `pending` says how many of its last tokens the target has not confirmed.
Beside the target's calls, the tokens that a round drafts are compared, and what it makes of the text.
"""

from __future__ import annotations

from typing import Any

from fidelity.entry import Case, Columns, recorded
from fidelity.given_noise import given
from fidelity.watched import Call, watching

import decgraph
from decgraph.backends.registry import machine
from decgraph.passes.plan import Plan
from decgraph.runtime import trace
from decgraph.runtime.request import Request
from lab.recordings.two_processes import models


def ours(program: str, **names: str) -> Any:
    """A program as columns, up to the round in which what is confirmed and pending reaches the limit. names: its parameters,
    by the case's name for each."""

    def made(case: Case, backend: str) -> Columns:
        params = {name: case[theirs] for name, theirs in names.items()}
        session = decgraph.load(program).session(models(case), plan=Plan(backend=backend), **params)
        events: list[Any] = []
        session.machine = watching(machine(backend), events)
        more = {"top_p": case["top_p"]} if case["top_p"] else {}
        limit = case["limit"] + 60
        request = Request(tuple(case["prompt"]), max_tokens=limit, temperature=case["temperature"], **more)
        with given(case["seed"]):
            result = session.run(request, listener=events.append)
        assert result.error is None, result.error
        end, text = len(case["prompt"]) + case["limit"], [*case["prompt"], *result.tokens]
        pending, drafted, confirmed = [], [], []
        at, grown = len(case["prompt"]), set()
        paths: dict[int, tuple[int, ...]] = {}
        for e in events:
            match e:
                case Call():
                    pending.append((e.past, max(e.drafted, key=len, default=())))
                case trace.Drafted():
                    paths[e.node] = (*paths.get(e.parent, ()), e.token)
                    grown = (grown - {paths[e.node][:-1]}) | {paths[e.node]}
                case trace.Committed():
                    at += len(e.tokens)
                    drafted.append(sorted(grown))
                    confirmed.append(at)
                    grown, paths = set(), {}
        reached = (i + 1 for i, n in enumerate(confirmed) if n + len(pending[i + 1][1]) >= end)
        rounds = next(reached)
        return {
            "tokens": text[: min(confirmed[rounds - 1], end)],
            "pending": pending[:rounds],
            "drafted": drafted[:rounds],
            "confirmed": confirmed[:rounds],
        }

    return made


ENTRIES = [
    recorded("pearl", ours("pearl", gamma="gamma")),
    recorded("duodecoding", ours("duodecoding", budget="gamma")),
    recorded("specbranch", ours("specbranch", gamma="gamma", k="k")),
]
