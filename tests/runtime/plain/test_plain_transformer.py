"""The plain transformer's whole forwards are transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lib.models.hf_modules import module
from lib.models.plain_transformer import Half, of_module


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral"])
def test_whole_forwards_are_the_librarys(kind: str) -> None:
    of = module(kind)
    plain = of_module(of)
    ids = torch.randint(61, (11,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        made = of.double()(input_ids=ids[None], use_cache=False, output_hidden_states=True)
    rows = plain.run(ids.tolist(), range(11))
    for i in range(11):
        assert np.allclose(plain.read(rows.last[i]), made.logits[0, i].numpy(), atol=1e-4)
        for layer in range(3):
            assert np.allclose(rows.states[layer, i], made.hidden_states[layer][0, i].numpy(), atol=1e-4)


def test_a_half_that_is_left_out_is_a_module_that_gives_zeros() -> None:
    """The library's own layers with a forward that gives zeros in place of a half."""
    of = module("llama").double()
    plain = of_module(of)
    ids = [5, 9, 2, 44, 31]
    of.model.layers[1].self_attn.forward = lambda hidden_states, **_: (torch.zeros_like(hidden_states), None)
    of.model.layers[2].mlp.forward = torch.zeros_like
    with torch.no_grad():
        want = of(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].numpy()
    halves = {0: Half(), 1: Half(attention=False), 2: Half(mlp=False)}
    assert np.allclose(plain.logits(ids, halves=halves), want, atol=1e-4)
