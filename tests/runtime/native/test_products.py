"""Products by runtime/native against the `gguf` package's dequantisation and torch's float32 and float64 products."""

import numpy as np
import pytest
import torch

from decgraph.errors import DecError
from decgraph.runtime.native import FORMATS
from decgraph.runtime.native.formats import QuantizedBlocks
from decgraph.runtime.native.library import library
from decgraph.runtime.native.products import DOTS, BlockProduct, NativeProduct

gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler or no AVX2")

BLOCKS = list(FORMATS)
ROWS = (1, 2, 3, 5, 7, 11, 16, 17, 64, 260)
TOLERANCE = {"float32": 1e-6, "int16": 2e-5, "int8": 1e-2}


@pytest.fixture(params=[2, 5], ids=["avx2", "avx512"])
def isa(request):
    found = library()
    if not found.native_isa(request.param):
        pytest.skip("this processor has no such instructions")
    yield request.param
    found.native_isa(0)


def blocks(form, outputs, inputs, seed=0):
    """Random bytes, with scales as a model's are: all values of quants, scales of sub-blocks and signs occur."""
    random = np.random.default_rng(seed)
    _, numbers, size = FORMATS[form]
    raw = random.integers(0, 256, (outputs * inputs // numbers, size), dtype=np.uint8)
    at = {"Q6_K": (208,)}.get(form, (0, 2) if form[3:] in ("1", "K") else (0,))
    for place in at:
        scale = (random.standard_normal(len(raw)) * 0.01).astype(np.float16)
        raw[:, place : place + 2] = scale.view(np.uint8).reshape(-1, 2)
    raw = raw.reshape(outputs, -1)
    real = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[form])
    return raw, torch.from_numpy(real).view(outputs, inputs)


def unaligned(raw, by=1):
    """The same bytes at an odd address."""
    memory = torch.empty(raw.size + by, dtype=torch.uint8)
    memory[by:] = torch.from_numpy(raw.reshape(-1))
    return memory[by:].view(raw.shape)


def off(mine, x, w):
    """The greatest error, beside the lengths of what was multiplied."""
    x, w = x.double(), w.double()
    return float(((mine.double() - x @ w.T).abs() / torch.outer(x.norm(dim=1), w.norm(dim=1))).max())


@pytest.mark.parametrize("form", BLOCKS)
def test_weights_are_those_of_gguf(form, isa):
    raw, real = blocks(form, 7, 512)
    matrix, ids = QuantizedBlocks(unaligned(raw), form, (7, 512)), torch.tensor([6, 0, 6, 3])
    for product in (NativeProduct(matrix), BlockProduct(matrix)):
        assert torch.equal(product.dequantised()[0], real)
        assert torch.equal(product.rows(ids), real[ids])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("activations", DOTS)
@pytest.mark.parametrize("form", BLOCKS)
def test_blocks(form, activations, threads, isa):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for outputs, inputs in ((1, 256), (6, 768), (93, 512), (200, 256)):
            raw, real = blocks(form, outputs, inputs, outputs)
            product = NativeProduct(QuantizedBlocks(unaligned(raw), form, (outputs, inputs)), activations=activations)
            for rows in ROWS:
                x = torch.randn(rows, inputs) * torch.logspace(-2, 1, inputs)
                assert off(product(x), x, real) < TOLERANCE[activations], (outputs, inputs, rows)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("form", BLOCKS)
def test_blocks_without_the_library(form, monkeypatch):
    monkeypatch.setattr("decgraph.runtime.native.products.PART", 1024)  # of a few rows
    raw, real = blocks(form, 93, 512)
    w, b, x, added = torch.randn(5, 512), torch.randn(93), torch.randn(3, 512), torch.randn(3, 98)
    product = BlockProduct(QuantizedBlocks(unaligned(raw), form, (93, 512)), w, biases=(b, None))
    want = torch.cat([x @ real.T + b, x @ w.T], 1)
    assert torch.allclose(product(x), want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))
    assert torch.allclose(product(x, added), want + added, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


@pytest.mark.parametrize("threads", [1, 2])
def test_float32_of_any_size(threads, isa):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for outputs, inputs in ((1, 1), (3, 7), (5, 8), (4, 16), (130, 33), (67, 129), (48, 576)):
            w, b = torch.randn(outputs * inputs + 1)[1:].view(outputs, inputs), torch.randn(outputs)
            product = NativeProduct(w, biases=(b,))
            for rows in ROWS:
                x = torch.randn(rows, inputs)
                whole, both = torch.cat([x, torch.ones(rows, 1)], 1), torch.cat([w, b[:, None]], 1)
                assert off(product(x), whole, both) < 1e-6, (outputs, inputs, rows)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("form", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_halves_of_any_size(form, dtype, isa):
    """Also where the numbers of the last rows are no multiple of a vector's."""
    for outputs, inputs in ((1, 1), (3, 7), (5, 9), (67, 129)):
        w = torch.randn(outputs, inputs).to(dtype)
        product = NativeProduct(QuantizedBlocks(unaligned(w.view(torch.uint8).numpy()), form, (outputs, inputs)))
        for rows in (1, 5):
            x = torch.randn(rows, inputs)
            assert off(product(x), x, w.float()) < 1e-6, (outputs, inputs, rows)


def test_parts_stand_side_by_side_with_biases_and_sums(isa):
    raw, real = blocks("Q6_K", 10, 256)
    other, there = blocks("Q4_K", 6, 256)
    w, b = torch.randn(9, 256), torch.randn(9)
    product = NativeProduct(
        QuantizedBlocks(unaligned(raw), "Q6_K", (10, 256)),
        w,
        QuantizedBlocks(unaligned(other), "Q4_K", (6, 256)),
        biases=(None, b, None),
    )
    for rows in ROWS:
        x, added = torch.randn(rows, 256), torch.randn(rows, 25)
        kept = added.clone()
        whole = torch.cat([real, w, there])
        plus = torch.cat([torch.zeros(10), b, torch.zeros(6)])
        assert off(product(x) - plus, x, whole) < 2e-5
        assert off(product(x, added) - plus - added, x, whole) < 2e-5
        assert torch.equal(added, kept)


def test_rows_that_do_not_lie_side_by_side(isa):
    w, x = torch.randn(12, 32), torch.randn(32, 5).t()
    assert torch.allclose(NativeProduct(w)(x), x @ w.T, atol=1e-4)


def test_numbers_of_the_file_that_are_not_finite_stay_so(isa):
    w = torch.ones(5, 40)
    w[2, 39] = float("inf")
    made = NativeProduct(w)(torch.ones(2, 40))
    assert made[:, 2].isinf().all() and made[:, [0, 1, 3, 4]].eq(40).all()


def test_what_is_no_matrix_is_refused():
    raw, _ = blocks("Q8_0", 4, 64)
    for made in (
        lambda: QuantizedBlocks(torch.from_numpy(raw), "Q8_0", (4, 96)),
        lambda: QuantizedBlocks(torch.from_numpy(raw), "Q3_K", (4, 64)),
        lambda: NativeProduct(torch.randn(8, 4).t()),
        lambda: NativeProduct(torch.randn(8, 4).double()),
        lambda: NativeProduct(torch.randn(8, 4), torch.randn(8, 5)),
        lambda: NativeProduct(torch.randn(8, 4), biases=(torch.randn(7),)),
    ):
        with pytest.raises(DecError):
            made()
