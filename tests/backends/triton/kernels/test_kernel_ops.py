"""The custom ops as torch sees them, and their kernels compiled for devices that are not there: what `launch` gives Triton for
the shapes of real models is recorded, and compiled."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._subclasses.fake_tensor as fake
from lib.devices.cubins import Report, Spec, reports
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from decgraph.backends.triton.kernels import attend, race, truncate

I64 = torch.int64
SHARED = {80: 163 * 1024, 90: 227 * 1024}
TYPES = {
    torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16", I64: "i64",
    torch.int32: "i32", torch.uint8: "u8",
}  # fmt: skip
HEADS = [(4, 128, None, None), (4, 64, None, None), (2, 256, 4096, 30.0), (1, 80, None, None)]


def operands(device: str = "cpu", fresh: Callable[..., Tensor] = torch.zeros) -> dict[str, tuple[Any, ...]]:
    """Small operands of every op, with all that is optional."""

    def made(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return fresh(shape, dtype=dtype, device=device)

    q, k, cos, cells = made(2, 4, 3, 16), made(2, 2, 3, 16), made(1, 3, 16), made(2, 3, dtype=I64)
    pools, pages, noted = [made(2, 128, 16) for _ in range(2)], made(2, 1, dtype=torch.int32), made(2, 64, dtype=I64)
    words = [made(2, 1, dtype=I64) for _ in range(5)]
    tail, first = made(2, 3, 4, dtype=torch.bool), made(2, dtype=I64)
    return {
        "attend": (q, *pools, pages, cells, tail, first, 0.25, 8, cells, noted, 30.0, k, k, cells, cos, cos),
        "draw": (made(2, 3, 20), *words),
        "truncate": (made(2, 3, 20), made(2, 1, dtype=I64), made(2, 1), made(2, 1)),
    }


@pytest.mark.parametrize("name", operands())
def test_an_op_does_what_its_schema_says(name: str) -> None:
    torch.library.opcheck(
        getattr(torch.ops.decgraph, name).default, operands()[name], test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize("name", operands())
def test_an_op_is_one_node_of_a_trace_for_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced over fake tensors of a GPU: nothing but the op, on that device, of the right shape."""
    monkeypatch.setattr(fake, "init_gpu_context", lambda *_: None)
    op = getattr(torch.ops.decgraph, name).default
    with fake.FakeTensorMode():
        args = operands("cuda")[name]
        tensors = [a for a in args if isinstance(a, Tensor)]

        def call(*given: Tensor) -> Tensor:
            left = iter(given)
            out: Tensor = op(*(next(left) if isinstance(a, Tensor) else a for a in args))
            return out

        graph = make_fx(call)(*tensors).graph
        (node,) = [n for n in graph.nodes if n.op == "call_function"]
        assert node.target is op
        made = node.meta["val"]
    assert made.device.type == "cuda"
    like = op(*operands()[name])
    assert made.shape == like.shape and made.dtype == like.dtype and made.stride() == like.stride()


class Recorded:
    """In the place of a kernel: notes what it would be compiled for."""

    def __init__(self, kernel: Any, module: str, arch: int, into: list[Spec]) -> None:
        self.kernel, self.module, self.arch, self.into = kernel, module, arch, into

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.note

    def note(self, *args: Any, num_warps: int, num_stages: int = 2, **constants: Any) -> None:
        function = self.kernel.fn
        names = list(inspect.signature(function).parameters)
        signature, even = {}, []
        for name, value in zip(names, args, strict=False):
            kind = "*" + TYPES[value.dtype] if isinstance(value, Tensor) else "fp32" if isinstance(value, float) else "i32"
            signature[name] = kind
            if kind == "i32" and value % 16 == 0 and name.endswith(("_lane", "_head", "_slot", "_cell", "stride", "capacity")):
                even.append(name)
        self.into.append(Spec(self.module, function.__name__, self.arch, signature, constants, num_warps, num_stages, even))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[Spec]]:
    """A function that has the kernels of an architecture recorded from then on."""

    def begin(arch: int) -> list[Spec]:
        into: list[Spec] = []
        for module in (attend, race, truncate):
            monkeypatch.setattr(module, "about", lambda _: (132, arch), raising=False)
            for name, kernel in list(vars(module).items()):
                if name.endswith("_kernel"):
                    inner = kernel.kernel if isinstance(kernel, Recorded) else kernel
                    monkeypatch.setattr(module, name, Recorded(inner, module.__name__, arch, into))
        return into

    return begin


