"""Attention of new cells over slots: the kernel against float64 in NumPy, and the torch form against the kernel's meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples
from torch import Tensor

from decgraph.backends.triton.kernels import attend as kernel
from decgraph.backends.triton.kernels.shared import PAGE
from decgraph.errors import DecError

# Of outputs near one. The interpreter cuts off where it makes bfloat16 of weights; devices round.
NEAR = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}


@dataclass
class Case:
    """Operands of `attend`, and the slots that each cell sees: bool[B, T, S]."""

    args: dict[str, Any]
    seen: np.ndarray

    def gap(self, device: torch.device, **more: Any) -> float:
        """How far the kernels are from float64 in NumPy, and so is the torch form."""
        on = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in self.args.items()}
        got = kernel.launch(**on, **more)
        want = dense(self.args, self.seen)
        assert got.dtype == on["q"].dtype and got.shape == want.shape and torch.isfinite(got).all()
        finite = {k: v.nan_to_num(nan=3.0) if k in ("keys", "values") else v for k, v in self.args.items()}
        form = kernel.attend(*finite.values())
        assert form.stride() == got.stride() and np.abs(form.double().numpy() - want).max() < NEAR[got.dtype]
        return float(np.abs(got.double().cpu().numpy() - want).max())


def dense(args: dict[str, Any], seen: np.ndarray) -> np.ndarray:
    """What attention means; cells that see nothing are zeros."""
    q, keys, values = (args[k].double().numpy() for k in ("q", "keys", "values"))
    batch, heads, cells, _ = q.shape
    group = heads // len(keys)
    out = np.zeros((batch, heads, cells, values.shape[2]))
    for b, h, t in np.ndindex(batch, heads, cells):
        at = np.flatnonzero(seen[b, t])
        if len(at):
            at = args["pages"][b].numpy()[at // PAGE] * PAGE + at % PAGE
            scores = keys[h // group, at] @ q[b, h, t] * args["scale"]
            if args["softcap"]:
                scores = args["softcap"] * np.tanh(scores / args["softcap"])
            weights = np.exp(scores - scores.max())
            out[b, h, t] = weights @ values[h // group, at] / weights.sum()
    return out


def made(
    below: Any, tail: Any = None, first: Any = None, *, slots: int = 0, heads: int = 2, group: int = 2, size: int = 16,
    value_size: int | None = None, window: int | None = None, softcap: float | None = None, dtype: torch.dtype = torch.float32,
    seed: int = 0, positions: Any = None, shared: int = 0,
) -> Case:  # fmt: skip
    """Random operands; pages lie in any order in the pool, and every slot that no cell sees, but for a window, is NaN, as are
    pages that nobody has. below: [B or 1, T]; tail: [B or 1, T, U]; shared: so many pages are the same for all lanes."""
    rng = np.random.default_rng(seed)
    below = np.asarray(below)
    tail = None if tail is None else np.asarray(tail, dtype=bool)
    batch = max(len(below), 1 if first is None else len(first), 1 if tail is None else len(tail))
    cells = below.shape[1]
    end = max(int(below.max()), 0 if tail is None else max(first) + tail.shape[2])
    slots = -(-max(slots, end + 1) // PAGE) * PAGE
    seen = np.zeros((batch, cells, slots), dtype=bool)
    for b, t in np.ndindex(batch, cells):
        seen[b, t, : below[b % len(below), t]] = True
        if tail is not None:
            start = first[b % len(first)]
            seen[b, t, start : start + tail.shape[2]] |= tail[b % len(tail), t]
    slot_positions = np.broadcast_to(np.arange(slots), (batch, slots)).copy()
    at = np.asarray(positions) if positions is not None else np.maximum(below - 1, 0)
    if positions is not None and first is not None:  # of the cells, which stand in the tail
        for b in range(batch):
            slot_positions[b, first[b] : first[b] + cells] = at[b]
    count = slots // PAGE
    pages = 1 + rng.permutation(batch * count + 2)[: batch * count].reshape(batch, count)  # page 0 is nobody's
    pages[:, :shared] = pages[:1, :shared]
    size_of = (int(pages.max()) + 2) * PAGE
    owned = np.zeros(size_of, dtype=bool)
    for b in range(batch):
        mine = np.flatnonzero(seen[b].any(0))
        owned[pages[b, mine // PAGE] * PAGE + mine % PAGE] = True
        pages[b, mine.max(initial=-1) // PAGE + 1 :] = 0
    if window is not None:
        seen &= np.broadcast_to(at, (batch, cells))[..., None] - slot_positions[:, None] < window
    q = rng.standard_normal((batch, heads * group, cells, size)) * 2
    keys, values = (rng.standard_normal((heads, size_of, n)) for n in (size, value_size or size))
    keys[:, ~owned] = values[:, ~owned] = np.nan
    q, keys, values = (torch.from_numpy(a).to(dtype) for a in (q, keys, values))
    return Case(
        {
            "q": q, "keys": keys, "values": values, "pages": torch.from_numpy(pages).int(), "below": torch.from_numpy(below),
            "tail": None if tail is None else torch.from_numpy(tail), "first": None if first is None else torch.tensor(first),
            "scale": size**-0.5, "window": window, "positions": torch.from_numpy(at),
            "slot_positions": torch.from_numpy(slot_positions), "softcap": softcap,
        },
        seen,
    )  # fmt: skip


def tree(nodes: int, seed: int = 0) -> np.ndarray:
    """bool[N, N]: which nodes of a random tree each of them sees."""
    rng = np.random.default_rng(seed)
    out = np.eye(nodes, dtype=bool)
    for n in range(1, nodes):
        out[n] |= out[rng.integers(0, n)]
    return out


def chain(length: int, cells: int) -> list[int]:
    """What a chain of cells sees that ends a text of that length."""
    return [length - cells + 1 + t for t in range(cells)]


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_chains_of_lanes_of_any_length(count: int, device: torch.device) -> None:
    c = made([chain(150, 3), chain(3, 3), chain(33, 3), [0, 0, 0]], group=4)
    assert c.gap(device, count=count) < 3e-6


def test_pages_of_several_lanes(device: torch.device) -> None:
    """Lanes with the same first pages, and one page for each of the rest; a table that is wider than what is seen."""
    c = made([chain(200, 2), chain(130, 2), chain(129, 2)], slots=500, shared=2)
    assert (c.args["pages"][:, 0] == c.args["pages"][0, 0]).all() and (c.args["pages"][:, 4:] == 0).all()
    assert c.gap(device) < 3e-6 and c.gap(device, count=4) < 3e-6


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize(("group", "size", "value_size"), [(1, 64, 64), (4, 80, 48), (7, 16, 32)])
def test_types_groups_and_sizes(dtype: torch.dtype, group: int, size: int, value_size: int, device: torch.device) -> None:
    tails = np.stack([tree(5), tree(5, 1)])
    c = made([[70] * 5, [9] * 5], tails, [70, 9], group=group, size=size, value_size=value_size, dtype=dtype)
    assert c.gap(device, count=4) < NEAR[dtype]


def test_one_cell_and_a_large_head(device: torch.device) -> None:
    assert made([[97]], heads=1, size=256).gap(device, count=4) < 3e-6
    assert made([[1]]).gap(device) < 3e-6


@pytest.mark.parametrize("first", [31, 32, 45])
def test_trees_anywhere_in_a_block(first: int, device: torch.device) -> None:
    """One tree for all lanes; later cells of a tree that is wider than the call; slots between are nobody's."""
    wide = np.concatenate([np.ones((37, 3), dtype=bool), tree(37)], 1)
    c = made([[first - 4] * 37], wide[None], [first], heads=1)
    assert c.gap(device, count=2) < 3e-6
    both = made([[first] * 6, [2] * 6], wide[None, 31:], [first, 2], heads=1)
    assert both.gap(device, count=2) < 3e-6


