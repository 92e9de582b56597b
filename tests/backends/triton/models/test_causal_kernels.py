"""The small kernels of a forward, alone against their meaning in float64, and in the forwards of whole modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hf_modules import logits, module
from lockstep import Lockstep, Path
from torch import Tensor

from decgraph.backends.triton.step.causal import CausalOnDevice, device_model
from decgraph.backends.triton.step.causal_cells import Cells
from decgraph.backends.triton.step.causal_graph import DeviceStep, kernel_attention
from decgraph.backends.triton.step.causal_kernels import place_heads
from decgraph.runtime.models.hf_live import from_module

NAN = float("nan")


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, T, H, D] rotated, as modules spell it; `sin` without signs."""
    a, b = x.chunk(2, -1)
    return x * cos[:, :, None] + torch.cat((-b, a), -1) * sin[:, :, None]


@pytest.mark.quick(first=4)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("size", "rotary"), [(8, True), (6, True), (5, False)])
def test_heads_go_where_they_belong(size: int, rotary: bool, norm: bool, dtype: torch.dtype, close: float) -> None:
    torch.manual_seed(size)
    batch, cells, queries, heads, slots = 2, 3, 4, 2, 7
    rows = torch.randn(batch * cells, (queries + 2 * heads) * size + 3).to(dtype)
    columns = (3 + 2 * heads * size, 3 + heads * size, 3)  # values, keys, then queries, after three columns of others
    write = torch.tensor([[2, 0, 6], [5, 1, 6]])
    keys, values = (torch.full((batch, heads, slots, size), NAN, dtype=dtype) for _ in range(2))
    angle = torch.rand(batch, cells, size // 2).repeat(1, 1, 2) if rotary else torch.zeros(batch, cells, size)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    signs = torch.cat((-torch.ones(size // 2), torch.ones(size - size // 2))).to(dtype)
    weights = (torch.rand(size).to(dtype), torch.rand(size).to(dtype)) if norm else (None, None)
    got = place_heads(rows, write, keys, values, *((cos, sin * signs) if rotary else (None, None)), *weights, (queries, heads),
                      columns, size, 1e-6)  # fmt: skip
    exact = rows.double().view(batch, cells, -1)
    want = [exact[..., at : at + n * size].unflatten(-1, (n, size)) for at, n in zip(columns, (queries, heads, heads))]
    for n, weight in enumerate(weights):
        if weight is not None:
            want[n] = F.rms_norm(want[n], (size,), weight.double(), 1e-6)
        if rotary:
            want[n] = turned(want[n], cos.double(), sin.double())
    assert got.dtype == dtype and got.shape == (batch, cells, queries, size)
    assert torch.allclose(got.double(), want[0], atol=close, rtol=close)
    for cache, new in ((keys, want[1]), (values, want[2])):
        for b in range(batch):
            assert torch.allclose(cache[b, :, write[b]].double(), new[b].transpose(0, 1), atol=close, rtol=close)
            others = sorted(set(range(slots)) - set(write[b].tolist()))
            assert cache[b, :, others].isnan().all()


def on_device(kind: str) -> tuple[Any, CausalOnDevice, DeviceStep]:
    changes = {"layer_types": ["sliding_attention", "full_attention"]} if kind == "gemma3" else {}
    of = module(kind, num_hidden_layers=2, **changes)
    made = device_model(from_module(of, name=kind), 2, 50, 30, attention=kernel_attention)
    assert isinstance(made, CausalOnDevice) and isinstance(made.weights.step, DeviceStep)
    return of, made, made.weights.step


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma3", "gpt2", "phi3", "granite", "cohere"])
def test_whose_heads_one_kernel_places(kind: str) -> None:
    assert on_device(kind)[2]._placed == (kind != "cohere")  # which turns neighbours and not halves


_SLOW = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("llama", "gpt2", "phi3", "cohere")]


@pytest.mark.quick("gemma3")
@pytest.mark.parametrize("kind", ["qwen3", "gemma3", *_SLOW])
def test_forwards_with_all_kernels(kind: str) -> None:
    of, made, _ = on_device(kind)

    def check(paths: list[Path], scores: Tensor) -> None:
        want = logits(of, paths)
        assert torch.allclose(scores, want, atol=2e-4, rtol=1e-4), (scores - want).abs().max()

    Lockstep(made, 61, 5, check).run([4, 2], steps=1, nodes=2)


@pytest.mark.parametrize(("count", "first", "words"), [(1, 0, 1), (3, 4, 2), (70, 2, 3)])
def test_cells_are_placed_as_torch_places_them(count: int, first: int, words: int) -> None:
    torch.manual_seed(count)
    batch, tail, capacity = 3, 80, 120
    bits = torch.randint(-(1 << 31), 1 << 31, (batch, count, words)).to(torch.int32)
    bits[torch.rand(batch, count, words) < 0.6] = 0
    bits[0, 0], bits[1, -1] = 0, -(1 << 31)
    tokens, positions = torch.randint(0, 99, (batch, count)), torch.randint(0, 99, (batch, count))
    tokens[bits.eq(0).all(-1)] = 1 << 40
    held = torch.tensor([0, 7, 31], dtype=torch.int32)
    want, got = (Cells(batch, capacity, tail, torch.device("cpu"), kernels) for kernels in (False, True))
    for made in (want, got):
        made.tail_positions.fill_(-77)
    a, b = want.place(tokens, positions, first, held, bits), got.place(tokens, positions, first, held, bits)
    for name in ("tokens", "positions", "write", "real", "cached"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert torch.equal(want.tail_positions, got.tail_positions) and (want.tail_positions == -77).any()