def attended(
    cells: int, group: int, size: int, lanes: int, tail: int, window: int | None, softcap: float | None,
    dtype: torch.dtype = torch.bfloat16, fused: bool = True,
) -> None:  # fmt: skip
    """Launches for heads of real models. fused: whether keys and values of the cells are written, too."""
    pool, at = torch.zeros(2, 64, size, dtype=dtype), torch.zeros(lanes, cells, dtype=I64)
    mask = torch.zeros(1, cells, tail, dtype=torch.bool) if tail else None
    first = torch.zeros(lanes, dtype=I64) if tail else None
    q, angle = torch.zeros(lanes, cells, 2 * group + 4, size, dtype=dtype).transpose(1, 2), torch.zeros(1, cells, size)
    q, k, v = q.split([2 * group, 2, 2], 1)
    attend.launch(
        q, pool, pool, torch.zeros(lanes, 64, dtype=torch.int32), at, mask, first, 0.1, window, at,
        torch.zeros(lanes, 4096, dtype=I64), softcap, *((k, v, at, angle, angle) if fused else ()),
    )  # fmt: skip


def rows(size: int = 128256) -> None:
    """Launches of the other kernels for a row of a real vocabulary."""
    word, p = torch.zeros(1, 1, dtype=I64), torch.zeros(1, 1, size)
    race.launch(p, *[word] * 5)
    truncate.launch(p, word, torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))


def check(made: list[Report], spills: int = 0) -> None:
    assert made
    for report in made:
        assert not report.error and report.spills <= spills and report.shared <= SHARED[report.arch], report


@pytest.mark.budget(18)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_attention_of_llamas_compiles_for_devices_without_spills(recorded: Any, dtype: torch.dtype) -> None:
    """The most used heads, in all types: a step, a chain, a tree, and a canvas."""
    specs = []
    for arch in (80, 90):
        into = recorded(arch)
        for cells, tail in ((1, 0), (5, 5), (60, 60), (64, 0)):
            attended(cells, 4, 128, 1, tail, None, None, dtype)
        attended(1, 4, 128, 1, 0, None, None, dtype, fused=False)
        specs += into
    assert len(specs) == 20
    check(reports(specs))


@pytest.mark.budget(18)
def test_kernels_of_rows_compile_for_devices_without_spills(recorded: Any) -> None:
    specs = []
    for arch in (80, 90):
        into = recorded(arch)
        rows()
        specs += into
    assert len(specs) == 8
    check(reports(specs))


@pytest.mark.slow
@pytest.mark.budget(60)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("arch", [90, 80])
def test_attention_of_all_models_compiles_with_hardly_a_spill(recorded: Any, arch: int, dtype: torch.dtype) -> None:
    """Some bytes of 256 cells in eight lanes. In float32 heads of 256 numbers have no room (330 bytes), and are left out."""
    specs = recorded(arch)
    for group, size, window, softcap in HEADS:
        for cells in (1, 5, 16, 64, 256) if size < 256 or dtype.itemsize < 4 else ():
            for lanes, tail in ((1, 0), (8, 64)):
                attended(cells, group, size, lanes, tail, window, softcap, dtype)
    check(reports(list({repr(spec): spec for spec in specs}.values())), 24)


ODD = """
import triton
import triton.language as tl


@triton.jit
def crowded(x, B: tl.constexpr):
    # Every value is needed once more after the sum: 512 registers a thread, of 255.
    at = tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(x + at, v / tl.sum(v))


@triton.jit
def changing(x, n):
    # A value that is an integer before the loop and a float after an iteration.
    total = 0
    for i in range(n):
        total += tl.load(x + i)
    tl.store(x, total)
"""


def test_reports_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    fine, crowded, changing, forgotten, misnamed = reports([
        Spec("odd", "crowded", 90, {"x": "*fp32"}, {"B": 64}),
        Spec("odd", "crowded", 80, {"x": "*fp32"}, {"B": 16384}, 1),
        Spec("odd", "changing", 90, {"x": "*fp32", "n": "i32"}, {}),
        Spec("odd", "changing", 90, {"x": "*fp32"}, {}),
        Spec("odd", "skaled", 90, {}, {}),
    ])  # fmt: skip
    assert fine == Report("crowded", 90, fine.registers, 0, fine.shared) and 8 <= fine.registers <= 64
    assert crowded.spills > 1000 and not crowded.error
    assert "total" in changing.error and "no type and no value for n" in forgotten.error and "skaled" in misnamed.error
