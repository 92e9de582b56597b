"""Engines of heads and of derived models give what the models without caches give, and share what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lib.engines.random_loop import run
from lib.lazily import modeling, module_layers
from lib.models.hf_modules import LAYER, large, module

from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, Output, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.plain import PlainEngine, stacked
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads
from decgraph.runtime.models.interface import Model

V, WIDTH = 61, 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "llama"
    module("llama").save_pretrained(path)
    return path


@pytest.fixture
def target(folder: Path) -> HFCausal:
    made = hf.load_causal(folder)
    assert isinstance(made, HFCausal)
    return made


@pytest.fixture(params=["decoder", "module"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With decoders, and with the unmodified modules."""
    if request.param == "module":
        monkeypatch.setattr(hf, "decoder_net", lambda *_: UnknownToDecoder("a reason"))
        monkeypatch.setattr("decgraph.runtime.models.decoder.make.decoder_of", lambda *_: None)
        monkeypatch.setattr("decgraph.runtime.models.decoder.layers.decoder_of_layers", lambda *_: None)
    return str(request.param)


def check(model: Model, calls: list[ForwardCall], outputs: list[Output], **given: Any) -> None:
    for call, output in zip(calls, outputs, strict=True):
        assert isinstance(output, torch.Tensor), output
        want = stacked(model.eval(call.paths(), **given), V)
        assert torch.allclose(output.double(), want, atol=2e-4, rtol=1e-4), (output - want).abs().max()


def cells(model: Model, *others: Any) -> tuple[int, Any]:
    """Random asks of a model; also hands them to the other engines' checks. Returns what they must cost."""
    engine = engine_of(model)

    def output(calls: list[ForwardCall]) -> None:
        check(model, calls, engine.compute(calls))
        for other in others:
            check(other, calls, engine_of(other).compute(calls))

    def close(name: int) -> None:
        for one in (model, *others):
            engine_of(one).close(name)

    return run(11, V, 50, 12, output, close, sequences=3), engine


def test_a_loaded_model_has_an_engine_of_its_own(target: HFCausal) -> None:
    cost, engine = cells(target)
    assert isinstance(engine, CausalEngine) and engine.counted.computed == cost
    assert engine_of(target) is engine


@pytest.mark.parametrize("how", [("exit", 1), ("exit", 2), ("exit", 3), ("skip", {1}), ("skip", {0}), ("skip", {1, 2})])
def test_derived_models_share_the_lower_layers(form: str, target: HFCausal, how: tuple[str, Any]) -> None:
    drafter = derive(target, *how)
    cost, engine = cells(drafter, target)
    whole = engine_of(target)
    assert engine.counted.computed == whole.counted.computed == cost
    shared = whole.below
    if how in (("exit", 3), ("skip", {0})):  # nothing to share: all layers, or not even the first
        assert shared is None
    else:
        assert shared is not None and shared.counted.computed == cost  # not twice
        assert len(shared.layout.shapes) + len(whole.layout.shapes) == 3


def test_a_second_drafter_has_lower_layers_of_its_own(target: HFCausal) -> None:
    first, second = derive(target, "exit", 1), derive(target, "exit", 2)
    cost, _ = cells(first, target, second)
    whole = engine_of(target)
    assert sorted(whole.lowers) == [1, 2] and whole.below is whole.lowers[1]
    assert whole.lowers[2].counted.computed == cost


def test_a_quantized_model_and_one_derived_twice_have_their_own(target: HFCausal) -> None:
    for drafter in (derive(target, "quantized", 4), derive(derive(target, "quantized", 4), "exit", 2)):
        cost, engine = cells(drafter, target)
        assert engine.counted.computed == cost


