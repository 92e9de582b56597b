"""The entries of chains whose length follows the drafter's signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.watched import run

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


ENTRIES = [recorded("speckv", speckv)]
