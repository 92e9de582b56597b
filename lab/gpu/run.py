"""A checkout as a package, and a supervisor of a process that runs items: it writes what each one found, ends one that takes
too long, and goes on in a new process where one ends before it is done, as where a kernel breaks the device."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MARK = "\x1e"  # begins the lines that the process tells its supervisor
START = 120  # seconds between items
Row = dict[str, Any]  # JSON; `says` is its line in the table, `right` False where a comparison did not hold
Items = Iterator[tuple[str, Callable[[], Row]]]


def from_checkout() -> None:
    """Make `import decgraph` and `import lab` find this checkout: the package's rooms are folders at the root, so it has two
    places. Nothing need be installed."""
    sys.path.insert(0, str(ROOT))
    if "decgraph" in sys.modules:
        return
    folder, places = ROOT / "decgraph", [str(ROOT / "decgraph"), str(ROOT)]
    spec = importlib.util.spec_from_file_location("decgraph", folder / "__init__.py", submodule_search_locations=places)
    assert spec is not None and spec.loader is not None
    sys.modules["decgraph"] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)


def tell(**said: Any) -> None:
    """A line for the supervisor."""
    print(MARK + json.dumps(said), flush=True)


def supervised(command: Sequence[str], out: Path, about: Row, limits: Mapping[str, float], most: int = 6) -> list[str]:
    """Run a command until it ends well; `--skip` tells it what is done. limits: seconds of an item, by the first word of its
    name. Returns the names of the items that failed or did not hold."""
    data: Row = {"about": {**about, "when": time.strftime("%Y-%m-%d %H:%M:%S")}, "items": {}, "wrong": []}

    def keep(name: str, row: Row, seconds: float) -> None:
        data["items"][name] = {**row, "seconds": round(seconds, 1)}
        data["wrong"] += [name] if row.get("right") is False else []
        out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(f"{name:<44} {seconds:6.1f} s  {row['says']}", flush=True)

    for _ in range(most):
        lines: queue.Queue[str | None] = queue.Queue()
        line = [*command, "--skip", json.dumps(list(data["items"]))]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True)
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        running, began, limit = "", time.monotonic(), float(START)
        while True:
            try:
                said = lines.get(timeout=max(began + limit - time.monotonic(), 0.01))
            except queue.Empty:
                said, why = None, f"longer than {limit:g} s"
            else:
                why = "its process ended"
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
        if running or why.startswith("longer"):
            keep(running or "(start)", {"right": False, "says": f"FAILED: {why}"}, time.monotonic() - began)
        with_it = process.poll() if not why.startswith("longer") else None
        try:  # with what it started: nothing must keep the device
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if process.wait() == 0 or with_it == 0:
            break
    print(f"wrong: {', '.join(data['wrong']) or 'nothing'}; {out}")
    wrong: list[str] = data["wrong"]
    return wrong


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
