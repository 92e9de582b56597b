"""`target.since(l, states)`: the target's layers from l on over states that something else gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from lib.models.hf_models import V, llama
from lib.stdlib.table_models import layered, tables

from decgraph.check.algorithm import check_algorithm
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.hf import load_causal
from decgraph.runtime.models.interface import Memory, Model, Row, Scores

PATH = (1, 0, 3, 2, 1)


@pytest.fixture(scope="module")
def module() -> Any:
    return llama(5, layers=3)


@pytest.fixture(scope="module")
def real(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("llama") / "llama"
    module.save_pretrained(folder)
    return load_causal(folder)


def alike(a: Scores, b: Scores) -> bool:
    if a.weights is not None:
        return a.weights == b.weights
    return bool(np.allclose(a.logits, b.logits, atol=1e-4))


@pytest.mark.parametrize("kind", ["free", "tiny", "real"])
def test_over_the_targets_own_states_it_is_the_target(kind: str, real: Model) -> None:
    target: Model = real if kind == "real" else layered(kind)["target"]
    (want,) = target.eval([PATH])
    for layer in range(target.layers):
        same = derive(target, "since", layer, derive(target, "upto", layer))
        for held in (None, 1, 3, len(PATH) - 1, len(PATH)):
            given = None if held is None else target.memory(PATH[:held])
            assert alike(same.eval([PATH], given)[0], want), (layer, held)


@pytest.mark.parametrize("kind", ["free", "tiny"])
def test_behind_the_last_layer_it_is_the_head(kind: str) -> None:
    models = layered(kind)
    target, head = models["target"], models["head"]
    given = target.memory(PATH[:3])
    late = derive(target, "since", target.layers, head)
    for memory in (None, given):
        assert alike(late.eval([PATH], memory)[0], head.eval([PATH], memory)[0])
    early = derive(target, "since", 1, head)
    assert not alike(early.eval([PATH], given)[0], head.eval([PATH], given)[0])


class Twice(Model):
    """States from states: their double."""

    def __init__(self, target: Model) -> None:
        self.kind, self.name, self.vocab, self.context = "layers", "twice", target.vocab, target.context
        self.layers, self.family = 1, "twice"

    def apply(self, states: Mapping[int, Row]) -> dict[int, Row]:
        return {i: 2 * s for i, s in states.items()}


@torch.no_grad()
def test_a_transformers_module_goes_on_from_them(module: Any, real: Model) -> None:
    changed = derive(real, "since", 1, derive(Twice(real), "on", derive(real, "upto", 1)))
    hook = module.model.layers[1].register_forward_pre_hook(lambda _, args: (2 * args[0], *args[1:]))
    try:
        want = module(torch.tensor([PATH])).logits[0, -1].double().numpy()
    finally:
        hook.remove()
    (got,) = changed.eval([PATH])
    assert np.allclose(got.logits, want, atol=1e-4)
    # On a memory only the positions after it are changed: below the layer the target's own keys and values stay.
    (some,) = changed.eval([PATH], real.memory(PATH[:3]))
    halved = lambda _, args: (torch.cat([args[0][:, :3], 2 * args[0][:, 3:]], dim=1), *args[1:])
    hook = module.model.layers[1].register_forward_pre_hook(halved)
    try:
        want = module(torch.tensor([PATH])).logits[0, -1].double().numpy()
    finally:
        hook.remove()
    assert np.allclose(some.logits, want, atol=1e-4) and not np.allclose(some.logits, got.logits, atol=1e-2)


def test_a_table_tells_what_it_goes_on_from() -> None:
    models = tables()
    target, adapter = models["target"], models["adapter"]
    upto, given = derive(target, "upto", 1), target.memory(PATH[:3])
    rows = [
        derive(target, "since", layer, states).eval([PATH], memory)[0].weights
        for layer in (1, 2)
        for states in (upto, derive(adapter, "on", upto), models["head"])
        for memory in (given, target.memory((1, 0, 2)))
    ]
    assert len(set(rows)) == len(rows)


def refused(target: Model, layer: int, states: Model, memory: Memory | None = None) -> str:
    with pytest.raises(DecError) as error:
        derive(target, "since", layer, states).eval([PATH], memory)
    return str(error.value)


def test_what_it_refuses(real: Model) -> None:
    upto = derive(real, "upto", 1)
    assert "has 3 layers" in refused(real, 4, upto)
    assert "cannot be used in since" in refused(real, 1, real)
    assert "do not share keys and values" in refused(real, 1, upto, layered("tiny")["target"].memory(PATH[:2]))
    assert real.vocab.size == V


def test_a_table_over_its_own_states_is_the_table() -> None:
    target = tables()["target"]
    same = derive(target, "since", 1, derive(target, "upto", 1))
    for held in (None, 1, 3, len(PATH)):
        given = None if held is None else target.memory(PATH[:held])
        assert same.eval([PATH], given)[0].weights == target.eval([PATH])[0].weights


GOES_ON = """
algorithm goes_on(target: causal, adapter: layers(target)):
    refines autoregressive(target) in tokens
    model later = target.since(1, {states})

    while not done:
        x ~ later(ctx) as output
        commit x
"""


@pytest.mark.parametrize(
    "states, verdict",
    [pytest.param("target.upto(1)", "holds", marks=pytest.mark.nightly), ("adapter(target.upto(1))", "refuted")],
)
def test_what_changes_the_states_is_no_call_of_the_target(states: str, verdict: str) -> None:
    text = GOES_ON.format(states=states)
    report = check_algorithm(load_text(text, "goes_on.dec"), models=20)
    assert report.verdict == verdict, str(report)
