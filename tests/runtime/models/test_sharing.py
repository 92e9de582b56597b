"""A decoder's weights are the module's; a module with something of somebody else's has none; masks, compilation, devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.lazily import decoder_module, make
from lib.models.decoder_states import IDS, own, rows_of
from lib.models.family_configs import random_model
from torch import Tensor, nn

from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.forwards import ForwardChoice


def storages(model: Any) -> dict[int, int]:
    return {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}


@pytest.mark.parametrize("name", ["llama", "qwen2", "opt", "gpt2", "phi3", "mixtral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_take_no_more_memory(name: str, dtype: torch.dtype) -> None:
    model = random_model(name, dtype)
    before = {n: p.clone() for n, p in model.named_parameters()}
    total = sum(storages(model).values())
    decoder = make.of_module(model.base_model)
    for n, p in model.named_parameters():
        assert torch.equal(p, before[n]), n
    assert sum(storages(model).values()) == total
    read = [*decoder.weights.values(), *(w for product in decoder.products.values() for w in product.weights)]
    assert all(t.dim() < 2 for t in read if t.untyped_storage().data_ptr() not in storages(model))


def test_another_decoder_of_a_module_copies_nothing() -> None:
    model = random_model("llama")
    one = make.of_module(model.base_model)
    held = storages(model)
    two = make.of_module(model.base_model)
    assert storages(model) == held
    assert one.products["0.qkv"].weights[0].data_ptr() == two.products["0.qkv"].weights[0].data_ptr()


def test_a_change_of_a_weight_is_seen_by_both() -> None:
    model = random_model("llama")
    decoder = make.of_module(model.base_model)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight[3, 5] = 42.0
    assert decoder.products["0.qkv"].weights[0][32 + 3, 5] == 42.0


def test_weights_with_a_storage_of_their_own_are_left_alone() -> None:
    class Odd(nn.Parameter):
        """What a quantising library does: a parameter that is more than its numbers."""

    model = random_model("llama", torch.float32)
    parts = [part for layer in model.model.layers for part in (layer.self_attn.k_proj, layer.mlp.down_proj)]
    for part in parts:
        part.weight = Odd(part.weight.data.clone(), requires_grad=False)
    places = [part.weight.data_ptr() for part in parts]
    decoder = make.of_module(model.base_model)
    assert places == [part.weight.data_ptr() for part in parts]
    torch.testing.assert_close(rows_of(decoder, IDS, 5), own(model, IDS), rtol=1e-4, atol=1e-4)


def test_tied_weights_stay_tied() -> None:
    model = random_model("llama", torch.float32)
    first, second = model.model.layers[:2]
    second.mlp.down_proj.weight = first.mlp.down_proj.weight
    first.self_attn.k_proj.weight = second.self_attn.k_proj.weight
    before = own(model, IDS)
    decoder = make.of_module(model.base_model)
    assert first.self_attn.k_proj.weight.data_ptr() == second.self_attn.k_proj.weight.data_ptr()
    torch.testing.assert_close(own(model, IDS), before, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        first.self_attn.k_proj.weight.mul_(-2)
    torch.testing.assert_close(rows_of(decoder, IDS, 5), own(model, IDS), rtol=1e-4, atol=1e-4)


def with_forward(part: Any, forward: Callable[..., Any]) -> None:
    """Gives a module a class of its own, whose `forward` is handed the one it had and the arguments."""
    kind: Any = type(part)

    class Changed(kind):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return forward(super().forward, *args, **kwargs)

    part.__class__ = Changed


@pytest.mark.parametrize("where", ["layers.0.mlp", "layers.1.self_attn", "layers.2", "norm", "layers.0.mlp.act_fn"])
def test_a_part_of_somebody_elses_class_is_refused(where: str) -> None:
    base = random_model("llama").base_model
    with_forward(base.get_submodule(where), lambda forward, *a, **k: forward(*a, **k))
    with pytest.raises(UnknownToDecoder, match="Changed is no class of transformers' models"):
        make.of_module(base)


def test_hooks_and_forwards_of_objects_are_refused() -> None:
    base = random_model("llama").base_model
    handle = base.layers[1].mlp.register_forward_hook(lambda module, given, out: out * 2)
    with pytest.raises(UnknownToDecoder, match="hooks"):
        make.of_module(base)
    handle.remove()
    make.of_module(base)
    base.norm.forward = lambda states: states
    with pytest.raises(UnknownToDecoder, match="hooks, or a `forward`"):
        make.of_module(base)
    with pytest.raises(UnknownToDecoder, match="training mode"):
        make.of_module(random_model("llama").train().base_model)


def test_a_module_that_runs_as_it_is_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """What falls back does not do so in silence."""
    base = random_model("llama", torch.float32).train().base_model
    assert make.decoder_of(base, decoder_module.ModuleDecoder(base, "llama").plain) is None
    assert [(r.levelname, "training mode" in r.message) for r in caplog.records] == [("WARNING", True)]
    assert ForwardChoice("module", reason="why").text() == "as a module: why"


def test_no_mask_where_nothing_is_hidden() -> None:
    decoder = make.of_module(random_model("gemma3_text, scaled", torch.float32).base_model)
    ids, write = torch.randint(97, (2, 3)), torch.tensor([[0, 1, 2], [4, 3, 2]])
    every = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    near = every.clone()
    near[:, :, 0, 3] = False
    for sliding in (every, near):
        shown = {"full_attention": None, "sliding_attention": None if sliding is every else near}
        made = []
        for masks in (shown, {"full_attention": every, "sliding_attention": sliding}):
            made.append(decoder(ids, write, write, *make.caches(decoder, 2, 5), masks))
        torch.testing.assert_close(*made, rtol=1e-5, atol=1e-5)


def test_masks_of_numbers_and_of_truth_values() -> None:
    decoder = make.of_module(random_model("mistral", torch.float32).base_model)
    for batch, count in ((1, 1), (1, 4), (2, 1), (2, 3)):
        now = (torch.arange(count) + 6).expand(batch, count).contiguous()
        ids = torch.randint(97, (batch, count))
        seen = ((torch.arange(17) <= now[:, :, None]) & (torch.arange(17) > now[:, :, None] - 5))[:, None]
        numbers = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        out = [
            decoder(ids, now, now, *make.caches(decoder, batch, 17), dict.fromkeys(decoder.kinds, mask))
            for mask in (seen, numbers)
        ]
        assert torch.equal(*out)


def test_a_row_that_sees_nothing_is_finite() -> None:
    decoder = make.of_module(random_model("llama", torch.float32).base_model)
    sees = torch.zeros(2, 1, 2, 6, dtype=torch.bool)
    sees[0, 0, :, 0] = True
    at = torch.tensor([[0, 1]] * 2)
    assert decoder(torch.ones_like(at), at, at, *make.caches(decoder, 2, 6), {"full_attention": sees}).isfinite().all()


@pytest.mark.budget(12)
def test_compiled_gives_the_same() -> None:
    model, said = random_model("llama", torch.float32), list[str]()
    decoder = make.of_module(model.base_model)
    fast = decoder.compiled(said.append, backend="eager")
    torch.testing.assert_close(rows_of(fast, IDS, 5), rows_of(decoder, IDS, 5))
    assert not said


@pytest.mark.budget(6)
def test_without_a_compiler_it_runs_as_it_is() -> None:
    def missing(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    model, said = random_model("llama", torch.float32), list[str]()
    decoder = make.of_module(model.base_model)
    fast = decoder.compiled(said.append, backend=missing)  # type: ignore[arg-type]
    for _ in range(2):
        torch.testing.assert_close(rows_of(fast, IDS, 5), rows_of(decoder, IDS, 5))
    assert len(said) == 1 and "no C++ compiler" in said[0]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text", "mixtral", "gpt_oss", "deepseek_v3"])
def test_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    base = random_model(name, dtype).base_model.cuda()
    plain: Callable[[Tensor], Tensor] = decoder_module.ModuleDecoder(base, name).plain
    assert make.decoder_of(base, plain) is not None  # compares with the module there
