"""How a masked model is read: what the caller, its configuration and its published class say, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import masked_modules, transformers

import decgraph
from decgraph.cli.main import main
from decgraph.errors import DecError
from decgraph.runtime.models.masked_load import load_masked
from decgraph.runtime.models.masked_settings import MaskedSettings, ResolvedSettings, reading_of, visibility_of

GOLDEN = Path(__file__).parents[2] / "fidelity" / "golden" / "dllm" / "models"
LLAMA, QWEN = GOLDEN / "llama_bidir", GOLDEN / "qwen2_bidir_shift"


def encoder() -> Any:
    sizes = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    return transformers.BertForMaskedLM(transformers.BertConfig(**sizes))


def read(kind: str, config: dict[str, Any], **asked: Any) -> ResolvedSettings:
    return reading_of("x", kind, {"vocab_size": 200000, **config}, MaskedSettings.of(**asked), {"<m>": 7}.get)


@pytest.mark.parametrize(
    "text, value",
    [("full", "full"), ("causal", "causal"), ("block:32", ("block", 32)), (("block", 32), ("block", 32)),
     ("prompt+block:8", ("prompt+block", 8)), ("window:4", ("window", 4)), (["window", 4], ("window", 4))],
)  # fmt: skip
def test_visibility_is_written_as_text_or_as_a_value(text: Any, value: Any) -> None:
    assert visibility_of(text) == value


@pytest.mark.parametrize("wrong", ["blocks:4", "block", "block:0", "block:x", "32", "", ("block",), ("full", 3), 4, None])
def test_another_visibility_is_refused_with_the_legal_ones(wrong: Any) -> None:
    with pytest.raises(DecError, match="visibility is") as refused:
        visibility_of(wrong)
    assert "prompt+block:32" in refused.value.hint


def test_the_caller_comes_before_the_configuration_and_that_before_what_is_published() -> None:
    assert read("LLaDAModelLM", {}) == ResolvedSettings(126336, False, "full")
    assert read("DreamModel", {"mask_token_id": 5}) == ResolvedSettings(5, True, "full")
    assert read("Fast_dLLM_QwenForCausalLM", {"bd_size": 16}) == ResolvedSettings(151665, True, ("block", 16))
    assert read("SDARForCausalLM", {"block_size": 4}) == ResolvedSettings(151669, False, ("block", 4))
    assert read("BertForMaskedLM", {"mask_token_id": 103, "block_size": 64}) == ResolvedSettings(103, False, "full")
    assert read("BertForMaskedLM", {"mask_token_id": "<m>", "decgraph_block": 4}) == ResolvedSettings(7, False, ("block", 4))
    config = {"mask_token_id": 3, "decgraph_shift": True, "decgraph_visibility": "window:4"}
    assert read("LlamaForCausalLM", config) == ResolvedSettings(3, True, ("window", 4))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mask_token": "6"}, "x says that its mask_token is 5, and it is read with mask_token=6"),
        ({"mask_token": "<m>"}, "its mask_token is 5, and it is read with mask_token=7"),
        ({"shift": "false"}, "its shift is true, and it is read with shift=false"),
        ({"visibility": "causal"}, "its visibility is window:4, and it is read with visibility=causal"),
    ],
)
def test_the_caller_comes_before_the_configuration_with_a_warning(asked: dict[str, str], said: str) -> None:
    config = {"mask_token_id": 5, "decgraph_visibility": "window:4"}
    with pytest.warns(UserWarning, match=said):
        found = read("DreamModel", config, **asked)
    assert found == ResolvedSettings(
        {"6": 6, "<m>": 7}.get(asked.get("mask_token", ""), 5),
        "shift" not in asked,
        "causal" if "visibility" in asked else ("window", 4),
    )
    read("DreamModel", config, mask_token=5, shift=True, visibility="window:4")  # what it says itself: no warning


@pytest.mark.parametrize(
    "kind, config, asked, said",
    [
        ("BertForMaskedLM", {}, {}, "does not say which token is the mask"),
        ("BertForMaskedLM", {}, {"mask_token": "<n>"}, "'<n>' is not a special token of x"),
        ("BertForMaskedLM", {"vocab_size": 100}, {"mask_token": 100}, "the mask of x is 100, and it has 100 tokens"),
        ("LlamaForCausalLM", {"mask_token_id": 3}, {}, "it may predict a position at its own place or from the one before it"),
        ("BertForMaskedLM", {"mask_token_id": 3}, {"shift": "maybe"}, "shift is 'maybe'"),
        ("BertForMaskedLM", {}, {"mask_token": True}, "mask_token is True"),
    ],
)
def test_what_nobody_says_is_asked_for(kind: str, config: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(DecError, match=said) as refused:
        read(kind, config, **asked)
    assert refused.value.hint


def test_a_visibility_that_is_assumed_is_announced() -> None:
    with pytest.warns(UserWarning, match="visibility=full is assumed"):
        assert read("LlamaForCausalLM", {"mask_token_id": 3}, shift=False).visibility == "full"
    with pytest.warns(UserWarning, match="visibility=full is assumed"):
        read("SDARForCausalLM", {})
    assert read("LlamaForCausalLM", {"mask_token_id": 3}, shift=False, visibility="full").visibility == "full"


def test_dream_s_weights_in_qwen_s_class_are_not_taken_for_llada_s() -> None:
    """They were: other tokens than Dream's, without a word."""
    for given in (QWEN, transformers.AutoModelForCausalLM.from_pretrained(QWEN)):
        with pytest.raises(DecError, match="is a Qwen2ForCausalLM: if it was trained to fill masks, it may predict"):
            decgraph.masked(given)
        assert decgraph.masked(given, shift=True, visibility="full").shift


