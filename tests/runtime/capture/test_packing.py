"""Packed copies of matrices: the same numbers, for several rows or all, as long as the weights are those; and without them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from decgraph.runtime.models import one_row, packs
from decgraph.runtime.models.capture.make import capture
from decgraph.runtime.models.engine import output
from decgraph.runtime.models.engine.output import output_of

ARCHITECTURES = ["llama", "qwen2", "qwen3", "mistral", "gpt2", "gpt_neox", "opt", "phi3", "gemma3_text"]


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of any size are packed, for one row too."""
    monkeypatch.setattr(packs, "_SMALL", 1)
    monkeypatch.setattr(packs, "_CACHED", 0)
    for module in (packs, output):
        monkeypatch.setattr(module, "fastest", lambda *_, **__: "packed")


def rows_of(model: Any, step: Any, caches: Callable[..., Any], ids: list[int], cells: int) -> Tensor:
    """Last states of a sequence, `cells` tokens a call."""
    held, out = caches(step, model, 1, 33), []
    for start in range(0, len(ids), cells):
        now = torch.arange(start, min(start + cells, len(ids)))
        sees = (torch.arange(33) <= now[:, None])[None]
        out.append(held.run(torch.tensor([ids])[:, now], now[None], now[None], sees)[0])
    return torch.cat(out)


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max().clamp_min(1)))


def operations(step: Any, cells: int) -> set[str]:
    """The names in the code that runs for calls of so many tokens of one sequence."""
    (run,) = [r for key, r in step._runs.items() if key.one and key.single == (cells == 1)]
    return set(run.__func__.__code__.co_names)


@pytest.mark.parametrize("cells", [1, 5])
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.usefixtures("every")
def test_the_modules_numbers(
    name: str, cells: int, random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    model = random_model(name)
    step = capture(model)
    assert step is not None
    ids = torch.randint(97, (15,)).tolist()
    theirs = own(model, ids)
    close(rows_of(model, step, caches, ids, cells), theirs)
    assert any("linear_pointwise" in n for n in operations(step, cells)) and not {"mm", "addmm"} & operations(step, cells)
    assert step.program.packs.bytes == sum(m.numel() * 4 for m in packs_of(step))


def packs_of(step: Any) -> list[Tensor]:
    from decgraph.runtime.models.capture.packing import matrices

    found = matrices(step.program)
    assert found
    return found


def test_one_row_of_a_small_model_is_not_packed(random_model: Callable[..., Any], caches: Callable[..., Any]) -> None:
    model = random_model("llama", hidden_size=256, intermediate_size=256, head_dim=64)
    step = capture(model)
    assert step is not None
    ids = torch.randint(97, (15,)).tolist()
    close(rows_of(model, step, caches, ids, 1), rows_of(model, step, caches, ids, 5))
    assert not any("linear_pointwise" in n for n in operations(step, 1))
    assert any("linear_pointwise" in n for n in operations(step, 5))


@pytest.mark.usefixtures("every")
def test_a_weight_that_is_changed_in_place_is_packed_again(
    random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor]
) -> None:
    """Of parts that were joined, of one that was turned, and of one that lies as it did."""
    model = random_model("llama")
    step = capture(model)
    assert step is not None
    ids = torch.randint(97, (15,)).tolist()
    layer = model.model.layers[1]
    for weight in (layer.self_attn.k_proj.weight, layer.mlp.up_proj.weight, layer.mlp.down_proj.weight):
        before = rows_of(model, step, caches, ids, 5)
        close(before, own(model, ids))
        with torch.no_grad():
            weight.mul_(-1.5)
        after = rows_of(model, step, caches, ids, 5)
        assert float((after - before).abs().max()) > 1e-2
        close(after, own(model, ids))
        assert step.program.packs.bytes == sum(m.numel() * 4 for m in packs_of(step))


