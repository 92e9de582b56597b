"""The first ten minutes on a GPU, from a bare checkout: what has never been run on one, checked and measured.

    python lab/gpu/first.py [--out first.json] [--device cuda|cpu] [--sizes 8b|tiny] [--only doors,capture]

Seven steps in the order of what is most likely to be wrong. Each has a limit in seconds, and the result file is written after
each item, so a run that is stopped loses one item. Where a kernel breaks the device, another process goes on with the next.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *(p for p in sys.path if Path(p or ".").resolve() != ROOT / "lab" / "gpu")]

from lab.gpu.run import LOST, from_checkout  # noqa: E402  # the path is set above

from_checkout()

if TYPE_CHECKING:
    from lab.gpu.lab import Lab
    from lab.gpu.report import Items, Row

PROMPT = "def f(x):"
ALGORITHMS: dict[str, dict[str, Any]] = {
    "speculative": {},
    "eagle2": {"depth": 3, "k": 4, "budget": 12},
    "fast_dllm": {"length": 16, "block": 8},
}
LIMITS = {"machine": 20, "doors": 60, "tables": 120, "kernels": 40, "steps": 200, "capture": 30, "start": 30}
"""Seconds of each step: an item is broken off when its step has used that much on a GPU (six times as much on a CPU)."""


def machine(lab: Lab) -> Items:
    """1. What the machine is, a copy's bandwidth, and what a node of a CUDA graph costs."""
    from lab.gpu import facts

    yield "machine", partial(facts.about, lab)
    yield "bandwidth", partial(facts.bandwidth, lab)
    yield "launches", partial(facts.launches, lab)
    yield "nodes of a graph", partial(nodes, lab)


def nodes(lab: Lab, count: int = 1000) -> Row:
    """Microseconds of an empty kernel among many in one graph, each after the last one."""
    from lab.gpu.clocks import launch_ms

    import torch  # isort: skip

    x = torch.zeros(16, device=lab.device)
    took = launch_ms(lab, [partial(x.add_, 1)] * (count if lab.cuda else 10))
    us, right = 1000 * took.median, bool((x == x[0]).all()) and float(x[0]) > 0
    return {"us": us, "right": right, "says": f"{us:.2f} us a node"}


def doors(lab: Lab) -> Items:
    """2. `decgraph run`, the same with --json, and a server: device, dtype, and the tokens of the CPU."""
    for name in ALGORITHMS if lab.cuda else ("speculative",):
        yield f"run {name}", partial(door, lab, name)
    yield "serve speculative", partial(served, lab)


def command(name: str, device: str, *more: str) -> list[str]:
    """A command of decgraph as a person types it, in this checkout."""
    given = [word for k, v in ALGORITHMS[name].items() for word in (f"--{k}", str(v))]
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lab.gpu.run import from_checkout; from_checkout(); "
    start += "from decgraph.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", start, *more, *given, "--device", device, "--dtype", "float32"]


def door(lab: Lab, name: str) -> Row:
    """On both backends, with the text appearing and as JSON."""

    def tokens(device: str, backend: str) -> Row:
        line = command(
            name,
            device,
            "run",
            name,
            "-p",
            PROMPT,
            "-n",
            "12" if lab.cuda else "3",
            "-t",
            "0.8",
            "--json",
            "--backend",
            backend,
        )
        found: Row = json.loads(subprocess.run(line, capture_output=True, text=True, check=True, timeout=300).stdout)
        return found

    where = str(lab.device.type)
    plain, there, steps = tokens("cpu", "torch"), tokens(where, "torch"), tokens(where, "triton")
    line = command(name, where, "run", name, "-p", PROMPT, "-n", "12" if lab.cuda else "3", "-t", "0.8", "--backend", "triton")
    text = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300).stdout
    same = plain["tokens"] == there["tokens"] == steps["tokens"]
    right = (
        same and steps["device"].startswith(where) and steps["mode"] == "graph mode" and text.startswith(PROMPT + plain["text"])
    )
    return {"right": right, "cpu": plain["tokens"], "there": there["tokens"], "steps": steps["tokens"], "mode": steps["mode"],
            "says": f"{steps['device']}, {steps['mode']}; tokens {'equal' if same else 'NOT equal'}"}  # fmt: skip


