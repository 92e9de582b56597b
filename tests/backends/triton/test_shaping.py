"""A request's settings as rows: lanes with every setting mixed, each row against the reference's own (runtime/shaping.py)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from decgraph.backends.triton.shaping import LaneSettings, RowPlace, covers, need, shape
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import ConstraintError
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.request import Factor, Request
from decgraph.runtime.shaping import adjusted, forbidden, raw_probs, shaped_probs

V, ROOM = 7, 24
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([0, 1, 0.3, 2.5, Fraction(1, 2), 1e-6]),
    "top_k": st.integers(1, V + 2),
    "top_p": st.one_of(st.floats(0.01, 1), st.sampled_from([0.5, 0.25, 0.75, 1.0])),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.sampled_from([1, 1.3, 0.5]),
    "presence_penalty": st.sampled_from([0, 0.7, -1, Factor(Fraction(3))]),
    "frequency_penalty": st.sampled_from([0, 0.4, Factor(Fraction(1, 2))]),
    "bias": st.dictionaries(st.integers(0, V - 1), st.sampled_from([2.0, -3, Factor(Fraction(5))]), max_size=3),
    "bans": st.sets(st.integers(0, V - 1), max_size=2),
    "min_length": st.integers(0, 5),
    "eos": st.sets(st.integers(0, V - 1), max_size=5),
    "seed": st.integers(0, 2**64 - 1),
    "request_id": st.integers(0, 2**64 - 1),
}
tokens = st.integers(0, V - 1)
requests = st.builds(
    lambda prompt, fields: Request(tuple(prompt), **fields),
    st.lists(tokens, min_size=1, max_size=5),
    st.fixed_dictionaries({}, optional=FIELDS),
)


@st.composite
def lanes(draw: st.DrawFn, rows: int = 3, depth: int = 3) -> tuple[Any, ...]:
    """(requests, what was generated, paths by lane and row, weights [B, R, V])."""
    some = draw(st.lists(requests, min_size=1, max_size=4))
    texts = [draw(st.lists(tokens, max_size=6)) for _ in some]
    paths = [[draw(st.lists(tokens, max_size=depth)) for _ in range(rows)] for _ in some]
    weight = st.one_of(st.integers(0, 4), st.floats(0.01, 9))
    row = st.lists(weight, min_size=V, max_size=V).filter(any)
    return some, texts, paths, np.array([[draw(row) for _ in range(rows)] for _ in some], dtype=np.float64)


def made(
    some: list[Request], texts: list[list[int]], features: frozenset[str] | None = None
) -> tuple[LaneSettings, torch.Tensor]:
    """Settings with a lane for each request, and the lengths of their committed texts."""
    text = torch.zeros(len(some), ROOM, dtype=torch.int64)
    for b, (request, new) in enumerate(zip(some, texts, strict=True)):
        whole = [*request.prompt, *new]
        text[b, : len(whole)] = torch.tensor(whole)
        text[b, len(whole) :] = b % V  # what was dropped, or another request's
    wanted = frozenset().union(*(need(r) for r in some)) if features is None else features
    out = LaneSettings(wanted, len(some), V, "cpu", text)
    for b, request in enumerate(some):
        out.admit(b, request)
    return out, torch.tensor([len(r.prompt) + len(t) for r, t in zip(some, texts, strict=True)])


def placed(length: torch.Tensor, paths: list[list[list[int]]]) -> RowPlace:
    depth = max(len(p) for row in paths for p in row)
    padded = torch.tensor([[p + [-1] * (depth - len(p)) for p in row] for row in paths])
    return RowPlace(length[:, None] + (padded >= 0).sum(-1), length, padded if depth else None)


def logits_of(weights: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(weights / weights.sum(-1, keepdims=True))


def compare(case: tuple[Any, ...], face: str, expected: Callable[..., Any], features: frozenset[str] | None = None) -> None:
    some, texts, paths, weights = case
    rows, length = made(some, texts, features)
    logits = logits_of(weights)
    got = shape(rows, torch.from_numpy(logits.copy()), placed(length, paths), face).numpy()
    for b, request in enumerate(some):
        for r, path in enumerate(paths[b]):
            whole = (*request.prompt, *texts[b], *path)
            try:
                want = expected(Scores(logits=logits[b, r]), whole, request)
            except ConstraintError:
                want = np.zeros(V)  # nothing can be drawn from it
            np.testing.assert_array_equal(got[b, r], want, err_msg=f"lane {b}, row {r}")


@pytest.mark.budget(3)
@given(lanes())
@settings(max_examples=100, deadline=None)
def test_every_setting_mixed_is_the_reference_s_row_bit_for_bit(case: tuple[Any, ...]) -> None:
    compare(case, "shaped", shaped_probs)


@given(lanes())
@settings(max_examples=50, deadline=None)
def test_the_other_views(case: tuple[Any, ...]) -> None:
    compare(case, "raw", raw_probs)
    compare(case, "adjusted", adjusted)
    some, texts, paths, weights = case
    rows, length = made(some, texts)
    got = shape(rows, torch.from_numpy(logits_of(weights)), placed(length, paths), "logits").numpy()
    for b, request in enumerate(some):
        for r, path in enumerate(paths[b]):
            banned = forbidden(V, (*request.prompt, *texts[b], *path), request)
            want = np.where(np.isin(np.arange(V), list(banned)), -np.inf, logits_of(weights)[b, r])
            np.testing.assert_array_equal(got[b, r], want)


NAMES = ["greedy", "sampled", "top_k", "top_p", "min_p", "repetition", "counts", "bias", "bans", "min_length"]
EVERYTHING = frozenset([*NAMES, "ends:8"])


@given(lanes())
@settings(max_examples=50, deadline=None)
def test_a_feature_that_a_lane_does_not_use_changes_nothing(case: tuple[Any, ...]) -> None:
    compare(case, "shaped", shaped_probs, EVERYTHING)


@given(lanes(), lanes())
@settings(max_examples=25, deadline=None)
def test_a_lane_that_is_written_again_forgets_the_last_request(old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    n = min(len(old[0]), len(new[0]))
    used, _ = made(old[0][:n], old[1][:n], EVERYTHING)
    fresh, length = made(new[0][:n], new[1][:n], EVERYTHING)
    assert used.text is not None and fresh.text is not None
    used.text.copy_(fresh.text)
    for b in range(n):
        used.admit(b, new[0][b])
    where, logits = placed(length, new[2][:n]), torch.from_numpy(logits_of(new[3][:n]))
    assert torch.equal(shape(used, logits, where), shape(fresh, logits, where))


def test_paths_that_all_rows_share_and_long_ones_count_alike() -> None:
    request = Request((1, 2), repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.25)
    path, logits = [n % 3 for n in range(70)], torch.randn(1, 2, V, dtype=torch.float64)
    rows, length = made([request], [[3]])
    want = [adjusted(Scores(logits=logits[0, r].numpy()), (1, 2, 3, *path), request) for r in range(2)]
    for paths in ([[path]], [[path, path]]):
        where = RowPlace(torch.full((1, 2), 73), length, torch.tensor(paths))
        np.testing.assert_array_equal(shape(rows, logits, where, "adjusted")[0].numpy(), np.array(want))


def test_float32_rows_are_the_reference_s_within_rounding_and_a_program_may_allow_less() -> None:
    request = Request((1, 2), temperature=0.7, top_p=0.8, repetition_penalty=1.2, bias={3: 1.5})
    rows, length = made([request, Request((3,), temperature=0)], [[4], []])
    logits = torch.randn(2, 1, V, generator=torch.Generator().manual_seed(3))
    may = torch.arange(V)[None, None] != 5
    got = shape(rows, logits.bfloat16(), placed(length, [[[]], [[]]]), allow=may)
    assert got.dtype == torch.float32
    given_scores = Scores(logits=logits[0, 0].bfloat16().double().numpy())
    np.testing.assert_allclose(got[0, 0], shaped_probs(given_scores, (1, 2, 4), request, set(range(V)) - {5}), atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"processors": (lambda path, logits: logits,)}, "processors"),
        ({"allow": lambda generated: {1}}, "a grammar or another `allow`"),
    ],
)
def test_what_is_no_row_says_why(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(NotSteppable, match=why):
        need(Request((1,), **fields))


def test_a_program_refuses_a_request_with_features_that_it_lacks() -> None:
    plain, biased = Request((1,)), Request((1,), bias={2: 1.0}, eos=frozenset(range(6)))
    assert covers(need(biased), need(plain)) and not covers(need(plain), need(biased))
    with pytest.raises(NotSteppable, match="settings"):
        LaneSettings(need(plain), 1, V, "cpu").admit(0, biased)


def test_the_rows_trace_without_a_read_of_what_they_hold() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        rows = LaneSettings(EVERYTHING, 2, V, "cpu", torch.zeros(2, ROOM, dtype=torch.int64))
        where = RowPlace(*(torch.zeros(n, dtype=torch.int64) for n in ((2, 3), (2,), (2, 3, 4))))

        def step(logits: torch.Tensor, place: RowPlace) -> torch.Tensor:
            return shape(rows, logits, place)

        traced = make_fx(step)(torch.zeros(2, 3, V), where)
    called = {str(n.target) for n in traced.graph.nodes}
    assert "decgraph.truncate.default" in called
    assert not any(word in name for name in called for word in ("aten.item", "nonzero", "_local_scalar"))
