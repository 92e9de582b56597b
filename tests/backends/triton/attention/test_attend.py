"""Attention of tree cells over caches, against float64."""

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
from torch.utils._python_dispatch import TorchDispatchMode

from decgraph.backends.triton.attention.attend import attend
from decgraph.backends.triton.attention.tree import ancestors
from decgraph.errors import DecError

# Of outputs near one. The interpreter cuts off where it makes bfloat16 of weights; devices round.
NEAR = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}


@dataclass
class Case:
    """Operands, and what each row sees: bool[B, T, S]."""

    q: Tensor
    keys: Tensor
    values: Tensor
    held: Tensor
    bits: Tensor
    first: int
    visible: np.ndarray
    kwargs: dict[str, Any]


def made(
    held: list[int],
    cells: int,
    *,
    heads: int = 2,
    group: int = 4,
    size: int = 16,
    value_size: int | None = None,
    first: int = 0,
    room: int = 3,
    parents: np.ndarray | None = None,
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    offset: int = 0,
) -> Case:
    """A case with random keys; every slot that is not held and that no row's bits name is NaN.

    parents: of all first + cells tail cells [B, .], random where not given; -2 is padding. room: slots behind the tail.
    offset: positions before slot 0."""
    rng = np.random.default_rng(seed)
    batch, tail = len(held), first + cells
    if parents is None:
        parents = np.array([[rng.integers(-1, n) if n else -1 for n in range(tail)] for _ in held])
    words = -(-tail // 32) + seed % 2
    bits = ancestors(torch.from_numpy(parents.astype(np.int64)), words)
    positions = np.zeros((batch, tail), dtype=np.int64)
    slots = max(held) + tail + room
    visible = np.zeros((batch, tail, slots), dtype=bool)
    named = visible.copy()
    for b, n in enumerate(held):
        for j, parent in enumerate(parents[b]):
            positions[b, j] = offset + n if parent < 0 else positions[b, parent] + 1
            visible[b, j, :n] = True
            if parent >= 0:
                visible[b, j, n:] = visible[b, parent, n:]
            visible[b, j, n + j] = parent >= -1
        named[b] = visible[b]
        at = np.concatenate([offset + np.arange(n), positions[b], np.zeros(slots - n - tail)])
        if window is not None:
            visible[b] &= at[None, :] > positions[b][:, None] - window
    visible, named = visible[:, first:], named[:, first:]
    value_size = size if value_size is None else value_size
    q = torch.from_numpy(rng.standard_normal((batch, cells, heads * group, size))).to(dtype)
    keys = torch.from_numpy(rng.standard_normal((batch, heads, slots, size))).to(dtype)
    values = torch.from_numpy(rng.standard_normal((batch, heads, slots, value_size))).to(dtype)
    for b, n in enumerate(held):
        nobody = ~named[b].any(0)
        nobody[:n] = False
        keys[b, :, nobody] = values[b, :, nobody] = float("nan")
    kwargs: dict[str, Any] = {"scale": size**-0.5}
    if window is not None:
        at_all = torch.zeros((batch, words * 32), dtype=torch.int64)
        at_all[:, :tail] = torch.from_numpy(positions)
        kwargs |= {"window": window, "positions": at_all[:, first:tail], "tail_positions": at_all}
    return Case(q, keys, values, torch.tensor(held, dtype=torch.int32), bits[:, first:], first, visible, kwargs)


def gap(c: Case, dense: Any, splits: int | None, **more: Any) -> float:
    """How far the kernels are from float64, at most."""
    got = attend(c.q, c.keys, c.values, c.held, c.bits, c.first, splits=splits, **c.kwargs, **more)
    assert got.dtype == c.q.dtype and got.shape == (*c.q.shape[:3], c.values.shape[3])
    want = dense(c.q, c.keys, c.values, c.visible, c.kwargs["scale"], more.get("softcap"))
    assert torch.isfinite(got).all()
    return float(np.abs(got.double().numpy() - want).max())


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize(("group", "size", "value_size"), [(1, 64, 64), (4, 80, 48), (7, 16, 32)])
def test_dtypes_groups_and_sizes(dtype: torch.dtype, group: int, size: int, value_size: int, dense: Any) -> None:
    c = made([70, 9], 5, group=group, size=size, value_size=value_size, first=3, dtype=dtype)
    assert gap(c, dense, 5) < NEAR[dtype]


def test_a_large_head(dense: Any) -> None:
    assert gap(made([40], 2, heads=1, group=2, size=256), dense, 2) < 3e-6


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 40, None])
def test_any_number_of_runs(splits: int | None, dense: Any) -> None:
    """Ragged lengths, zero among them; more runs than units, too."""
    assert gap(made([150, 0, 33, 64], 3, heads=1, seed=splits or 0), dense, splits) < 3e-6


