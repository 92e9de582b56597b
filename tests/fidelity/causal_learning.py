"""The entries of drafters that learn while they serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.entry import recorded

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request
from lab.recordings.chains import models
from lab.recordings.learning import LIMIT


def online_sd(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """One session over all requests."""
    params = {name: case[name] for name in ("gamma", "every", "rate")}
    session = decgraph.load("online_sd").session(models(case), plan=Plan(backend=backend), **params, behind=True)
    found: dict[str, Any] = {"tokens": [], "bias": []}
    for request in range(case["requests"]):
        prompt = (*case["prompt"], request % case["size"])
        done = session.run(Request(prompt, max_tokens=LIMIT, temperature=0))
        assert done.error is None, done.error
        found["tokens"].append([*prompt, *done.tokens])
        (bias,) = (value for (_, name), value in session.shared.items() if name == "bias")
        found["bias"].append([round(float(x), 3) + 0.0 for x in np.asarray(bias, dtype=np.float64) * np.ones(case["size"])])
    return found


ENTRIES = [recorded("online_sd", online_sd)]
