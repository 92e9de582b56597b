"""The first minutes on a GPU, from a bare checkout: what has never been run on one, checked and measured.

    python lab/gpu/first.py [--out first.json] [--device cuda|cpu] [--sizes 8b|tiny] [--only doors,capture] [--seconds 560]

Seven steps in the order of what is most likely to be wrong. Every item has a limit in seconds, and the result file is written after
each one, so a run that is stopped loses one item. Where a kernel breaks the device, another process goes on with the next.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *(p for p in sys.path if Path(p or ".").resolve() != ROOT / "lab" / "gpu")]

from lab.gpu.run import LOST, from_checkout, supervised  # noqa: E402  # the path is set above

from_checkout()

if TYPE_CHECKING:
    from lab.gpu.lab import Lab
    from lab.gpu.report import Items, Row

LIMITS = {"machine": 30, "doors": 130, "tables": 160, "kernels": 90, "steps": 100, "tokens": 60, "capture": 100}
"""Seconds of an item on a GPU (six times as much on a CPU)."""


def machine(lab: Lab) -> Items:
    """1. What the machine is, a copy's bandwidth, and what a node of a CUDA graph costs."""
    yield "machine", partial(about, lab)
    yield "costs", partial(costs, lab)


def about(lab: Lab) -> Row:
    """Versions, and what the device says of itself."""
    import torch
    import triton

    from decgraph.bench import machine as host

    row: Row = dict(host.facts())
    row["versions"]["triton"] = triton.__version__
    if lab.cuda:
        row["gpu"] = str(torch.cuda.get_device_properties(lab.device))
        row["processor"] = torch.cuda.get_device_name(lab.device)
    row["says"] = f"{row['processor']}; " + ", ".join(f"{name} {v}" for name, v in row["versions"].items())
    return row


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


def doors(lab: Lab) -> Items:
    """2. `decgraph run` and `decgraph serve`: device, dtype, mode, and the tokens of the CPU."""
    from lab.gpu import doors as of

    return of.stage(lab)


def tables(lab: Lab) -> Items:
    """3. Every algorithm on table models, both backends, against the reference."""
    from lab.gpu import tokens as of

    for backend in ("triton", "torch"):
        yield f"tables, {backend}", partial(of.tables, lab, backend, () if lab.cuda else ("speculative", "fast_dllm"))


def kernels(lab: Lab) -> Items:
    """4. Kernels against float64 in poisoned memory, and their times."""
    from lab.gpu import kernels as of

    return of.stage(lab)


def steps(lab: Lab) -> Items:
    """5. Decoding steps over the time that reading the weights takes."""
    from lab.gpu import steps as of

    return of.stage(lab)


def tokens(lab: Lab) -> Items:
    """6. Random models in float32 against `generate`."""
    from lab.gpu import tokens as of

    return of.stage(lab)


def capture(lab: Lab) -> Items:
    """7. What captured steps must bear."""
    from lab.gpu import doors as of

    yield "another thread allocates", partial(beside, lab)
    yield "two temperatures in a batch", partial(mixed, lab)
    yield "first token, cold and warm", partial(of.cold, lab)


@contextmanager
def allocating(lab: Lab) -> Iterator[None]:
    """Another thread allocates and frees memory of the device."""
    import torch

    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.001):
            torch.zeros(1 << 16, device=lab.device).sum().item()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def compared(lab: Lab, name: str, requests: list[Any], **given: Any) -> list[str]:
    """Where an algorithm on the shipped models has other tokens on the device than on the CPU, or no step."""
    import decgraph
    from lab.gpu.doors import ALGORITHMS

    ran = []
    for device, backend in (("cpu", "torch"), (lab.device.type, "triton")):
        session = decgraph.load(name).session(device=device, dtype="float32", backend=backend, **ALGORITHMS[name])
        ran.append(session.generate(requests, **given))
    return [
        f"{name} {n}: {there.error or there.tokens} for {here.tokens}, {there.mode}"
        for n, (here, there) in enumerate(zip(*ran, strict=True))
        if here.tokens != there.tokens or there.mode != "graph mode"
    ]


def judged(wrong: list[str]) -> Row:
    """The row of comparisons."""
    return {"right": not wrong, "wrong": wrong, "says": "equal, in graph mode" if not wrong else "; ".join(wrong)}


def beside(lab: Lab) -> Row:
    """Capture is local to its thread."""
    from lab.gpu.doors import ALGORITHMS, PROMPT

    names = ALGORITHMS if lab.cuda else ["speculative"]
    with allocating(lab):
        return judged([w for name in names for w in compared(lab, name, [PROMPT], limit=8, temperature=0.8, seed=3)])


def mixed(lab: Lab) -> Row:
    """Two lanes, five requests at two temperatures: lanes are refilled while the other one goes on."""
    from decgraph.runtime.request import Request

    asked = [Request((5 + n, 9, 11), limit=4 + 3 * n, temperature=0.8 * (n % 2), seed=3, request_id=n) for n in range(5)]
    return judged(compared(lab, "speculative", asked, batch=2))


STEPS: dict[str, Callable[[Lab], Items]] = {f.__name__: f for f in (machine, doors, tables, kernels, steps, tokens, capture)}


def main(arguments: list[str]) -> int:
    """Run the steps in this process. 0: every item went well; 1: one failed, or a comparison did not hold; LOST: the device is lost,
    and another process has to go on."""
    parser = argparse.ArgumentParser(prog="python lab/gpu/first.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("first.json"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--sizes", choices=("8b", "tiny"))
    parser.add_argument("--only", default="", help=f"some of {', '.join(STEPS)}")
    parser.add_argument("--seconds", type=float, help="no item begins after that long (560; on a CPU 3600)")
    parser.add_argument("--resume", action="store_true", help="go on with the result file of a process that ended")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["TRITON_INTERPRET"] = "0" if asked.device == "cuda" else "1"  # before anything imports triton
    warnings.filterwarnings("ignore", category=FutureWarning)
    import torch

    import decgraph.backends.triton  # noqa: F401  # it says how kernels are rounded, before triton is imported
    from lab.gpu.lab import SIZES, Lab
    from lab.gpu.report import Lost, Report

    only = [name for name in asked.only.split(",") if name]
    if unknown := sorted(set(only) - set(STEPS)):
        parser.error(f"no step is called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu --sizes tiny tries the script itself")
    lab = Lab(torch.device(asked.device), SIZES[asked.sizes or ("8b" if asked.device == "cuda" else "tiny")])
    seconds = asked.seconds or (560 if lab.cuda else 3600)
    about = {"device": asked.device, "sizes": lab.sizes.name}
    report = Report(asked.out, seconds, about, resumed=asked.resume, alive=lab.alive)
    try:
        for name, step in STEPS.items():
            if not only or name in only:
                report.run(name, step(lab), LIMITS[name] * (1 if lab.cuda else 6))
    except Lost as lost:
        print(lost, flush=True)
        return LOST
    report.finish()
    print(report.table())
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]) if sys.argv[1:2] == ["--here"] else supervised(sys.argv[1:], Path(__file__)))
