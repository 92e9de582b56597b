"""Every kernel there is, compiled for sm_80 and sm_90 with no device: registers, spills, shared memory.

    python -m lab.gpu.cubins [--only rows,speculative] [--table] [--fresh] [--write]

The kernels are those that specs/ lists for real models, by area of backends/triton, and those that the vocabulary
segments and rules of every algorithm of stdlib/ generate.

One compilation takes a second, all of them many minutes. So what was found is kept in results/cubins.json by the digest of
all that it depends on, and only what is not there is compiled: a kernel that changed, or every one with another Triton.
`--fresh` compiles all; `--write` writes the file.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from decgraph.backends.triton.cubin import ARCHES, Report, Spec, reports
from decgraph.errors import DecError
from lab.gpu.specs import attention, canvas, models, rows, rules, step

AREAS = {"rows": (rows,), "attention": (attention,), "step": (canvas, models, step)}
CHUNK = 16
VOCABULARY, ROWS = 128256, (1, 64)
RESULTS = Path(__file__).parent / "results" / "cubins.json"
SHARED = {80: 163 << 10, 90: 227 << 10}
"""Bytes of shared memory that one program may have, by architecture."""


def of_area(area: str) -> list[Spec]:
    """The kernels of an area of backends/triton that no program generates."""
    return [spec for module in AREAS[area] for spec in module.specs()]


def of_algorithm(name: str) -> list[Spec]:
    """What the vocabulary segments of an algorithm of stdlib/ become for a large vocabulary, of few rows and of many, and its
    rules for trees of 64 nodes. Raises DecError for an algorithm that is not there."""
    import torch

    from decgraph import stdlib
    from decgraph.backends.triton.kit import KERNELS, outermost
    from decgraph.backends.triton.rows.shown import made_of
    from decgraph.backends.triton.rules.compile import rule_of
    from decgraph.dsl.lower import load_text
    from decgraph.ir.vocabulary import on_rows
    from decgraph.ir.walk import functions_of
    from decgraph.passes.manager import optimise

    if name not in stdlib.names():
        raise DecError(f"there is no area and no algorithm called {name}")
    made: list[Spec] = canvas_specs(name)
    for function in functions_of(optimise(load_text(stdlib.text(name), f"stdlib/{name}.dec"))[0]):
        for op in outermost(function):
            if op.opcode == "tree.walk" and (rule := rule_of(op, function.body)).supported:
                for spec in (s for element in ("fp32", "fp64") for s in rules.specs_of(rule, name, element)):
                    made.append(replace(spec, name=f"{name}: {spec.name.removeprefix(name).strip()}"))
            if KERNELS.fused(op) is None and not on_rows(op):
                continue
            for program in made_of(op, VOCABULARY, torch.bfloat16):
                found = [s for count in ROWS for s in program.specs(count, torch.bfloat16)]
                made += [replace(s, name=f"{name}: {s.name.removeprefix('rows.')}") for s in found]
    return made


def canvas_specs(name: str) -> list[Spec]:
    """What a masked algorithm of stdlib/ whose steps run on the device launches there besides."""
    from decgraph import stdlib
    from decgraph.backends.triton.step.canvas_run import canvas_reason
    from decgraph.check.worlds import models_for
    from decgraph.dsl.lower import load_text
    from decgraph.passes.manager import optimise
    from decgraph.passes.plan import Plan
    from decgraph.runtime.request import Request

    module = load_text(stdlib.text(name), f"stdlib/{name}.dec")
    if canvas_reason(module, module.main, Request(prompt=(1,), limit=8), models_for(module.entry, 5, 0)) is not None:
        return []
    params = tuple(canvas.known(module.entry).items())
    return [replace(s, name=f"{name}: {s.name}") for s in canvas.specs_of(optimise(module, plan=Plan(params=params))[0])]


def everything(only: Sequence[str] = ()) -> list[Spec]:
    """The kernels of all areas and algorithms, or of some."""
    from decgraph import stdlib

    return [
        spec for name in only or (*AREAS, *stdlib.names()) for spec in (of_area(name) if name in AREAS else of_algorithm(name))
    ]


def digest(spec: Spec) -> str:
    """Equal for specs that give the same machine code: of the text, the files whose functions it calls (comments and
    docstrings apart), types, constants, sizes, and the version of Triton."""
    import triton

    called = sorted(_files(spec.module, spec.text))
    own = {**asdict(spec), "name": "", "text": _plain(spec.text) if spec.text else ""}
    held = json.dumps([triton.__version__, own, [_plain(_source(name)) for name in called]], sort_keys=True, default=str)
    return hashlib.sha256(held.encode()).hexdigest()[:16]


def _files(module: str, text: str) -> set[str]:
    """The modules of backends/triton that a module or a text imports, those that they import, and itself."""
    found: set[str] = set()
    left = {module} if module else set(_imports(text))
    while left:
        found |= left
        left = {name for known in left for name in _imports(_source(known))} - found
    return found


@cache
def _imports(text: str) -> frozenset[str]:
    names = (str(node.module) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    return frozenset(name for name in names if name.startswith("decgraph.backends.triton."))


@cache
def _source(module: str) -> str:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise DecError(f"there is no module {module}, which a kernel is said to be in")
    return Path(found.origin).read_text(encoding="utf-8")


@cache
def _plain(text: str) -> str:
    """The code of a text: its syntax tree without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(node, ast.Module | ast.FunctionDef)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]
    return ast.dump(tree)


