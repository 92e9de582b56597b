"""DFlash 2, Domino and DSpark in the folders that their authors' classes wrote: their logits, by models and by engines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.engines.device_calls import Drafts
from lib.lazily import transformers
from lib.repository import ROOT
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import decgraph
from decgraph.backends.triton.models.device import step_model
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.engine.of import causal_engine_of
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.base import OUTSIDE
from decgraph.runtime.models.markov import load_markov

GOLDEN = ROOT / "tests" / "fidelity" / "golden"
FOLDERS = GOLDEN / "heads" / "checkpoints"
LAYOUTS = {"dflash2": "DFlash 2", "domino": "Domino", "dspark": "DSpark", "dspark_gated": "DSpark", "dspark_rnn": "DSpark"}
PURE = {"domino": 1}


@pytest.fixture(scope="module")
def target() -> Any:
    return hf.load_causal(GOLDEN / "ar/models/target")


def said(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDERS / name / "logits_check.json").read_text(encoding="utf-8"))
    return found


def close(mine: np.ndarray, theirs: np.ndarray) -> None:
    """Logits within what float32 rounds, and distributions within 1e-5."""
    np.testing.assert_allclose(mine, theirs, atol=1e-4)
    np.testing.assert_allclose(softmax(mine), softmax(theirs), atol=1e-5)


def softmax(x: np.ndarray) -> np.ndarray:
    made = np.exp(x - x.max())
    return np.asarray(made / made.sum())


@pytest.mark.parametrize("name", LAYOUTS)
def test_logits(name: str, target: Any) -> None:
    """Of every place given the drafts before it; also of the block behind a draft of which one token was accepted."""
    assert load.read(FOLDERS / name).layout == LAYOUTS[name]
    head, record = hf.load_features(FOLDERS / name, target), said(name)
    correction, ids = hf.load_correction(FOLDERS / name, head), tuple(record["input"])
    engines = [causal_engine_of(model) for model in (head, correction)]
    for one in record["rounds"]:
        start, rows = one["start"], [np.array(row) for row in one["logits"]]
        given, context = target.memory(ids[:start]), list(ids[: start + 1])
        paths = [ids[: start + 1 + i] for i in range(len(rows))]
        base, more = ([s.logits for s in model.eval(paths, given)] for model in (head, correction))
        drafts = list(ids[start + 1 : start + len(rows)])
        parents, rest = list(range(-1, len(drafts) - 1)), list(range(-1, len(drafts)))
        calls = [
            ForwardCall("a", context, (), drafts, parents, range(len(drafts)), rest, memory=Remembered(target, context, start))
            for _ in engines
        ]
        found = [engine.compute([call])[0] for engine, call in zip(engines, calls, strict=True)]
        for i, row in enumerate(rows):
            close(base[i] + more[i] * (i >= PURE.get(name, 0)), row)
            assert isinstance(found[0], Tensor) and isinstance(found[1], Tensor)
            close((found[0][i] + found[1][i] * (i >= PURE.get(name, 0))).double().numpy(), row)
            if "candidates" in one:
                few = len(one["candidates"][i])
                assert sorted(np.argsort(-base[i])[:few].tolist()) == one["candidates"][i]


@pytest.mark.parametrize("name", ["dspark", "dspark_gated", "dspark_rnn"])
def test_confidence(name: str, target: Any) -> None:
    """Of every place, of its state and the token before it where the folder's head reads that; and the gated and the vanilla
    Markov head as a function of both."""
    head, record = hf.load_features(FOLDERS / name, target), said(name)
    sure, ids = hf.load_reading(FOLDERS / name, head, "prob"), tuple(record["input"])
    for one in record["rounds"]:
        start, count = one["start"], len(one["logits"])
        states = head.states(ids[: start + count], target.memory(ids[:start]))
        rows = np.stack([np.asarray(states[start + i]) for i in range(count)])
        found = sure.of_states(rows, None, ids[start : start + count])
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.array(one["confidence"]))), atol=1e-5)
        if name == "dspark_rnn":
            continue
        markov = hf.load_reading(FOLDERS / name, head, "dist")
        base = head.eval([ids[: start + 1 + i] for i in range(count)], target.memory(ids[:start]))
        for i, scores in enumerate(markov.scores_of(rows, None, ids[start : start + count])):
            close(base[i].logits + scores.logits, np.array(one["logits"][i]))


@pytest.mark.parametrize("name", LAYOUTS)
def test_on_the_device(name: str, target: Any) -> None:
    """Trees level by level, of lanes of other lengths, while their texts grow."""
    head = hf.load_features(FOLDERS / name, target)
    for model in (head, hf.load_correction(FOLDERS / name, head)):
        whole = step_model(target, Pages(3, 60))
        made = step_model(model, whole.pages, target=whole)

        def check(text: Any, paths: Any, states: Tensor, model: Any = model, made: Any = made) -> None:
            want = stacked(model.eval(paths, memory=target.memory(text[:-1])), model.vocab.size)
            assert torch.allclose(made.read(states).double(), want, atol=3e-4, rtol=1e-4)

        Drafts(whole, made, target.vocab.size, 4, check).run([7, 12, 11], steps=2)


def test_what_has_a_state_is_no_function_of_one_place(target: Any) -> None:
    for name in ("domino", "dspark_rnn"):
        with pytest.raises(DecError, match="a state that goes from draft to draft"):
            hf.load_reading(FOLDERS / name, hf.load_features(FOLDERS / name, target), "dist")
    for name in ("dspark_gated", "dspark_rnn"):
        with pytest.raises(DecError, match="which reads hidden states"):
            load_markov(FOLDERS / name, None, "cpu")
    with pytest.raises(DecError, match="has no confidence head beside its head"):
        hf.load_reading(FOLDERS / "dflash2", hf.load_features(FOLDERS / "dflash2", target), "prob")
    with pytest.raises(DecError, match="has no Markov head, selector or recurrent correction"):
        hf.load_correction(FOLDERS / "dflash", hf.load_features(FOLDERS / "dflash", target))


def changed(name: str, at: Path, **change: Any) -> Path:
    """The folder with another configuration; what is None is left out."""
    shutil.copytree(FOLDERS / name, at)
    config = json.loads((at / "config.json").read_text())
    own = {**config["dflash_config"], **change.pop("dflash_config", {})}
    new = {k: v for k, v in {**config, **change, "dflash_config": own}.items() if v is not None}
    (at / "config.json").write_text(json.dumps(new))
    return at


def test_published_names_of_the_selector(target: Any, tmp_path: Path) -> None:
    """The codebooks without ".weight", as z-lab publishes them."""
    shutil.copytree(FOLDERS / "dflash2", tmp_path / "head")
    file = tmp_path / "head" / "model.safetensors"
    save_file({k.replace("codebook.weight", "codebook"): t for k, t in load_file(file).items()}, file, {"format": "pt"})
    models = {"target": GOLDEN / "ar/models/target"}
    asked: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "params": {"block": 5, "k": 4}}
    runs = [decgraph.load("dflash2").run([5, 9, 20], {**models, "head": at, "selector": at}, **asked)
            for at in (FOLDERS / "dflash2", tmp_path / "head")]  # fmt: skip
    assert runs[0].tokens == runs[1].tokens and runs[0].stats.drafted == runs[1].stats.drafted


def test_inside_generate() -> None:
    """`decgraph.hf` takes the folder twice, and refuses what would leave a part out."""
    module = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / "ar/models/target").eval()
    ids, asked = torch.tensor([[25, 30, 4, 18]]), {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    want = module.generate(ids, **asked)
    for program, part in (("dflash2", "selector"), ("domino", "correction"), ("dspark_rnn", "markov")):
        at = FOLDERS / program
        door = decgraph.hf(program, head=at, **{part: at, "block": 4})
        assert module.generate(ids, custom_generate=door, **asked).tolist() == want.tolist()
    with pytest.raises(DecError, match=r"has prefix_gru\.\* beside its head, which dflash does not read"):
        decgraph.hf("dflash", head=FOLDERS / "domino", block=4)


def test_the_block_is_computed_once(target: Any) -> None:
    """The engine of what corrects a head goes by what that of the head keeps."""
    head = hf.load_features(FOLDERS / "domino", target)
    correction, engines = hf.load_correction(FOLDERS / "domino", head), list[Any]()
    text, given = [25, 30, 4, 18], Remembered(target, [25, 30, 4, 18], 3)
    for model in (head, correction):
        engines.append(causal_engine_of(model))
        engines[-1].compute([ForwardCall("a", text, (), [5], [-1], [0], [-1, 0], memory=given)])
    assert engines[1].head is engines[0] and not engines[1]._features
    (kept,) = engines[0]._features.values()
    assert list(kept.before.memo) == [18]


@pytest.mark.parametrize("name", ["domino", "dspark", "dspark_gated", "dspark_rnn"])
def test_as_specforge_writes_it(name: str, target: Any, tmp_path: Path) -> None:
    """The settings in `dflash_config`, and of early folders the names of the correction in a container."""
    shutil.copytree(FOLDERS / name, tmp_path / "head")
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    for key in ("target_layer_ids", "mask_token_id", "markov_rank", "markov_head_type"):
        if key in config:
            config.setdefault("dflash_config", {})[key] = config.pop(key)
    (tmp_path / "head" / "config.json").write_text(json.dumps(config))
    file, prefixes = tmp_path / "head" / "model.safetensors", ("markov_head.", "prefix_gru.", "embed_proj.", "confidence_head.")
    named = {f"logit_head.{k}" if k.startswith(prefixes) else k: t for k, t in load_file(file).items()}
    save_file(named, file, {"format": "pt"})
    heads = [hf.load_features(at, target) for at in (FOLDERS / name, tmp_path / "head")]
    parts = [*heads, *(hf.load_correction(at, h) for at, h in zip((FOLDERS / name, tmp_path / "head"), heads, strict=True))]
    rows = [part.eval([(5, 9, 20, 7, 8)], target.memory((5, 9, 20)))[0].logits for part in parts]
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[2], rows[3])
    if name == "dspark":
        assert load_markov(tmp_path / "head", None, "cpu").vocab.size == 32


def test_which_places_a_layer_sees(target: Any, tmp_path: Path) -> None:
    """With a window or without, of z-lab's layers also those behind a place or none of them."""
    record = said("dflash2")
    for n, one in enumerate(record["masks"]):
        at = changed("dflash2", tmp_path / str(n), **one["changed"])
        head = hf.load_features(at, target)
        correction = hf.load_correction(at, head)
        for made in one["rounds"]:
            start, given = made["start"], target.memory(tuple(record["input"][: made["start"]]))
            paths = [tuple(record["input"][: start + 1 + i]) for i in range(len(made["logits"]))]
            found = zip(*(model.eval(paths, given) for model in (head, correction)), strict=True)
            for (base, more), row in zip(found, made["logits"], strict=True):
                close(base.logits + more.logits, np.array(row))
        if one["changed"]["is_causal"] is not False:
            with pytest.raises(NotSteppable, match="a place sees no later one"):
                whole = step_model(target, Pages(1, 40))
                step_model(head, whole.pages, target=whole)
    with pytest.raises(DecError, match="2 layers, and its config.json has 1 layer_types"):
        hf.load_features(changed("dflash2", tmp_path / "few", layer_types=["sliding_attention"]), target)
    with pytest.raises(DecError, match="known of z-lab's DFlash alone"):
        hf.load_features(changed("domino", tmp_path / "domino", is_causal=True), target)


