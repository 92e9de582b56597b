"""Products that read a matrix once, against float64; and that a forward asks for them where they were measured to be best."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from hf_modules import logits, module
from torch import Tensor

from decgraph.backends.triton.step.causal import CausalOnDevice, device_model
from decgraph.backends.triton.step.causal_graph import DeviceStep, kernel_attention
from decgraph.backends.triton.step.causal_stream import (
    CANDIDATES,
    FAMILY,
    TORCH,
    gated_product,
    key_of,
    launch,
    normed_product,
    streamed,
    suits,
)
from decgraph.backends.triton.tuned import Config, recording, trying
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


def close(got: Tensor, want: Tensor) -> bool:
    """In bfloat16, of sums of operands that were rounded once themselves."""
    return bool((got.double() - want).abs().max() < 0.02 * want.abs().max())


@pytest.mark.parametrize(("rows", "inner"), [(1, 512), (3, 300)])
def test_products_of_norms_and_gates(rows: int, inner: int) -> None:
    torch.manual_seed(inner)
    states, more = torch.randn(rows, inner).bfloat16(), torch.randn(rows, inner).bfloat16()
    weight, matrix = torch.rand(inner).bfloat16(), torch.randn(40, inner).bfloat16().t()
    whole = states.double() + more.double()
    want = F.rms_norm(whole, (inner,), weight.double(), 1e-5) @ matrix.double()
    halves = torch.randn(rows, 2 * inner + 3).bfloat16()
    both = F.silu(halves[:, :inner].double()) * halves[:, inner + 3 :].double() @ matrix.double()
    for sizes in (TORCH, SMALL):
        with trying(FAMILY, key_of(rows, matrix), sizes):
            total, got = normed_product(states, more, weight, 1e-5, matrix)
            gates = gated_product(halves, 0, inner + 3, inner, "silu", matrix)
        assert close(total, whole) and close(got, want) and close(gates, both)
        assert got.shape == gates.shape == (rows, 40)


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
    shapes = ((64, 32), (96, 32), (32, 48))
    with ExitStack() as stack:
        for shape in shapes:
            stack.enter_context(trying(FAMILY, (16, *shape, "bfloat16"), SMALL))
        heard = stack.enter_context(recording())
        made.begin([[1, 2]])
        step = torch.tensor([1], dtype=torch.int32), torch.tensor([[[1]]], dtype=torch.int32)
        got = made.forward(torch.tensor([[2]]), torch.tensor([[1]]), 0, *step, None)
    keys = {question.key for question in heard if question.family == FAMILY}
    assert keys == {(16, *shape, "bfloat16") for shape in (*shapes, (32, 32))} and asked == [(32, 32)] * 2
    want = logits(of, [(1, 2)])[None].float()
    assert (got.float() - want).abs().max() < 0.05 * want.abs().max()


def test_what_is_measured_is_what_is_asked_for() -> None:
    run = launch(3, 64, 40, torch.bfloat16)(torch.device("cpu"))
    with recording() as heard:
        assert run().shape == (3, 40)
    assert [(q.family, q.key, q.default) for q in heard] == [(FAMILY, (16, 40, 64, "bfloat16"), CANDIDATES[0])]
    assert CANDIDATES[0] == TORCH and len(set(CANDIDATES)) == len(CANDIDATES)
