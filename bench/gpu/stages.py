"""The stages by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from decgraph.bench.gpu import canvases, facts, forwards, kernels, noise, speed, tokens
from decgraph.bench.gpu.lab import Lab
from decgraph.bench.gpu.report import Items

STAGES: dict[str, Callable[[Lab], Items]] = {
    "facts": facts.stage,
    "kernels": kernels.stage,
    "noise": noise.stage,
    "tokens": tokens.stage,
    "capture": forwards.stage,
    "speed": speed.stage,
    "masked": canvases.stage,
    "compiled": forwards.compiling,
}
