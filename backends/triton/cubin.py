"""Kernels compiled without a device: registers, spills and shared memory, read from the machine code.

Triton cannot interpret and compile in one process, so a process of its own does it:

    python -m decgraph.backends.triton.cubin < specs.json > reports.json
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from decgraph.errors import DecError

ARCHES = (80, 90)


@dataclass(frozen=True)
class Spec:
    """One kernel to compile. text: the generated source (or "" and `module`, an importable module); function: the
    kernel's name; signature: a Triton type ("*bf16", "i32", "fp32") for every parameter that is no constexpr; constexprs:
    the values of the others. Pointers are taken to be aligned to 16 bytes; `aligned` names the integers that 16 divides.
    arches: the architectures whose sizes these are; none means all."""

    name: str
    function: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    module: str = ""
    warps: int = 4
    stages: int = 2
    aligned: tuple[str, ...] = ()
    arches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Report:
    """Resources of the machine code: registers a thread, bytes of stack (where spilled registers go), bytes of shared memory;
    or the error."""

    name: str
    arch: int
    registers: int = 0
    spills: int = 0
    shared: int = 0
    error: str = ""


def reports(specs: Sequence[Spec], arches: Sequence[int] = ARCHES) -> list[Report]:
    """Compile every spec for every architecture, in another process. Raises DecError where that process fails."""
    asked = json.dumps({"arches": list(arches), "specs": [asdict(s) for s in specs]})
    env = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "decgraph.backends.triton.cubin"],
        input=asked,
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if done.returncode:
        raise DecError(f"the kernels could not be compiled: {done.stderr.strip()[-2000:]}")
    return [Report(**r) for r in json.loads(done.stdout)]


def report(spec: Spec, arch: int) -> Report:
    """Compile one spec for one architecture in this process, which must not interpret kernels."""
    try:
        return _compiled(asdict(spec), arch)
    except Exception as error:  # whatever the compiler raises is the report
        return Report(spec.name, arch, error=f"{type(error).__name__}: {error}"[-1500:])


def _compiled(spec: dict[str, Any], arch: int) -> Report:
    """One kernel for one architecture, in this process."""
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget

    scope = _loaded(spec["text"]) if spec["text"] else vars(importlib.import_module(spec["module"]))
    kernel = scope[spec["function"]]
    names = list(kernel.arg_names)
    signature = {n: spec["signature"].get(n, "constexpr") for n in names}
    missing = [n for n in names if n not in spec["signature"] and n not in spec["constexprs"]]
    if missing:
        raise DecError(f"{spec['name']}: no type and no value for {', '.join(missing)}")
    constexprs = {(names.index(k),): v for k, v in spec["constexprs"].items()}
    attrs = {
        (names.index(n),): [["tt.divisibility", 16]] for n, t in signature.items() if t.startswith("*") or n in spec["aligned"]
    }
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)
    made = triton.compile(
        source, target=GPUTarget("cuda", arch, 32), options={"num_warps": spec["warps"], "num_stages": spec["stages"]}
    )
    registers, spills = _usage(made.asm["cubin"])
    return Report(spec["name"], arch, registers, spills, int(made.metadata.shared))


def _loaded(text: str) -> dict[str, Any]:
    """The names that a text defines. Triton reads a kernel's source from its file."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(text)
    return runpy.run_path(file.name)


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers a thread and bytes of its stack, of the code that Triton made: which ptxas runs, and with which flags,
    differs by version and architecture, and changes what is spilled."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        done = subprocess.run([str(tool), "--dump-resource-usage", file.name], capture_output=True, text=True, check=False)
    found = re.findall(r"REG:(\d+) STACK:(\d+)", done.stdout)
    if done.returncode or not found:
        raise DecError(f"cuobjdump says nothing of registers: {(done.stderr or done.stdout).strip()[-800:]}")
    return max(int(registers) for registers, _ in found), sum(int(stack) for _, stack in found)


def main() -> None:
    """Read specs from the standard input, write reports to the standard output."""
    asked = json.load(sys.stdin)
    out = []
    for spec in (Spec(**s) for s in asked["specs"]):
        for arch in asked["arches"]:
            if not spec.arches or arch in spec.arches:
                out.append(asdict(report(spec, arch)))
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
