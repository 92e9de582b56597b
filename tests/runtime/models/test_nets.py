"""Nets of live modules: the decoder's where a family has an entry, on the module's own weights; else the module's, with the
same results, memories and layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lib.lazily import decoder_module, make
from lib.models.family_configs import random_model

from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import Vocab

PATHS = [(1, 5, 9, 11, 5), (1, 5, 9, 3), (1, 5)]


def model_of(module: Any, entry: bool) -> HFCausal:
    return HFCausal(make.net_of_module(module, entry=entry), name="live", vocab=Vocab("ids", 97), context=None, family="live")


def own(module: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([module(torch.tensor([path]), use_cache=False).logits[0, -1].double() for path in PATHS])


def rows(model: HFCausal) -> list[torch.Tensor]:
    """What the reference and the engine say, the engine after a call of its own and with a memory."""
    memory = model.memory(PATHS[0][:2])
    read = torch.stack([torch.from_numpy(s.logits) for s in model.eval(PATHS[:2], memory)])
    reference = torch.stack([torch.from_numpy(s.logits) for s in model.eval(PATHS)])
    torch.testing.assert_close(read, reference[:2], rtol=1e-4, atol=1e-4)
    engine = engine_of(model)
    engine.compute([ForwardCall(0, PATHS[2])])
    outputs = engine.compute([ForwardCall(n, path) for n, path in enumerate(PATHS)])
    return [reference, torch.cat(outputs).double()]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "gpt_neox", "mistral", "mixtral", "gpt_oss"])
def test_a_family_with_an_entry_runs_as_the_decoder_on_the_modules_weights(name: str) -> None:
    module = random_model(name, torch.float32).eval()
    model = model_of(module, entry=True)
    assert isinstance(model.net.decoder, TransformerDecoder)
    for found in rows(model):
        torch.testing.assert_close(found, own(module), rtol=1e-3, atol=1e-3)
    theirs = {p.untyped_storage().data_ptr() for p in module.parameters()}
    assert all(p.untyped_storage().data_ptr() in theirs for p in model.net.parameters() if p.dim() > 1)
    last = model.layers
    whole: Any = derive(model, "exit", last)
    torch.testing.assert_close(rows(whole)[1], own(module), rtol=1e-3, atol=1e-3)
    short = [derive(model, "exit", 1), derive(model, "skip", frozenset({1}), frozenset({1}))]
    for one in short:
        reference, engine = rows(one)  # type: ignore[arg-type]
        torch.testing.assert_close(reference, engine, rtol=1e-3, atol=1e-3)
        assert not torch.allclose(reference, own(module), atol=1e-2)


@pytest.mark.parametrize("name", ["llama", "mistral", "mixtral", "qwen3"])
def test_the_module_as_it_is_gives_the_same(name: str) -> None:
    module = random_model(name, torch.float32).eval()
    decoder, plain = model_of(module, entry=True), model_of(module, entry=False)
    assert isinstance(plain.net.decoder, decoder_module.ModuleDecoder)
    for found in rows(plain):
        torch.testing.assert_close(found, own(module), rtol=1e-3, atol=1e-3)
    ways: list[tuple[Any, ...]] = [("exit", 1), ("skip", frozenset({0}), frozenset()), ("parallel", 2), ("quantized", 5)]
    ways += [("expert", 1)] if name == "mixtral" else []
    for how in ways:
        mine, theirs = (rows(derive(model, *how)) for model in (plain, decoder))  # type: ignore[arg-type]
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)
    layers = [model.memory(PATHS[0]).layers for model in (plain, decoder)]
    for a, b in zip(*layers, strict=True):
        for i, pair in a.kv.items():
            torch.testing.assert_close(pair[0], b.kv[i][0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["gemma2", "cohere", "granite, scaled"])
def test_logits_that_a_module_caps_or_scales(name: str) -> None:
    module = random_model(name, torch.float32).eval()
    for found in rows(model_of(module, entry=False)):
        torch.testing.assert_close(found, own(module), rtol=1e-3, atol=1e-3)