@pytest.mark.usefixtures("every")
def test_without_copies(
    random_model: Callable[..., Any],
    caches: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = torch.randint(97, (15,)).tolist()
    model = random_model("llama")
    step = capture(model)
    assert step is not None
    usual = rows_of(model, step, caches, ids, 5)
    monkeypatch.setenv("DECGRAPH_PACKED", "0")
    model = random_model("llama")
    for why in ("asked for", "no memory"):
        step = capture(model)
        assert step is not None
        close(rows_of(model, step, caches, ids, 5), usual)
        assert not step.program.packs.bytes and "addmm" in operations(step, 5), why
        states = torch.randn(3, 32)
        assert torch.equal(output_of(model.lm_head, model.model)(states), model.lm_head(states))
        monkeypatch.delenv("DECGRAPH_PACKED", raising=False)
        monkeypatch.setattr(packs, "_available", lambda: 1000)
        model = random_model("llama")
    with caplog.at_level(logging.WARNING, "decgraph.capture"):
        capture(model)
    assert "stay unpacked" in caplog.text


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
def test_what_is_more_than_a_matrix_is_left(random_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(nn.Linear):
        """What a quantising library does."""

    base, hooked = nn.Linear(8, 8), nn.Linear(32, 97)
    hooked.register_forward_hook(lambda module, args, out: out * 2)
    for matrix in (Own(32, 97), hooked, nn.Linear(32, 97, dtype=torch.float64), nn.Linear(32, 97, dtype=torch.float16)):
        assert output_of(matrix, base) is matrix
    monkeypatch.setattr(packs, "_has_bfloat16", lambda: False)
    coarse = capture(random_model("llama", torch.bfloat16))
    assert coarse is not None and not coarse.program.packs.bytes


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bfloat16")
def test_bfloat16_to_the_bit(
    random_model: Callable[..., Any], caches: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row is packed as well: there is nothing that it would lose."""
    ids = torch.randint(97, (15,)).tolist()
    made = []
    for asked in ("1", "0"):
        monkeypatch.setenv("DECGRAPH_PACKED", asked)
        model = random_model("llama", torch.bfloat16, hidden_size=256, intermediate_size=512, head_dim=64)
        step = capture(model)
        assert step is not None
        for cells in (1, 5):
            torch.manual_seed(3)
            made.append(rows_of(model, step, caches, ids, cells))
            assert any("linear_pointwise" in n for n in operations(step, cells)) == (asked == "1")
        states = torch.randn(4, 256, dtype=torch.bfloat16)
        made.append(output_of(model.lm_head, model.model)(states))
    for mine, theirs in zip(made[:3], made[3:], strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "mistral"])
def test_masks_of_numbers_and_of_truth_values(name: str, random_model: Callable[..., Any], caches: Callable[..., Any]) -> None:
    """A step takes masks in either form, of one token and of several, alone and in a batch."""
    model = random_model(name)
    step = capture(model)
    assert step is not None and step.additive
    for batch, cells in ((1, 1), (1, 4), (2, 1), (2, 3)):
        now = (torch.arange(cells) + 6).expand(batch, cells).contiguous()
        ids = torch.randint(97, (batch, cells))
        seen = (torch.arange(17) <= now[:, :, None])[:, None]
        near = seen & (torch.arange(17) > now[:, :, None] - 5)[:, None]
        held = caches(step, model, batch, 17)
        truth = {"full_attention": seen, "sliding_attention": near}
        lowest = torch.finfo(torch.float32).min
        numbers = {kind: torch.zeros(m.shape).masked_fill(~m, lowest) for kind, m in truth.items()}
        out = [
            step(ids, now, now, [k.clone() for k in held.keys], [v.clone() for v in held.values], m) for m in (truth, numbers)
        ]
        assert torch.equal(*out)


def test_one_token_is_not_transposed(random_model: Callable[..., Any], caches: Callable[..., Any]) -> None:
    for name in ("llama", "gpt2", "qwen2"):
        model = random_model(name)
        step = capture(model)
        assert step is not None
        ids = torch.randint(97, (9,)).tolist()
        close(rows_of(model, step, caches, ids, 1), rows_of(model, step, caches, ids, 3))
        assert "transpose" in operations(step, 3) and not {"transpose", "permute", "repeat"} & operations(step, 1), name


@pytest.mark.usefixtures("every")
def test_results_say_what_copies_take() -> None:
    import decgraph

    session = decgraph.load("autoregressive").session()
    result = session.run(decgraph.models.request_for(session, prompt="x = ", limit=3))
    (forward,) = result.forwards.values()
    (model,) = session.models.values()
    base = model.net.base
    inside = sum(p.numel() * 4 for n, p in base.named_parameters() if p.dim() == 2 and "embed" not in n)
    assert forward.packed == inside + model.net._out.weight.numel() * 4
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
    """Whatever a head computes outside captured layers for several rows reads packed copies, if it is large enough for one."""
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
def cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    one_row.measured.cache_clear()
    yield tmp_path / "products.json"
    one_row.measured.cache_clear()


def test_the_chosen_product_is_about_the_best(cache: Any) -> None:
    """Of the three, timed again in another way; within a third, since other work on the machine shows here too."""
    for outputs, inputs in ((768, 256), (256, 768)):
        times = one_row.measured(outputs, inputs, torch.get_num_threads())
        again = one_row.measure(outputs, inputs)
        for weight in (torch.ones(outputs, inputs), torch.ones(inputs, outputs).t()):
            chosen = one_row.fastest(weight)
            assert chosen in (one_row.lies(weight), "packed")
            assert times[chosen] == min(times[one_row.lies(weight)], times["packed"])
            assert again[one_row.fastest(weight, copied=True)] <= 2 * min(again.values())


def test_a_measurement_is_kept_and_read_again(cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_every_way_gives_the_modules_numbers(
    way: one_row.Way, random_model: Callable[..., Any], caches: Callable[..., Any], own: Callable[..., Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(packs, "_SMALL", 1)
    monkeypatch.setattr(packs, "_CACHED", 0)
    for module in (packs, output):
        monkeypatch.setattr(module, "fastest", lambda *_, **__: way)
    model = random_model("llama")
    step = capture(model)
    assert step is not None
    ids = torch.randint(97, (9,)).tolist()
    close(rows_of(model, step, caches, ids, 1), own(model, ids))
    assert any("linear_pointwise" in n for n in operations(step, 1)) == (way == "packed")
    for bias in (False, True):
        linear = nn.Linear(64, 97, bias=bias)
        head: Any = output_of(linear, model)
        with torch.inference_mode():
            for states in (torch.randn(1, 64), torch.randn(3, 64)):
                close(head(states), linear(states))
            linear.weight.mul_(2)
            close(head(states[:1]), linear(states[:1]))
