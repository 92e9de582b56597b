"""The stages `kernels`, every family against float64, and `timings`, the same families against the bandwidth of a copy."""

from __future__ import annotations

import os
from functools import partial

from decgraph.bench.gpu import attention, products, rows, small
from decgraph.bench.gpu.lab import Lab
from decgraph.bench.gpu.report import Items, Row

FAMILIES = {"rows": rows, "attention": attention, "products": products, "small kernels": small}


def stage(lab: Lab) -> Items:
    """Whether anything is wrong at all."""
    for name, family in FAMILIES.items():
        yield f"{name}, checked", partial(family.checks, lab)
    yield "machine code", partial(machine_code, lab)


def timings(lab: Lab) -> Items:
    """How near they come to a copy, and to what torch does."""
    for family in FAMILIES.values():
        yield from family.stage(lab)


def machine_code(lab: Lab) -> Row:
    """Registers and spills of every kernel by the Triton that is here, which is another version than where they are made."""
    from decgraph.bench import cubins

    if not lab.cuda:
        return {"says": "tests/backends/triton/cubin compiles them where there is no GPU"}
    made = cubins.compiled(cubins.unique(cubins.everything()), os.cpu_count() or 1)
    found = [r for reports in made for r in reports]
    wrong = cubins.faults(found)
    spilled = {f"{r.name}, sm_{r.arch}": r.spills for r in found if r.spills}
    return {"kernels": len(made), "wrong": wrong, "spilled": spilled, "right": not [r for r in found if r.error],
            "says": f"{len(made)} kernels compiled for sm_80 and sm_90, {len(wrong)} spill or are too large"}
