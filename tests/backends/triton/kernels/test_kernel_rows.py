"""Rotation with the write of keys and values, races, and truncation: the kernels against float64 in NumPy, or the reference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples
from torch import Tensor

from decgraph.backends.triton.kernels import race, rope_write, truncate
from decgraph.backends.triton.ops.draws import ordered
from decgraph.runtime import noise, shaping
from decgraph.runtime.request import Request


@pytest.mark.parametrize("rotary", [0, 8, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rope_write(rotary: int, dtype: torch.dtype, device: torch.device) -> None:
    """Rows of one product, a part of each head rotated; what is in no slot stays as it was, and so do the neighbours."""
    rng = np.random.default_rng(rotary)
    batch, cells, queries, heads, size, value_size, slots = 2, 3, 4, 2, 16, 12, 9
    width = (queries + heads) * size + heads * value_size
    line = torch.from_numpy(rng.standard_normal((batch, cells, width))).to(dtype)
    q, k, v = line.split([queries * size, heads * size, heads * value_size], -1)
    q, k, v = (t.view(batch, cells, n, -1).transpose(1, 2) for t, n in ((q, queries), (k, heads), (v, heads)))
    angle = torch.from_numpy(rng.standard_normal((1, cells, max(rotary // 2, 1)))).repeat(1, 1, 2).float()
    cos, sin = (angle.cos(), angle.sin()) if rotary else (None, None)
    where = torch.tensor([[1, 2, 3], [5, 8, 8]])
    v[1, :, 2], k[1, :, 2] = v[1, :, 1], k[1, :, 1]  # slot 8 is written twice, with equal values
    if rotary:
        angle[0, 2] = angle[0, 1]
        cos, sin = angle.cos(), angle.sin()
    before = [torch.from_numpy(rng.standard_normal((heads, slots, n))).to(dtype) for n in (size, value_size)]

    def ran(function: Any, on: torch.device) -> list[Tensor]:
        caches = [b.clone().to(on) for b in before]
        sent = [t if t is None else t.to(on) for t in (q, k, v, cos, sin, where)]
        return [t.cpu() for t in (function(*sent, *caches), *caches)]

    got, form = ran(rope_write.launch, device), ran(rope_write.rope_write, torch.device("cpu"))
    assert got[0].stride() == form[0].stride()

    def turned(x: Tensor) -> np.ndarray:
        a, out = x.double().numpy(), x.double().numpy().copy()
        half = rotary // 2
        for d in range(half):
            c, s = (t.double().numpy()[0, :, d] for t in (cos, sin))
            out[..., d] = a[..., d] * c - a[..., d + half] * s
            out[..., d + half] = a[..., d + half] * c + a[..., d] * s
        return out

    want = [turned(q), *(b.double().numpy().copy() for b in before)]
    for b, t in np.ndindex(batch, cells):
        want[1][:, where[b, t]], want[2][:, where[b, t]] = turned(k)[b, :, t], v[b, :, t].double().numpy()
    for a, f, w in zip(got, form, want, strict=True):
        near = 1e-6 if dtype == torch.float32 else 2e-2
        assert np.abs(a.double().numpy() - w).max() < near and np.abs(f.double().numpy() - w).max() < near
    if rotary < size:
        assert torch.equal(got[0][..., rotary:], q[..., rotary:])


def keys_of(lanes: int, rows: int) -> tuple[list[list[noise.Key]], list[Tensor]]:
    """Noise keys of rows of lanes, and their words: of the request [B, 1], of the row [1, R] and of nothing []."""
    keys = [[noise.Key(2**40 + 7 * b, b, "here", (3,), (r,)) for r in range(rows)] for b in range(lanes)]
    words = np.array([[k.words() for k in line] for line in keys])
    seeds = np.array([[divmod(line[0].seed, 2**32)] for line in keys])
    parts = (words[:, :1, 0], words[0, 0, 1], words[:1, :, 2], seeds[..., 1], seeds[..., 0])
    return keys, [torch.tensor(p, dtype=torch.int64) for p in parts]


@pytest.mark.parametrize("size", [3, 70])
def test_races_are_the_reference_s(size: int, device: torch.device) -> None:
    """Several programs of a row, and one; the tokens of runtime/noise.py, from probabilities and from logits."""
    rng = np.random.default_rng(size)
    keys, words = keys_of(3, 4)
    logits = rng.normal(size=(3, 4, size)) * 2
    logits[0, 1] = -np.inf
    logits[0, 1, 2] = 0.0
    heat = np.array([0.0, 0.7, 1.5])
    weights = np.exp(logits / np.maximum(heat, 0.1)[:, None, None])
    weights[2, 3] = 0
    with np.errstate(divide="ignore"):
        want = [
            [noise.race(weights[b, r], noise.exponentials(keys[b][r], size)) if weights[b, r].any() else 0 for r in range(4)]
            for b in range(3)
        ]
        greedy = [logits[0].argmax(-1).tolist(), *want[1:]]
    for rows, temperature, given_, tokens in (
        (torch.from_numpy(weights), None, True, want),
        (torch.from_numpy(logits), torch.from_numpy(heat)[:, None], False, greedy),
    ):
        form = race.draw(rows, temperature, *words, given_, True)
        for programs in (1, 3):
            sent = [t if t is None else t.to(device) for t in (rows, temperature, *words)]
            got = race.launch(*sent, given_, True, block=8, programs=programs)
            drawn = torch.tensor(tokens)
            if not given_:
                drawn[2, 3] = form[2, 3]  # which has mass here
            assert got.tolist() == form.tolist() == drawn.tolist()


def test_ties_scales_and_types_of_races(device: torch.device) -> None:
    """Of equals the lowest; a token that is nearly impossible still wins alone; float32 as a mode; logits in bfloat16."""
    _, words = keys_of(1, 2)
    at = [w.to(device) for w in words]
    flat = torch.zeros(1, 2, 70, dtype=torch.float64, device=device)
    assert race.launch(flat, torch.zeros((), device=device), *at, False, True, block=4, programs=9).tolist() == [[0, 0]]
    alone = flat.clone()
    alone[:, :, 66] = 5e-324
    with np.errstate(over="ignore"):
        assert race.launch(alone, None, *at, True, True, block=4, programs=9).tolist() == [[66, 66]]
    assert race.draw(alone.cpu(), None, *words, True, True).tolist() == [[66, 66]]
    assert race.launch(flat, None, *at, True, True, block=4, programs=2).tolist() == [[0, 0]]
    logits = torch.randn(1, 2, 70, generator=torch.Generator().manual_seed(1)).bfloat16()
    for wide in (True, False):
        got = race.launch(logits.to(device), torch.ones((), device=device), *at, False, wide, block=4, programs=2)
        assert got.tolist() == race.draw(logits, None, *words, False, wide).tolist()


def numbers(k: Any, p: Any, m: Any) -> list[Tensor]:
    return [torch.tensor(k), torch.tensor(p, dtype=torch.float64), torch.tensor(m, dtype=torch.float64)]


def shaped(p: np.ndarray, k: int, share: float, least: float) -> np.ndarray:
    """The reference's truncation."""
    given_ = {"top_k": k or None, "top_p": share if share < 1 else None, "min_p": least if least >= 0 else None}
    request = Request(prompt=(0,), **given_)
    with np.errstate(divide="ignore"):
        return shaping.shaped_probs(SimpleNamespace(weights=None, logits=np.log(p), size=len(p)), (), request)  # type: ignore[arg-type]