def test_kangaroo_drafts_and_verifies_on_the_same_lower_layers(form: str, target: HFCausal) -> None:
    adapter = HFAdapter(large(modeling.ExitAdapter(modeling.ExitConfig(exit_layer=2, **LAYER))), target, "exit")
    drafter = derive(target, "head", derive(adapter, "on", derive(target, "upto", 2)))
    cost, engine = cells(drafter, target)
    whole = engine_of(target)
    assert engine.counted.computed == whole.counted.computed == cost
    assert whole.below is engine.below and engine.below.counted.computed == cost
    bare = derive(target, "head", derive(target, "upto", 2))
    check(bare, calls := [ForwardCall("x", [1, 2, 3])], engine_of(bare).compute(calls))


def test_medusa_heads(target: HFCausal) -> None:
    medusa = HFHeads(large(modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=WIDTH, inner_size=48, heads=3))), target, "m")
    both = target.with_heads(medusa)
    for engine in (engine_of(both), engine_of(medusa)):
        calls = [ForwardCall(n, context, part="heads") for n, context in enumerate(([4, 5, 6], [7], [4, 5, 6, 9, 9]))]
        for call, output in zip(calls, engine.compute(calls), strict=True):
            assert isinstance(output, torch.Tensor)
            assert torch.allclose(output.double(), stacked(both.heads(tuple(call.context)), V), atol=1e-4)
    engine = engine_of(both)
    before = engine.counted.computed
    calls = [ForwardCall(0, [4, 5, 6], (), [8], [-1], [0], [-1, 0]), ForwardCall(1, [7], part="heads")]
    logits, guesses = engine.compute(calls)
    check(target, calls[:1], [logits])
    assert isinstance(guesses, torch.Tensor) and guesses.shape == (3, V)
    assert engine.counted.computed == before + 1
    assert engine_of(target).counted.computed >= engine.counted.computed  # one cache for the model with and without
    for one in (engine, PlainEngine(both)):  # several rows: the heads of each together
        (several,) = one.compute([ForwardCall(0, [4, 5, 6], (), [8], [-1], [0], [-1, 0], part="heads")])
        each = torch.cat([stacked(both.heads(path), V) for path in ((4, 5, 6), (4, 5, 6, 8))])
        assert isinstance(several, torch.Tensor) and torch.allclose(several.double(), each, atol=1e-4)
    entered: list[int] = []  # rows of states; a batch is one product of each head, not one for each sequence
    hook = medusa.module.register_forward_hook(lambda _, inputs, __: entered.append(inputs[0].shape[1]))
    calls = [ForwardCall(n, context, part="heads") for n, context in ((0, [4, 5, 6]), (5, [V]), (1, [7]))]
    first, wrong, last = engine.compute(calls)
    hook.remove()
    assert entered == [2] and isinstance(wrong, DecError)  # a token outside the vocabulary fails alone
    for guesses, context in ((first, (4, 5, 6)), (last, (7,))):
        assert isinstance(guesses, torch.Tensor)
        assert torch.allclose(guesses.double(), stacked(both.heads(context), V), atol=1e-4)
    with pytest.raises(DecError, match="with_heads"):
        engine_of(target).compute([ForwardCall(0, [4], part="heads")])


@pytest.fixture
def eagle(target: HFCausal) -> HFFeatures:
    return HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "eagle")


