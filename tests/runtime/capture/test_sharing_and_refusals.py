"""Weights stay shared with the module; a module that cannot be captured is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from decgraph.runtime.models.capture.make import capture
from decgraph.runtime.models.capture.storage import joined, turned


def storages(model: Any) -> dict[int, int]:
    return {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}


@pytest.mark.parametrize("name", ["llama", "qwen2", "opt", "gpt2", "phi3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_take_no_more_memory(name: str, dtype: torch.dtype, random_model: Callable[..., Any]) -> None:
    model = random_model(name, dtype)
    before = {n: p.clone() for n, p in model.named_parameters()}
    bytes_before = sum(storages(model).values())
    step = capture(model)
    assert step is not None
    for n, p in model.named_parameters():
        assert torch.equal(p, before[n]), n
    held = storages(model)
    assert sum(held.values()) == bytes_before
    # what the step has beside the module's own storages: tables of cosines, scaled norms, signs and numbers
    extra = [t for t in step.program.tensors.values() if t.untyped_storage().data_ptr() not in held]
    assert all(t.dim() < 2 or t.shape[0] == 64 + 512 for t in extra)


def test_a_second_capture_copies_nothing(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    assert capture(model) is not None
    held = storages(model)
    assert capture(model) is not None and storages(model) == held


def test_a_change_of_a_weight_is_seen_by_both(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    step = capture(model)
    assert step is not None
    weight = step.program.tensors["layers_0_self_attn_q_proj_weight_and_k_and_v_t"]
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight[3, 5] = 42.0
    assert weight[5, 32 + 3] == 42.0


def test_storage() -> None:
    for dtype in (torch.float32, torch.float16):
        parts = [nn.Parameter(torch.randn(n, 4).to(dtype), requires_grad=False) for n in (3, 2, 5)]
        values = [p.clone() for p in parts]
        whole = turned(parts)
        assert torch.equal(whole, torch.cat(values).t()) and all(torch.equal(a, b) for a, b in zip(parts, values))
        assert whole.data_ptr() == turned(parts).data_ptr() == parts[0].data_ptr()
        assert whole.is_contiguous() == (dtype == torch.float32)
        assert turned(parts[1:]).data_ptr() != parts[0].data_ptr()
    biases = [nn.Parameter(torch.randn(n), requires_grad=False) for n in (3, 2)]
    one = torch.cat([b.detach() for b in biases])
    assert torch.equal(joined(biases), one) and joined(biases).data_ptr() == biases[0].data_ptr()


def test_weights_with_their_own_storage_are_left_alone(random_model: Callable[..., Any]) -> None:
    class Odd(nn.Parameter):
        """What a quantising library does: a parameter that is more than its numbers."""

    model = random_model("llama")
    for layer in model.model.layers:
        for part in (layer.self_attn.k_proj, layer.mlp.down_proj):
            part.weight = Odd(part.weight.data.clone(), requires_grad=False)
    places = [layer.mlp.down_proj.weight.data_ptr() for layer in model.model.layers]
    step = capture(model)
    assert step is not None and places == [layer.mlp.down_proj.weight.data_ptr() for layer in model.model.layers]
    assert any(n.meta.get("op") == "linear" for n in step.graph.graph.nodes)


def test_tied_weights_stay_where_they_are(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    layers = model.model.layers
    layers[1].mlp.down_proj.weight = layers[0].mlp.down_proj.weight
    layers[0].self_attn.k_proj.weight = layers[1].self_attn.k_proj.weight
    places = [layers[0].mlp.down_proj.weight.data_ptr(), layers[0].self_attn.k_proj.weight.data_ptr()]
    assert capture(model) is not None
    assert places == [layers[1].mlp.down_proj.weight.data_ptr(), layers[1].self_attn.k_proj.weight.data_ptr()]


_KEPT = torch.ones(32)


def refused(model: Any) -> str:
    reasons: list[str] = []
    assert capture(model, notice=reasons.append) is None
    assert len(reasons) == 1 and "runs unmodified" in reasons[0]
    return reasons[0]


def with_forward(part: Any, forward: Callable[..., Any]) -> None:
    """Gives a module a class of its own, whose `forward` is handed the one it had and the arguments."""
    kind: Any = type(part)

    class Changed(kind):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return forward(super().forward, *args, **kwargs)

    part.__class__ = Changed


def patched(model: Any, change: Callable[[Tensor], Any]) -> Any:
    """The model with a first layer whose MLP's result goes through `change`."""
    with_forward(model.model.layers[0].mlp, lambda forward, x: change(forward(x)))
    return model


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda x: x * 2 if float(x.sum()) > 0 else x, "branches on the result of"),
        (lambda x: x * 2 if (x > 0).any() else x, "branches on the result of"),
        (lambda x: x + x.sum().item(), "branches on the result of"),
        (lambda x: (x[0], x.mul_(2))[0].expand_as(x), "view of a tensor after"),
        (lambda x: x + _KEPT.mul_(1.0), "an input in place"),
        (lambda x: torch.add(x, x, out=torch.empty_like(x)), "in place"),
        (lambda x: x.uniform_(), "in place"),
        (lambda x: x * 2 if x.shape[1] > 1 else x, "another way"),
        (lambda x: x * x.shape[1] ** 0.5, "depends on the sizes|another way"),
        (lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1)] if x.shape[1] % 2 else x, "way|understood|int"),
        (lambda x: x + torch.rand(32), "random"),
        (lambda x: torch.from_numpy(x.numpy() * 2), "numpy"),
    ],
)
def test_what_is_not_straight_is_refused(change: Callable[[Tensor], Any], word: str, random_model: Callable[..., Any]) -> None:
    import re

    assert re.search(word, refused(patched(random_model("llama"), change)))


