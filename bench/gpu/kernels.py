"""The stage `kernels`: every family against float64 first, then timed."""

from __future__ import annotations

from functools import partial

from decgraph.bench.gpu import attention, rows
from decgraph.bench.gpu.lab import Lab
from decgraph.bench.gpu.report import Items

FAMILIES = {"rows": rows, "attention": attention}


def stage(lab: Lab) -> Items:
    for name, family in FAMILIES.items():
        yield f"{name}, checked", partial(family.checks, lab)
    for family in FAMILIES.values():
        yield from family.stage(lab)
