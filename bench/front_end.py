"""Text to IR: every file of stdlib/, and generated files of growing length.

    .venv/bin/python bench/front_end.py

Prints milliseconds a file (median of 9, after one to warm up) and seconds for generated files of 1,250 to 10,000 lines with
the ratio to the time of half as many lines (2 is linear). Writes bench/results/front_end.json.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from decgraph import stdlib
from decgraph.bench.machine import facts
from decgraph.dsl.lower import load_text
from decgraph.ir.verify import verify

RESULTS = Path(__file__).parent / "results" / "front_end.json"


def milliseconds(text: str, path: str, times: int = 9) -> float:
    """The median time from text to verified IR."""
    verify(load_text(text, path))
    took = []
    for _ in range(times):
        started = time.perf_counter()
        verify(load_text(text, path))
        took.append(1000 * (time.perf_counter() - started))
    return round(statistics.median(took), 2)


def generated(lines: int) -> str:
    """A file of about `lines` lines: algorithms of 25 lines each, with drafts, branches and loops."""
    body = [
        "    refines autoregressive(target) in distribution",
        "    state seen: int = 0",
        "",
        "    while not done:",
        "        draft t:",
        "            repeat gamma:",
        "                q = drafter(t.leaves)",
        "                if seen > 3:",
        "                    s = max(q.raw) * 0.5",
        "                else:",
        "                    s = max(q.raw)",
        "                x ~ q",
        "                grow x",
        "                break if any(s < 0.1)",
        "        p = target(t)",
        "        verify t by rejection against p",
        "        n = t.accepted.depth",
        "        for i in 0..gamma:",
        "            n = n + 1 if i > 2 else n",
        "        seen += min(n, 4)",
        "        commit t.accepted",
        "",
    ]
    out: list[str] = []
    i = 0
    while len(out) < lines:
        out.append(f"algorithm a{i}(target: causal, drafter: causal, gamma: int in 1..8 = 4):")
        out += [f'    """Generated, number {i}."""', *body]
        i += 1
    return "\n".join(out) + "\n"


def main() -> None:
    machine = facts()
    print(json.dumps(machine))
    files = {name: milliseconds(stdlib.text(name), f"{name}.dec") for name in stdlib.names()}
    for name, took in sorted(files.items(), key=lambda item: -item[1]):
        print(f"{name:24} {took:8.2f} ms")
    sizes: dict[int, float] = {}
    for lines in (1250, 2500, 5000, 10_000):
        text = generated(lines)
        runs = []
        for _ in range(3):
            started = time.perf_counter()
            load_text(text, "generated.dec")
            runs.append(time.perf_counter() - started)
        sizes[text.count("\n")] = round(min(runs), 3)
        before = list(sizes.values())[-2] if len(sizes) > 1 else None
        print(f"{text.count(chr(10)):6} lines {min(runs):7.3f} s" + (f"   x {min(runs) / before:.2f}" if before else ""))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "milliseconds": files, "seconds by lines": sizes}, indent=1) + "\n")
    print(f"written {RESULTS}")


if __name__ == "__main__":
    main()
