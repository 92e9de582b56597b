"""Products of one row that stay in a region: Inductor writes them with what is around, where a measurement says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from decgraph.backends.triton import regions as cutting
from decgraph.backends.triton import rows
from decgraph.backends.triton.graph import Graph, traced
from decgraph.backends.triton.regions import imagined, inductor, regions, written

MM = torch.ops.aten.mm.default
DEVICE = torch.device("cuda", 0)


def layer(device: str = "cpu") -> tuple[Graph, dict[str, Tensor]]:
    """A product of a row, a residual sum, a norm and a product of another kind."""
    torch.manual_seed(2)
    tensors = {
        name: torch.randn(*size, device=device)
        for name, size in {"x": (1, 48), "w": (32, 48), "r": (1, 32), "u": (8, 32)}.items()
    }
    x, w, r, u = tensors.values()

    def run() -> None:
        r.add_(torch.mm(x, w.t()))
        x[:, :8].copy_(torch.mm(torch.rms_norm(r, (32,), None, 1e-5), u.t()))

    return traced(run, None, tensors), tensors


def chosen(node: Any, compiled: rows.Compile) -> bool:
    return node.target is MM and node.meta["val"].shape[1] == 32


@pytest.mark.slow
def test_a_product_in_a_region_is_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    made, tensors = layer()
    before = [t.clone() for t in tensors.values()]
    count = {}
    for way in (False, True):
        monkeypatch.setattr(cutting, "is_generated", chosen if way else lambda *_: False)
        for t, was in zip(tensors.values(), before, strict=True):
            t.copy_(was)
        cut = regions(made, inductor)
        with torch.no_grad():
            cut(*made.tensors.values())
        count[way] = len(cut.graph.find_nodes(op="call_function", target=MM)), [t.clone() for t in tensors.values()]
    assert [n for n, _ in count.values()] == [2, 1]
    for one, other in zip(count[False][1], count[True][1], strict=True):
        torch.testing.assert_close(one, other)


def test_it_is_one_kernel_of_a_gpu_with_the_sum() -> None:
    """And rounded where torch rounds."""

    def text(size: int) -> Any:
        with imagined(), FakeTensorMode() as mode:
            with mode:
                given = [torch.empty(*s, dtype=torch.bfloat16, device="cuda") for s in ((1, 64), (size, 64), (1, size))]
            graph = torch.fx.Graph()
            x, w, r = (graph.placeholder(n) for n in "xwr")
            y = graph.call_function(MM, (x, graph.call_function(torch.ops.aten.t.default, (w,))))
            graph.output((graph.call_function(torch.ops.aten.add.Tensor, (r, y)),))
            return written(torch.fx.GraphModule({}, graph), given)

    made = text(4096)
    assert [name.startswith("triton_") for name, _ in made.launches] == [True]
    assert "tl.sum" in next(iter(made.kernels.values()))


def test_what_was_measured_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def measured(outputs: int, inputs: int, *_: Any) -> dict[str, float]:
        asked.append((outputs, inputs))
        return {"cublas": 14.3, "inductor": 12.9 if inputs == 4096 else 14.2}

    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(rows, "measured", measured)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    for _ in range(2):  # two processes
        rows.generated_is_faster.cache_clear()
        assert rows.generated_is_faster(4096, 4096, torch.bfloat16, DEVICE, inductor)
        assert not rows.generated_is_faster(4096, 14336, torch.bfloat16, DEVICE, inductor), "as good as the same"
    assert asked == [(4096, 4096), (4096, 14336)]
    (file,) = tmp_path.rglob("rows.json")
    assert "a GPU, torch" in file.read_text(encoding="utf-8") and "4096 x 14336 bfloat16" in file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    rows.generated_is_faster.cache_clear()
    assert rows.generated_is_faster(4096, 4096, torch.bfloat16, DEVICE, inductor) and len(asked) == 3
    rows.generated_is_faster.cache_clear()


@pytest.mark.slow
def test_both_are_measured_on_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def milliseconds(run: Callable[[Tensor, Tensor], Any], matrices: list[Tensor], row: Tensor) -> float:
        assert len(matrices) == 2 and row.shape == (1, 64)
        torch.testing.assert_close(run(row, matrices[1])[0], row @ matrices[1].T)
        return 1.0

    monkeypatch.setattr(rows, "_BYTES", 0)
    monkeypatch.setattr(rows, "milliseconds", milliseconds)
    assert rows.measured(32, 64, torch.float32, torch.device("cpu"), inductor) == {"cublas": 1.0, "inductor": 1.0}


def test_only_a_row_on_a_device_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "generated_is_faster", lambda *_: pytest.fail("measured"))
    made, _ = layer()
    assert not any(rows.is_generated(node, inductor) for node in made.nodes())
