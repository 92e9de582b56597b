"""Since when a command runs, and what it took in words."""

from __future__ import annotations

import os
import time
from pathlib import Path

_IMPORTED = time.perf_counter()


def process_began() -> float:
    """When this process began, by `time.perf_counter`: imports are a part of what a user waits for. Where the system does not
    say, when this file was imported."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    return time.perf_counter() - age


def brief(value: float) -> str:
    """A number of seconds, or of tokens a second, that is never rounded to nothing: 312, 5.0, 0.22, 0.0031."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.95 or value <= 0 else f"{value:.2g}"


def timing(load: float | None, first: float | None, tokens: int, seconds: float) -> str:
    """Load, first call and decoding apart. load: seconds from the process' beginning on; None where models were there. first:
    seconds of the first call; None where it is in what follows. tokens, seconds: of decoding after it."""
    parts = [] if load is None else [f"load {brief(load)} s"]
    if first is not None:
        parts.append(f"first call {brief(first)} s")
    if tokens and seconds > 0:
        within = "" if first is not None else ", first call included"
        parts.append(f"decoding {tokens} tokens in {brief(seconds)} s{within}: {brief(tokens / seconds)} tokens/s")
    return ", ".join(parts)
