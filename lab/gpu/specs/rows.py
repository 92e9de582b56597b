"""Every kernel of this room at the sizes that real models have: what one test compiles for devices that are not there."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.rows import functions, truncate
from decgraph.backends.triton.rows.launch import Made
from decgraph.backends.triton.rows.shown import made_of
from decgraph.ir.values import Module, Op, Region
from decgraph.ir.vocabulary import on_rows

VOCABULARY = 128256
ROWS = 64


def made(size: int, *, wide: bool = False) -> dict[str, Made]:
    """The programs of functions.py for a vocabulary, by name."""
    f = functions
    programs = {
        "softmax": (f._softmax, "", False),
        "shaped": (f._softmax, "shared", True),
        "shaped_rows": (f._softmax, "rows", True),
        "argmax": (f._argmax, ""),
        "draw": (f._draw,),
        "draw_logits": (f._draw_logits, "", True),
        "topk": (f._topk, 32),
        "entropy": (f._entropy,),
        "confidence": (f._confidence, "", False),
        "margin": (f._margin,),
        "without": (f._without, 8),
        "draw_many": (f._draw_many, 8),
        "residual": (f._residual,),
    }
    return {name: f._made(build, size, wide, *options) for name, (build, *options) in programs.items()}


def specs() -> list[Spec]:
    """The kernels of functions.py: whole and split rows of real models' bfloat16 logits, and of float64 tables."""
    out = truncate.specs(VOCABULARY)
    for m in made(VOCABULARY).values():
        out += m.specs(ROWS)
        out += m.specs(1024)
    for m in made(100, wide=True).values():
        out += m.specs(8, torch.float64)
    return out


def ops_on_rows(module: Module) -> list[Op]:
    """The vocabulary segments and the ops on rows that stand alone, of all functions and rules of a module."""
    found: list[Op] = []

    def visit(region: Region) -> None:
        for op in region.ops:
            if op.opcode == "segment" and op.attrs["kind"] == "vocabulary" or on_rows(op):
                found.append(op)
            else:
                for r in op.regions:
                    visit(r)

    for f in module.functions.values():
        visit(f.body)
    return found


def specs_of(modules: Iterable[Module]) -> list[Spec]:
    """The kernels that the rows of modules make of a real model's bfloat16 logits, each once."""
    found: dict[str, list[Spec]] = {}
    for module in modules:
        for op in ops_on_rows(module):
            for m in made_of(op, VOCABULARY, torch.bfloat16):
                text = "\n".join(line.split("  #")[0] for line in m.text().replace(m.program.name, "kernel").splitlines())
                found.setdefault(text, m.specs(ROWS))
    return [s for each in found.values() for s in each]