def test_one_long_sequence_among_many(dense: Any) -> None:
    """It is cut into more parts than the merge reads at once."""
    assert gap(made([250, 0, 2, 0, 1, 0], 1, heads=1), dense, 16) < 3e-6


def test_the_first_step_and_one_cell(dense: Any) -> None:
    assert gap(made([0], 1), dense, 3) < 3e-6
    assert gap(made([0, 0], 6), dense, 2) < 3e-6
    assert gap(made([97], 1), dense, 4) < 3e-6


@pytest.mark.parametrize("first", [0, 1, 31, 32, 40])
def test_words_that_do_not_meet_blocks(first: int, dense: Any) -> None:
    """The tail begins anywhere in a block of keys, and the words of bits anywhere in it."""
    assert gap(made([first % 7 + 29], 6, heads=1, first=first, seed=first), dense, 2) < 3e-6


@pytest.mark.parametrize("shape", ["chain", "star", "padded"])
def test_shapes_of_trees(shape: str, dense: Any) -> None:
    n = 37
    parents = {
        "chain": np.arange(n) - 1,
        "star": np.where(np.arange(n) > 0, 0, -1),
        "padded": np.where(np.arange(n) < 20, np.arange(n) // 2 - 1, -2),
    }[shape]
    parents = np.where((shape == "padded") & (np.arange(n) < 2), -1, parents)
    c = made([50, 0], n, heads=1, group=2, parents=np.stack([parents, parents]))
    assert gap(c, dense, 5) < 3e-6  # padding sees what is held, and where nothing is held it is zeros


def test_all_bits(dense: Any) -> None:
    """A block that sees itself whole, both ways, as canvases do."""
    c = made([20], 32, heads=1, group=1)
    c.bits[:], c.visible[:, :, 20:52] = -1, True
    c.keys[:, :, 20:52], c.values[:, :, 20:52] = torch.randn(1, 1, 32, 16), torch.randn(1, 1, 32, 16)
    assert gap(c, dense, 2) < 3e-6


def test_several_tiles_of_rows(dense: Any) -> None:
    assert gap(made([45], 70, heads=1, group=2), dense, 9) < 3e-6


@pytest.mark.parametrize("window", [1, 4, 33, 500])
def test_windows(window: int, dense: Any) -> None:
    """By position, for held cells and for those of the tail, however deep."""
    parents = np.stack([np.arange(14) - 1, np.where(np.arange(14) > 1, np.arange(14) // 2 - 1, -1)])
    assert gap(made([100, 3], 12, heads=1, window=window, first=2, parents=parents), dense, 3) < 3e-6


def test_soft_caps(dense: Any) -> None:
    c = made([60], 4)
    c.q *= 30
    assert gap(c, dense, 4, softcap=5.0) < 3e-6
    plain = attend(c.q, c.keys, c.values, c.held, c.bits, 0, **c.kwargs)
    capped = attend(c.q, c.keys, c.values, c.held, c.bits, 0, softcap=5.0, **c.kwargs)
    assert (plain - capped).abs().max() > 0.1


def test_runs_do_not_change_what_comes_out() -> None:
    c = made([90, 10], 3, heads=1)
    outs = [attend(c.q, c.keys, c.values, c.held, c.bits, 0, splits=n, **c.kwargs) for n in (1, 6, 6)]
    assert torch.equal(outs[1], outs[2])
    assert torch.allclose(outs[0], outs[1], atol=2e-6)


def test_views(dense: Any) -> None:
    """Queries as modules make them, [B, Hq, T, D] transposed, and caches cut out of larger ones."""
    c = made([30, 12], 3)
    c.q = c.q.transpose(1, 2).contiguous().transpose(1, 2)
    for name in ("keys", "values"):
        old = getattr(c, name)
        wide = torch.full((2, 4, old.shape[2] + 9, old.shape[3]), float("nan"))
        view = wide[:, 1:3, : old.shape[2]]
        view.copy_(old)
        setattr(c, name, view)
    assert gap(c, dense, 3) < 3e-6


@pytest.mark.quick(first=3)
@pytest.mark.parametrize("window", [None, 6, 40])
@pytest.mark.parametrize("splits", [1, 5, 9])
def test_a_shared_prefix(window: int | None, splits: int, dense: Any) -> None:
    """The same as with every sequence holding the prefix itself. One sequence holds nothing of its own."""
    shared, slots = 35, 50
    c = made([40, 0, 7], 4, heads=2, group=2, window=window, offset=shared)
    c.q *= 6  # so that either side may have the larger weight
    keys, values = (torch.randn(2, slots, 16) for _ in range(2))
    keys[:, shared:], values[:, shared:] = float("nan"), float("nan")
    prefix = (keys, values, torch.tensor([shared], dtype=torch.int32))
    got = attend(c.q, c.keys, c.values, c.held, c.bits, 0, prefix=prefix, splits=splits, **c.kwargs)
    whole = made([75, 35, 42], 4, heads=2, group=2, window=window)
    for b, n in enumerate((40, 0, 7)):
        for into, own, common in ((whole.keys, c.keys, keys), (whole.values, c.values, values)):
            into[b, :, :shared] = common[:, :shared]
            into[b, :, shared : shared + n + 4] = own[b, :, : n + 4]
    assert (whole.bits == c.bits).all()
    want = dense(c.q, whole.keys, whole.values, whole.visible, 0.25)
    assert np.abs(got.numpy() - want).max() < 1e-5


def test_an_empty_prefix(dense: Any) -> None:
    c = made([0, 9], 2, parents=np.array([[-1, -2], [-1, -1]]))
    keys = torch.full((2, 16, 16), float("nan"))
    got = attend(c.q, c.keys, c.values, c.held, c.bits, 0, prefix=(keys, keys, torch.zeros(1, dtype=torch.int32)), **c.kwargs)
    assert np.abs(got.numpy() - dense(c.q, c.keys, c.values, c.visible, 0.25)).max() < 3e-6


@settings(max_examples=examples(15))
@given(data=st.data())
def test_anything_small(data: Any, dense: Any) -> None:
    held = data.draw(st.lists(st.integers(0, 80), min_size=1, max_size=3))
    cells, first = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 34))
    c = made(
        held,
        cells,
        first=first,
        heads=data.draw(st.integers(1, 2)),
        group=data.draw(st.sampled_from([1, 3, 4])),
        size=data.draw(st.sampled_from([16, 24])),
        room=data.draw(st.integers(0, 40)),
        seed=data.draw(st.integers(0, 99)),
        window=data.draw(st.none() | st.integers(1, 50)),
    )
    assert gap(c, dense, data.draw(st.integers(1, 12))) < 3e-6


class NothingIsRead(TorchDispatchMode):
    """Raises where the host reads a tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise AssertionError(f"{func} reads the device")
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_back() -> None:
    c = made([20, 5], 3, window=9)
    prefix = (c.keys[0], c.values[0], torch.tensor([4], dtype=torch.int32))
    with NothingIsRead():
        with pytest.raises(AssertionError, match="reads the device"):
            c.held[0].item()
        attend(c.q, c.keys, c.values, c.held, c.bits, 0, prefix=prefix, **c.kwargs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": torch.zeros(2, 3, 1, dtype=torch.int64)}, "bits"),
        ({"first": 30}, "33 tail cells"),
        ({"cached": torch.zeros(2, dtype=torch.int64)}, "lengths"),
        ({"q": torch.zeros(2, 3, 7, 16)}, "fit together"),
        ({"q": torch.zeros(2, 3, 8, 16, dtype=torch.float64)}, "one type"),
        ({"window": 3}, "positions"),
        ({"prefix": (torch.zeros(2, 4, 16), torch.zeros(2, 4, 16), torch.zeros(1))}, "prefix"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], words: str) -> None:
    c = made([20, 5], 3)
    given_ = {
        "q": c.q,
        "keys": c.keys,
        "values": c.values,
        "cached": c.held,
        "bits": c.bits,
        "first": 0,
        "scale": 1.0,
        **change,
    }
    with pytest.raises(DecError, match=words):
        attend(**given_)
