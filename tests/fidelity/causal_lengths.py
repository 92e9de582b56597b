"""The entries of chains whose length, or whose drafter, follows its signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.watched import run

from lab.recordings import nested
from lab.recordings.chains import models
from lab.recordings.draft_lengths import accepted


def speckv(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The steps in full, also where they reach beyond the limit."""
    found: dict[str, Any] = {"drafted": [], "accepted": []}
    done = run(
        "speckv", case["prompt"], models(case), backend, max_tokens=case["limit"] + 9, externs={"accepted": accepted},
        level=case["level"],
    )  # fmt: skip
    end = len(case["prompt"]) + case["limit"]
    for call in done.calls:
        if call.past < end:
            found["drafted"].append(len(call.drafted))
            found["accepted"].append(call.accepted)
    return {"tokens": done.tokens[:end], **found}


def s2d(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The steps in full, also where they reach beyond the limit."""
    params = {name: case[name] for name in ("gamma", "tau", "tau_middle")}
    done = run("s2d", case["prompt"], nested.models(case), backend, max_tokens=case["limit"] + 9, **params)
    end = len(case["prompt"]) + case["limit"]
    calls = [call for call in done.calls if call.past < end]
    chains = [max(call.drafted, key=len) for call in calls]
    return {"tokens": done.tokens[:end], "drafted": chains, "accepted": [call.accepted for call in calls]}


ENTRIES = [recorded("speckv", speckv), recorded("s2d", s2d)]
