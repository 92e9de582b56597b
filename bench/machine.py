"""What a benchmark ran on: printed beside every figure, and part of every result file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path


def facts() -> dict[str, object]:
    """Processor, cores, threads, load and versions."""
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
    return {"processor": model, "cores": os.cpu_count(), "threads": os.environ.get("OMP_NUM_THREADS", "unset"),
            "load": round(os.getloadavg()[0], 2), "python": platform.python_version(), "versions": versions}
