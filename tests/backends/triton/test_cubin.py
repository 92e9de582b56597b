"""Compilation for a device that is not there says what is wrong: spills, errors, arguments that were forgotten."""

from __future__ import annotations

import subprocess
import sys

import pytest
from waiting import SECONDS

from decgraph.backends.triton import cubin
from decgraph.backends.triton.cubin import Report, Spec, reports
from decgraph.errors import DecError

HEADER = "import triton\nimport triton.language as tl\n"
TEXT = (
    HEADER
    + '''

@triton.jit
def scaled(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)


@triton.jit
def crowded(x, B: tl.constexpr):
    """Every value is needed once more after the sum: 512 registers a thread, of 255."""
    at = tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(x + at, v / tl.sum(v))


@triton.jit
def changing(x, n):
    """A value that is an integer before the loop and a float after a turn of it."""
    total = 0
    i = 0
    while i < n:
        total += tl.load(x + i)
        i += 1
    tl.store(x, total)


@triton.jit
def transposed(x, out, B: tl.constexpr):
    """Goes through shared memory."""
    row, column = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + row * B + column)
    tl.store(out + row * B + column, tl.dot(v, tl.trans(v)))
'''
)
SCALED = Spec("scaled", "scaled", {"x": "*bf16", "out": "*bf16", "n": "i32"}, {"B": 1024}, TEXT)


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, int], Report]:
    specs = [
        SCALED,
        Spec("crowded", "crowded", {"x": "*fp32"}, {"B": 16384}, TEXT, warps=1),
        Spec("changing", "changing", {"x": "*fp32", "n": "i32"}, {}, TEXT),
        Spec("transposed", "transposed", {"x": "*bf16", "out": "*fp32"}, {"B": 64}, TEXT),
        Spec("forgotten", "scaled", {"x": "*bf16", "out": "*bf16"}, {"B": 64}, TEXT),
        Spec("of a module", "crowded", {"x": "*fp32"}, {"B": 64}, module="no.such.module"),
        Spec("misnamed", "skaled", {}, {}, TEXT),
    ]
    made = reports(specs)
    assert [(r.name, r.arch) for r in made] == [(s.name, arch) for s in specs for arch in cubin.ARCHES]
    return {(r.name, r.arch): r for r in made}


@pytest.mark.parametrize("arch", cubin.ARCHES)
def test_reports(found: dict[tuple[str, int], Report], arch: int) -> None:
    fine = found["scaled", arch]
    assert fine == Report("scaled", arch, fine.registers, 0, 0, "") and 8 <= fine.registers <= 64
    assert found["crowded", arch].spills > 1000 and not found["crowded", arch].error
    assert found["transposed", arch].shared >= 64 * 64 * 2 and not found["transposed", arch].spills
    assert "total" in found["changing", arch].error
    assert "no type and no value for n" in found["forgotten", arch].error
    assert "ModuleNotFoundError" in found["of a module", arch].error and "KeyError" in found["misnamed", arch].error


def test_a_process_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", "/nowhere")
        patch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(DecError, match="could not be compiled"):
            reports([SCALED])


def test_specs_travel_as_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "decgraph.backends.triton.cubin"],
        input='{"arches": [], "specs": []}',
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert done.stdout == "[]"
