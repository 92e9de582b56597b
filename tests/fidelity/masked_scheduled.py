"""The entries of masked decoders with a schedule of noise for every cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.canvases import MASK, run
from fidelity.entry import recorded
from fidelity.recorded_noise import Recorded

from lab.recordings.schedules import canvas, uniforms


def hyperschedule(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """By the canvas of a call: what differs from the call before."""
    start = len(case["prompt"])

    def noise(key: Recorded, n: int) -> np.ndarray:
        cells = [-1 if c == MASK else c for c in key.cells[start:]]
        return uniforms(case["seed"], cells, n, *(key.lane if n == 1 else ()))

    names = ("steps", "delay", "block", "eta")
    params = {name: case[name] for name in names}
    model, shaping = canvas(case["size"], case["seed"]), {"temperature": 1}
    done = run("hyperschedule", model, case["prompt"], case["length"], backend, shaping=shaping, noise=noise, **params)
    cells = [tuple(-1 if c == MASK else c for c in call.cells[start:]) for call in done.calls]
    seen = [c for i, c in enumerate(cells) if i == 0 or c != cells[i - 1]]
    return {"output": done.output, "canvases": seen if seen[-1] != done.output[start:] else seen[:-1]}


ENTRIES = [recorded("hyperschedule", hyperschedule, kind="masked", backends=("torch", "reference"))]