def test_sizes_and_constants_of_the_code_are_followed(random_model: Callable[..., Any]) -> None:
    """What is unusual but straight is captured: sizes as numbers, tensors made on the way or kept by the code."""
    kept = torch.linspace(1, 2, 32)

    def change(x: Tensor) -> Tensor:
        ones = torch.ones(x.shape[0], x.shape[1], 1)
        return (x.flip(-1) * kept + torch.tensor(0.5) * ones) / x.shape[1] * x.shape[1]

    assert capture(patched(random_model("llama"), change)) is not None


def _filled(x: Tensor) -> Tensor:
    """By halves, as DeepSeek's keys are."""
    whole = x.new_empty((*x.shape[:-1], 32))
    whole[..., :20].copy_(x[..., :20])
    whole[..., 20:] = x[..., 20:] * 2
    return whole


def _doubled(x: Tensor) -> Tensor:
    x = x + 0
    x[..., :16] *= 2
    x.transpose(-1, -2)  # a view that nobody reads afterwards
    x += 1
    return x.sub_(1)


@pytest.mark.parametrize("change", [lambda x: x.mul_(2), _filled, _doubled, lambda x: torch.zeros_like(x).index_add_(
    2, torch.tensor([3, 1]), x[..., :2]), lambda x: torch.zeros_like(x).scatter_(2, x.topk(3, -1).indices, 1.0)])  # fmt: skip
def test_writes_into_a_forwards_own_tensors_are_followed(
    change: Callable[[Tensor], Tensor], random_model: Callable[..., Any], own: Callable[..., Tensor], caches: Callable[..., Any]
) -> None:
    model = patched(random_model("llama"), change)
    said: list[str] = []
    step = capture(model, notice=said.append)
    assert step is not None and not step.program.dropped, said
    ids = [5, 3, 8, 8, 1]
    held = caches(step, model, 1, 5)
    for _ in range(2):  # nothing of the first call is left in the second
        got = held.run(torch.tensor([ids]), torch.arange(5)[None], torch.arange(5)[None], torch.ones(5, 5).tril().bool()[None])
        torch.testing.assert_close(got[0], own(model, ids), rtol=1e-5, atol=1e-5)


def test_other_reasons(random_model: Callable[..., Any]) -> None:
    assert "training mode" in refused(random_model("llama").train())
    capped = random_model("llama")
    for layer in capped.model.layers:
        with_forward(layer.self_attn, lambda forward, *a, **k: forward(*a, **{**k, "position_bias": 30.0}))
    assert "position_bias" in refused(capped)
    eager = random_model("llama")
    with_forward(eager.model.layers[1].self_attn, lambda forward, hidden_states, **_: (hidden_states, None))
    assert "attention" in refused(eager)
    assert refused(nn.Linear(2, 2))


def test_the_module_is_left_as_it_was(random_model: Callable[..., Any], own: Callable[..., Tensor]) -> None:
    model = random_model("llama")
    before = own(model, [1, 2, 3, 4])
    assert capture(model) is not None
    assert model.config._attn_implementation == "eager"
    torch.testing.assert_close(own(model, [1, 2, 3, 4]), before, rtol=1e-6, atol=1e-6)
    assert all(not layer._forward_pre_hooks and not layer._forward_hooks for layer in model.model.layers)
    refused(patched(model, lambda x: x * x.sum().item()))
    assert model.config._attn_implementation == "eager"
    assert all(not layer._forward_pre_hooks and not layer._forward_hooks for layer in model.model.layers)


def test_a_module_that_runs_unmodified_is_told_of(random_model: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """What falls back does not do so in silence, though nobody asked to be told."""
    assert capture(random_model("llama").train()) is None
    assert [(r.levelname, "runs unmodified" in r.message) for r in caplog.records] == [("WARNING", True)]
