"""The vocabulary kernels as functions, against NumPy in float64, whole and split, over dtypes and odd sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decgraph.backends.triton.rows import functions, launch
from decgraph.backends.triton.tuned import Config
from decgraph.runtime import noise

DTYPES = (torch.float64, torch.float32, *(pytest.param(k, marks=pytest.mark.nightly) for k in (torch.bfloat16, torch.float16)))
LAYOUTS = {"one block": None, "blocks": Config(16, splits=1), "split": Config(16, splits=3)}


@pytest.fixture(params=LAYOUTS)
def layout(request: Any, monkeypatch: Any) -> Iterator[str]:
    """Every layout, with outputs poisoned."""
    wanted = LAYOUTS[request.param]
    if wanted is not None:
        monkeypatch.setattr(launch, "usual", lambda size, rows, largest: wanted)
    empty = torch.empty
    monkeypatch.setattr(launch.torch, "empty", lambda *a, **k: poisoned(empty(*a, **k)))
    yield request.param


def poisoned(t: Tensor) -> Tensor:
    return t.fill_(float("nan") if t.is_floating_point() else True if t.dtype == torch.bool else -77)


def keys(rows: int) -> tuple[list[noise.Key], Tensor, Tensor]:
    """Keys, as the reference and as kernels take them."""
    made = [noise.Key(2**40 + 7 * i, i, f"site {i}", (i, 3), (i,)) for i in range(rows)]
    words = torch.tensor([k.words() for k in made], dtype=torch.int64).to(torch.int32)
    return made, words, torch.tensor([[k.seed & 0xFFFFFFFF, k.seed >> 32] for k in made])


def logits(size: int, kind: torch.dtype, seed: int = 0) -> Tensor:
    """Three rows: any numbers, one with bans, one of few values that tie."""
    g = torch.Generator().manual_seed(seed + size)
    x = torch.randn(3, size, generator=g) * 3
    x[1, torch.randperm(size, generator=g)[: size // 3]] = -torch.inf
    x[2] = x[2].round()
    return x.to(kind)


def close(got: Tensor, want: Tensor, kind: torch.dtype) -> None:
    tolerance = 1e-13 if kind == torch.float64 else 1e-6
    assert got.dtype == (torch.float64 if kind == torch.float64 else torch.float32)
    torch.testing.assert_close(got.double(), want.double(), atol=tolerance, rtol=10 * tolerance)


SLOW = pytest.mark.nightly
SIZES = (33, *(pytest.param(n, marks=SLOW) for n in (3, 5, 31, 32, 127, 129, 1000)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_softmax_and_what_is_read_of_it(layout: str, size: int, kind: torch.dtype) -> None:
    x = logits(size, kind)
    wide, p = x.double(), torch.softmax(x.double(), -1)
    got = functions.softmax(x)
    close(got, p, kind)
    best = wide.argmax(-1)
    assert functions.argmax(x).equal(best)
    close(functions.confidence(x, best), p.amax(-1), kind)
    assert functions.confidence(x, torch.tensor([-1, 0, -1])).equal(torch.stack([got[0, 0] * 0, got[1, 0], got[0, 0] * 0]))
    close(functions.entropy(got), torch.special.entr(got.double()).sum(-1), kind)
    two = torch.sort(got, descending=True).values
    close(functions.margin(got), two[:, 0] - two[:, 1], kind)


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_bias_and_temperature(layout: str, kind: torch.dtype) -> None:
    x = logits(33, kind)
    shared, rows = torch.randn(33), torch.randn(3, 33)
    shared[4] = -torch.inf
    for bias in (None, shared, rows):
        moved = x.double() if bias is None else x.double() + bias
        close(functions.shaped(x, temperature=0.3, bias=bias), torch.softmax(moved / 0.3, -1), kind)
        assert functions.argmax(x, bias).equal(moved.argmax(-1))
        assert functions.shaped(x, temperature=0, bias=bias).argmax(-1).equal(moved.argmax(-1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_draws(layout: str, size: int, kind: torch.dtype) -> None:
    x = logits(size, kind)
    q = functions.softmax(x)
    made, words, seeds = keys(3)
    times = [noise.exponentials(k, size) for k in made]
    want = [noise.race(q[i].double().numpy(), times[i]) for i in range(3)]
    assert functions.draw(q, words, seeds).tolist() == want
    assert functions.draw_logits(x, words, seeds, temperature=1.0).tolist() == want
    k = min(size, 4)
    many = functions.draw_many(q, words, seeds, k).tolist()
    with np.errstate(divide="ignore"):
        for i in range(3):
            order = noise.race_order(noise.race_keys(np.log(q[i].double().numpy()), times[i]), k).tolist()
            assert many[i] == order + [-1] * (k - len(order))


@pytest.mark.quick(("torch.float32", "blocks"), ("torch.float32", "one block"))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_top_entries(layout: str, size: int, kind: torch.dtype) -> None:
    x = logits(size, kind)
    for k in (1, min(size, 4), min(size, 6)):
        order = torch.sort(x.double(), dim=-1, descending=True, stable=True)
        tokens, values = functions.topk(x, k)
        assert tokens.equal(order.indices[:, :k])
        assert values.double().equal(order.values[:, :k])
    tokens, values = functions.topk(x, size + 2)
    assert tokens[:, size:].eq(-1).all() and values[:, size:].eq(-torch.inf).all()
    assert tokens[:, :size].equal(order.indices)  # -inf is an entry, too


@pytest.mark.parametrize("kind", (torch.float64, torch.float32), ids=str)
def test_laws_without_replacement_and_residuals(layout: str, kind: torch.dtype) -> None:
    q = torch.softmax(logits(33, kind), -1)
    members, count = torch.tensor([[3, 5, 8], [30, 1, -1], [0, 1, 2]]), torch.tensor([2, 3, 0], dtype=torch.int32)
    want = q.clone()
    want[0, [3, 5]] = 0
    want[1, [30, 1]] = 0
    want[:2] /= want[:2].sum(-1, keepdim=True)
    close(functions.without(q, members, count), want, kind)
    assert functions.without(q, members, count)[2].equal(q[2])
    p = q.flip(0)
    over = torch.relu(p - q)
    left = over / torch.where(over.sum(-1, keepdim=True) > 0, over.sum(-1, keepdim=True), 1.0)
    close(functions.residual(p, q), left, kind)
    assert functions.residual(p, q)[1].eq(0).all()


def test_rows_of_which_nothing_is_left(layout: str) -> None:
    x = torch.full((2, 33), -torch.inf)
    x[1, 7] = 2.0
    _, words, seeds = keys(2)
    assert functions.softmax(x)[0].eq(0).all() and functions.softmax(x)[1, 7] == 1
    assert functions.argmax(x).tolist() == [0, 7]
    assert functions.draw_logits(x, words, seeds, temperature=0.5).tolist() == [-1, 7]
    assert functions.draw(functions.softmax(x), words, seeds).tolist() == [-1, 7]
    assert functions.draw_many(functions.softmax(x), words, seeds, 2).tolist() == [[-1, -1], [7, -1]]
    assert functions.shaped(x, temperature=1.0, top_k=3, top_p=0.5, min_p=0.1)[0].eq(0).all()


def test_ties_go_to_the_lowest_token(layout: str) -> None:
    x = torch.zeros(1, 100, dtype=torch.float64)
    x[0, 40:60] = 1.0
    assert functions.argmax(x).tolist() == [40]
    assert functions.topk(x, 22)[0].tolist() == [[*range(40, 60), 0, 1]]


def test_runners_too_slow_for_a_float_tie_to_the_lowest() -> None:
    q = torch.zeros(1, 8)
    q[0, [3, 6]] = 1e-45
    _, words, seeds = keys(1)
    assert functions.draw(q, words, seeds).tolist() == [3]


def test_arrival_times_in_float32_are_exact_to_float32_near_one() -> None:
    """The winner of a race over many tokens has a small time: u near one, where float32 has few numbers."""
    from decgraph.backends.triton.source import load

    text = (
        "import triton\nimport triton.language as tl\nfrom decgraph.backends.triton.rows.parts import exponential\n\n\n"
        "@triton.jit\ndef kernel(words, out):\n    lane = tl.arange(0, 16)\n"
        "    tl.store(out + lane, exponential(tl.load(words + lane).to(tl.uint32, bitcast=True), False))\n"
    )
    words = np.array(
        [
            0,
            1,
            2**31,
            2**32 - 1,
            2**32 - 2,
            2**32 - 1000,
            2**32 - 10**6,
            2**32 - 2**26,
            2**32 - 2**27 - 1,
            2**32 - 2**27 + 1,
            2**32 - 2**28,
            17,
            10**9,
            3 * 10**9,
            4 * 10**9,
            123456789,
        ],
        np.uint32,
    )
    out = torch.empty(16)
    load("exponentials", text)["kernel"][(1,)](torch.from_numpy(words.view(np.int32)), out)
    want = -np.log((words.astype(np.float64) + 0.5) * 2.0**-32)
    assert np.abs(out.numpy() / want - 1).max() < 2e-6
