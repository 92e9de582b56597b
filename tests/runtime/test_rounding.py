"""Quantised keys, values and weights against the levels written out: 2**bits of them, evenly spaced over a group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lib.models.hf_modules import module
from lib.models.tiny import TinyModel

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import LayerMemory
from decgraph.runtime.models.rounding import rounded

BITS = (1, 2, 3, 4, 8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> HFCausal:
    folder = tmp_path_factory.mktemp("models") / "llama"
    module("llama").save_pretrained(folder)
    made = hf.load_causal(folder)
    assert isinstance(made, HFCausal)
    return made


def nearest(x: np.ndarray, bits: int) -> np.ndarray:
    """Every number's nearest level, group by group; NumPy alone."""
    out = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        levels = np.linspace(x[place].min(), x[place].max(), 2**bits)
        out[place] = levels[np.abs(x[place][:, None] - levels).argmin(-1)]
    return out


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", [(700,), (3, 700), (2, 3, 16)])
def test_numbers_go_to_the_nearest_of_evenly_spaced_levels(shape: tuple[int, ...], bits: int) -> None:
    x = np.random.default_rng(bits).uniform(-1, 3, size=shape)
    wanted = nearest(x, bits)
    for got in (rounded(x, bits), rounded(torch.tensor(x), bits).numpy()):
        assert got.shape == x.shape and np.allclose(got, wanted, atol=1e-12)
        counts = [len(np.unique(got[place].round(9))) for place in np.ndindex(shape[:-1])]
        assert max(counts) <= 2**bits
        if shape[-1] == 700 and bits < 5:
            assert set(counts) == {2**bits}  # no level is wasted


@pytest.mark.parametrize("bits", BITS)
def test_one_bit_more_halves_the_error_or_nearly(bits: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, size=(4, 4096))
    assert np.abs(rounded(x, bits) - x).max() <= (x.max() - x.min()) / (2**bits - 1) / 2 + 1e-12
    assert np.abs(rounded(x, bits + 1) - x).mean() < 0.6 * np.abs(rounded(x, bits) - x).mean()


def test_equal_numbers_and_ends_stay() -> None:
    assert (rounded(np.full((2, 5), 0.3), 1) == 0.3).all()
    x = np.array([[-3.0, 0.1, 5.0]])
    assert rounded(x, 1).tolist() == [[-3.0, -3.0, 5.0]]


@pytest.mark.parametrize("bits", BITS)
def test_keys_and_values_are_rounded_head_by_head(model: HFCausal, bits: int) -> None:
    memory = model.memory((1, 2, 3, 4))
    for layer, coarse in zip(memory.layers, memory.quantized(bits).layers, strict=True):
        for i, row in layer.kv.items():
            for exact, got in zip(row, coarse.kv[i], strict=True):
                wanted = nearest(np.asarray(exact, dtype=np.float64), bits)
                assert np.allclose(np.asarray(got, dtype=np.float64), wanted, atol=1e-5)


def test_keys_and_values_have_bits_of_their_own(model: HFCausal) -> None:
    memory = model.memory((1, 2, 3, 4))
    both = zip(memory.quantized((4, 2)).layers, memory.quantized(4).layers, memory.quantized(2).layers, strict=True)
    for mixed, fine, coarse in both:
        for i, (key, value) in mixed.kv.items():
            assert np.array_equal(key, fine.kv[i][0]) and np.array_equal(value, coarse.kv[i][1])
            assert not np.array_equal(value, fine.kv[i][1])
    assert memory.quantized((4, 4)) == memory.quantized(4)
    for wrong in ((4, 2, 1), (0, 4), 17):
        with pytest.raises(DecError, match="bits"):
            memory.quantized(wrong)  # type: ignore[arg-type]


@pytest.mark.budget(8)
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_program_says_the_bits_of_keys_and_of_values(backend: str) -> None:
    """Coarse keys, coarse values and both make different texts; the same bits twice are those of one number."""
    prompt, limit = "def mean(values):", 12

    def text(keys: int, values: int) -> tuple[int, ...]:
        params = {"bits": keys, "bits_v": values, "residual": 1}
        return tuple(decgraph.run("kv_quantized", prompt, max_tokens=limit, backend=backend, params=params).tokens)

    one = text(1, 1)
    assert len({one, text(8, 1), text(1, 8)}) == 3
    assert one == decgraph.parse(ONE).run(prompt, max_tokens=limit, backend=backend).tokens


ONE = """
algorithm one_bit(target: causal):
    m = target.memory(ctx.parent)

    while not done:
        i = range_(0, ctx.length)
        old = i where i < ctx.length - 1
        read = m.only(old).quantized(1).join(m.without(old))
        x ~ target(ctx, given = read) as output
        m = m.join(target.memory(ctx, given = read).without(range_(0, ctx.length - 1)))
        commit x
"""


def test_rows_that_are_no_numbers_name_the_bits() -> None:
    made = LayerMemory({0: ("kv", 3)}, {})
    assert made.quantized(1) != made.quantized(2) != made


@pytest.mark.parametrize("bits", BITS)
def test_weights_are_rounded_row_by_row(model: HFCausal, bits: int) -> None:
    """A row of a matrix: what one output is made of."""
    coarse: Any = derive(model, "quantized", bits)
    plain: Any = model
    for name, product in plain.net.decoder.products.items():
        exact, got = product.weights[0], coarse.net.decoder.products[name].weights[0]
        if name == "out":
            assert got is exact
            continue
        assert np.allclose(got.detach().numpy(), nearest(exact.detach().double().numpy(), bits), atol=1e-5)
    small: Any = TinyModel(1, 5, 1)
    tiny: Any = derive(small, "quantized", bits)
    for name, w in small._blocks[0].items():
        assert np.allclose(tiny._blocks[0][name].T, nearest(w.T, bits), atol=1e-9)