def served(lab: Lab) -> Row:
    """One answer of `decgraph serve`, and what /v1/models says of the device."""
    line = command("speculative", lab.device.type, "serve", "-a", "speculative", "--port", "0", "--json")
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = ""
        while "}" not in said:
            part = server.stdout.readline()
            if not part:
                raise RuntimeError(f"the server ended: {said}")
            said += part
        about = json.loads(said)
        body = {"model": "decgraph", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        kind = {"Content-Type": "application/json"}
        post = urllib.request.Request(f"{about['url']}/completions", json.dumps(body).encode(), kind)
        with urllib.request.urlopen(post, timeout=60) as answer:
            text = json.load(answer)["choices"][0]["text"]
    finally:
        server.terminate()
        server.wait(30)
    import decgraph

    want = decgraph.run("speculative", PROMPT, limit=12, temperature=0, device="cpu", dtype="float32").text
    right = text == want and about["device"].startswith(lab.device.type)
    return {"right": right, "text": text, "cpu": want, "says": f"{about['device']}, {about['dtype']}: {text!r}"}


def tables(lab: Lab) -> Items:
    """3. Every algorithm on table models, both backends, against the reference."""
    from lab.gpu import tokens

    few = () if lab.cuda else ("speculative", "fast_dllm")
    for backend in ("triton", "torch"):
        yield f"tables, {backend}", partial(tokens.tables, lab, backend, few)


def kernels(lab: Lab) -> Items:
    """4. Attention and rows against float64, in memory that is poisoned."""
    from lab.gpu import attention, rows

    yield "attention", partial(attention.checks, lab)
    yield "rows", partial(rows.checks, lab)


def steps(lab: Lab) -> Items:
    """5. Decoding steps as graphs over the time that reading the weights takes: causal, a tree, a canvas; with a profile."""
    from lab.gpu import canvases
    from lab.gpu import steps as of

    yield "models of this size", lab.building
    for case in of.CASES if lab.cuda else of.CASES[:1]:
        yield case.name, partial(of.timed, lab, case)
    if lab.cuda:
        yield from canvases.stage(lab)


def capture(lab: Lab) -> Items:
    """6. What capture must bear: other threads that allocate, and programs for two temperatures beside each other."""
    yield "another thread allocates", partial(beside, lab)
    yield "two temperatures, twice", partial(mixed, lab)


@contextmanager
def allocating(lab: Lab) -> Iterator[None]:
    """Another thread allocates and frees memory of the device."""
    import torch

    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            torch.zeros(1 << 16, device=lab.device).sum().item()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def of_shipped(lab: Lab, name: str, temperature: float, *, backend: str = "triton", device: str = "") -> tuple[Any, str]:
    """The tokens of an algorithm on the shipped models, in graph mode where there is one; and the mode."""
    import decgraph

    where = device or lab.device.type
    session = decgraph.load(name).session(device=where, dtype="float32", backend=backend, **ALGORITHMS[name])
    (got,) = session.generate([PROMPT], limit=8, temperature=temperature, seed=3)
    if got.error is not None:
        raise got.error
    return got.tokens, got.mode


def beside(lab: Lab) -> Row:
    """Capture is local to its thread."""
    names = ALGORITHMS if lab.cuda else ("fast_dllm",)
    want = [of_shipped(lab, name, 0.8, backend="torch", device="cpu")[0] for name in names]
    with allocating(lab):
        got = [of_shipped(lab, name, 0.8) for name in names]
    right = [tokens for tokens, _ in got] == want and all(mode == "graph mode" for _, mode in got)
    modes = sorted({mode for _, mode in got})
    return {"right": right, "modes": modes, "says": f"tokens {'equal' if right else 'NOT equal'}; {', '.join(modes)}"}


def mixed(lab: Lab) -> Row:
    """Captured programs share a memory pool: those of two temperatures are replayed in turn."""
    import decgraph

    name = "speculative" if lab.cuda else "fast_dllm"
    make: Callable[..., Any] = partial(decgraph.load(name).session, dtype="float32", **ALGORITHMS[name])
    near, far = make(device="cpu", backend="torch"), make(device=lab.device.type, backend="triton")
    wrong = []
    for temperature in (0.8, 0.0) * (2 if lab.cuda else 1):
        asked: dict[str, Any] = {"limit": 6, "temperature": temperature, "seed": 3}
        both = [[r.tokens for r in s.generate([PROMPT, "import os"], **asked)] for s in (near, far)]
        wrong += [temperature] if both[0] != both[1] else []
    return {"right": not wrong, "wrong": wrong, "says": "equal" if not wrong else f"NOT equal at {wrong}"}


def start(lab: Lab) -> Items:
    """7. From nothing to the first token: a process, the models, kernels that nothing has compiled."""
    yield "cold, then warm", partial(cold, lab)


def cold(lab: Lab) -> Row:
    """Twice the same command with a cache of its own."""
    line = command("fast_dllm", lab.device.type, "run", "fast_dllm", "-p", PROMPT, "-n", "8", "-q", "--backend", "triton")
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TRITON_CACHE_DIR": folder, "DECGRAPH_CACHE": folder}
        took, texts = [], []
        for _ in range(2 if lab.cuda else 1):
            began = time.perf_counter()
            texts.append(subprocess.run(line, env=env, capture_output=True, text=True, check=True, timeout=300).stdout)
            took.append(time.perf_counter() - began)
    right = len(set(texts)) == 1
    return {"right": right, "seconds": took, "says": ", ".join(f"{s:.1f} s" for s in took)}


STEPS: dict[str, Callable[[Lab], Items]] = {f.__name__: f for f in (machine, doors, tables, kernels, steps, capture, start)}


def main(arguments: list[str]) -> int:
    """Run the steps in this process; the exit codes are run.py's."""
    parser = argparse.ArgumentParser(prog="python lab/gpu/first.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("first.json"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--sizes", choices=("8b", "tiny"))
    parser.add_argument("--only", default="", help=f"some of {', '.join(STEPS)}")
    parser.add_argument("--resume", action="store_true", help="go on with the result file of a process that ended")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["TRITON_INTERPRET"] = "0" if asked.device == "cuda" else "1"  # before anything imports triton
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
    about = {"device": asked.device, "sizes": lab.sizes.name}
    report = Report(asked.out, 600 if lab.cuda else 3600, about, resumed=asked.resume, alive=lab.alive)
    try:
        for name, step in STEPS.items():
            report.limit = LIMITS[name] * (1 if lab.cuda else 6)
            if not only or name in only:
                report.run(name, step(lab))
    except Lost as lost:
        print(lost, flush=True)
        return LOST
    report.finish()
    print(report.table())
    return 1 if report.wrong else 0


def supervised(arguments: list[str], most: int = 6) -> int:
    """As run.py: another process goes on where one ends before it is done."""
    from lab.gpu.run import supervised as go_on

    given = arguments if any(a.startswith("--out") for a in arguments) else [*arguments, "--out", "first.json"]
    return go_on(given, most, script=Path(__file__))


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]) if sys.argv[1:2] == ["--here"] else supervised(sys.argv[1:]))
