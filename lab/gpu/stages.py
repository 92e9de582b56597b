"""The stages by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from lab.gpu import canvases, decoding, facts, forwards, kernels, products, speed, steps, tokens, tuning
from lab.gpu.lab import Lab
from lab.gpu.report import Items

STAGES: dict[str, Callable[[Lab], Items]] = {
    "facts": facts.stage,
    "kernels": kernels.stage,
    "tuning": tuning.stage,
    "timings": kernels.timings,
    "products": products.stage,
    "steps": steps.stage,
    "tokens": tokens.stage,
    "decoding": decoding.stage,
    "canvas": canvases.on_device,
    "decoder": forwards.stage,
    "speed": speed.stage,
    "masked": canvases.stage,
    "cubins": kernels.cubins,
    "compiled": forwards.compiling,
}
