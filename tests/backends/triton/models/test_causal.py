"""Hugging Face models on the device give the logits that their engine gives, over trees, chunks and moves, ragged."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from hf_modules import CONFIGS, logits, module
from lockstep import Lockstep, Path
from torch import Tensor

from decgraph.backends.triton.step import causal
from decgraph.backends.triton.step.causal import CausalOnDevice, device_model, weights_of
from decgraph.backends.triton.step.causal_graph import DeviceStep, kernel_attention
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.forwards import forward_of
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.interface import Vocab

# Of float32 logits of size about 10: sums are taken in another order over other numbers of slots.
_CLOSE = {"atol": 2e-4, "rtol": 1e-4}


def checks(of: Any, counted: list[int]) -> Any:
    def check(paths: list[Path], scores: Tensor) -> None:
        want = logits(of, paths)
        assert scores.dtype == want.dtype == torch.float32
        assert torch.allclose(scores, want, **_CLOSE), (scores - want).abs().max()
        counted.append(len(paths))

    return check


@pytest.mark.quick("llama", "qwen2-windows", "gpt2", "opt", "gemma3", "gpt_oss")
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_architecture_over_random_trees(kind: str) -> None:
    of = module(kind)
    made = device_model(from_module(of, name=kind), 3, 90, 34)
    assert isinstance(made, CausalOnDevice) and not made.exact and made.vocab_size == 61
    counted: list[int] = []
    run = Lockstep(made, 61, 3, checks(of, counted))
    run.run([1, 9, 4], steps=5, nodes=9)
    assert sum(counted) > 40 and 0 in run.moved and run.shifted > 2
    decoder = isinstance(made.weights.step, DeviceStep)
    assert decoder == (kind not in ("gemma2", "gpt_oss", "opt")), "caps, sinks, and a module"


@pytest.mark.quick("gemma3")
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_the_kernel_looks_at_nothing_that_no_cell_sees(kind: str) -> None:
    """With NaN in every slot that is not held, and behind it where padding is written."""
    changes = {"layer_types": ["sliding_attention", "full_attention"]} if kind == "gemma3" else {}
    of = module(kind, num_hidden_layers=2, **changes)
    made = device_model(from_module(of, name=kind), 2, 60, 34, attention=kernel_attention)
    assert isinstance(made, CausalOnDevice) and isinstance(made.weights.step, DeviceStep)

    def poison(held: list[int]) -> None:
        for block in made._blocks.values():
            for lane, count in enumerate(held):
                block[:, lane, :, count:] = float("nan")
        made._cells.tail_positions.fill_(-77)

    run = Lockstep(made, 61, 10, checks(of, []), poison)
    run.run([5, 2], steps=2, nodes=4)
    assert run.shifted > 1


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_prompts_in_chunks_and_one_sequence(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "CHUNK", 5)
    of = module(kind)
    for prompts in ([17, 3, 11, 6], [13]):
        made = device_model(from_module(of, name=kind), len(prompts), 70, 40)
        Lockstep(made, 61, 3, checks(of, [])).run(prompts, steps=2, nodes=9)


def test_scores_equal_the_engines() -> None:
    model = from_module(module("qwen2"), name="small", vocab=Vocab("ids", 50))
    engine, made = engine_of(model), device_model(model, 2, 60, 20)
    prompts = [[3, 1, 4, 1, 5], [9, 2, 6]]
    made.begin(prompts)
    held = torch.tensor([4, 2], dtype=torch.int32)
    tokens, positions = torch.tensor([[5, 7], [6, 8]]), torch.tensor([[4, 5], [2, 3]])
    got = made.forward(tokens, positions, 0, held, torch.tensor([[[1], [3]]] * 2, dtype=torch.int32), None)
    want = torch.stack(
        engine.compute([ForwardCall(n, p, (), [t], [-1], [0], [-1, 0]) for n, p, t in zip((0, 1), prompts, (7, 8))])
    )
    assert got.shape == (2, 2, 50) and got.is_contiguous() and got.dtype == want.dtype
    assert torch.allclose(got, want, **_CLOSE)


def test_bfloat16_scores_stay_bfloat16() -> None:
    of = module("llama").to(torch.bfloat16)
    made = device_model(from_module(of, name="small"), 1, 40, 8)
    made.begin([[1, 2, 3]])
    held, bits = torch.tensor([2], dtype=torch.int32), torch.tensor([[[1]]], dtype=torch.int32)
    got = made.forward(torch.tensor([[3]]), torch.tensor([[2]]), 0, held, bits, None)
    want = logits(of, [(1, 2, 3)])[None]
    assert got.dtype == torch.bfloat16
    assert (got.float() - want.float()).abs().max() < 0.05 * want.float().abs().max()


def test_weights_are_made_once_and_names_are_the_models() -> None:
    of = module("llama")
    model = from_module(of, name="a")
    one, two = weights_of(model), weights_of(model)
    assert one.step is two.step and one.name == "a"


def test_refusals_and_what_runs_unmodified(caplog: pytest.LogCaptureFixture) -> None:
    of = module("llama")
    model = from_module(of, name="small")
    with pytest.raises(DecError, match="context of 'small'"):
        device_model(model, 1, 96 + 513, 8)
    made = device_model(model, 1, 120, 8)
    for prompt, why in (([], "at least one"), ([1] * 97, "past the context"), ([61], "not in the vocabulary")):
        with pytest.raises(DecError, match=why):
            made.begin([prompt])
    with pytest.raises(DecError, match="2 prompts for a batch of 1"):
        made.begin([[1], [2]])
    with pytest.raises(DecError, match="a FreeModel is not supported"):
        device_model(FreeModel(3), 1, 20, 4)
    with pytest.raises(DecError, match="masked model"):
        device_model(FreeModel(3, visibility="full"), 1, 20, 4)
    of = module("gpt_oss")
    with caplog.at_level(logging.WARNING):
        device_model(model_with_sinks := from_module(of, name="sinks"), 1, 40, 8)
    assert "over masks of all slots: the kernels of attention know neither caps of scores nor sinks" in caplog.text
    forward = forward_of(model_with_sinks)
    assert forward is not None and forward.way == "decoder"


def test_a_module_that_runs_unmodified_has_the_kernels_beside_it() -> None:
    of = module("gemma2", num_hidden_layers=2)
    made = device_model(from_module(of, name="capped"), 2, 50, 30, attention=kernel_attention)
    assert isinstance(made, CausalOnDevice) and made.weights.kernels and not made.weights.sites
    run = Lockstep(made, 61, 10, checks(of, []))
    run.run([5, 2], steps=2, nodes=4)
    assert run.shifted > 1


def test_a_module_that_reads_values_back_has_no_form(caplog: pytest.LogCaptureFixture) -> None:
    of = module("llama")
    had = of.model.norm.forward
    of.model.norm.forward = lambda states: had(states) * (1.0 if float(states.sum()) < 1e30 else 2.0)
    with caplog.at_level(logging.WARNING), pytest.raises(DecError, match="'reads'.*reads a tensor's values"):
        device_model(from_module(of, name="reads"), 1, 40, 8)
    assert "LlamaModel runs as transformers' own module" in caplog.text
