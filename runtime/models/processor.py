"""What the processor is and can do."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

import torch


@lru_cache(maxsize=1)
def features() -> str:
    """The processor's name and features, as far as the system says."""
    said = {torch.backends.cpu.get_cpu_capability()}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return " ".join([*said, platform.processor()])
    return "\n".join(sorted(said | {line for line in lines if line.startswith(("model name", "flags", "Features"))}))
