"""Kernels compiled without a device: registers, spills and shared memory, read from the machine code.

Triton cannot interpret and compile in one process, so `reports` starts another one, which runs this file. With DECGRAPH_TRITON
it takes the Triton in that folder (`pip install --no-deps --target FOLDER triton==3.6.0`).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lib.waiting import SECONDS


class Spec(NamedTuple):
    """One kernel to compile for an architecture. signature: a Triton type ("*bf16", "i32", "fp32") for every parameter that is
    no constexpr; constexprs: the values of the others. Pointers are taken to be aligned to 16 bytes; `aligned` names the
    integers that 16 divides."""

    module: str
    function: str
    arch: int
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    warps: int = 4
    stages: int = 2
    aligned: Sequence[str] = ()


class Report(NamedTuple):
    """Resources of the machine code: registers a thread, bytes of stack (where spilled registers go), bytes of shared memory;
    or the error."""

    function: str
    arch: int
    registers: int = 0
    spills: int = 0
    shared: int = 0
    error: str = ""


def reports(specs: Sequence[Spec] | str) -> list[Report]:
    """Of some kernels, or of Inductor's in a step that `compile --emit triton` printed, for the GPU that it was printed for."""
    folders = [os.environ.get(name, "") for name in ("DECGRAPH_TRITON", "PYTHONPATH")]
    env = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join([*filter(None, folders), *sys.path])}
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(specs), capture_output=True, text=True, env=env, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [Report(*r) for r in json.loads(done.stdout)]


def compiled(spec: Spec) -> Report:
    import triton
    from triton.backends.compiler import GPUTarget

    kernel = getattr(importlib.import_module(spec.module), spec.function)
    place = {name: (n,) for n, name in enumerate(kernel.arg_names)}
    missing = place.keys() - spec.signature.keys() - spec.constexprs.keys()
    assert not missing, f"no type and no value for {', '.join(missing)}"
    signature = {name: spec.signature.get(name, "constexpr") for name in place}
    attrs = {place[n]: [["tt.divisibility", 16]] for n, t in signature.items() if t.startswith("*") or n in spec.aligned}
    constexprs = {place[n]: value for n, value in spec.constexprs.items()}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)
    options = {"num_warps": spec.warps, "num_stages": spec.stages}
    made = triton.compile(source, target=GPUTarget("cuda", spec.arch, 32), options=options)
    return reported(spec.function, spec.arch, made)


def reported(name: str, arch: int, made: Any) -> Report:
    """The resources of a kernel that Triton compiled."""
    import triton

    # Of the code that Triton made: which ptxas runs, and with which flags, differs by version, and changes what is spilled.
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        command = [tool, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    ((registers, stack),) = re.findall(r"REG:(\d+) STACK:(\d+)", said)
    return Report(name, arch, int(registers), int(stack), int(made.metadata.shared))


def printed(text: str) -> list[Report]:
    """Inductor's kernels in the text of a step, each with the first of the sizes that Inductor tries."""
    import torch
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner, StaticTritonCompileResult

    vars(torch._C).setdefault("_cuda_getCurrentRawStream", None)
    triton_helpers.set_driver_to_gpu = lambda: None
    StaticTritonCompileResult.can_statically_launch = staticmethod(lambda *_: None)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "printed_step.py"
        file.write_text(text, encoding="utf-8")
        sys.path.insert(0, folder)
        kernels = [(k, v) for k, v in vars(importlib.import_module("printed_step")).items() if isinstance(v, CachingAutotuner)]
        return [reported(name, k.device_props.cc, k._precompile_config(k.configs[0]).kernel) for name, k in kernels]


def main() -> None:
    made, asked = [], json.load(sys.stdin)
    if isinstance(asked, str):
        made = printed(asked)
    for spec in (Spec(*s) for s in asked if not isinstance(asked, str)):
        try:
            made.append(compiled(spec))
        except Exception as error:  # whatever the compiler raises is the report
            made.append(Report(spec.function, spec.arch, error=f"{type(error).__name__}: {error}"[-1500:]))
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main()
