"""Measure the time from text to runnable module, for every file of stdlib/ and for programs of growing length.

Prints milliseconds a file (median of 5 after one to warm up, nothing kept between runs; the processor's time, so that a shared
machine counts for nobody) and, for generated programs, milliseconds by length with the ratio to half the length (2 is
linear): several algorithms in a file, and one algorithm whose step is ever longer.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any

from decgraph import stdlib
from decgraph.api import parse
from decgraph.backends.torch.program import compile_function
from decgraph.bench.machine import facts
from decgraph.passes.manager import optimise
from lab import pages

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


STEP = """    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                if seen > 3:
                    s = max(q.raw) * 0.5
                else:
                    s = max(q.raw)
                x ~ q
                grow x
                break if any(s < 0.1)
        p = target(t)
        verify t by rejection against p
        n = t.accepted.depth
        for i in 0..gamma:
            n = n + 1 if i > 2 else n
        seen += min(n, 4)
        commit t.accepted

"""
TURN = """        draft t{i}:
            repeat gamma:
                q{i} = drafter(t{i}.leaves)
                x{i} ~ q{i}
                grow x{i}
                break if any(max(q{i}.raw) < 0.2)
        p{i} = target(t{i})
        verify t{i} by rejection against p{i}
        commit t{i}.accepted
        seen += t{i}.accepted.depth
"""


def header(name: str, claim: str = "") -> str:
    """What stands before a step."""
    head = f"algorithm {name}(target: causal, drafter: causal, gamma: int in 1..8 = 4):\n"
    return f'{head}    """Generated."""\n{claim}    state seen: int = 0\n\n'


def generated(count: int) -> str:
    """A file of so many algorithms of 24 lines, with drafts, branches and loops."""
    claim = "    refines autoregressive(target) in distribution\n"
    return "".join(header(f"a{i}", claim) + STEP for i in range(count))


def long_step(turns: int) -> str:
    """One algorithm of several drafts and verifications, one after the other, in its step."""
    return header("long") + "    while not done:\n" + "".join(TURN.format(i=i) for i in range(turns))


def growth(texts: Iterable[str], name: str) -> list[dict[str, Any]]:
    """A row for every length: lines, stages, and the total's ratio to the row before."""
    rows: list[dict[str, Any]] = []
    for text in texts:
        row: dict[str, Any] = {"lines": text.count("\n"), **medians(text, "generated.dec", name, 3)}
        if rows:
            row["to_half"] = round(row["total"] / rows[-1]["total"], 2)
        rows.append(row)
        print("  ".join(f"{k} {v:8.2f}" for k, v in row.items()), flush=True)
    return rows


def command() -> None:
    """Measure, print, write; the exit code is 1 where a file takes longer than GOAL."""
    machine, started = facts(), time.process_time()
    stages(stdlib.text("autoregressive"), "stdlib/autoregressive.dec", "autoregressive")
    first = round(1000 * (time.process_time() - started), 1)
    print(f"{machine}\nthe first program of a process, with what it imports: {first} ms")
    files = {name: medians(stdlib.text(name), f"stdlib/{name}.dec", name, 5) for name in stdlib.names()}
    for name, took in sorted(files.items(), key=lambda item: -item[1]["total"]):
        print(f"{name:24}" + "  ".join(f"{stage} {ms:8.2f}" for stage, ms in took.items()), flush=True)
    worst = max(files, key=lambda name: files[name]["total"])
    middle = statistics.median(took["total"] for took in files.values())
    print(f"median {middle:.1f} ms; longest {worst}, {files[worst]['total']:.1f} ms; goal {GOAL} ms")
    grown = {
        "algorithms": growth(map(generated, (7, 13, 25, 50)), "a0"),
        "long_step": growth(map(long_step, (4, 8, 16, 32)), "long"),
    }
    print(f"written {pages.keep('compile', {'machine': machine, 'first_ms': first, 'files': files, **grown})}")
    if files[worst]["total"] > GOAL:
        sys.exit(1)
