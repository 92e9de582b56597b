"""Text to runnable module: parse, passes, code, for every file of stdlib/, and for programs of growing length.

    .venv/bin/python -m lab.compile

Prints milliseconds a file (median of 5 after one to warm up, nothing kept between runs; the processor's time, so that a shared
machine counts for nobody) and, for generated programs, milliseconds by length with the ratio to half the length (2 is
linear): several algorithms in a file, and one algorithm whose step is ever longer. Writes lab/results/compile.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from decgraph import stdlib
from decgraph.api import parse
from decgraph.backends.torch.program import compile_function
from decgraph.bench.machine import facts
from decgraph.passes.manager import optimise

RESULTS = Path(__file__).parent / "results" / "compile.json"
GOAL = 300  # milliseconds for every file of stdlib/


def stages(text: str, path: str, name: str) -> dict[str, float]:
    """Milliseconds of the processor for parse (verifier included), passes (all, verifier after each) and code."""
    at = [time.process_time()]

    def lap() -> float:
        at.append(time.process_time())
        return 1000 * (at[-1] - at[-2])

    algorithm = parse(text, path=path, main=name)
    took = {"parse": lap()}
    params = {n: p.default for n, p in algorithm.params.items() if p.has_default}
    module, _ = optimise(algorithm.module, params)
    took["passes"] = lap()
    for function in module.functions.values():
        compile_function(function)
    took["code"] = lap()
    return {**took, "total": sum(took.values())}


def medians(text: str, path: str, name: str, times: int) -> dict[str, float]:
    """The run whose total is the median of `times`, after one that is not counted."""
    stages(text, path, name)
    made = sorted((stages(text, path, name) for _ in range(times)), key=lambda took: took["total"])
    return {stage: round(ms, 2) for stage, ms in made[len(made) // 2].items()}


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


def long_step(turns: int) -> str:
    """One algorithm of several drafts and verifications, one after the other, in its step."""
    lines = [
        "algorithm long(target: causal, drafter: causal, gamma: int in 1..8 = 4):",
        '    """Generated."""',
        "    state seen: int = 0",
        "    while not done:",
    ]
    for i in range(turns):
        lines += [
            f"        draft t{i}:",
            "            repeat gamma:",
            f"                q{i} = drafter(t{i}.leaves)",
            f"                x{i} ~ q{i}",
            f"                grow x{i}",
            f"                break if any(max(q{i}.raw) < 0.2)",
            f"        p{i} = target(t{i})",
            f"        verify t{i} by rejection against p{i}",
            f"        commit t{i}.accepted",
            f"        seen += t{i}.accepted.depth",
        ]
    return "\n".join(lines) + "\n"


def growth(texts: dict[int, str], name: str) -> list[dict[str, Any]]:
    """A row for every length: lines, stages, and the total's ratio to the row before."""
    rows: list[dict[str, Any]] = []
    for text in texts.values():
        row: dict[str, Any] = {"lines": text.count("\n"), **medians(text, "generated.dec", name, 3)}
        if rows:
            row["to_half"] = round(row["total"] / rows[-1]["total"], 2)
        rows.append(row)
        print(
            f"{row['lines']:6} lines "
            + "  ".join(f"{k} {row[k]:8.1f}" for k in ("parse", "passes", "code", "total"))
            + (f"   x {row['to_half']:.2f}" if "to_half" in row else ""),
            flush=True,
        )
    return rows


def main() -> None:
    """Measure, print, write; the exit code is 1 where a file takes longer than GOAL."""
    machine = facts()
    print(json.dumps(machine))
    started = time.process_time()
    stages(stdlib.text("autoregressive"), "stdlib/autoregressive.dec", "autoregressive")
    first = round(1000 * (time.process_time() - started), 1)
    print(f"the first program of a process, with what it imports: {first} ms")
    files = {name: medians(stdlib.text(name), f"stdlib/{name}.dec", name, 5) for name in stdlib.names()}
    for name, took in sorted(files.items(), key=lambda item: -item[1]["total"]):
        print(f"{name:24}" + "  ".join(f"{stage} {ms:8.2f}" for stage, ms in took.items()), flush=True)
    worst = max(files, key=lambda name: files[name]["total"])
    middle = statistics.median(took["total"] for took in files.values())
    print(f"median {middle:.1f} ms; longest {worst}, {files[worst]['total']:.1f} ms; goal {GOAL} ms")
    document = {
        "machine": machine,
        "first_ms": first,
        "files": files,
        "algorithms": growth({n: generated(n) for n in (150, 300, 600, 1200)}, "a0"),
        "long_step": growth({n: long_step(n) for n in (4, 8, 16, 32)}, "long"),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written {RESULTS}")
    if files[worst]["total"] > GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