CASE = json.loads((GOLDEN.parent / "dream_entropy.json").read_text(encoding="utf-8"))["cases"][1]
WANTED = CASE["output"][0][len(CASE["prompt"][0]) :]
PARAMS = {"length": CASE["parameters"]["gen_length"], "steps": CASE["parameters"]["steps"]}


@pytest.mark.parametrize("kind", ["folder", "module"])
@pytest.mark.parametrize("door", ["session", "run", "hf", "masked"])
def test_every_python_door_takes_the_settings(door: str, kind: str) -> None:
    source: Any = QWEN if kind == "folder" else transformers.AutoModelForCausalLM.from_pretrained(QWEN)
    settings = {"model.shift": "true", "model.visibility": "full", "model.mask_token": "127"}
    prompt, algorithm = CASE["prompt"][0], decgraph.load("dream")
    request: dict[str, Any] = {"max_tokens": 100, "eos": frozenset()}
    if door == "session":
        session = algorithm.session({"model": source, **settings}, **PARAMS)
        result = session.run(decgraph.models.request_for(session, prompt, **request))
    elif door == "run":
        result = decgraph.run("dream", prompt, {"model": source, **settings}, params=PARAMS, **request)
    elif door == "masked":
        model = decgraph.masked(source, mask_token=127, shift=True, visibility="full")
        result = algorithm.run(prompt, {"model": model}, params=PARAMS, **request)
    else:
        if kind == "folder":
            source = transformers.AutoModelForCausalLM.from_pretrained(source)
        custom = decgraph.hf("dream", shift=True, visibility="full", mask_token=127, **PARAMS)
        config = transformers.GenerationConfig(max_new_tokens=100)
        out = custom(source, torch.tensor([prompt]), generation_config=config)
        assert out[0, len(prompt) :].tolist() == WANTED
        return
    assert result.error is None and list(result.tokens) == WANTED