SETTINGS = [(0, 1.0, -1.0), (7, 1.0, -1.0), (0, 0.8, -1.0), (0, 1.0, 0.1), (20, 0.6, 0.02), (150, 0.99, 0.0), (1, 0.1, -1.0)]
SETTINGS += [(9, 1.0, 0.5)]
"""Numbers of top-k, top-p and min-p; the first are neutral."""


@pytest.mark.budget(9)
@pytest.mark.parametrize("programs", [1, 3])
def test_truncation(programs: int, device: torch.device) -> None:
    """Rows with numbers of their own: all settings in one launch, lanes whose rows have ties, more candidates than a block."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(8, 2, 200)) * 3
    logits[:, 1] = logits[:, 1].round()
    p = torch.softmax(torch.from_numpy(logits), -1).float()
    k, share, least = (t[:, None] for t in numbers(*zip(*SETTINGS, strict=True)))
    got = truncate.launch(*(t.to(device) for t in (p, k, share, least)), block=16, programs=programs).cpu()
    form, wide = truncate.truncate(p, k, share, least), truncate.truncate(p.double(), k, share, least)
    assert torch.equal(got[0], p[0]) and torch.equal(form[0], p[0]), "neutral numbers are the identity"
    for b, r in np.ndindex(8, 2):
        want = shaped(p[b, r].double().numpy(), *SETTINGS[b])
        for made in (got, form, wide):
            assert ((made[b, r].numpy() > 0) == (want > 0)).all(), (b, r)
            assert np.abs(made[b, r].double().numpy() - want).max() < 1e-6


@settings(max_examples=examples(8), deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.0, 5.0, 40.0]), min_size=3, max_size=40).filter(any),
    st.integers(0, 12),
    st.sampled_from((0.1, 0.35, 0.85, 1.0)),
    st.sampled_from((-1.0, 0.0, 0.2)),
)
def test_truncation_of_ties(levels: list[float], k: int, share: float, least: float) -> None:
    """Exactly so many of those that are equal; masses that reach the share are left out, where floats decide."""
    p = torch.tensor([levels]) / sum(levels)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    want = truncate.form(p.double(), *numbers(k, share, least))
    margin = float((p.double().sort(descending=True).values.cumsum(-1) - share).abs().min())
    got = truncate.launch(p.to(device), *(t.to(device) for t in numbers(k, share, least)), block=16, programs=2).cpu()
    if margin > 1e-6 and not 0 < k < len(levels):
        assert ((got > 0) == (want > 0)).all()
    assert abs(float(got.double().sum()) - 1) < 1e-5 and ((got > 0) <= (p > 0)).all()
    kept = p[0][got[0] > 0]
    left = p[0][(got[0] == 0) & (p[0] > 0)]
    assert not len(left) or float(kept.min()) >= float(left.max())


def test_rows_without_mass(device: torch.device) -> None:
    p = torch.tensor([[0.25, 0.0, 0.25], [0.0, 0.0, 0.0]]).to(device)
    rows = truncate.launch(p, *(t.to(device) for t in numbers(0, 0.9, -1.0)), block=4)
    assert rows.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 99), st.sampled_from([2, 5, 1000]), st.integers(1, 12), st.booleans())
def test_the_largest_are_in_the_order_of_a_stable_sort(seed: int, levels: int, k: int, holes: bool) -> None:
    """Of equals the first, however many there are; what is no number comes last."""
    rng = np.random.default_rng(seed)
    keys = torch.from_numpy(rng.integers(0, levels, (2, 3, 100)).astype(np.float64))
    if holes:
        keys[rng.random((2, 3, 100)) < 0.97] = -np.inf
        keys[0, 0, 5] = np.nan
    values, at = ordered(keys, k)
    want = np.argsort(-np.nan_to_num(keys.numpy(), nan=-np.inf, neginf=-np.inf), kind="stable", axis=-1)[..., :k]
    assert at.tolist() == want.tolist()
    assert values.tolist() == np.take_along_axis(np.nan_to_num(keys.numpy(), nan=-np.inf, neginf=-np.inf), want, -1).tolist()
