"""What a benchmark ran on: printed beside every figure, and part of every result file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path


def facts() -> dict[str, object]:
    """Processor, cores, threads, load and versions.

    `threads` is what torch computes with where torch is loaded, else what OMP_NUM_THREADS says. `load` is the machine's
    load average of the last minute: above the number of cores, others were waiting for the processor as well.
    """
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    versions = {}
    for name in ("decgraph", "lark", "numpy", "torch", "transformers"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    threads: object = os.environ.get("OMP_NUM_THREADS", "unset")
    if "torch" in sys.modules:
        threads = sys.modules["torch"].get_num_threads()
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": threads,
        "load": load(),
        "python": platform.python_version(),
        "versions": versions,
    }


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)