@pytest.mark.parametrize("late", [0, 1])
def test_eagle_reads_the_targets_features_and_then_its_own(form: str, eagle: HFFeatures, late: int) -> None:
    """The loop of an EAGLE decoder: draft level by level, verify, commit; `given` is the memory of the context but its
    last token, or all of it."""
    assert isinstance(engine_of(eagle).step, module_layers.ModuleLayers) == (form == "module")
    target, engine, whole = eagle.target, engine_of(eagle), engine_of(eagle.target)
    torch.manual_seed(5)
    state = {n: (list(range(3 * n + 2, 3 * n + 2 + length)), [-1] * length) for n, length in enumerate((2, 9, 4))}
    uid = 0
    for _ in range(4):
        trees: dict[int, tuple[list[int], list[int], list[int]]] = {n: ([], [], []) for n in state}
        drawn = engine.counted.calls
        for level in range(3):
            calls = []
            for n, (context, marks) in state.items():
                tokens, parents, uids = trees[n]
                rows = [-1] if not tokens else list(range(len(tokens) - 2 * level, len(tokens)))[-4:]
                calls.append(
                    ForwardCall(
                        n,
                        context,
                        marks,
                        tokens,
                        parents,
                        uids,
                        rows,
                        memory=Remembered(target, context, len(context) - 1 + late),
                    )
                )
            for call, output in zip(calls, engine.compute(calls), strict=True):
                assert call.memory is not None
                known = target.memory(call.memory.path)
                check(eagle, [call], [output], memory=known)
            for n, call in zip(state, calls, strict=True):
                tokens, parents, uids = trees[n]
                for row in call.rows[-2:]:
                    tokens.append(int(torch.randint(V, ())))
                    parents.append(row)
                    uids.append(uid := uid + 1)
        assert engine.counted.calls - drawn <= 5  # a level is a forward for all; a chain and its first level are two
        calls = [ForwardCall(n, c, m, *trees[n], [-1]) for n, (c, m) in state.items()]
        calls = [
            ForwardCall(a.sequence, a.context, a.marks, a.tokens, a.parents, a.uids, range(-1, len(a.tokens))) for a in calls
        ]
        check(target, calls, whole.compute(calls))
        for n, (context, marks) in state.items():
            tokens, parents, uids = trees[n]
            if n != 1:  # accept a node and the one below it
                context += [tokens[0]]
                marks += [uids[0]]
            context.append(n)
            marks.append(-1)
    longest = sum(len(c) for c, _ in state.values())
    assert whole.counted.computed <= longest + 4 * 3 * 6  # the context once, and the trees
    for n in state:
        engine.close(n)


def test_eagle_asked_for_the_same_nodes_with_and_without_the_feature_of_the_end(eagle: HFFeatures) -> None:
    """What the head computed below its own guess of that feature is none of what it computes below the target's."""
    engine, context = engine_of(eagle), [3, 4, 5, 6]
    for length in (3, 4, 4, 3):
        calls = [
            ForwardCall(0, context, (), [7, 8], [-1, 0], [0, 1], [-1, 0, 1], memory=Remembered(eagle.target, context, length))
        ]
        check(eagle, calls, engine.compute(calls), memory=eagle.target.memory(tuple(context[:length])))


def test_eagle_asked_for_what_is_unusual(eagle: HFFeatures) -> None:
    engine = engine_of(eagle)
    check(eagle, calls := [ForwardCall(0, [3, 4, 5, 6], (), [7, 8], [-1, 0], [0, 1], [-1, 1])], engine.compute(calls))
    calls = [ForwardCall(0, [3, 4, 5, 6], (), [7, 8], [-1, 0], [0, 1], [-1, 1], memory=Remembered(eagle.target, [3], 1))]
    check(eagle, calls, engine.compute(calls), memory=eagle.target.memory((3,)))
    for given in (0, 1):  # a prompt of one token: there is no feature before it
        calls = [ForwardCall(given, [3], (), [7, 8], [-1, 0], [0, 1], [-1, 1], memory=Remembered(eagle.target, [3], given))]
        check(eagle, calls, engine.compute(calls), memory=eagle.target.memory((3,)[:given]))
    calls = [ForwardCall(0, [3, 9], (), [7, 8], [-1, 0], [2, 3], [-1, 1], memory=Remembered(eagle.target, [3], 1))]
    check(eagle, calls, engine.compute(calls), memory=eagle.target.memory((3,)))
    (error,) = engine.compute([ForwardCall(7, [1] * 120, memory=Remembered(eagle.target, [1] * 120, 119))])
    assert isinstance(error, DecError) and "request 7" in str(error)
