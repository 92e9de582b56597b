"""Heads, parts of models and models derived from others give what the models themselves give, on the device's buffers."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import pytest
import torch
from lib.engines.device_calls import Drafts, Following, Path, Walk, gives
from lib.lazily import modeling
from lib.models import published_heads as heads
from lib.models.hf_modules import LAYER, large, module
from lib.models.published_heads import written
from torch import Tensor

from decgraph.backends.triton.models.device import step_model
from decgraph.backends.triton.models.interface import ModelPart
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.check.table_models import Style, StyledModel, styled_features
from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.free import FreeFeatures, FreeModel
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads
from decgraph.runtime.models.table import TableAdapter, TableModel

V, WIDTH = 61, 32
CLOSE = {"atol": 3e-4, "rtol": 1e-4}  # of logits of size about 10: sums are taken in another order


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> HFCausal:
    path = tmp_path_factory.mktemp("models") / "llama"
    module("llama").save_pretrained(path)
    made = hf.load_causal(File(path))
    assert isinstance(made, HFCausal)
    return made


def near(model: Any, made: Any) -> Any:
    return gives(made, lambda paths: stacked(model.eval(paths), model.vocab.size), **CLOSE)


DERIVED: list[Any] = [(), ("exit", 1), ("skip", {1}), ("skip", {0}, {2}), ("parallel", 2), ("quantized", 4)]


@pytest.mark.parametrize("how", DERIVED, ids=str)
def test_derived_models_share_weights(target: HFCausal, how: Any) -> None:
    whole = step_model(target, Pages(2, 60))
    made = whole.derive(*how) if how else whole
    Walk(made, V, 2, near(derive(target, *how) if how else target, made)).run([5, 1], steps=3)


def test_early_exits_with_and_without_an_adapter(target: HFCausal) -> None:
    whole, upto = step_model(target, Pages(2, 60)), derive(target, "upto", 2)
    adapter = HFAdapter(large(modeling.ExitAdapter(modeling.ExitConfig(exit_layer=2, **LAYER))), target, "exit")
    part = whole.derive("upto", 2)
    assert part.kind == "layers"
    plain, bare = whole.derive("head", part), whole.derive("bare", part)
    adapted = step_model(derive(target, "head", derive(adapter, "on", upto)), Pages(2, 60))
    for made, how in ((plain, "head"), (bare, "bare")):
        Walk(made, V, 2, near(derive(target, how, upto), made)).run([5, 1], steps=2)
    Walk(adapted, V, 2, near(adapted.model, adapted)).run([5, 1], steps=2)


@pytest.mark.parametrize("how", [("exit", 2), ("skip", {0}), ("quantized", 3)], ids=str)
def test_tables_derived_from_tables(how: Any) -> None:
    model = StyledModel(4, 5, Style(sort="mixed"))
    made, want = step_model(model, Pages(2, 30)).derive(*how), derive(model, *how)
    Walk(made, 4, 2, near(want, made)).run([3, 1], steps=2)
    part = derive(TableAdapter(model, 9), "on", derive(model, "upto", 2))
    made = step_model(derive(model, "head", part), Pages(2, 30))
    Walk(made, 4, 2, near(made.model, made)).run([3, 1], steps=2)


def test_medusa_heads(target: HFCausal) -> None:
    medusa = HFHeads(large(modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=WIDTH, inner_size=48, heads=3))), target, "m")
    both = target.with_heads(medusa)
    made = step_model(both, Pages(2, 60))
    walk = Walk(made, V, 4, near(target, made))
    walk.run([6, 2], steps=3)
    for got, path in walk.heads():
        assert torch.allclose(got.double(), stacked(both.heads(path), V), **CLOSE)
    with pytest.raises(NotSteppable, match="no heads"):
        step_model(target, Pages(1, 40)).heads(torch.zeros(1, 1, WIDTH))


def of_memory(model: Any, made: Any) -> Any:
    def check(text: Path, paths: list[Path], states: Tensor) -> None:
        want = stacked(model.eval(paths, memory=model.target.memory(text[:-1])), model.vocab.size)
        got = made.read(states).double()
        assert torch.allclose(got, want, **CLOSE), (got - want).abs().max()

    return check


def test_features_are_the_targets_where_it_has_them_and_the_heads_own_below(target: HFCausal) -> None:
    model = HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "eagle")
    whole = step_model(target, Pages(3, 60))
    made = step_model(model, whole.pages, target=whole)
    Drafts(whole, made, V, 5, of_memory(model, made)).run([7, 2, 1], steps=3)
    with pytest.raises(NotSteppable, match="reads states of its target"):
        step_model(model, Pages(3, 60))


def anchored(config: dict[str, Any], weights: heads.Weights) -> tuple[dict[str, Any], heads.Weights]:
    """A DFlash head whose root's place guesses the token after it, as DSpark's does."""
    return {**config, "sample_from_anchor": True}, weights


READS = [0, 2, 3]  # of a target of three layers: the first input, one between, and the last states
PUBLISHED: dict[str, Any] = {
    "eagle3": lambda: heads.eagle3(reads=READS),
    "eagle3, the whole vocabulary, its own embedding": lambda: heads.eagle3(draft=V, embedding=True, reads=READS),
    "peagle, two layers": lambda: heads.speculators("peagle", READS, layers=2),
    "hydra, two blocks": lambda: heads.hydra(heads=4, blocks=2),
    "hydra++": lambda: heads.hydra(heads=4, prefix=True),
    "redrafter": heads.redrafter,
    "redrafter, without an RNN": lambda: heads.redrafter(rnn=False, inner=40, blocks=1),
    "eagle1": heads.eagle1,
    "dflash": lambda: heads.dflash(reads=[0, 2]),
    "dflash, from the anchor on": lambda: anchored(*heads.dflash(reads=[0, 2])),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_heads(target: HFCausal, name: str, tmp_path: File) -> None:
    model = hf.load_features(written(tmp_path / "head", *PUBLISHED[name]()), target)
    whole = step_model(target, Pages(3, 60))
    made = step_model(model, whole.pages, target=whole)
    Drafts(whole, made, V, 5, of_memory(model, made)).run([7, 2, 1], steps=3)


@pytest.mark.parametrize("of", [(TableModel(4, 3), styled_features), (FreeModel(3, 4), None)], ids=["table", "free"])
def test_features_of_tables(of: Any) -> None:
    base, make = of
    model = FreeFeatures(base, 7) if make is None else make(base, 7, Style(sort="mixed"))
    whole = step_model(base, Pages(3, 40))
    made = step_model(model, whole.pages, target=whole)
    Drafts(whole, made, 4, 5, of_memory(model, made)).run([5, 2, 1], steps=2)


@pytest.mark.parametrize("how", [("skip", {1}), ("parallel", 2), ("exit", 2)], ids=str)
def test_derived_models_on_the_memory_of_the_whole_one(target: HFCausal, how: Any) -> None:
    for root in (target, FreeModel(3, 5, layers=3)):
        whole = step_model(root, Pages(2, 40))
        made = whole.derive(*how)
        made.follow()
        Following(whole, made, root.vocab.size).run(derive(root, *how), root, [6, 3])


@pytest.mark.parametrize("layer", [1, 3])
def test_the_layers_from_one_on(target: HFCausal, layer: int) -> None:
    """Over a head's predictions of their states, and over an adapter's."""
    whole = step_model(target, Pages(2, 60))
    head = HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "eagle")
    made = whole.derive("since", layer, step_model(head, whole.pages, target=whole))
    assert made.kind == "features"
    Following(whole, made, V).run(derive(target, "since", layer, head), target, [6, 3])
    adapter = HFAdapter(
        large(modeling.ExitAdapter(modeling.ExitConfig(exit_layer=1, final_norm=False, **LAYER))), target, "exit"
    )
    inner = derive(adapter, "on", derive(target, "upto", 1))
    since = derive(target, "since", layer, inner)
    made = step_model(since, whole.pages, target=whole)
    Walk(made, V, 2, near(since, made)).run([5, 1], steps=2)
    made = whole.derive("since", layer, ModelPart(inner))
    made.follow()
    Following(whole, made, V).run(since, target, [6, 3])
