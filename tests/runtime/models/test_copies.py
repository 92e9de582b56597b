"""Packed copies of matrices: the same numbers, for several rows or all, as long as the weights are those; and without them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_rows import IDS, own, rows_of
from family_configs import random_model
from torch import Tensor, nn

from decgraph.runtime.models import one_row, packs
from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.make import of_module
from decgraph.runtime.models.engine import output
from decgraph.runtime.models.engine.output import output_of

FAMILIES = ["llama, tied, biases", "qwen2", "qwen3", "gpt2", "gpt_neox", "opt", "phi3", "gemma3_text"]


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of any size are packed, for one row too."""
    reading("packed", monkeypatch)


def reading(way: one_row.Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of a matrix of any size reads it so."""
    monkeypatch.setattr(packs, "_SMALL", 1)
    monkeypatch.setattr(packs, "_CACHED", 0)
    for module in (packs, output):
        monkeypatch.setattr(module, "fastest", lambda *_, **__: way)


def small(name: str, dtype: torch.dtype = torch.float32) -> Any:
    return random_model(name, dtype)


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max().clamp_min(1)))


def packed(decoder: Decoder) -> int:
    assert decoder.copies is not None
    return decoder.copies.bytes


def matrices(decoder: Decoder) -> int:
    """The bytes of all matrices that products read."""
    return packs.size(w for product in decoder.products.values() for w in product.weights)


@pytest.mark.parametrize("cells", [1, 5])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.usefixtures("every")
def test_the_modules_numbers(name: str, cells: int) -> None:
    model = small(name)
    decoder = of_module(model.base_model)
    close(rows_of(decoder, IDS, cells), own(model, IDS))
    assert packed(decoder) == matrices(decoder)


def test_one_row_of_a_small_model_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_SMALL", 1)
    decoder = of_module(small("llama").base_model)
    one = rows_of(decoder, IDS, 1)
    assert packed(decoder) == 0
    close(one, rows_of(decoder, IDS, 5))
    assert packed(decoder) == matrices(decoder)


@pytest.mark.usefixtures("every")
def test_a_weight_that_is_changed_in_place_is_packed_again() -> None:
    """Of parts that were joined, and of one that lies as it did."""
    model = small("llama")
    decoder = of_module(model.base_model)
    layer = model.model.layers[1]
    for weight in (layer.self_attn.k_proj.weight, layer.mlp.up_proj.weight, layer.mlp.down_proj.weight):
        before = rows_of(decoder, IDS, 5)
        close(before, own(model, IDS))
        with torch.no_grad():
            weight.mul_(-1.5)
        after = rows_of(decoder, IDS, 5)
        assert float((after - before).abs().max()) > 1e-2
        close(after, own(model, IDS))
        assert packed(decoder) == matrices(decoder)


@pytest.mark.usefixtures("every")
def test_without_copies(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    usual = rows_of(of_module(small("llama").base_model), IDS, 5)
    monkeypatch.setenv("DECGRAPH_PACKED", "0")
    for why in ("asked for", "no memory"):
        model = small("llama")
        with caplog.at_level(logging.WARNING, "decgraph.engine"):
            decoder = of_module(model.base_model)
        assert ("stay unpacked" in caplog.text) == (why == "no memory")
        close(rows_of(decoder, IDS, 5), usual)
        assert not packed(decoder)
        states = torch.randn(3, 32)
        assert torch.equal(output_of(model.lm_head, model.model)(states), model.lm_head(states))
        monkeypatch.delenv("DECGRAPH_PACKED", raising=False)
        monkeypatch.setattr(packs, "_available", lambda: 1000)


@pytest.mark.usefixtures("every")
@pytest.mark.parametrize("bias", [False, True])
def test_an_output_matrix(bias: bool) -> None:
    base, matrix = nn.Linear(8, 8), nn.Linear(32, 97, bias=bias).requires_grad_(False)
    head, states = output_of(matrix, base), torch.randn(4, 32)
    assert head is not matrix and head is output_of(matrix, base)
    for rows in (1, 4):
        close(head(states[:rows]), matrix(states[:rows]))
    matrix.weight.neg_()
    close(head(states), matrix(states))
    matrix.weight = nn.Parameter(torch.randn(97, 32), requires_grad=False)
    close(head(states), matrix(states))
    matrix.weight.data = torch.randn(97, 32)
    close(head(states), matrix(states))


@pytest.mark.usefixtures("every")
def test_what_is_more_than_a_matrix_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(nn.Linear):
        """What a quantising library does."""

    base, hooked = nn.Linear(8, 8), nn.Linear(32, 97)
    hooked.register_forward_hook(lambda module, args, out: out * 2)
    for matrix in (Own(32, 97), hooked, nn.Linear(32, 97, dtype=torch.float64), nn.Linear(32, 97, dtype=torch.float16)):
        assert output_of(matrix, base) is matrix
    monkeypatch.setattr(packs, "_has_bfloat16", lambda: False)
    coarse = of_module(small("llama", torch.bfloat16).base_model)
    rows_of(coarse, IDS, 5)
    assert not packed(coarse)


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bfloat16")
@pytest.mark.usefixtures("every")
def test_bfloat16_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row is packed as well: there is nothing that it would lose."""
    states = {width: torch.randn(4, width).bfloat16() for width in (32, 48)}
    made = []
    for asked in ("1", "0"):
        monkeypatch.setenv("DECGRAPH_PACKED", asked)
        model = small("llama", torch.bfloat16)
        decoder = of_module(model.base_model)
        for rows in (1, 4):
            given = [(product, states[product.weights[0].shape[1]][:rows]) for product in decoder.products.values()]
            made += [product(x) for product, x in given]
            made.append(output_of(model.lm_head, model.model)(states[32][:rows]))
        assert (packed(decoder) > 0) == (asked == "1")
    half = len(made) // 2
    assert all(torch.equal(*pair) for pair in zip(made[:half], made[half:], strict=True))


@pytest.mark.usefixtures("every")
def test_results_say_what_copies_take() -> None:
    import decgraph

    session = decgraph.load("autoregressive").session()
    result = session.run(decgraph.models.request_for(session, prompt="x = ", limit=3))
    (forward,) = result.forwards.values()
    (model,) = session.models.values()
    assert forward.packed == 4 * sum(w.numel() for p in model.net.decoder.products.values() for w in p.weights)
    assert f"{forward.packed / 1e6:.0f} MB" in forward.text() and forward.to_json()["packed"] == forward.packed


@pytest.mark.usefixtures("every")
def test_a_heads_product_is_that_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rows read the copy, one does not; training, other dtypes and a changed matrix get the module's own numbers."""
    mine = packs.Linear(96, 64)
    theirs = nn.Linear(96, 64)
    theirs.load_state_dict(mine.state_dict())
    for shape in ((5, 96), (2, 3, 96), (1, 96), (1, 1, 96)):
        states = torch.randn(shape)
        with torch.no_grad():
            close(mine(states), theirs(states))
    assert mine.copied == 96 * 64 * 4
    with torch.no_grad():
        for linear in (mine, theirs):
            linear.weight.mul_(2)
        close(mine(torch.ones(4, 96)), theirs(torch.ones(4, 96)))
        assert torch.equal(mine.double()(torch.ones(4, 96).double()), theirs.double()(torch.ones(4, 96).double()))
    mine.float()(torch.ones(4, 96)).sum().backward()
    assert mine.weight.grad is not None and copy.deepcopy(mine).copied == 0
    monkeypatch.setenv("DECGRAPH_PACKED", "0")
    with torch.no_grad():
        assert (bare := packs.Linear(96, 64))(torch.ones(4, 96)).shape == (4, 64) and not bare.copied


@pytest.mark.parametrize("name", ["eagle", "medusa"])
def test_no_product_of_a_shipped_head_stays_unpacked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a head computes outside its layers for several rows reads packed copies, if it is large enough for one."""
    from transformers import AutoModel

    import decgraph.zoo.modeling  # registers the classes  # noqa: F401
    from decgraph.zoo.folders import folder_of

    head: Any = AutoModel.from_pretrained(folder_of(name), dtype=torch.float32)
    width, slow = head.config.hidden_size, list[tuple[int, ...]]()
    product = nn.functional.linear

    def counted(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if packs.packable(weight) and states.numel() > states.shape[-1]:
            slow.append(tuple(weight.shape))
        return product(states, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", counted)
    states = torch.randn(1, 5, width)
    with torch.no_grad():
        made = head.enter(torch.arange(5)[None], states) if name == "eagle" else head(states)[0]
    assert made.shape == states.shape and not slow


WAYS: tuple[one_row.Way, ...] = ("rows", "columns", "packed")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    one_row.measured.cache_clear()
    yield tmp_path / "products.json"
    one_row.measured.cache_clear()


def test_the_chosen_product_is_about_the_best(cache: Path) -> None:
    """Of the three, timed again in another way; within twice, since other work on the machine shows here too."""
    for outputs, inputs in ((768, 256), (256, 768)):
        times = one_row.measured(outputs, inputs, torch.get_num_threads())
        again = one_row.measure(outputs, inputs)
        for weight in (torch.ones(outputs, inputs), torch.ones(inputs, outputs).t()):
            chosen = one_row.fastest(weight)
            assert chosen in (one_row.lies(weight), "packed")
            assert times[chosen] == min(times[one_row.lies(weight)], times["packed"])
            assert again[one_row.fastest(weight, copied=True)] <= 2 * min(again.values())


def test_a_measurement_is_kept_and_read_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.ones(96, 64)
    for way in WAYS:
        made = {other: 1.0 if other == way else 2.0 for other in WAYS}
        monkeypatch.setattr(one_row, "measure", lambda *_, made=made: made)
        one_row.measured.cache_clear()
        cache.unlink(missing_ok=True)
        assert one_row.fastest(weight, copied=True) == way
        one_row.measured.cache_clear()
        monkeypatch.setattr(one_row, "measure", lambda *_: pytest.fail("it is on the disk"))
        assert one_row.fastest(weight, copied=True) == way
    for broken in ("", "[]", cache.read_text().replace("1.0", "-1.0"), cache.read_text().replace("2.0", "null")):
        cache.write_text(broken)
        one_row.measured.cache_clear()
        monkeypatch.setattr(one_row, "measure", lambda *_: dict.fromkeys(WAYS, 3.0))
        assert set(one_row.measured(96, 64, torch.get_num_threads()).values()) == {3.0}
    monkeypatch.setattr(one_row, "features", lambda: "another processor")
    one_row.measured.cache_clear()
    monkeypatch.setattr(one_row, "measure", lambda *_: dict.fromkeys(WAYS, 4.0))
    assert set(one_row.measured(96, 64, torch.get_num_threads()).values()) == {4.0}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_modules_numbers(way: one_row.Way, monkeypatch: pytest.MonkeyPatch) -> None:
    reading(way, monkeypatch)
    model = small("llama")
    decoder = of_module(model.base_model)
    close(rows_of(decoder, IDS, 1), own(model, IDS))
    assert (packed(decoder) > 0) == (way == "packed")
    for bias in (False, True):
        linear = nn.Linear(64, 97, bias=bias)
        head: Any = output_of(linear, model)
        with torch.inference_mode():
            for states in (torch.randn(1, 64), torch.randn(3, 64)):
                close(head(states), linear(states))
            linear.weight.mul_(2)
            close(head(states[:1]), linear(states[:1]))
