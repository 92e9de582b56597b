"""Hidden states of Hugging Face models against those that transformers gives, and layers in groups against their definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models.hf_models import llama, noisy
from lib.models.tiny import TinyModel

from decgraph.errors import DecError
from decgraph.ir.data.hidden import states_value
from decgraph.runtime.models import hf
from decgraph.runtime.models.decoder.module_parts import Entering, reading
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_heads import reading_model
from decgraph.runtime.models.parts import LayerUse
from decgraph.runtime.models.table import TableModel

PATH = (1, 5, 9, 11, 5, 9, 3)
LAYERS = 4


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    module = noisy(llama(3, LAYERS), 0.05)
    folder = tmp_path_factory.mktemp("models") / "llama"
    module.save_pretrained(folder)
    return module, hf.load_causal(Path(folder))


def near(states: torch.Tensor) -> float:
    """How far float32 states may be from others computed in another order."""
    return 1e-5 * max(1.0, float(states.abs().max()))


@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_states_are_those_of_transformers(both: tuple[Any, Any], layer: int) -> None:
    module, target = both
    kept: dict[int, torch.Tensor] = {}
    hooks = [
        part.register_forward_hook(
            lambda m, args, out, i=i: kept.update({i + 1: (out[0] if isinstance(out, tuple) else out)[0]})
        )
        for i, part in enumerate(module.model.layers)
    ]
    with torch.no_grad():
        module(torch.tensor([PATH]))
        kept[0] = module.model.embed_tokens(torch.tensor(PATH))
    for hook in hooks:
        hook.remove()
    trunk: Any = derive(target, "upto", layer)
    paths = [PATH[:n] for n in (1, 4, len(PATH))]
    for path, row in zip(paths, trunk.hidden_states(paths), strict=True):
        torch.testing.assert_close(row, kept[layer][len(path) - 1].float(), atol=near(kept[layer]), rtol=1e-4)
    on_rows = trunk.hidden_states([PATH], target.memory(PATH[:-2]))
    torch.testing.assert_close(on_rows[0], kept[layer][-1].float(), atol=near(kept[layer]), rtol=1e-4)


def test_states_after_the_last_norm_are_those_of_transformers(both: tuple[Any, Any]) -> None:
    module, target = both
    with torch.no_grad():
        wanted = module(torch.tensor([PATH]), output_hidden_states=True).hidden_states[-1][0, -1]
    states = derive(target, "normed", LAYERS)
    (got,) = states.hidden_states([PATH])
    (raw,) = derive(target, "upto", LAYERS).hidden_states([PATH])
    assert torch.allclose(got, wanted, atol=1e-4) and not torch.allclose(raw, wanted, atol=1e-2)
    with pytest.raises(DecError, match="last norm"):
        derive(target, "head", states)


@pytest.mark.parametrize("model", [FreeModel(1, 5, 2), TinyModel(1, 5, 2), TableModel(5, 1)])
def test_a_state_after_the_last_norm_is_another_one(model: Any) -> None:
    (raw,), (normed,) = (derive(model, how, model.layers).hidden_states([(1, 2)]) for how in ("upto", "normed"))
    assert repr(raw) != repr(normed)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_attentions_of_a_group_read_the_state_that_enters_it(both: tuple[Any, Any], size: int) -> None:
    module, target = both
    ids, base = torch.tensor([PATH]), module.model
    at = torch.arange(len(PATH))[None]
    mask = torch.full((len(PATH), len(PATH)), float("-inf")).triu(1)[None, None]
    with torch.no_grad():
        state = entering = base.embed_tokens(ids)
        turns = base.rotary_emb(state, at)
        for i, layer in enumerate(base.layers):
            entering = state if i % size == 0 else entering
            normed = layer.input_layernorm(entering)
            state = state + layer.self_attn(normed, position_embeddings=turns, attention_mask=mask)[0]
            state = state + layer.mlp(layer.post_attention_layernorm(state))
        wanted = module.lm_head(base.norm(state))[0, -1]
    (got,) = derive(target, "parallel", size).eval([PATH])
    torch.testing.assert_close(torch.from_numpy(got.logits).float(), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model", [FreeModel(3, layers=4), TinyModel(3, layers=4)], ids=["free", "tiny"])
def test_groups_of_one_layer_are_the_model(model: Any) -> None:
    path = (0, 1, 2, 1)
    scores = [derive(model, "parallel", n).eval([path])[0] for n in (1, 2, 4)]
    said = [tuple(s.weights or s.logits.tolist()) for s in (model.eval([path])[0], *scores)]
    assert said[0] == said[1] and len(set(said)) == 3


def test_a_layer_without_a_norm_before_its_attention_is_refused() -> None:
    with pytest.raises(DecError, match="no norm before its attention"):
        reading(torch.nn.Linear(2, 2), LayerUse(0, reads=0), {0: Entering()})


def test_a_router_has_a_part_for_each_layer(both: tuple[Any, Any]) -> None:
    _, target = both
    torch.manual_seed(1)
    parts = torch.nn.ModuleList(torch.nn.Linear(32, 1) for _ in range(LAYERS))
    head = reading_model(parts, target, "prob", "router")
    states = states_value(derive(target, "upto", 2).hidden_states([PATH]), (1,))  # type: ignore[attr-defined]
    with torch.no_grad():
        wanted = [float(part(torch.from_numpy(states).float()).sigmoid()) for part in parts]
    assert [head.of_states(states, layer)[0] for layer in range(LAYERS)] == pytest.approx(wanted)
    for layer in (None, LAYERS):
        with pytest.raises(DecError, match="parts for the layers 0..3"):
            head.of_states(states, layer)
