"""The first minutes on a GPU, from a bare checkout: what has never been run on one, checked and measured.

    python lab/gpu/first.py [--out first.json] [--device cuda|cpu] [--sizes 8b|tiny] [--only doors,capture] [--seconds 560]

Seven steps in the order of what is most likely to be wrong. Every item has a limit in seconds, and the result file is written
after each one. Where a kernel breaks the device, or never ends, another process goes on with the next item.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *(p for p in sys.path if Path(p or ".").resolve() != ROOT / "lab" / "gpu")]

from lab.gpu.run import Items, Row, from_checkout, supervised, tell  # noqa: E402  # the path is set above

from_checkout()

if TYPE_CHECKING:
    from lab.gpu.lab import Lab

LIMITS = {"machine": 40, "doors": 130, "tables": 160, "kernels": 90, "steps": 120, "tokens": 60, "capture": 120}
"""Seconds of an item on a GPU (six times as much on a CPU)."""


def machine(lab: Lab) -> Items:
    """1. What the machine is, a copy's bandwidth, and what an operation costs."""
    yield "versions", partial(about, lab)
    yield "costs", partial(costs, lab)


def about(lab: Lab) -> Row:
    """Versions, and what the device says of itself."""
    import torch
    import triton

    from decgraph.bench import machine as host

    row: Row = dict(host.facts())
    row["versions"]["triton"] = triton.__version__
    gpu = str(torch.cuda.get_device_properties(lab.device)) if lab.cuda else row["processor"]
    return {**row, "gpu": gpu, "says": f"{gpu}; " + ", ".join(f"{name} {v}" for name, v in row["versions"].items())}


def costs(lab: Lab, count: int = 1000) -> Row:
    """Gigabytes a second of a copy; microseconds to issue an operation, of a node of a graph, and to read one value."""
    import torch

    x = torch.zeros(16, device=lab.device)
    gbs = lab.copy_bandwidth() / 1e9
    node = 1000 * lab.launch_ms([partial(x.add_, 1)] * (count if lab.cuda else 10)).median
    issue = 1e6 / count * lab.seconds(lambda: [x.add_(1) for _ in range(count)], 5, 1).median
    read = 1e4 * lab.seconds(lambda: [float(x[0]) for _ in range(100)], 5, 1).median
    row = {"gb_per_s": gbs, "node_us": node, "issue_us": issue, "read_us": read, "right": bool((x == x[0]).all())}
    return {**row, "says": f"a copy {gbs:.0f} GB/s; an operation {issue:.1f} us, a node {node:.2f} us, one value {read:.1f} us"}


def stages() -> dict[str, Callable[[Lab], Items]]:
    """The steps, imported where they run."""
    from lab.gpu import doors, kernels, steps, tokens

    return {
        "machine": machine,
        "doors": doors.stage,
        "tables": tokens.tables,
        "kernels": kernels.stage,
        "steps": steps.stage,
        "tokens": tokens.stage,
        "capture": doors.capture,
    }


def here(asked: Any) -> int:
    """Run the items in this process. 0: it came to the end, well or not; 1: the device does nothing more."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["TRITON_INTERPRET"] = "0" if asked.device == "cuda" else "1"  # before anything imports triton
    warnings.filterwarnings("ignore", category=FutureWarning)
    import torch

    import decgraph.backends.triton  # noqa: F401  # it says how kernels are rounded, before triton is imported
    from lab.gpu.lab import SIZES, Lab

    lab, done = Lab(torch.device(asked.device), SIZES[asked.sizes]), json.loads(asked.skip)
    for stage, items in stages().items():
        if stage not in asked.only.split(","):
            continue
        for what, work in items(lab):
            name = f"{stage}: {what}"
            if name in done:
                continue
            tell(begins=name)
            try:
                row = {"says": "left out, no time"} if time.time() > asked.until else work()
            except Exception as error:  # whatever it was, it is this item's result
                why = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                row = {"right": False, "says": f"FAILED: {why}", "traceback": traceback.format_exc()[-6000:]}
            tell(row=row)
            if "traceback" in row and not lab.alive():
                return 1
    return 0


def main(arguments: list[str]) -> int:
    """0: every item went well; 1: one failed, or a comparison did not hold."""
    parser = argparse.ArgumentParser(prog="python lab/gpu/first.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("first.json"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--sizes", choices=("8b", "tiny"))
    parser.add_argument("--only", default=",".join(LIMITS), help=f"some of {', '.join(LIMITS)}")
    parser.add_argument("--seconds", type=float, default=560, help="no item begins after that long")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="[]", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    asked.sizes = asked.sizes or ("8b" if asked.device == "cuda" else "tiny")
    if asked.here:
        return here(asked)
    if unknown := sorted(set(asked.only.split(",")) - set(LIMITS)):
        parser.error(f"no step is called {', '.join(unknown)}; there are {', '.join(LIMITS)}")
    import torch

    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu --sizes tiny tries the script itself")
    slow = 1 if asked.device == "cuda" else 6
    command = [sys.executable, *(["-S"] if sys.flags.no_site else []), __file__, "--here", *arguments]
    command += ["--until", str(time.time() + slow * asked.seconds)]
    limits = {name: slow * limit for name, limit in LIMITS.items()}
    return 1 if supervised(command, asked.out, {"device": asked.device, "sizes": asked.sizes}, limits) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
