"""Races and truncation: the kernels against float64 in NumPy, or the reference."""

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

from decgraph.backends.triton.kernels import race, truncate
from decgraph.backends.triton.ops.draws import ordered
from decgraph.runtime import noise, shaping
from decgraph.runtime.request import Request


def keys_of(lanes: int, rows: int) -> tuple[list[list[noise.Key]], list[Tensor]]:
    """Noise keys of rows of lanes, and their words: of the request [B, 1], of the row [1, R] and of nothing []."""
    keys = [[noise.Key(2**40 + 7 * b, b, "here", (3,), (r,)) for r in range(rows)] for b in range(lanes)]
    words = np.array([[k.words() for k in line] for line in keys])
    seeds = np.array([[divmod(line[0].seed, 2**32)] for line in keys])
    parts = (words[:, :1, 0], words[0, 0, 1], words[:1, :, 2], seeds[..., 1], seeds[..., 0])
    return keys, [torch.tensor(p, dtype=torch.int64) for p in parts]


@pytest.mark.parametrize("size", [3, 70])
def test_races_are_the_reference_s(size: int, device: torch.device) -> None:
    """Several programs of a row, and one; the tokens of runtime/noise.py; -1 of a row without mass."""
    rng = np.random.default_rng(size)
    keys, words = keys_of(3, 4)
    weights = np.exp(rng.normal(size=(3, 4, size)) * 2)
    weights[0, 1], weights[0, 1, 2], weights[2, 3] = 0, 1, 0
    for rows in (torch.from_numpy(weights), torch.from_numpy(weights).float()):
        want = [
            [
                noise.race(row.double().numpy(), noise.exponentials(keys[b][r], size)) if row.any() else -1
                for r, row in enumerate(of)
            ]
            for b, of in enumerate(rows)
        ]
        assert race.draw(rows, *words).tolist() == want
        for programs in (1, 3):
            got = race.launch(rows.to(device), *(w.to(device) for w in words), block=8, programs=programs)
            assert got.tolist() == want


def test_ties_and_scales_of_races(device: torch.device) -> None:
    """Of equals the lowest, where every quotient overflows; a token that is nearly impossible still wins alone."""
    _, words = keys_of(1, 2)
    at = [w.to(device) for w in words]
    flat = torch.full((1, 2, 70), 5e-324, dtype=torch.float64, device=device)
    alone = torch.zeros_like(flat)
    alone[:, :, 66] = 5e-324
    with np.errstate(over="ignore"):
        for rows, token in ((flat, 0), (alone, 66), (0 * flat, -1)):
            assert race.launch(rows, *at, block=4, programs=9).tolist() == [[token, token]]
            assert race.draw(rows.cpu(), *words).tolist() == [[token, token]]


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


def test_tiny_entries_beside_a_likely_one(device: torch.device) -> None:
    """They are kept only where they are needed."""
    p = torch.tensor([[1e-9, 1 - 2e-9, 1e-9, 1e-30, 0.0]])
    some = [0, 1, 2]
    for k, share, least, kept in ((1, 1.0, -1.0, [1]), (0, 0.5, 0.0, [1]), (3, 1.0, -1.0, some), (0, 1.0, 1e-12, some)):
        rows = truncate.launch(p.to(device), *(t.to(device) for t in numbers(k, share, least)), block=4).cpu()
        assert rows[0].nonzero()[:, 0].tolist() == kept
        assert torch.equal(truncate.form(p.double(), *numbers(k, share, least)) > 0, rows > 0)


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
