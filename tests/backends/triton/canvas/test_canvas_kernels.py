"""Small vectors in one kernel: what torch gives, for every operation, and the same tokens for every masked algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from canvas_programs import NAMES, hf_model, machines, parameters
from torch import Tensor

from decgraph.backends.triton.cubin import reports
from decgraph.backends.triton.step import canvas_run
from decgraph.backends.triton.step.canvas_choices import order_of
from decgraph.backends.triton.step.canvas_kernels import Kernel, heard, launch
from decgraph.backends.triton.step.canvas_symbols import Symbol, computed, plain, written
from decgraph.backends.triton.step.canvas_values import Live, constant
from decgraph.backends.triton.step.canvas_vectors import packed
from decgraph.runtime.request import Request
from lab.gpu.cubins import canvas_specs
from lab.gpu.specs.canvas import specs

F = Callable[..., Any]
CPU = torch.device("cpu")


def vectors(batch: int, size: int, seed: int = 0) -> tuple[Tensor, ...]:
    """(float64 with ties and a NaN, float32, int64, bool, a number and a truth value for each sequence)."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, (batch, size), generator=g).double() / 2
    if size > 4:
        x[0, 3] = torch.nan
    return (
        x,
        torch.rand(batch, size, generator=g),
        torch.randint(-1, 9, (batch, size), generator=g),
        torch.rand(batch, size, generator=g) < 0.6,
        torch.randint(0, 5, (batch,), generator=g),
        torch.rand(batch, generator=g) < 0.5,
    )


ELEMENTWISE: dict[str, F] = {
    "arithmetic": lambda x, f, i, c, n, t: (x + 1.5) * f - i / 2,
    "numbers for all lanes": lambda x, f, i, c, n, t: f * n[:, None] + constant(2.5, CPU),
    "orders": lambda x, f, i, c, n, t: ((x < f) & ~(i >= n[:, None])) | (f == constant(0.25, CPU)) & c,
    "choices": lambda x, f, i, c, n, t: torch.where(t[:, None], torch.where(c, x, f), -7.0),
    "functions": lambda x, f, i, c, n, t: torch.exp(f) + torch.log(f + 1) + torch.abs(x) + torch.relu(x) - (x * 1.7).trunc(),
    "bounds": lambda x, f, i, c, n, t: torch.minimum(i.clamp(0, 5), constant(3, CPU)) + i.clamp_min(2) + i.clamp_max(1),
    "types": lambda x, f, i, c, n, t: c.long() * 2 + (f * 10).long() + i.double(),
    "truth": lambda x, f, i, c, n, t: torch.isnan(x) | ~torch.isfinite(f),
    "constants of the lanes": lambda x, f, i, c, n, t: constant(torch.arange(f.shape[1]).numpy(), CPU)[None] == n[:, None],
}
FOLDS: dict[str, F] = {
    "sum": lambda x, f, i, c, n, t: i.sum(1) + c.sum(1),
    "least and most": lambda x, f, i, c, n, t: f.amax(1) - f.amin(-1, keepdim=True)[:, 0] + i.amax(1),
    "mean": lambda x, f, i, c, n, t: f.double().mean(1),
    "any": lambda x, f, i, c, n, t: (c & (i > 3)).any(1) | t,
    "all": lambda x, f, i, c, n, t: (c | (i >= 0)).all(1) & ~t,
    "running": lambda x, f, i, c, n, t: c.long().cumsum(1) + torch.cumsum(i, 1),
}
PLACES: dict[str, F] = {
    "order": lambda x, f, i, c, n, t: torch.sort(x, dim=1, stable=True).indices,
    "order of truth": lambda x, f, i, c, n, t: torch.sort(~c, dim=1, stable=True).indices,
    "gather": lambda x, f, i, c, n, t: f.gather(1, i.clamp(0, f.shape[1] - 1)) + x.gather(1, (n % f.shape[1])[:, None]),
    "one": lambda x, f, i, c, n, t: f[:, 0] + x[:, f.shape[1] - 1] + f[:, :1][:, 0],
    "part": lambda x, f, i, c, n, t: c[:, f.shape[1] // 2 :].long().sum(1) + i[:, :2].sum(1),
    "scatter": lambda x, f, i, c, n, t: torch.zeros_like(i).scatter(1, torch.sort(f, dim=1, stable=True).indices, i),
    "best that is there": lambda x, f, i, c, n, t: order_of(Live(x, c), True),
    "packed": lambda x, f, i, c, n, t: packed(Live(i, c)).data,
    "written": lambda x, f, i, c, n, t: written(i, torch.sort(f, dim=1, stable=True).indices, c & (i < 5), i + 100),
}


def check(f: F, batch: int, size: int) -> None:
    given = vectors(batch, size, seed=size)
    want = f(*given)
    with heard() as kernels:
        got = plain(f(*(Symbol.leaf(t) for t in given)))
    assert len(kernels) == 1  # nothing was computed on the way
    assert got.dtype == want.dtype and got.shape == want.shape
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [*ELEMENTWISE, *FOLDS, *PLACES])
def test_operations(name: str) -> None:
    check({**ELEMENTWISE, **FOLDS, **PLACES}[name], 2, 19)