def test_canvases_and_blocks_of_them(device: torch.device) -> None:
    """All slots in use; and cells that see their own block and those before it."""
    assert made([[41], [64]] @ np.ones((1, 40), dtype=np.int64), heads=1).gap(device, count=2) < 3e-6
    assert made([[8 * (t // 8 + 1) + 10 for t in range(70)]], heads=1, group=1).gap(device, count=2) < 3e-6


@pytest.mark.parametrize("window", [1, 4, 33, 500])
def test_windows_go_by_position(window: int, device: torch.device) -> None:
    tails = np.stack([tree(9), tree(9, 2)])
    at = np.array([100, 3])[:, None] + tails.sum(2) - 1
    c = made([[100] * 9, [3] * 9], tails, [100, 3], window=window, positions=at)
    assert c.gap(device, count=2) < 3e-6
    assert made([chain(90, 4)], window=window).gap(device, count=2) < 3e-6


def test_soft_caps(device: torch.device) -> None:
    c = made([chain(60, 4)], softcap=0.5)
    assert c.gap(device, count=4) < 3e-6
    finite = {k: v.nan_to_num() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in c.args.items()}
    assert (kernel.form(**finite) - kernel.form(**{**finite, "softcap": None})).abs().max() > 0.1


def test_views(device: torch.device) -> None:
    """Queries as a product makes them, pools cut out of larger ones."""
    c = made([chain(70, 3), chain(12, 3)])
    c.args["q"] = c.args["q"].transpose(1, 2).contiguous().transpose(1, 2)
    for name in ("keys", "values"):
        old = c.args[name]
        view = torch.full((4, old.shape[1] + 9, old.shape[2]), float("nan"))[1:3, : old.shape[1]]
        view.copy_(old)
        c.args[name] = view
    assert c.gap(device, count=2) < 3e-6
    assert c.gap(device, count=4) < 3e-6


@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_anything_small(data: Any) -> None:
    from triton import knobs

    lengths = data.draw(st.lists(st.integers(0, 80), min_size=1, max_size=3))
    cells, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 35))
    seed = data.draw(st.integers(0, 99))
    tail = np.random.default_rng(seed).random((len(lengths), cells, width)) < 0.5
    c = made(
        [[n] * cells for n in lengths], tail, [n + data.draw(st.integers(0, 2)) for n in lengths],
        heads=data.draw(st.integers(1, 2)), group=data.draw(st.sampled_from([1, 3, 4])),
        size=data.draw(st.sampled_from([16, 24])), slots=data.draw(st.integers(0, 150)), seed=seed,
    )  # fmt: skip
    device = torch.device("cpu" if bool(knobs.runtime.interpret) else "cuda")
    assert c.gap(device, count=2 ** data.draw(st.integers(0, 4))) < 3e-6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": torch.zeros(1, 4, 3, 16, dtype=torch.float64)}, "one type"),
        ({"window": 3, "positions": None}, "positions"),
        ({"keys": torch.zeros(2, 16, 64).transpose(1, 2)}, "contiguous"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DecError, match=words):
        kernel.launch(**{**made([chain(20, 3)]).args, **change})
