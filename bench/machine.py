"""What a benchmark ran on: printed beside every figure, and part of every result file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from decgraph.runtime.tune.facts import load, processor

__all__ = ["facts", "load", "named"]


def facts(*packages: str) -> dict[str, Any]:
    """Processor, its instructions, cores, threads, load and versions, also of further packages.

    `instructions`: those that torch computes with (AVX2, AVX512), where torch is loaded: the same name is sold with and without
    AVX-512, and ratios differ. `threads` is what torch computes with where torch is loaded, else what OMP_NUM_THREADS says.
    `load` is the machine's load average of the last minute: above the number of cores, others were waiting for the processor
    as well.
    """
    versions = {}
    for name in ("decgraph", "lark", "numpy", "torch", "transformers", *packages):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    threads: object = os.environ.get("OMP_NUM_THREADS", "unset")
    instructions = ""
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        threads, instructions = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    return {
        "processor": processor(),
        "instructions": instructions,
        "cores": os.cpu_count(),
        "threads": threads,
        "load": load(),
        "python": platform.python_version(),
        "versions": versions,
    }


def named(machine: Mapping[str, Any]) -> str:
    """The processor of a result file with its instructions, which older files do not have."""
    said = machine.get("instructions")
    return f"{machine['processor']} with {said}" if said else str(machine["processor"])
