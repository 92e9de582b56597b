"""Every kernel there is, compiled for sm_80 and sm_90 with no device: registers, spills, shared memory.

    python -m decgraph.bench.cubins [--out bench/results/cubins.json] [--only rows,speculative] [--table]

The kernels are those that the areas of backends/triton list for real models (their `specs.py`), and those that the vocabulary
segments and rules of every algorithm of stdlib/ generate.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from decgraph.backends.triton.cubin import ARCHES, Report, Spec, reports
from decgraph.errors import DecError

AREAS = ("rows", "rules", "attention", "step")
SHARED = {80: 163 << 10, 90: 227 << 10}
"""Bytes of shared memory that one program may have, by architecture."""


def of_area(area: str) -> list[Spec]:
    """What the modules `specs` and `specs_*` of a folder of backends/triton list."""
    folder = importlib.import_module(f"decgraph.backends.triton.{area}")
    names = sorted(m.name for m in pkgutil.iter_modules(folder.__path__) if m.name == "specs" or m.name.startswith("specs_"))
    made: list[Spec] = []
    for name in names:
        made += importlib.import_module(f"{folder.__name__}.{name}").specs()
    if not made:
        raise DecError(f"backends/triton/{area} lists no kernels")
    return made


def everything(only: Sequence[str] = ()) -> list[Spec]:
    """The kernels of all areas, or of some."""
    return [spec for area in AREAS if not only or area in only for spec in of_area(area)]


def same(spec: Spec) -> str:
    """Equal for specs that give the same machine code."""
    return json.dumps({**asdict(spec), "name": ""}, sort_keys=True, default=str)


def unique(specs: Iterable[Spec]) -> list[Spec]:
    """One of each, in order; the first keeps its name."""
    out: dict[str, Spec] = {}
    for spec in specs:
        out.setdefault(same(spec), spec)
    return list(out.values())


def compiled(specs: Sequence[Spec], processes: int = 1) -> list[Report]:
    """The reports of specs, by so many processes at a time."""
    if processes == 1 or len(specs) < 2:
        return reports(specs)
    parts = [specs[n::processes] for n in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        made = list(pool.map(reports, parts))
    by_spec = [[found[i * len(ARCHES) : (i + 1) * len(ARCHES)] for i in range(len(part))] for part, found in zip(parts, made)]
    return [r for i in range(len(specs)) for r in by_spec[i % processes][i // processes]]


def fault(report: Report) -> str:
    """What is wrong with a kernel, or nothing."""
    if report.error:
        return f"{report.name} for sm_{report.arch}: {report.error}"
    wrong = [f"{report.spills} bytes of spills"] if report.spills else []
    there = SHARED[report.arch]
    wrong += [f"{report.shared} bytes of shared memory, {there} are there"] if report.shared > there else []
    wrong += ["no registers at all: nothing was compiled"] if not report.registers else []
    return f"{report.name} for sm_{report.arch}: {', '.join(wrong)}" if wrong else ""


def faults(made: Iterable[Report]) -> list[str]:
    """What is wrong with any of them."""
    return [found for found in map(fault, made) if found]


def table(made: Sequence[Report]) -> str:
    """A line for every kernel."""
    lines = [f"{'kernel':<64} {'arch':>5} {'registers':>9} {'spills':>7} {'shared':>7}"]
    for r in made:
        rest = f"{r.registers:>9} {r.spills:>7} {r.shared:>7}" if not r.error else r.error.splitlines()[-1]
        lines.append(f"{r.name[:64]:<64} {r.arch:>5} {rest}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print or write, and say what is wrong: 0 if nothing is."""
    parser = argparse.ArgumentParser(prog="python -m decgraph.bench.cubins", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a result file (JSON)")
    parser.add_argument("--only", default="", help="areas and algorithms, comma separated")
    parser.add_argument("--table", action="store_true", help="a line for every kernel")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    specs = unique(everything([name for name in asked.only.split(",") if name]))
    made = compiled(specs, asked.processes)
    wrong = faults(made)
    if asked.table:
        print(table(made))
    print("\n".join(wrong) or f"{len(specs)} kernels for {', '.join(f'sm_{arch}' for arch in ARCHES)}: nothing is wrong")
    if asked.out:
        asked.out.write_text(json.dumps(to_json(made), indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def to_json(made: Sequence[Report]) -> dict[str, Any]:
    """The result file: versions, kernels, what is wrong."""
    import triton

    kernels: dict[str, dict[str, Any]] = {}
    for r in made:
        row = {"registers": r.registers, "spills": r.spills, "shared": r.shared} if not r.error else {"error": r.error}
        kernels.setdefault(r.name, {})[f"sm_{r.arch}"] = row
    return {"triton": triton.__version__, "kernels": kernels, "wrong": faults(made)}


if __name__ == "__main__":
    sys.exit(main())
