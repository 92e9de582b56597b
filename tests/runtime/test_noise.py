"""Keyed noise: published vectors, the layout, and the laws of races on fixed seeds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decgraph.runtime.noise import (
    Key,
    exponentials,
    hash32,
    output_key,
    philox,
    race,
    race_keys,
    race_order,
    under,
    uniforms,
    unit,
    words,
)

# Known answers of philox4x32-10, from the Random123 distribution's kat_vectors.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
Q = np.array([0.5, 0.0, 0.3, 0.15, 0.05])
DRAWS = 6_000


def hexes(text: str) -> np.ndarray:
    return np.array([int(w, 16) for w in text.split()], np.uint32)


@pytest.mark.parametrize(("counter", "key", "wanted"), VECTORS)
def test_philox_gives_the_published_answers(counter: str, key: str, wanted: str) -> None:
    assert philox(hexes(counter), hexes(key)).tolist() == hexes(wanted).tolist()


def test_philox_is_the_same_one_by_one_and_all_at_once() -> None:
    counters = np.stack([hexes(c) for c, _, _ in VECTORS])
    keys = np.stack([hexes(k) for _, k, _ in VECTORS])
    assert philox(counters, keys).tolist() == [hexes(w).tolist() for _, _, w in VECTORS]


def test_hash32_is_murmur3() -> None:
    assert hash32([]) == 0
    assert hash32([int.from_bytes(b"test", "little")]) == 0xBA6BD213  # MurmurHash3_x86_32("test", seed 0)
    assert hash32([-1]) == hash32([2**32 - 1])


def test_one_word_hashes_never_collide() -> None:
    assert len({hash32([w]) for w in range(50_000)}) == 50_000


def test_the_layout_is_what_the_page_says() -> None:
    key = Key(seed=0x1122334455667788, request=7, site=12, counters=(3, 4), lane=(5,))
    row = words(key, 11)
    for token in range(11):
        counter = [hash32([7, 0, 12]), hash32([3, 4]), hash32([5]), token // 4]
        block = philox(np.array(counter, np.uint32), np.array([0x55667788, 0x11223344], np.uint32))
        assert row[token] == block[token % 4]
    assert np.array_equal(uniforms(key, 11), (row + 0.5) / 2**32)
    assert np.array_equal(exponentials(key, 11), -np.log((row + 0.5) / 2**32))
    assert unit(key) == uniforms(key, 1)[0]


def test_a_named_site_is_a_number_from_2_to_the_31_on() -> None:
    number = 2**31 | hash32(b"output") >> 1
    assert output_key(1, 2, 3).words() == (hash32([2, 0, number]), hash32([3]), hash32([]))
    with pytest.raises(ValueError, match="numbered site"):
        words(Key(0, 0, 2**31), 1)


def test_noise_of_a_larger_vocabulary_begins_with_that_of_a_smaller_one() -> None:
    key = output_key(1, 2, 3)
    assert np.array_equal(exponentials(key, 5), exponentials(key, 1000)[:5])


def test_every_part_of_a_key_matters() -> None:
    base = {"seed": 1, "request": 2, "site": 3, "counters": (4, 5), "lane": (6,)}
    others = [
        {"seed": 1 + 2**32},
        {"seed": 2},
        {"request": 3},
        {"request": 2 + 2**32},
        {"site": 4},
        {"site": "3"},
        {"counters": (5, 4)},
        {"counters": (4, 5, 0)},
        {"counters": ()},
        {"lane": (6, 0)},
        {"lane": ()},
    ]
    rows = {tuple(words(Key(**{**base, **o}), 8).tolist()) for o in [{}, *others]}  # type: ignore[arg-type]
    assert len(rows) == len(others) + 1


def test_uniforms_are_never_0_or_1() -> None:
    extreme = np.array([0, 2**32 - 1], np.uint32)
    u = (extreme.astype(np.float64) + 0.5) * 2.0**-32
    assert 0 < u[0] < u[1] < 1
    assert not unit(output_key(0, 0, 0)) < 0.0 and unit(output_key(0, 0, 0)) < 1.0


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """The statistic; the caller compares with a quantile at about one in a million."""
    expected = law * counts.sum()
    assert (counts[law == 0] == 0).all()
    return float((((counts - expected) ** 2)[law > 0] / expected[law > 0]).sum())


def test_a_race_has_the_law_of_its_weights() -> None:
    counts = np.zeros(5)
    for i in range(DRAWS):
        counts[race(Q, exponentials(output_key(11, 0, i), 5))] += 1
    assert chi_square(counts, Q) < 35  # 3 degrees of freedom


def test_races_in_two_lanes_are_independent() -> None:
    counts = np.zeros((5, 5))
    for i in range(DRAWS):
        a, b = (race(Q, exponentials(Key(11, 0, 3, (i,), (lane,)), 5)) for lane in (0, 1))
        counts[a, b] += 1
    assert chi_square(counts.ravel(), np.outer(Q, Q).ravel()) < 55  # 15 degrees of freedom


def test_the_order_of_a_race_is_a_sample_without_replacement() -> None:
    with np.errstate(divide="ignore"):
        log_q = np.log(Q)
    counts, law = np.zeros((5, 5)), np.zeros((5, 5))
    for a, b in itertools.permutations([0, 2, 3, 4], 2):
        law[a, b] = Q[a] * Q[b] / (1 - Q[a])
    for i in range(DRAWS):
        times = exponentials(output_key(12, 0, i), 5)
        order = race_order(race_keys(log_q, times), 2)
        assert order[0] == race(Q, times)
        counts[order[0], order[1]] += 1
    assert chi_square(counts.ravel(), law.ravel()) < 50  # 11 degrees of freedom


def test_scaling_the_weights_changes_nothing() -> None:
    for i in range(200):
        times = exponentials(output_key(1, 0, i), 5)
        assert race(Q, times) == race(Q * 8, times)


def test_races_with_nobody_or_almost_nobody() -> None:
    times = np.array([1.0, 1.0, 1.0])
    assert race(np.array([0.0, 2.0, 2.0]), times) == 1  # a tie goes to the lower token
    assert race(np.array([0.0, 0.0, 1e-320]), np.array([1.0, 1.0, 20.0])) == 2
    with pytest.raises(ValueError, match="nobody runs"):
        race(np.zeros(3), times)
    assert race_order(np.array([-np.inf, 0.0, 0.0]), 3).tolist() == [1, 2]
    assert race_order(np.array([0.0]), 0).tolist() == []


@given(
    st.lists(st.floats(-30, 5), min_size=1, max_size=8),
    st.floats(-40, 5),
)
def test_conditioning_on_the_parent_adds_one_time_to_all(keys: list[float], ceiling: float) -> None:
    moved = under(np.array([*keys, -np.inf]), ceiling)
    assert moved.max() == ceiling and moved[-1] == -np.inf
    top = max(keys)
    for key, m in zip(keys, moved.tolist(), strict=False):
        assert math.exp(-m) == pytest.approx(math.exp(-ceiling) + math.exp(-top) * math.expm1(top - key), rel=1e-9)
    assert moved[np.argmax(keys)] == ceiling


def test_a_beam_of_two_levels_samples_sequences_without_replacement() -> None:
    """Top-down sampling with `under` has the law of one race over whole sequences (Kool et al., 2019)."""
    first = np.array([0.7, 0.3])
    second = np.array([[0.6, 0.4], [0.1, 0.9]])
    law = (first[:, None] * second).ravel()
    counts, wanted = np.zeros((4, 4)), np.zeros((4, 4))
    for a, b in itertools.permutations(range(4), 2):
        wanted[a, b] = law[a] * law[b] / (1 - law[a])
    for i in range(DRAWS):
        top = race_keys(np.log(first), exponentials(Key(5, 0, 1, (i,)), 2))
        leaves = np.concatenate(
            [under(race_keys(np.log(first[a] * second[a]), exponentials(Key(5, 0, 2, (i,), (a,)), 2)), top[a]) for a in (0, 1)]
        )
        order = race_order(leaves, 2)
        counts[order[0], order[1]] += 1
    assert chi_square(counts.ravel(), wanted.ravel()) < 50


def test_under_nothing_is_nothing() -> None:
    assert under(np.array([-np.inf, -np.inf]), 0.0).tolist() == [-np.inf, -np.inf]
