"""The stages `kernels`, every family against float64, `timings`, the same families against the bandwidth of a copy, and
`cubins`, what the Triton that is there makes of all of them."""

from __future__ import annotations

import os
from functools import partial

import torch

from decgraph import stdlib
from decgraph.backends.triton.cubin import Report, Spec, report
from lab.gpu import attention, rows, small
from lab.gpu.lab import Lab
from lab.gpu.pool import spread
from lab.gpu.report import Items, Row

FAMILIES = {"rows": rows, "attention": attention, "small kernels": small}


def stage(lab: Lab) -> Items:
    """Whether anything is wrong at all."""
    for name, family in FAMILIES.items():
        yield f"{name}, checked", partial(family.checks, lab)


def timings(lab: Lab) -> Items:
    """How near they come to a copy, and to what torch does."""
    for family in FAMILIES.values():
        yield from family.stage(lab)


def cubins(lab: Lab) -> Items:
    """Another version of Triton than where kernels are written compiles them there."""
    yield "machine code", partial(machine_code, lab)


def machine_code(lab: Lab) -> Row:
    """Registers and spills of every kernel for the device that is here."""
    from lab.gpu import cubins as listed

    if not lab.cuda:
        return {"says": "tests/backends/triton/cubin compiles them where there is no GPU"}
    arch = 10 * torch.cuda.get_device_capability(lab.device)[0]
    every, left = list[Spec](), dict[str, str]()
    for name in (*listed.AREAS, *stdlib.names()):
        try:
            every += listed.everything([name])
        except Exception as error:  # some are listed by running them on the CPU, which only an interpreter does
            left[name] = f"{type(error).__name__}: {error}"[:200]
    specs = [spec for spec in listed.unique(every) if not spec.arches or arch in spec.arches]
    made = spread(lab, compiled, [(spec, arch) for spec in specs], os.cpu_count() or 1)
    found = [Report(spec.name, arch, error=r) if isinstance(r, str) else r for spec, r in zip(specs, made)]
    wrong = listed.faults(found)
    return {
        "kernels": len(found),
        "left_out": left,
        "wrong": wrong,
        "right": not any(r.error for r in found),
        "most_registers": sorted(((r.registers, r.name) for r in found), reverse=True)[:8],
        "says": f"{len(found)} kernels compiled for sm_{arch}, {len(wrong)} fail, spill or are too large",
    }


def compiled(_: Lab, task: tuple[Spec, int]) -> Report:
    """One kernel, in a process that interprets nothing."""
    return report(*task)
