"""`m.merged(positions, groups)`: calls on it are what a plain transformer computes on the means of its keys and values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from lib.models.hf_modules import module
from lib.models.plain_transformer import of_module

import decgraph
from decgraph.errors import DecError
from decgraph.ir.ops.memories import groups
from decgraph.runtime.models import hf
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_causal import HFCausal

PATH = (3, 17, 5, 44, 9, 60, 2, 31)
GROUPS = ((1, 2), (3, 4, 6), (5,))
LAYERS = 3


def test_a_call_reads_the_means(tmp_path: Path) -> None:
    module("llama", num_hidden_layers=LAYERS).save_pretrained(tmp_path)
    target = hf.load_causal(tmp_path)
    assert isinstance(target, HFCausal)
    plain = of_module(module("llama", num_hidden_layers=LAYERS))
    n = len(PATH) - 1
    rows = plain.run(PATH[:-1], range(n))
    for layer in range(LAYERS):
        for group in GROUPS:
            made = [rows.kv.pop((layer, i)) for i in group]
            rows.kv[layer, group[-1]] = tuple(np.mean(parts, axis=0) for parts in zip(*made, strict=True))  # type: ignore[assignment]
    want = plain.read(plain.run(PATH, [n], rows).last[n])
    (score,) = target.eval([PATH], target.memory(PATH[:-1]).merged(GROUPS))
    assert np.allclose(score.logits, want, atol=2e-3)
    call = ForwardCall("s", PATH, memory=Remembered(target, PATH, n).merged(GROUPS))
    (output,) = engine_of(target).compute([call])
    assert isinstance(output, torch.Tensor) and np.allclose(output[0], want, atol=2e-3)


def test_a_group_of_one_is_no_group() -> None:
    model = FreeModel(1, 5)
    memory = model.memory((1, 2, 3, 4))
    assert memory.merged([(i,) for i in range(4)]) == memory
    merged = memory.merged([(0, 2), (3,)])
    assert (
        merged.positions == {1, 2, 3} and merged.length == 4 and merged[0].kv[2] == ("mean", memory[0].kv[0], memory[0].kv[2])
    )
    assert merged[0].kv[3] == memory[0].kv[3]
    assert memory.without([0]).merged([(0, 2)]) == memory.without([0])  # what is not there counts for nothing


def test_groups_go_by_number() -> None:
    assert groups(np.array([5, 1, 3, 2]), np.array([1, 0, 1, 0])) == [(1, 2), (3, 5)]
    with pytest.raises(DecError, match="4 positions and 2 groups"):
        groups(np.arange(4), np.arange(2))
    for wrong, said in (("[1]", "takes positions and their groups"), ("[1], 2", "their groups as a vector")):
        with pytest.raises(DecError, match=said):
            decgraph.parse(
                f"algorithm a(target: causal):\n    m = target.memory(ctx).merged({wrong})\n    while not done:\n"
                "        x ~ target(ctx)\n        commit x\n"
            )
