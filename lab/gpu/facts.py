"""What the machine is: device, versions, bandwidth of a copy, time to start a kernel, time to wait for one value."""

from __future__ import annotations

import time

import torch

from decgraph.bench import machine
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row


def stage(lab: Lab) -> Items:
    """The items of the stage `facts`."""
    yield "machine", lambda: about(lab)
    yield "bandwidth", lambda: bandwidth(lab)
    yield "launches", lambda: launches(lab)


def about(lab: Lab) -> Row:
    """Versions, and what the device says of itself."""
    row: Row = dict(machine.facts())
    name = row["processor"]
    if lab.cuda:
        seen = torch.cuda.get_device_properties(lab.device)
        name = seen.name
        row["gpu"] = {
            "name": name,
            "memory": seen.total_memory,
            "multiprocessors": seen.multi_processor_count,
            "capability": f"{seen.major}.{seen.minor}",
            "cuda": torch.version.cuda,
        }
    try:
        import triton

        row["versions"]["triton"] = triton.__version__
    except ImportError:
        row["versions"]["triton"] = "absent"
    row["says"] = f"{name}; torch {torch.__version__}, transformers {row['versions']['transformers']}"
    return row


def bandwidth(lab: Lab) -> Row:
    """Bytes read and written a second by a copy."""
    gbs = lab.copy_bandwidth() / 1e9
    return {"copied_bytes": lab.sizes.copied, "gb_per_s": round(gbs, 1), "says": f"{gbs:.0f} GB/s read and written by a copy"}


def launches(lab: Lab, count: int = 2000) -> Row:
    """Microseconds of the host a small operation, and of a small operation whose value the host waits for."""
    x = torch.zeros(16, device=lab.device)

    def many() -> None:
        for _ in range(count):
            x.add_(1)

    def waited() -> None:
        for _ in range(100):
            float(x.sum())

    lab.seconds(many, 1, 1)
    started = time.perf_counter()
    many()
    issued = 1e6 * (time.perf_counter() - started) / count
    done = 1e6 * lab.seconds(many, 5, 1).median / count
    wait = 1e6 * lab.seconds(waited, 5, 1).median / 100
    return {
        "issue_us": round(issued, 2),
        "done_us": round(done, 2),
        "wait_us": round(wait, 2),
        "says": f"{issued:.1f} us to issue an operation, {done:.1f} us with its run, {wait:.1f} us to read one value",
    }
