"""Matrices of one input in a caller's module are one matrix for a device's step: the module's parameters become views of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import make, peft
from lib.models.decoder_states import IDS, own
from lib.models.family_configs import random_model
from safetensors.torch import load_file, save_file

import decgraph
from decgraph.backends.triton.models import decoder as slots
from decgraph.models import request_for
from decgraph.runtime.models.watch import Watch, shadow

JOINED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")


@pytest.fixture(autouse=True)
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "uses_kernels", lambda _: True)


def products(model: Any) -> dict[str, Any]:
    """Those of a step over slots, of a module that is a caller's."""
    return slots.SlotDecoder(make.of_module(shadow(model).base_model)).products


def weight(model: Any, name: str, layer: int = 0) -> torch.nn.Parameter:
    found: torch.nn.Parameter = model.get_parameter(f"model.layers.{layer}.{name}.weight")
    return found


def apart(model: Any) -> bool:
    return all(len(products(model)[f"0.{name}"].weights) == n for name, n in (("qkv", 3), ("up", 2)))


@pytest.mark.parametrize("name", ["llama", "qwen2", "mistral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_callers_module_keeps_its_numbers_and_its_memory(name: str, dtype: torch.dtype) -> None:
    model = random_model(name, dtype)
    before, same, logits = {k: w.clone() for k, w in model.state_dict().items()}, list(model.parameters()), own(model, IDS)
    total = sum(p.nbytes for p in model.parameters())
    made = products(model)
    assert len(made["0.qkv"].weights) == len(made["0.up"].weights) == 1
    assert torch.equal(own(model, IDS), logits), "while there is a step"
    del made
    assert torch.equal(own(model, IDS), logits), "and afterwards"
    assert all(a is b for a, b in zip(model.parameters(), same, strict=True)), "an optimizer has the same parameters"
    assert all(torch.equal(w, before[k]) for k, w in model.state_dict().items())
    places = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    assert sum(places.values()) == total


def test_the_old_memory_is_free() -> None:
    model = random_model("llama", torch.bfloat16)
    made = make.of_module(shadow(model).base_model)
    old = made.products["0.qkv"].weights
    slots.SlotDecoder(made)
    assert len(made.products["0.qkv"].weights) == 1, "every decoder of the module has the one matrix"
    assert [w.data_ptr() for w in old] == [weight(model, name).data_ptr() for name in JOINED[:3]]


def test_a_write_in_place_is_seen_and_a_copy_is_whole() -> None:
    model = random_model("llama", torch.float32)
    made = products(model)
    with torch.no_grad():
        weight(model, "self_attn.k_proj")[3, 5] = 42.0
    assert made["0.qkv"].matrix[len(weight(model, "self_attn.q_proj")) + 3, 5] == 42.0
    other = copy.deepcopy(model)
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in other.parameters())


def test_it_is_saved_whole(tmp_path: Path) -> None:
    model = random_model("llama", torch.float32)
    before = {name: w.clone() for name, w in model.state_dict().items()}
    products(model)
    model.save_pretrained(tmp_path / "folder")
    save_file(model.state_dict(), tmp_path / "all.safetensors")
    torch.save(model.state_dict(), tmp_path / "all.pt")
    found = (load_file(tmp_path / "folder" / "model.safetensors"), load_file(tmp_path / "all.safetensors"))
    for state in (*found, torch.load(tmp_path / "all.pt")):
        assert state and all(torch.equal(w, before[name]) for name, w in state.items())
    assert (tmp_path / "all.pt").stat().st_size < 1.2 * (tmp_path / "all.safetensors").stat().st_size


def test_a_second_step_of_a_module_copies_nothing() -> None:
    model = random_model("llama", torch.float32)
    one, two = products(model)["0.qkv"].matrix, products(model)["0.qkv"].matrix
    assert one.data_ptr() == two.data_ptr() == weight(model, "self_attn.q_proj").data_ptr()


def test_a_module_is_the_same_after_it_and_another_one_on_another_device() -> None:
    model = random_model("llama", torch.float32)
    seen = shadow(model)
    made, watch = make.of_module(seen.base_model), Watch(model)
    slots.SlotDecoder(made)
    assert watch.same(), "what decgraph moved is no change"
    assert weight(model, "self_attn.q_proj").untyped_storage().nbytes() > weight(model, "self_attn.q_proj").nbytes
    with torch.no_grad():
        weight(model, "self_attn.v_proj").zero_()
    assert not watch.same()
    watch = Watch(model)
    weight(model, "self_attn.v_proj").data = torch.zeros_like(weight(model, "self_attn.v_proj"))
    assert not watch.same(), "the same numbers, elsewhere"
    watch = Watch(model)
    model.to(torch.bfloat16)
    assert not watch.same()


def test_memory_that_somebody_else_has_stays_where_it_is() -> None:
    kept = random_model("llama", torch.float32)
    state = kept.state_dict()
    assert apart(kept), "the caller may write into a state_dict"
    del state
    assert not apart(kept)

    flat = random_model("llama", torch.float32)
    own_place, beside = weight(flat, "mlp.up_proj"), weight(flat, "self_attn.k_proj")
    whole = torch.cat([beside.detach(), own_place.detach()])
    beside.data, own_place.data = whole[: len(beside)], whole[len(beside) :]
    assert apart(flat), "a part of a buffer of many parameters"

    trained = random_model("llama", torch.float32).requires_grad_(True)
    trained(input_ids=IDS[None]).logits.sum().backward()
    assert apart(trained), "it is being trained"


def test_shared_matrices_stay_shared() -> None:
    model = random_model("llama", torch.float32)
    first, second = model.model.layers[:2]
    first.self_attn.k_proj.weight = second.self_attn.k_proj.weight
    logits = own(model, IDS)
    products(model)
    assert first.self_attn.k_proj.weight is second.self_attn.k_proj.weight
    assert torch.equal(own(model, IDS), logits)


def hooked(model: Any) -> Any:
    model.model.layers[0].self_attn.q_proj.register_forward_hook(lambda module, args, out: out)
    return model


def parametrized(model: Any) -> Any:
    torch.nn.utils.parametrizations.weight_norm(model.model.layers[0].mlp.up_proj)
    return model


def adapted(model: Any) -> Any:
    made = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    return made.get_base_model()


@pytest.mark.parametrize("change", [hooked, parametrized, adapted])
def test_a_module_with_more_than_transformers_code_is_left_alone(change: Callable[[Any], Any]) -> None:
    model = change(random_model("llama", torch.float32))
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    session = decgraph.load("autoregressive").session({"target": model}, backend="triton")
    session.run(request_for(session, prompt=[1, 2, 3], max_tokens=4), keep_events=False)
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == places


def test_training_goes_on_after_it() -> None:
    model = random_model("llama", torch.float32).requires_grad_(True)
    other = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.01) for one in (model, other)]
    assert not apart(model)
    for optimizer, one in zip(optimizers, (model, other), strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            one(input_ids=IDS[None], labels=IDS[None]).loss.backward()
            optimizer.step()
    assert torch.equal(own(model, IDS), own(other, IDS))
    assert not apart(model), "they lie side by side still"


def test_a_session_and_the_module_go_on_with_changed_weights() -> None:
    model = random_model("llama", torch.float32)
    session = decgraph.load("autoregressive").session({"target": model}, backend="triton")
    request = request_for(session, prompt=[1, 2, 3], max_tokens=6)

    def plain() -> tuple[int, ...]:
        other = decgraph.load("autoregressive").session({"target": copy.deepcopy(model)}, backend="reference")
        return other.run(request, keep_events=False).tokens

    wanted = plain()
    for _ in range(2):
        made = session.run(request, keep_events=False)
        assert made.tokens == wanted and made.mode == "graph mode"
    with torch.no_grad():
        for name in JOINED:
            weight(model, name).mul_(-3)
    assert session.run(request, keep_events=False).tokens == plain() != wanted
