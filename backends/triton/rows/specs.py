"""Every kernel of this room at the sizes that real models have: what one test compiles for devices that are not there."""
from __future__ import annotations

import torch

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.rows import functions, truncate
from decgraph.backends.triton.rows.launch import Made

VOCABULARY = 128256
ROWS = 64


def made(size: int, wide: bool = False) -> dict[str, Made]:
    """The programs of functions.py for a vocabulary, by name."""
    f = functions
    programs = {
        "softmax": (f._softmax, "", 1.0), "shaped": (f._softmax, "shared", 0.7), "shaped_rows": (f._softmax, "rows", 0.7),
        "argmax": (f._argmax, ""), "draw": (f._draw,), "draw_logits": (f._draw_logits, "", 0.7), "topk": (f._topk, 32),
        "entropy": (f._entropy,), "confidence": (f._confidence, 1.0, ""), "margin": (f._margin,), "without": (f._without, 8),
        "draw_many": (f._draw_many, 8), "residual": (f._residual,),
    }
    return {name: f._made(build, size, wide, *options) for name, (build, *options) in programs.items()}


def specs() -> list[Spec]:
    """Whole and split rows, bfloat16 logits of real models and float64 tables."""
    out = truncate.specs(VOCABULARY)
    for m in made(VOCABULARY).values():
        out += m.specs(ROWS)
        out += m.specs(1024)
    for m in made(100, wide=True).values():
        out += m.specs(8, torch.float64)
    return out
