# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""The noise that generated kernels make is the noise of runtime/noise.py, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples

from decgraph.backends.triton.prelude import philox, uniform, uniform32, word_at
from decgraph.backends.triton.source import HEADER, load
from decgraph.runtime import noise

import triton  # isort: skip
import triton.language as tl  # isort: skip

WORD = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]))
SIGNED = st.integers(-(2**31), 2**32 - 1)


@triton.jit
def words_of(key, out, start, n, B: tl.constexpr):
    """The words of tokens start .. start+n-1. key: int32[5], the bits of c0, c1, c2 and the seed's halves."""
    token = start + tl.arange(0, B)
    c0, c1, c2 = tl.load(key).to(tl.uint32), tl.load(key + 1).to(tl.uint32), tl.load(key + 2).to(tl.uint32)
    k0, k1 = tl.load(key + 3).to(tl.uint32), tl.load(key + 4).to(tl.uint32)
    word = word_at(token, c0, c1, c2, k0, k1)
    tl.store(out + tl.arange(0, B), word.to(tl.int32, bitcast=True), mask=tl.arange(0, B) < n)


@triton.jit
def block_of(counter, key, out):
    """One block of four words. counter: int32[4]; key: int32[2]; out: int32[4]."""
    c0, c1 = tl.load(counter).to(tl.uint32), tl.load(counter + 1).to(tl.uint32)
    c2, c3 = tl.load(counter + 2).to(tl.uint32), tl.load(counter + 3).to(tl.uint32)
    w0, w1, w2, w3 = philox(c0, c1, c2, c3, tl.load(key).to(tl.uint32), tl.load(key + 1).to(tl.uint32))
    tl.store(out, w0.to(tl.int32, bitcast=True))
    tl.store(out + 1, w1.to(tl.int32, bitcast=True))
    tl.store(out + 2, w2.to(tl.int32, bitcast=True))
    tl.store(out + 3, w3.to(tl.int32, bitcast=True))


@triton.jit
def units_of(words, out, out32, B: tl.constexpr):
    """Both uniforms of words. words: int32[B]; out: float64[B]; out32: float32[B]."""
    word = tl.load(words + tl.arange(0, B)).to(tl.uint32)
    tl.store(out + tl.arange(0, B), uniform(word))
    tl.store(out32 + tl.arange(0, B), uniform32(word))


def bits(words: list[int]) -> torch.Tensor:
    """uint32 values as the int32 tensor of their bits."""
    return torch.from_numpy(np.array(words, np.uint32).view(np.int32).copy())


def back(x: torch.Tensor) -> list[int]:
    found: list[int] = x.numpy().view(np.uint32).tolist()
    return found


@settings(max_examples=examples(25))
@given(st.lists(WORD, min_size=4, max_size=4), st.lists(WORD, min_size=2, max_size=2))
def test_a_block_is_philox(counter: list[int], key: list[int]) -> None:
    out = torch.full((4,), -77, dtype=torch.int32)
    block_of[(1,)](bits(counter), bits(key), out)
    assert back(out) == noise.philox(np.array(counter, np.uint32), np.array(key, np.uint32)).tolist()


@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 2**64 - 1),
    request=st.integers(0, 2**64 - 1),
    site=st.one_of(st.integers(0, 2**31 - 1), st.sampled_from(["output", "stdlib/speculative.dec:11"])),
    counters=st.lists(SIGNED, max_size=3),
    lane=st.lists(SIGNED, max_size=3),
    start=st.integers(0, 300),
    n=st.integers(1, 16),
)
def test_the_words_of_tokens(
    seed: int, request: int, site: int | str, counters: list[int], lane: list[int], start: int, n: int
) -> None:
    key = noise.Key(seed, request, site, tuple(counters), tuple(lane))
    out = torch.full((17,), -77, dtype=torch.int32)
    words_of[(1,)](bits([*key.words(), seed & 0xFFFFFFFF, seed >> 32]), out, start, n, B=16)
    assert back(out[:n]) == noise.words(key, start + n)[start:].tolist()
    assert (out[n:] == -77).all()


EDGES = [0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1, 2**24 - 1, 2**24 + 1, 2**32 - 257, 2**32 - 129, 2**32 - 128, 12345, 7, 3, 5, 6]


@settings(max_examples=examples(25))
@given(st.lists(WORD, min_size=16, max_size=16))
def test_uniforms(words: list[int]) -> None:
    out, out32 = torch.full((16,), float("nan"), dtype=torch.float64), torch.full((16,), float("nan"))
    units_of[(1,)](bits(words), out, out32, B=16)
    exact = (np.array(words, np.float64) + 0.5) * 2.0**-32
    assert (out.numpy() == exact).all()
    assert ((out32 > 0) & (out32 < 1)).all()
    # Two roundings (the word, the half) of a value with 24 bits; below one.
    assert (np.abs(out32.double().numpy() - exact) <= 2.0**-23 * exact).all()


def test_uniforms_at_the_edges() -> None:
    out, out32 = torch.full((16,), float("nan"), dtype=torch.float64), torch.full((16,), float("nan"))
    units_of[(1,)](bits(EDGES), out, out32, B=16)
    assert out.tolist() == [(w + 0.5) * 2.0**-32 for w in EDGES]
    assert ((out32 > 0) & (out32 < 1) & (torch.log(out32) < 0)).all(), "an arrival time is positive"


def hasher(n: int) -> object:
    """A kernel over n words, written as generated text writes it."""
    lines = ["@triton.jit", "def hashed(words, out):", "    h = hash_start()"]
    lines += [f"    h = hash_word(h, tl.load(words + {i}).to(tl.uint32))" for i in range(n)]
    lines += [f"    tl.store(out, hash_end(h, {n}).to(tl.int32, bitcast=True))"]
    text = HEADER + "from decgraph.backends.triton.prelude import hash_end, hash_start, hash_word\n" + "\n".join(lines) + "\n"
    return load("hashed", text)["hashed"]


@settings(max_examples=examples(25))
@given(st.lists(WORD, max_size=5))
def test_hashes(words: list[int]) -> None:
    out = torch.full((1,), -77, dtype=torch.int32)
    hasher(len(words))[(1,)](bits([*words, 0]), out)  # type: ignore[index]
    assert back(out) == [noise.hash32(words)]


def test_noise_of_another_layout_is_noticed() -> None:
    """The tests above can fail: the neighbouring token's word is not this token's."""
    key = noise.Key(5, 6, 7)
    out = torch.full((8,), -77, dtype=torch.int32)
    words_of[(1,)](bits([*key.words(), 5, 0]), out, 1, 8, B=8)
    assert back(out) != noise.words(key, 8).tolist() and back(out) == noise.words(key, 9)[1:].tolist()


def test_words_are_told_apart_from_signed_numbers() -> None:
    with pytest.raises(OverflowError):
        bits([-1])
    assert back(bits([2**32 - 1])) == [2**32 - 1]
