"""The first minutes on a GPU, from a bare checkout: what has never been run on one, checked and measured.

    python lab/gpu/first.py [--out first.json] [--device cuda|cpu] [--sizes 8b|tiny] [--only doors,trees] [--seconds 560]

Twelve steps in the order of what is known least; figures stand beside their floors. A supervisor writes what each item found,
ends one that takes too long, and goes on in a new process where one ends before it is done: a kernel may break the device.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.gpu.lab import Lab

LIMITS = {
    "machine": 40, "doors": 130, "trees": 90, "compiled": 120, "attention": 60, "pages": 60, "speculative": 90, "fast_dllm": 60,
    "cold": 90, "rows": 40, "kernels": 90, "tables": 160,
}  # fmt: skip
"""Seconds of an item on a GPU (six times as much on a CPU)."""
START = 120  # seconds between items
MARK = "\x1e"  # begins the lines that the process tells its supervisor
ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]  # JSON; `says` is its line in the table, `right` False where a comparison did not hold
Items = Iterator[tuple[str, Callable[[], Row]]]


def from_checkout() -> None:
    """Make `import decgraph` and `import lab` find this checkout: the package's rooms are folders at the root, so it has two
    places. Nothing need be installed."""
    sys.path[:] = [str(ROOT), *(p for p in sys.path if Path(p or ".").resolve() != ROOT / "lab" / "gpu")]
    if "decgraph" not in sys.modules:
        folder, places = ROOT / "decgraph", [str(ROOT / "decgraph"), str(ROOT)]
        spec = importlib.util.spec_from_file_location("decgraph", folder / "__init__.py", submodule_search_locations=places)
        assert spec is not None and spec.loader is not None
        sys.modules["decgraph"] = made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)


from_checkout()


def tell(**said: Any) -> None:
    """A line for the supervisor."""
    print(MARK + json.dumps(said), flush=True)


def supervised(command: Sequence[str], out: Path, about: Row, limits: Mapping[str, float], most: int = 6) -> list[str]:
    """Run a command until it ends well; `--skip` tells it what is done. limits: seconds of an item, by the first word of its
    name. Returns the names of the items that failed or did not hold."""
    wrong: list[str] = []
    data: Row = {"about": {**about, "when": time.strftime("%Y-%m-%d %H:%M:%S")}, "items": {}, "wrong": wrong}

    def keep(name: str, row: Row, seconds: float) -> None:
        data["items"][name] = {**row, "seconds": round(seconds, 1)}
        wrong.extend([name] if row.get("right") is False else [])
        out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(f"{name:<44} {seconds:6.1f} s  {row['says']}", flush=True)

    for _ in range(most):
        skipping = [*command, "--skip", json.dumps(list(data["items"]))]
        process = subprocess.Popen(skipping, stdout=subprocess.PIPE, text=True, start_new_session=True)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        running, began, limit, why = "", time.monotonic(), float(START), "its process ended"
        while True:
            try:
                said = lines.get(timeout=max(began + limit - time.monotonic(), 0.01))
            except queue.Empty:
                said, why = None, f"longer than {limit:g} s"
            if said is None:
                break
            if not said.startswith(MARK):
                print(said, end="", flush=True)
                continue
            told = json.loads(said[1:])
            if "row" in told:
                keep(running, told["row"], time.monotonic() - began)
            running, began = told.get("begins", ""), time.monotonic()
            limit = limits[running.split(":")[0]] if running else START
        code = process.wait() if why == "its process ended" else None
        with suppress(ProcessLookupError):  # with what it started: nothing must keep the device
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if code == 0 and not running:
            break
        keep(running or f"process {process.pid}", {"right": False, "says": f"FAILED: {why}"}, time.monotonic() - began)
    print(f"wrong: {', '.join(wrong) or 'nothing'}; {out}")
    return wrong


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def stages() -> dict[str, Callable[[Lab], Items]]:
    """The steps, imported where they run."""
    from lab.gpu import kernels, lab, steps, tokens

    every = [lab.stage, tokens.doors, steps.trees, steps.compiled, kernels.attention, steps.pages, steps.speculative]
    every += [steps.masked, tokens.capture, kernels.vocabulary, kernels.stage, tokens.tables]
    return dict(zip(LIMITS, every, strict=True))


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
        for what, work in items(lab) if stage in asked.only.split(",") else ():
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
    for hidden in ("--skip", "--until"):
        parser.add_argument(hidden, type=float if hidden == "--until" else str, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    asked.sizes = asked.sizes or ("8b" if asked.device == "cuda" else "tiny")
    if asked.skip is not None:
        return here(asked)
    if unknown := sorted(set(asked.only.split(",")) - set(LIMITS)):
        parser.error(f"no step is called {', '.join(unknown)}; there are {', '.join(LIMITS)}")
    import torch

    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu --sizes tiny tries the script itself")
    slow = 1 if asked.device == "cuda" else 6
    command = [sys.executable, *(["-S"] if sys.flags.no_site else []), __file__, *arguments]
    command += ["--until", str(time.time() + slow * asked.seconds)]
    limits = {name: slow * limit for name, limit in LIMITS.items()}
    return 1 if supervised(command, asked.out, {"device": asked.device, "sizes": asked.sizes}, limits) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