def test_scales_of_the_head_and_of_its_target(target: Any, tmp_path: Path) -> None:
    """A target that scales and caps its own logits does it once, as the head's folder says, or does not fit."""
    head = hf.load_features(FOLDERS / "dflash2", target)
    plain: nn.Linear = target.net.read

    class Of:
        shape = type("", (), {"logit_scale": 0.5, "logit_cap": 20.0})

        def logits(self, states: Tensor) -> Tensor:
            made = plain(states) * 0.5
            return torch.tanh(made / 20.0) * 20.0

    states = torch.randn(3, target.width)
    want = head.module.logits(states)  # type: ignore[attr-defined]
    module: Any = load.module(load.read(FOLDERS / "dflash2"), FOLDERS / "dflash2", torch.float32)
    module.attach(target.token_embeddings(), Of().logits, target.layers)
    assert torch.allclose(module.logits(states), want, atol=1e-5)
    Of.shape.logit_cap = 30.0
    with pytest.raises(DecError, match=r"scaled and capped by \(0\.5, 20\.0\), and its target's by \(0\.5, 30\.0\)"):
        module.attach(target.token_embeddings(), Of().logits, target.layers)


def test_a_markov_head_on_a_part_of_the_vocabulary(target: Any, tmp_path: Path) -> None:
    """Tokens without a row have no mass, as in the head's own matrix."""
    shutil.copytree(FOLDERS / "dspark_rnn", tmp_path / "head")
    file = tmp_path / "head" / "model.safetensors"
    weights, kept = load_file(file), torch.arange(0, 32, 2)
    for name in ("lm_head.weight", "markov_head.markov_w2.weight"):
        weights[name] = weights[name][kept].contiguous()
    save_file({**weights, "d2t": kept - torch.arange(16)}, file, {"format": "pt"})
    parts: list[Any] = []
    for at in (FOLDERS / "dspark_rnn", tmp_path / "head"):
        head = hf.load_features(at, target)
        given = target.memory((5, 9, 20))
        parts.append([m.eval([(5, 9, 20, 7, 8)], given)[0].logits for m in (head, hf.load_correction(at, head))])
    for whole, part in zip(*parts, strict=True):
        np.testing.assert_allclose(part[kept], whole[kept], atol=1e-5)
        assert (part[kept + 1] <= OUTSIDE).all()
