"""Live modules and folders of architectures that only they can hold; which engine a model gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lib.models.hf_modules import CONFIGS, logits, module
from lib.models.tiny import TinyFeatures, TinyModel

from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Engine, ForwardCall, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.free import FreeAdapter, FreeFeatures, FreeModel
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_live import LiveModel, from_module
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableFeatures, TableModel


@pytest.mark.parametrize("kind", CONFIGS)
def test_folders_of_every_architecture(kind: str, tmp_path: Path) -> None:
    of = module(kind)
    of.save_pretrained(tmp_path / "model")
    model = hf.load_causal(tmp_path / "model")
    assert isinstance(model, HFCausal if kind in ("llama", "qwen2", "qwen3", "mistral") else (HFCausal, LiveModel))
    path = (5, 1, 7, 3, 3, 9, 2, 8, 4, 4)
    want = logits(of, [path])
    got = torch.from_numpy(model.eval([path])[0].logits)[None].float()
    assert torch.allclose(got, want, atol=1e-4)
    engine = engine_of(model)
    engine.compute([ForwardCall(0, path[:4])])
    assert torch.allclose(engine.compute([ForwardCall(0, path)])[0], want, atol=1e-4)
    assert engine.counted.computed == len(path)


def test_a_live_model_is_the_modules_own_forward() -> None:
    of = module("gpt2")
    model = from_module(of, name="live")
    rows = model.eval([(1, 2, 3), (1, 2), (1, 2, 3, 4)])
    want = logits(of, [(1, 2, 3), (1, 2), (1, 2, 3, 4)]).double()
    assert all(torch.allclose(torch.from_numpy(row.logits), w, atol=1e-4) for row, w in zip(rows, want, strict=True))
    assert model.vocab.size == 61 and model.context == 96 and model.layers == 3
    for bad in ((), (61,), (1,) * 97):
        with pytest.raises(DecError):
            model.eval([bad])
    with pytest.raises(DecError, match="memory"):
        model.memory((1, 2))
    with pytest.raises(DecError, match="exit"):
        derive(model, "exit", 1)
    with torch.no_grad():
        of.transformer.wte.weight[5] = float("nan")
    with pytest.raises(DecError, match="'live' gave logits that are not numbers at position 1"):
        from_module(of, name="live").eval([(1, 5)])


def test_an_engine_is_made_once_and_not_handed_on_to_copies(tmp_path: Path) -> None:
    module("llama").save_pretrained(tmp_path / "model")
    model = hf.load_causal(tmp_path / "model")
    assert engine_of(model) is engine_of(model)
    assert isinstance(engine_of(model), CausalEngine)
    derived = derive(model, "exit", 2)
    assert engine_of(derived) is engine_of(derived) is not engine_of(model)
    free = FreeModel(1)
    assert engine_of(derive(free, "exit", 2)).model is not engine_of(free).model


FREE = FreeModel(1, heads=2)
TABLE = TableModel(5, seed=1, zeros=True, heads=2)
TINY = TinyModel(1, heads=2)
PLAIN: list[tuple[Model, Model]] = [(TABLE, TableFeatures(TABLE, 2)), (FREE, FreeFeatures(FREE)), (TINY, TinyFeatures(TINY))]


@pytest.mark.parametrize("target, features", PLAIN, ids=lambda m: m.name)
def test_pure_models_are_asked_path_by_path(target: Model, features: Model) -> None:
    tree = ([2, 1, 0], [-1, -1, 1], [7, 8, 9])
    paths = [(1, 2), (1, 2, 1, 0), (1, 2, 2)]
    engine: Engine = engine_of(target)
    assert isinstance(engine, PlainEngine)
    calls = [
        ForwardCall("a", [1, 2], (), *tree, [-1, 2, 0]),
        ForwardCall("b", [0], part="heads"),
        ForwardCall("c", [99]),
        ForwardCall("d", []),
    ]
    logs, heads, *errors = engine.compute(calls)
    for row, want in zip(logs, target.eval(paths), strict=True):
        assert row.dtype == torch.float64 and row.tolist() == want.to_float().logits.tolist()
    for row, want in zip(heads, target.heads((0,)), strict=True):
        assert row.tolist() == want.to_float().logits.tolist()
    assert all(isinstance(error, DecError) for error in errors)
    for given in (None, 1, 2):
        of = None if given is None else Remembered(target, [1, 2], given)
        (rows,) = engine_of(features).compute([ForwardCall("a", [1, 2], (), *tree, [-1, 2, 0], memory=of)])
        memory = None if given is None else target.memory((1, 2)[:given])
        for row, want in zip(rows, features.eval(paths, memory=memory), strict=True):
            assert row.tolist() == want.to_float().logits.tolist()
    (several,) = engine.compute([ForwardCall("a", [1, 2], (), *tree, [0, 1], part="heads")])
    wanted = [row.to_float().logits.tolist() for path in ((1, 2, 2), (1, 2, 1)) for row in target.heads(path)]
    assert several.tolist() == wanted
    engine.close("a")


def test_pure_models_that_read_layers() -> None:
    drafter = derive(FREE, "head", derive(FreeAdapter(FREE), "on", derive(FREE, "upto", 2)))
    (rows,) = engine_of(drafter).compute([ForwardCall("a", [1, 2], tokens=torch.tensor([0]), parents=[-1], uids=[3], rows=[0])])
    assert rows[0].tolist() == drafter.eval([(1, 2, 0)])[0].to_float().logits.tolist()