def unique(specs: Iterable[Spec]) -> list[Spec]:
    """One of each, in order; the first keeps its name."""
    out: dict[str, Spec] = {}
    for spec in specs:
        out.setdefault(digest(spec), spec)
    return list(out.values())


def compiled(specs: Sequence[Spec], processes: int = 1) -> list[list[Report]]:
    """The reports of each spec, made by so many processes at a time."""
    parts = [specs[n::processes] for n in range(min(processes, len(specs)))]
    with ThreadPoolExecutor(max(len(parts), 1)) as pool:
        made = [iter(found) for found in pool.map(reports, parts)]
    return [list(islice(made[i % len(parts)], len(spec.arches or ARCHES))) for i, spec in enumerate(specs)]


def found(specs: Sequence[Spec], known: Mapping[str, Any], processes: int = 1) -> dict[str, list[Report]]:
    """The reports of specs by digest: those that are known, and those of the others, which are compiled."""
    wanted = {digest(spec): spec for spec in specs}
    fresh = [key for key in wanted if key not in known]
    new = dict(zip(fresh, compiled([wanted[key] for key in fresh], processes), strict=True))
    return {key: new[key] if key in new else read(spec.name, known[key]) for key, spec in wanted.items()}


def read(name: str, row: Mapping[str, Any]) -> list[Report]:
    """The reports of a kernel in the result file."""
    return [Report(name, arch, **row[f"sm_{arch}"]) for arch in ARCHES if f"sm_{arch}" in row]


def kept(path: Path = RESULTS) -> dict[str, Any]:
    """The kernels of the result file, by digest."""
    out: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["kernels"] if path.exists() else {}
    return out


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


def to_json(made: Mapping[str, Sequence[Report]]) -> dict[str, Any]:
    """Kernels by digest as the result file has them; faultless ones only, so that one with a fault is compiled every time."""

    def row(found: Sequence[Report]) -> dict[str, Any]:
        uses = {f"sm_{r.arch}": {"registers": r.registers, "spills": r.spills, "shared": r.shared} for r in found}
        return {"name": found[0].name, **uses}

    return {key: row(found) for key, found in made.items() if not faults(found)}


def write(path: Path, kernels: Mapping[str, Any]) -> None:
    """The result file, in the order of names."""
    import triton

    order = sorted(kernels, key=lambda key: (kernels[key]["name"], key))
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(kernels[key])}" for key in order)
    path.write_text(f'{{"triton": {json.dumps(triton.__version__)}, "kernels": {{\n{lines}\n}}}}\n', encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile what is not known, print and write, and say what is wrong: 0 if nothing is."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.gpu.cubins", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="areas and algorithms, comma separated")
    parser.add_argument("--table", action="store_true", help="a line for every kernel")
    parser.add_argument("--fresh", action="store_true", help="compile what is known too")
    parser.add_argument("--write", action="store_true", help="write the result file (with --only: add to it)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the result file")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    only = [name for name in asked.only.split(",") if name]
    held = kept(asked.out)
    known = {} if asked.fresh else dict(held)
    specs, made = unique(everything(only)), dict[str, list[Report]]()
    for first in range(0, len(specs), CHUNK):  # written as it goes: it takes long
        made |= found(specs[first : first + CHUNK], known, asked.processes)
        if asked.write:
            write(asked.out, {**held, **to_json(made)})
    reports_of = [r for rows in made.values() for r in rows]
    wrong = faults(reports_of)
    if asked.table:
        print(table(reports_of))
    print("\n".join(wrong) or f"{len(made)} kernels for {', '.join(f'sm_{arch}' for arch in ARCHES)}: nothing is wrong")
    if asked.write:
        write(asked.out, {**(held if only else {}), **to_json(made)})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
