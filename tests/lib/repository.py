"""The repository as the tests in tests/repo see it: rooms, files, modules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lib.waiting import SECONDS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "dsl", "ir", "passes", "backends", "runtime", "check", "stdlib", "zoo", "hf", "bench", "serve", "editor", "scale", "views",
    "cli",
)  # fmt: skip

# What lies here may import torch and its family at the top of a file; everyone else does so in functions.
HEAVY_FOLDERS = (
    "runtime/models", "runtime/native", "zoo", "backends/torch", "backends/triton", "backends/seams", "bench", "decgraph/evals",
)  # fmt: skip
HEAVY_FILES = {"hf/batching.py"}
"""Files whose classes have one of transformers for a base."""

# Names and pages may be missing until the thread from text to proof stands; from then on none may.
LANDED = all((ROOT / file).exists() for file in ("stdlib/speculative.dec", "cli/run.py", "cli/check.py", "check/report.py"))


def module_name(path: Path) -> str:
    """`ir/ops/draws.py` -> `decgraph.ir.ops.draws`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "decgraph" else ("decgraph", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_files(*rooms: str) -> Iterator[Path]:
    """Every Python file of these rooms (all rooms and the facade when none is named), in a fixed order."""
    for room in rooms or ("decgraph", *ROOMS):
        yield from sorted(path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def may_be_heavy(path: Path) -> bool:
    """A room's own `__init__.py` may not: importing the room must stay cheap."""
    if path.name == "__init__.py":
        return False
    name = path.relative_to(ROOT).as_posix()
    return name in HEAVY_FILES or name.startswith(tuple(f"{folder}/" for folder in HEAVY_FOLDERS))


def python(code: str) -> str:
    """What a fresh interpreter prints, started away from the repository root."""
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
