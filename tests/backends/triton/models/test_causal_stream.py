"""Products that read a matrix once, against float64; and that a forward asks for them where they were measured to be best."""

from __future__ import annotations

import pytest
import torch
from hf_modules import logits, module
from torch import Tensor

from decgraph.backends.triton.step.causal import CausalOnDevice, device_model
from decgraph.backends.triton.step.causal_graph import DeviceStep, kernel_attention
from decgraph.backends.triton.step.causal_stream import CANDIDATES, FAMILY, TORCH, key_of, launch, streamed, suits
from decgraph.backends.triton.tuned import Config, hearing, trying
from decgraph.runtime.models.hf_live import from_module

SMALL = Config(block=16, warps=4, stages=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 512, 40), (3, 300, 16), (17, 256, 7)])
def test_products(rows: int, inner: int, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(inner)
    x, matrix = torch.randn(2 * rows, inner).to(dtype)[::2], torch.randn(columns, inner).to(dtype).t()
    assert suits(rows, matrix) and not suits(65, matrix) and not suits(rows, matrix.contiguous())
    want = x.double() @ matrix.double()
    for sizes in (SMALL, Config(block=64, warps=8, stages=4)):
        with trying(FAMILY, key_of(rows, matrix), sizes):
            got = streamed(x, matrix)
        assert got.dtype == dtype and got.shape == want.shape
        # Summed in float32 and rounded once.
        assert torch.allclose(got.double(), want, rtol=1e-2 if dtype == torch.bfloat16 else 1e-3, atol=1e-2)
    assert torch.equal(streamed(x, matrix), torch.mm(x, matrix)), "torch's, where nothing was measured"


def test_what_other_rows_hold_does_not_matter() -> None:
    base = torch.full((4, 64), float("nan"), dtype=torch.bfloat16)
    base[:2] = 1.0
    matrix = torch.ones(5, 64, dtype=torch.bfloat16).t()
    with trying(FAMILY, key_of(2, matrix), SMALL):
        assert torch.equal(streamed(base[:2], matrix), torch.full((2, 5), 64.0, dtype=torch.bfloat16))


def test_a_forward_asks_for_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    of = module("llama", num_hidden_layers=1).to(torch.bfloat16)
    made = device_model(from_module(of, name="small"), 1, 40, 8, attention=kernel_attention)
    assert isinstance(made, CausalOnDevice) and isinstance(made.weights.step, DeviceStep)
    asked: list[tuple[int, ...]] = []
    plain = torch.mm

    def mm(x: Tensor, matrix: Tensor) -> Tensor:
        asked.append(tuple(matrix.shape))
        return plain(x, matrix)

    monkeypatch.setattr(torch, "mm", mm)
    with trying(FAMILY, (16, 64, 32, "bfloat16"), SMALL), hearing() as heard:
        made.begin([[1, 2]])
    keys = {question.key for question in heard if question.family == FAMILY}
    assert keys == {(16, 64, 32, "bfloat16"), (16, 96, 32, "bfloat16"), (16, 32, 32, "bfloat16"), (16, 32, 48, "bfloat16")}
    assert (32, 64) not in asked and (32, 96) in asked
    got = made.forward(torch.tensor([[2]]), torch.tensor([[1]]), 0, torch.tensor([1], dtype=torch.int32),
                       torch.tensor([[[1]]], dtype=torch.int32), None)  # fmt: skip
    want = logits(of, [(1, 2)])[None].float()
    assert (got.float() - want).abs().max() < 0.05 * want.abs().max()


def test_what_is_measured_is_what_is_asked_for() -> None:
    run = launch(3, 64, 40, torch.bfloat16)(torch.device("cpu"))
    with hearing() as heard:
        assert run().shape == (3, 40)
    assert [(q.family, q.key, q.default) for q in heard] == [(FAMILY, (16, 40, 64, "bfloat16"), CANDIDATES[0])]
    assert CANDIDATES[0] == TORCH and len(set(CANDIDATES)) == len(CANDIDATES)
