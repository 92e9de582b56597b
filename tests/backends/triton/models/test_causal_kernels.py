"""The small kernels of a captured forward, alone against their meaning in float64, and in the forwards of whole modules."""

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
from decgraph.backends.triton.step.causal_kernels import ACTIVATIONS, gated, place_heads, sum_norm
from decgraph.runtime.models.capture import make
from decgraph.runtime.models.capture.norms import norms
from decgraph.runtime.models.capture.step import Variant
from decgraph.runtime.models.hf_live import from_module

NAN = float("nan")


@pytest.fixture
def norms_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root-mean-square norms as a capture on a GPU has them: one operation."""

    def taken(program: Any, tied: Any) -> None:
        here, program.device = program.device, torch.device("cuda")
        norms(program)
        program.device = here

    monkeypatch.setitem(make.PASSES, "norms", taken)


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


@pytest.mark.parametrize("size", [5, 64, 700])
def test_sums_and_their_norms(size: int) -> None:
    torch.manual_seed(size)
    states, more, weight = torch.randn(4, size), torch.randn(4, size), torch.rand(size)
    states[2] = more[2] = 0.0
    total, out = sum_norm(states, more, weight, 1e-5)
    want = states.double() + more.double()
    assert torch.allclose(total.double(), want, atol=1e-6)
    assert torch.allclose(out.double(), F.rms_norm(want, (size,), weight.double(), 1e-5), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("size", [3, 64, 1500])
def test_gates(act: str, size: int) -> None:
    torch.manual_seed(size)
    rows = torch.randn(3, 2 * size + 5) * 4
    rows[0, :4] = torch.tensor([-200.0, 200.0, 0.0, -0.0])[: max(4, 0)]
    got = gated(rows, 0, size + 5, size, act)
    x, up = rows[:, :size].double(), rows[:, size + 5 :].double()
    want = F.silu(x) if act == "silu" else F.gelu(x, approximate="tanh" if act == "gelu_tanh" else "none")
    assert got.shape == (3, size) and torch.allclose(got.double(), want * up, atol=1e-5, rtol=1e-5)


def on_device(kind: str) -> tuple[Any, CausalOnDevice, DeviceStep]:
    changes = {"layer_types": ["sliding_attention", "full_attention"]} if kind == "gemma3" else {}
    of = module(kind, num_hidden_layers=2, **changes)
    made = device_model(from_module(of, name=kind), 2, 50, 30, attention=kernel_attention)
    assert isinstance(made, CausalOnDevice) and isinstance(made.weights.step, DeviceStep)
    return of, made, made.weights.step


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma3", "gpt2", "phi3", "granite", "cohere", "opt"])
def test_what_is_fused(kind: str, norms_of_a_gpu: None) -> None:
    for one in (False, True):
        program = on_device(kind)[2]._specialised(Variant(one))
        # cohere turns neighbours and not halves; opt's projections are three; gpt2 and opt have no gates.
        assert len(program.of("place_heads")) == (0 if kind in ("cohere", "opt") else 2)
        assert len(program.of("gated")) == (0 if kind in ("gpt2", "opt") else 2)
        fused = {"llama", "qwen2", "qwen3", "mistral", "phi3", "granite"}
        if kind in fused:  # norm, product, heads, attention, product, norm, product, gate, product; views aside
            rest = {"embedding", "mul", "input", "getitem"}  # once a forward; granite scales its embeddings
            ops = {n.meta["op"] for n in program.graph.nodes if n.op == "call_function"}
            products = {"mm", "addmm"} if kind == "qwen2" else {"mm"}  # with the projections' bias
            if kind != "granite":  # it scales what it adds
                assert ops - rest == {"rms_norm", *products, "sum_norm", "place_heads", "attention", "gated"}
                assert (len(program.of("rms_norm")), len(program.of("sum_norm"))) == (1, 4)


_SLOW = [pytest.param(kind, marks=pytest.mark.nightly) for kind in ("llama", "gpt2", "phi3", "cohere")]


@pytest.mark.quick("gemma3")
@pytest.mark.parametrize("kind", ["qwen3", "gemma3", *_SLOW])
def test_forwards_with_all_kernels(kind: str, norms_of_a_gpu: None) -> None:
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
