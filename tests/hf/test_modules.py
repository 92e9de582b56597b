"""Live modules: weights shared and followed, the module left as it was, models kept as long as they are good."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models.hf_models import MASK, PROMPT, RAGGED, llama, noisy

import decgraph
from decgraph.errors import DecError
from decgraph.hf.modules import Binder

GREEDY = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None}


def binder(name: str, backend: str, **given: Any) -> Binder:
    algorithm = decgraph.load(name)
    return Binder(algorithm.module, algorithm.function, given, backend)


def test_the_module_is_left_as_it_was(backend: str) -> None:
    model, plain = llama(5), llama(5)
    model.train()
    model.model.layers[0].eval()
    model.lm_head.weight.requires_grad_(False)
    modes = [part.training for part in model.modules()]
    model.generate(PROMPT, custom_generate=decgraph.hf("autoregressive", backend=backend), **GREEDY)
    assert [part.training for part in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == [p is not model.lm_head.weight for p in model.parameters()]
    assert model.config._attn_implementation == plain.config._attn_implementation
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert model.state_dict().keys() == plain.state_dict().keys()
    model.eval()
    assert torch.equal(model(PROMPT).logits, plain(PROMPT).logits)
    loss = model(PROMPT, labels=PROMPT).loss
    loss.backward()
    assert model.model.embed_tokens.weight.grad is not None


def test_dropout_is_off_while_decoding(backend: str) -> None:
    model = llama(5, attention_dropout=0.5).train()
    door = decgraph.hf("autoregressive", backend=backend)
    got = model.generate(PROMPT, custom_generate=door, **GREEDY)
    assert got.tolist() == model.eval().generate(PROMPT, **GREEDY).tolist()


def test_inference_mode_comes_and_goes(backend: str) -> None:
    """Caches outlive a call: they must not be tensors of the mode that it was made in."""
    model, drafter = llama(5), noisy(llama(5), 0.02)
    door = decgraph.hf("speculative", drafter=drafter, gamma=3, backend=backend)
    expected = model.generate(PROMPT, **GREEDY).tolist()
    with torch.inference_mode():
        assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == expected
    assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == expected
    model(PROMPT, labels=PROMPT).loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    after = model.generate(PROMPT, custom_generate=door, **GREEDY).tolist()
    assert after == model.generate(PROMPT, **GREEDY).tolist() != expected


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.device("meta")], ids=["inference", "device"])
def test_modes_of_the_caller_are_its_own(mode: Callable[[], AbstractContextManager[object]], backend: str) -> None:
    """Caches made in inference mode could not be written outside of it; indices would be made on a default device."""
    model, drafter = llama(5), noisy(llama(5), 0.02)
    prompt, expected = PROMPT[0].tolist(), model.generate(PROMPT, **GREEDY)[0, PROMPT.shape[1] :].tolist()

    def tokens(session: decgraph.Session) -> list[int]:
        (result,) = session.generate([prompt], max_tokens=12, temperature=0, eos=())
        assert result.error is None, result.error
        return list(result.tokens)

    with mode():
        session = decgraph.load("speculative").session({"target": model, "drafter": drafter}, backend=backend)
        assert tokens(session) == expected
    assert tokens(session) == expected
    with mode():
        assert tokens(session) == expected
        door = decgraph.hf("speculative", drafter=drafter, backend=backend)
        assert model.generate(PROMPT, custom_generate=door, **GREEDY)[0, PROMPT.shape[1] :].tolist() == expected


class RoundedRows(torch.nn.Module):
    """A matrix as torch's dynamic quantiser leaves it: `weight` is a method, and inputs are rounded by the range of a call."""

    def __init__(self, matrix: torch.nn.Linear) -> None:
        super().__init__()
        self.matrix, self.out_features = [matrix], matrix.out_features

    def weight(self) -> torch.Tensor:
        return self.matrix[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = x.abs().max() / 7
        return torch.nn.functional.linear((x / step).round() * step, self.weight())


def test_a_matrix_whose_weight_is_a_method() -> None:
    """A row depends on those beside it, so there is no telling what a cache would change: refused, by a message."""
    model = llama(5)
    model.lm_head = RoundedRows(model.lm_head)
    for layer in model.model.layers:
        layer.mlp.up_proj = RoundedRows(layer.mlp.up_proj)
    result = decgraph.run("autoregressive", [5, 6, 7], {"target": model}, max_tokens=4)
    assert "is not supported: LlamaModel with a cache differs from itself without one" in str(result.error)


def test_a_model_made_in_inference_mode(backend: str) -> None:
    with torch.inference_mode():
        model = llama(5)
    with pytest.raises(DecError, match=r"created in torch\.inference_mode"):
        model.generate(PROMPT, custom_generate=decgraph.hf("autoregressive", backend=backend), **GREEDY)


def test_changed_weights_are_seen(backend: str) -> None:
    model, door = llama(5), decgraph.hf("autoregressive", backend=backend)
    before = model.generate(PROMPT, custom_generate=door, **GREEDY)
    noisy(model, 0.5)
    after = model.generate(PROMPT, custom_generate=door, **GREEDY)
    assert after.tolist() == model.generate(PROMPT, **GREEDY).tolist() != before.tolist()
    model.load_state_dict(llama(5).state_dict())
    assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == before.tolist()


@pytest.mark.parametrize("name", ["speculative", "jacobi"])
def test_models_are_made_once(name: str, backend: str) -> None:
    model = llama(5)
    given = {"drafter": llama(6)} if name == "speculative" else {}
    first, second = binder(name, backend, **given)(model), binder(name, backend, **given)(model)
    assert all(first[n] is second[n] for n in first)
    noisy(model, 0.1)
    assert binder(name, backend, **given)(model)["target"] is not first["target"]


def test_weights_are_shared(backend: str) -> None:
    model = llama(5)
    made = binder("autoregressive", backend)(model)["target"]
    inner = made.module if hasattr(made, "module") else made.net.base
    own = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in inner.parameters()} <= own


