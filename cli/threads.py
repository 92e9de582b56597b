"""The number of threads of a command, unless the environment sets it. To be called before torch is imported."""

from __future__ import annotations

import os


def few() -> None:
    """Half the cores, which sleep while they wait: small models lose more to threads that wait for each other than they gain,
    and on a machine with other work threads that spin take the core from those that they wait for."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) // 2)))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