def folder_with_words(tmp_path: Path) -> Path:
    """The recorded Dream with a tokenizer of words t0, t1, ..., the mask among them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = Path(shutil.copytree(QWEN, tmp_path / "dream"))
    words = {f"t{i}": i for i in range(127)} | {"<|mask|>": 127}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["<|mask|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    del config["mask_token_id"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_command_line_takes_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with_words(tmp_path)
    text = " ".join(f"t{i}" for i in CASE["prompt"][0])
    line = ["run", "dream", "-p", text, "--json", "-n", "100", "--eos", "126"]
    line += [word for name, value in PARAMS.items() for word in (f"--{name}", str(value))]
    line += ["-m", f"model={folder}", "-m", "model.shift=true", "-m", "model.visibility=full"]
    assert main([*line, "-m", "model.mask_token=<|mask|>"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens"] == WANTED and printed["text"] == "".join(f" t{i}" for i in WANTED)
    with pytest.raises(DecError, match="does not say which token is the mask"):
        decgraph.load("dream").session({"model": folder, "model.shift": "true", "model.visibility": "full"})
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<|mask|>"}))
    assert load_masked(folder, MaskedSettings(shift=True, visibility="full")).mask == 127


@pytest.mark.parametrize(
    "algorithm, given, said",
    [
        ("speculative", {"target": "target", "target.shift": "true"}, "`target` is no masked model, so it has no shift"),
        ("dream", {"model": "masked", "model.visibility": "blocks"}, "visibility is 'blocks'"),
        ("dream", {"model.shiftt": "true"}, "dream takes no model `model.shiftt`"),
        ("dream", {"model": "target"}, "target is a LlamaForCausalLM: if it was trained to fill masks"),
        ("dream", {"model": "eagle"}, "is not a masked model but a"),
    ],
)
def test_settings_that_cannot_be_are_refused(algorithm: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(DecError, match=said):
        decgraph.load(algorithm).session(given)


def test_a_model_that_is_made_is_not_read_again() -> None:
    model = decgraph.masked(masked_modules.dream())
    with pytest.raises(DecError, match="whose shift was set when it was made"):
        decgraph.load("dream").session({"model": model, "model.shift": "false"})
    with pytest.raises(DecError, match="is a model of decgraph's already"):
        decgraph.masked(model)
    with pytest.raises(DecError, match="is no masked model"):
        decgraph.masked(7)  # type: ignore[arg-type]  # the mistake


def test_a_shipped_masked_model_needs_no_settings() -> None:
    model = decgraph.masked("masked")
    assert not model.shift and model.visibility == "full" and model.mask == 2


def test_diffusion_gemma_is_refused_with_the_reason() -> None:
    """Random tokens in the place of masks, and scores that depend on the scores before."""
    folder = GOLDEN / "diffusion_gemma_tiny"
    with pytest.raises(DecError, match=r"no masked model: .* \(self-conditioning\)") as refused:
        decgraph.load("dream").session({"model": folder})
    assert "its own generate" in refused.value.hint
    module = transformers.DiffusionGemmaForBlockDiffusion
    with pytest.raises(DecError, match="self-conditioning"):
        decgraph.masked(module.from_pretrained(folder), mask_token=3, shift=False, visibility="full")


def test_a_profile_knows_settings_from_models() -> None:
    from decgraph.cli.profiled import contents_of

    plain, shifted = contents_of({"model": "masked"}), contents_of({"model": "masked", "model.shift": "true"})
    assert shifted == {**plain, "model.shift": "true"} and len(plain["model"]) > 8


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("kind", ["llada", "dream", "bert"])
def test_a_masked_class_is_no_causal_model(kind: str, backend: str) -> None:
    """LLaDA's and Dream's failed with an AttributeError, and BERT decoded on the reference."""
    module = encoder() if kind == "bert" else getattr(masked_modules, kind)()
    with pytest.raises(DecError, match="which fills masks, and the algorithm needs a causal model") as refused:
        decgraph.load("autoregressive").session({"target": module}, backend=backend)
    assert "fast_dllm" in refused.value.hint