def test_a_model_is_let_go(backend: str) -> None:
    model = llama(5)
    door = decgraph.hf("autoregressive", backend=backend)
    model.generate(PROMPT, custom_generate=door, **GREEDY)
    ref = weakref.ref(model)
    del model, door
    gc.collect()
    assert ref() is None


def test_copies_and_saved_models_are_whole(backend: str, tmp_path: Path) -> None:
    model, door = llama(5), decgraph.hf("autoregressive", backend=backend)
    expected = model.generate(PROMPT, custom_generate=door, **GREEDY).tolist()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        noisy(other, 0.5)
        assert other.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == other.generate(PROMPT, **GREEDY).tolist()
        assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == expected
    noisy(model, 0.0)  # the same values, written anew: the model is made anew on weights that were moved before
    assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == expected
    model.save_pretrained(tmp_path)
    assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == expected
    for name, weight in model.state_dict().items():
        assert weight.is_contiguous(), name
        weight.mul_(1)  # what state_dict gives are still the module's own weights
        assert weight.data_ptr() == dict(model.named_parameters())[name].data_ptr()
    read = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    assert read.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == expected


def test_one_door_for_several_models(backend: str) -> None:
    door = decgraph.hf("prompt_lookup", backend=backend)
    models = [llama(5), llama(6), llama(5)]
    for model in models:
        assert model.generate(PROMPT, custom_generate=door, **GREEDY).tolist() == model.generate(PROMPT, **GREEDY).tolist()


def test_states_per_session_live_as_long_as_the_door(backend: str) -> None:
    """Token recycling remembers what followed what: a second call drafts from the first, and commits the same."""
    model = llama(5)
    door = decgraph.hf("token_recycling", backend=backend, shape="3x2", k=3)
    texts, calls = [], []
    for _ in range(2):
        texts.append(model.generate(PROMPT, custom_generate=door, **GREEDY).tolist())
        calls.append(door.last[0].stats.target_calls)
    assert texts[0] == texts[1] == model.generate(PROMPT, **GREEDY).tolist()
    assert calls[1] < calls[0]


def test_a_folder_beside_a_live_model(backend: str, tmp_path: Path) -> None:
    """The folder is read once, and speaks the live model's ids where the sizes agree."""
    target, drafter = llama(5), noisy(llama(5), 0.02)
    drafter.save_pretrained(tmp_path)
    door = decgraph.hf("speculative", drafter=str(tmp_path), gamma=3, backend=backend)
    expected = target.generate(RAGGED, attention_mask=MASK, **GREEDY).tolist()
    for _ in range(2):
        assert target.generate(RAGGED, attention_mask=MASK, custom_generate=door, **GREEDY).tolist() == expected
        (tmp_path / "model.safetensors").unlink(missing_ok=True)


def test_decgraphs_own_models(backend: str) -> None:
    from decgraph.runtime.models.interface import Vocab
    from decgraph.runtime.models.table import TableModel

    target = llama(5, vocab_size=8, pad_token_id=0)
    drafter = TableModel(8, 1, name="drafter")
    if drafter.vocab != Vocab("ids", 8):
        assert drafter.vocab.size == 8
    door = decgraph.hf("speculative", drafter=drafter, gamma=2, backend=backend)
    prompt = PROMPT % 8
    assert target.generate(prompt, custom_generate=door, **GREEDY).tolist() == target.generate(prompt, **GREEDY).tolist()


def test_the_context_length_is_the_end(backend: str) -> None:
    """decgraph never reads past it; transformers warns and goes on. The row says so."""
    model = llama(5, max_position_embeddings=12)
    with pytest.warns(UserWarning, match="row 0 ended at the context length"):
        got = model.generate(PROMPT, custom_generate=decgraph.hf("autoregressive", backend=backend), **GREEDY)
    assert got.shape[1] == 13
    assert got.tolist() == model.generate(PROMPT, **{**GREEDY, "max_new_tokens": 7}).tolist()


def test_layers_of_a_model_that_has_none_to_show(gpt2: Any) -> None:
    with pytest.raises(DecError, match="GPT2"):
        gpt2.generate(PROMPT, custom_generate=decgraph.hf("kangaroo", adapter="exit"), max_new_tokens=4)