@pytest.mark.parametrize("name", ["choices", "all", "order", "best that is there", "written"])
def test_other_sizes(name: str) -> None:
    """Two lanes of one sequence, and lanes that are no power of two."""
    for batch, size in ((1, 2), (3, 5)):
        check({**ELEMENTWISE, **FOLDS, **PLACES}[name], batch, size)


def test_one_lane_is_a_number() -> None:
    for f in (FOLDS["any"], PLACES["order"], PLACES["written"], ELEMENTWISE["choices"]):
        check(f, 2, 1)


def test_many_lanes() -> None:
    """Sorted in chunks of lanes, more than one program's warp has."""
    check(PLACES["best that is there"], 1, 150)


def test_what_is_read_may_be_overwritten() -> None:
    """As a turn does with the canvas: outputs are where the inputs were, and nothing beside them is touched."""
    room = torch.full((3, 9), -77)
    canvas = room[:, 2:7].contiguous()
    done = torch.tensor([True, False, True])
    one = Symbol.leaf(canvas)
    new = torch.where(Symbol.leaf(done)[:, None], one + 100, one)
    other = Symbol.leaf(done) & (new > 0).any(1)
    launch([(new, canvas), (other, done)])
    assert canvas[:, 0].tolist() == [23, -77, 23]
    assert done.tolist() == [True, False, True]
    assert new.value is canvas


def test_what_has_no_form_is_torchs() -> None:
    """A function without a symbolic form computes what it needs, all in one launch, and goes on with tensors."""
    a, b = Symbol.leaf(torch.tensor([[1.0, 2.0]])) + 1, Symbol.leaf(torch.tensor([[3.0, 4.0]])) * 2
    with heard() as kernels:
        made = torch.cat((a, b), 1)
        assert torch.equal(made, torch.tensor([[2.0, 3.0, 6.0, 8.0]]))
        assert torch.equal(computed([a])[id(a)], torch.tensor([[2.0, 3.0]]))
    assert len(kernels) == 1


def fused(name: str, count: int, **more: Any) -> tuple[int, int, list[Kernel]]:
    params = parameters(name, length=7, block=3, tau=0.3, steps=4)
    asked = [
        Request(**{"prompt": p, "limit": 20, "seed": 7, "request_id": i, **more})
        for i, p in enumerate(((1, 2), (2, 0, 1))[:count])
    ]
    want, have = (machines(name, hf_model(), params, asked) for _ in range(2))
    for m in want:
        m.run()
    e = canvas_run.evaluator_for(have)
    e.fused = True
    try:
        canvas_run.begin(e, have)
        with heard() as kernels:
            canvas_run.run_body(e, have[0])
        (ran, *_) = canvas_run.finish(e, have)
    finally:
        e.fused = False  # the evaluator is kept for other tests
    for a, b in zip(have, want, strict=True):
        assert a.committed_tokens() == b.committed_tokens() and a.tally.calls == b.tally.calls
        assert a.tally.unmasked == b.tally.unmasked
    return ran.iterations, len(kernels), kernels


EASY = ("fast_dllm", "llada", "prophet")


@pytest.mark.parametrize("name", [n if n in EASY else pytest.param(n, marks=pytest.mark.nightly) for n in NAMES])
def test_selection_and_unmasking_are_one_launch(name: str) -> None:
    """Of two sequences together, a turn's choice, its writing, who goes on and what is counted."""
    turns, launches, _ = fused(name, 2)
    # static_masked draws with how many cells are decided, which has to be known first; by_factor over a block of one cell
    # looks at the confidences behind the first, of which there are none.
    more = turns if name == "static_masked" else 3 if name == "fast_dllm_factor" else 0
    assert turns <= launches <= turns + more


def test_a_kernel_reads_well() -> None:
    _, _, kernels = fused("fast_dllm", 1, temperature=0)
    text = kernels[0].text
    assert "rank_" in text and "written_" in text and text.count("def canvas_step(") == 1
    assert max(len(line) for line in text.splitlines()) < 400


@pytest.mark.nightly
def test_kernels_compile_without_spills() -> None:
    for r in reports([*specs(), *(s for name in NAMES for s in canvas_specs(name))]):
        assert not r.error and not r.spills, r
