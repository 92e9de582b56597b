"""Folders that training runs, half downloads and clones leave behind: each is refused with what is there and what to do, at
every door, or decodes what transformers' `generate` does."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lib.lazily import transformers
from lib.models.model_folders import folder
from safetensors.torch import load_file, save_file

import decgraph
from decgraph.errors import DecError

IDS = (9, 10, 11)


def weights(at: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    found = load_file(at / "model.safetensors")
    change(found)
    save_file(found, at / "model.safetensors", metadata={"format": "pt"})


def config(at: Path, **more: object) -> None:
    path = at / "config.json"
    read = {**json.loads(path.read_text(encoding="utf-8")), **more}
    path.write_text(json.dumps({k: v for k, v in read.items() if v is not ...}), encoding="utf-8")


def sharded(at: Path) -> None:
    found = load_file(at / "model.safetensors")
    (at / "model.safetensors").unlink()
    save_file(found, at / "model-00001-of-00002.safetensors", metadata={"format": "pt"})
    names = dict.fromkeys(found, "model-00001-of-00002.safetensors") | {"lm_head.weight": "model-00002-of-00002.safetensors"}
    (at / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}), encoding="utf-8")


def adapter(at: Path, *, whole: bool) -> None:
    for name in ("model.safetensors", *(() if whole else ("config.json",))):
        (at / name).unlink()
    save_file({"base_model.model.lora_A.weight": torch.zeros(2, 2)}, at / "adapter_model.safetensors")
    (at / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}', encoding="utf-8")


def to_bin(at: Path) -> None:
    torch.save(load_file(at / "model.safetensors"), at / "pytorch_model.bin")
    (at / "model.safetensors").unlink()


def checkpoint(at: Path) -> None:
    (at / "checkpoint-20").mkdir()
    for file in [f for f in at.iterdir() if f.is_file()]:
        file.rename(at / "checkpoint-20" / file.name)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda at: (at / name).write_bytes(data)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
UP = "model.layers.1.mlp.up_proj.weight"

SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "a tensor is missing": (lambda at: weights(at, lambda w: w.pop(UP)), UP),
    "several are missing": (lambda at: weights(at, lambda w: (w.pop(UP), w.pop("lm_head.weight"))), "and 1 more"),
    "a tensor of another shape": (lambda at: weights(at, lambda w: w.update({UP: torch.zeros(3, 5)})), UP),
    "NaN": (lambda at: weights(at, lambda w: w[UP].fill_(float("nan"))), "not numbers"),
    "a Git LFS pointer": (write("model.safetensors", POINTER), "LFS"),
    "a tokenizer that is a pointer": (write("tokenizer.json", POINTER), "LFS"),
    "weights cut off": (
        lambda at: (at / "model.safetensors").write_bytes((at / "model.safetensors").read_bytes()[:-9]),
        "cut off",
    ),
    "weights cut off early": (lambda at: (at / "model.safetensors").write_bytes(b"\x10\x00"), "cut off"),
    "empty weights": (write("model.safetensors", b""), "cut off"),
    "pytorch_model.bin alone": (to_bin, "pytorch_model.bin"),
    "no weights": (lambda at: (at / "model.safetensors").unlink(), "weights are not there"),
    "a shard is missing": (sharded, "model-00002-of-00002.safetensors"),
    "an index without a map": (lambda at: (sharded(at), write("model.safetensors.index.json", b"{}")(at)), "weight_map"),
    "an adapter": (lambda at: adapter(at, whole=False), "merge_and_unload"),
    "an adapter with a config": (lambda at: adapter(at, whole=True), "some/base"),
    "a training run's folder": (checkpoint, "checkpoint-20"),
    "no config": (lambda at: (at / "config.json").unlink(), "no config.json"),
    "an empty config": (write("config.json", b"{}"), "architectures"),
    "a config cut off": (write("config.json", b'{"architectures": ["Lla'), "config.json cannot be read"),
    "a config that is a list": (write("config.json", b"[]"), "no JSON object"),
    "a config with a byte order mark": (write("config.json", b"\xef\xbb\xbf{}"), "BOM"),
    "a config that is no text": (write("config.json", b"\xff\xfe\x00"), "config.json cannot be read"),
    "architectures that are a text": (lambda at: config(at, architectures="LlamaForCausalLM"), "for architectures"),
    "a size that is a text": (lambda at: config(at, vocab_size="many"), "for vocab_size"),
    "an architecture that nobody knows": (lambda at: config(at, model_type="xyz", architectures=["XyzForCausalLM"]), "xyz"),
    "a model_type that nobody knows": (lambda at: config(at, model_type="xyz", architectures=...), "xyz"),
    "code of its own": (
        lambda at: config(at, model_type="xyz", architectures=["XForCausalLM"], auto_map={"AutoConfig": "config_x.X"}),
        "never run",
    ),
    **{
        f"generation settings: {name}": (write("generation_config.json", data), "generation_config.json")
        for name, data in {
            "empty": b"",
            "cut": b'{"eos',
            "BOM": b'\xef\xbb\xbf{"eos_token_id": 2}',
            "a list": b"[]",
            "an end that is a text": b'{"eos_token_id": "</s>"}',
            "ends that are texts": b'{"eos_token_id": [2, "x"]}',
        }.items()
    },
    "no tokenizer but a vocabulary": (
        lambda at: ((at / "tokenizer.json").unlink(), (at / "vocab.json").write_text("{}")),
        "vocab.json and no tokenizer.json",
    ),
    "no tokenizer but a sentencepiece model": (
        lambda at: ((at / "tokenizer.json").unlink(), (at / "tokenizer.model").write_bytes(b"x")),
        "tokenizer.model and no tokenizer.json",
    ),
    "no tokenizer at all": (
        lambda at: ((at / "tokenizer.json").unlink(), (at / "tokenizer_config.json").unlink()),
        "the prompt as token ids",
    ),
    "a tokenizer cut off": (write("tokenizer.json", b"{"), "is not a tokenizer"),
}


@pytest.mark.budget(10)
@pytest.mark.parametrize("case", SPOILT)
def test_a_folder_that_is_spoilt_is_refused_with_what_to_do(case: str, tmp_path: Path) -> None:
    spoil, word = SPOILT[case]
    at = folder(tmp_path)
    assert len(decgraph.run("autoregressive", "Hello", {"target": at}, max_tokens=2, eos=()).tokens) == 2
    spoil(at)
    with pytest.raises(DecError) as refused:
        result = decgraph.run("autoregressive", "Hello", {"target": at}, max_tokens=2)
        raise result.error or AssertionError(f"it decoded {result.tokens}")
    said = str(refused.value)
    assert word in said and ("= try:" in said or case in ("NaN", "a tokenizer cut off")), said


FIELDS = ("hidden_act", "hidden_size", "intermediate_size", "head_dim", "num_attention_heads", "num_key_value_heads",
          "num_hidden_layers", "rms_norm_eps", "rope_parameters", "rope_theta", "sliding_window", "tie_word_embeddings",
          "vocab_size", "max_position_embeddings", "layer_types", "model_type", "dtype")  # fmt: skip
WRONG = ("x", [], {}, -1, 1.5, None, 10**12, float("nan"))


@pytest.mark.budget(10)
@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize("field", FIELDS)
def test_a_setting_of_a_wrong_kind_is_refused_or_decodes(field: str, value: object, tmp_path: Path) -> None:
    """JSON has any value in any place: no traceback, and no layers made without end."""
    at = folder(tmp_path, words=False)
    config(at, **({"rope_parameters": {"rope_type": "default", field: value}} if field == "rope_theta" else {field: value}))
    try:
        result = decgraph.run("autoregressive", IDS, {"target": at}, max_tokens=2, eos=())
    except DecError:
        return
    assert result.error is None or isinstance(result.error, DecError)


@pytest.mark.budget(5)
@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize(
    ("head", "field"), [("medusa", "heads"), ("eagle", "num_attention_heads"), ("eagle", "num_hidden_layers")]
)
def test_a_heads_setting_of_a_wrong_kind_is_refused_or_loads(head: str, field: str, value: object, tmp_path: Path) -> None:
    from decgraph.runtime.models.hf import load_causal, load_features, load_heads

    at = tmp_path / head
    shutil.copytree(zoo(head), at)
    config(at, **{field: value})
    target = load_causal(zoo("target"))
    with contextlib.suppress(DecError):  # anything else fails
        (load_heads if head == "medusa" else load_features)(at, target)


@pytest.mark.parametrize("case", ["no architectures", "no generation settings", "other tensors", "tied", "more files"])
def test_what_transformers_decodes_is_decoded(case: str, tmp_path: Path) -> None:
    at = folder(tmp_path, tie_word_embeddings=case == "tied")
    match case:
        case "no architectures":
            config(at, architectures=...)
        case "no generation settings":
            (at / "generation_config.json").unlink()
            config(at, eos_token_id=[2, 5])
        case "other tensors":
            weights(at, lambda w: w.update({"score.weight": torch.zeros(2, 2)}))
        case "more files":
            save_file({"a": torch.zeros(2)}, at / "training_args.safetensors")
            (at / "optimizer.pt").write_bytes(b"x")
    module = transformers.AutoModelForCausalLM.from_pretrained(at)
    out = module.generate(input_ids=torch.tensor([IDS]), do_sample=False, max_new_tokens=12, pad_token_id=0)
    result = decgraph.run("autoregressive", IDS, {"target": at}, max_tokens=12)
    assert list(result.tokens) == out[0, len(IDS) :].tolist()


def test_ids_need_no_tokenizer(tmp_path: Path) -> None:
    at = folder(tmp_path, words=False)
    assert len(decgraph.run("autoregressive", IDS, {"target": at}, max_tokens=3, eos=()).tokens) == 3
    with pytest.raises(DecError, match="need a tokenizer|needs a tokenizer"):
        decgraph.run("autoregressive", [{"role": "user", "content": "Hello"}], {"target": at}, max_tokens=3)


@pytest.mark.parametrize(
    ("name", "word"), [("model.gguf", "cannot be read: it ends"), ("model.safetensors", "the folder that it is in")]
)
def test_a_file_is_no_folder(name: str, word: str, tmp_path: Path) -> None:
    at = folder(tmp_path)
    (at / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(DecError, match=word):
        decgraph.run("autoregressive", IDS, {"target": at / name}, max_tokens=2)


def test_a_folder_with_a_gguf_alone_says_to_give_that(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(DecError, match=r"did you mean .*model\.gguf"):
        decgraph.run("autoregressive", IDS, {"target": tmp_path}, max_tokens=2)


DOORS: dict[str, Callable[[Path], object]] = {
    "the main model": lambda at: decgraph.load("autoregressive").session(target=at),
    "another model": lambda at: decgraph.load("speculative").session(target=zoo("target"), drafter=at),
    "a head": lambda at: decgraph.load("eagle2").session(target=zoo("target"), head=at),
    "a model inside generate": lambda at: decgraph.hf("speculative", drafter=at)._session_for(model_of(zoo("target"))),
    "a benchmark": lambda at: read_for_a_benchmark(at),
}


def zoo(name: str) -> Path:
    from decgraph import zoo

    return zoo.path(name)


def model_of(at: Path) -> object:
    return transformers.AutoModelForCausalLM.from_pretrained(at)


def read_for_a_benchmark(at: Path) -> object:
    from decgraph.bench.loading import loaded
    from decgraph.runtime.placement import Placement

    return loaded(str(at), None, {}, Placement("cpu", "float32"), eos=True)


@pytest.mark.budget(8)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", ["a Git LFS pointer", "a config cut off", "generation settings: cut", "an adapter"])
def test_every_door_refuses_it(case: str, door: str, tmp_path: Path) -> None:
    spoil, word = SPOILT[case]
    at = folder(tmp_path)
    spoil(at)
    with pytest.raises(DecError) as refused:
        DOORS[door](at)
    assert word in str(refused.value), str(refused.value)


def test_a_server_says_what_a_text_lacks(tmp_path: Path) -> None:
    import openai
    from lib.server import client, served

    from decgraph.serve.catalogue import Catalogue

    at = folder(tmp_path, words=False)
    (at / "tokenizer.model").write_bytes(b"x")
    with served(Catalogue(("autoregressive",), str(at))) as server:
        api = client(server)
        with pytest.raises(openai.BadRequestError, match=r"tokenizer\.model and no tokenizer\.json"):
            api.completions.create(model=api.models.list().data[0].id, prompt="Hello", max_tokens=2)


@pytest.mark.parametrize("case", ["a tensor is missing", "generation settings: empty", "an adapter"])
@pytest.mark.quick("an adapter")
def test_the_command_line_ends_with_the_message_and_1(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from decgraph.cli.main import main

    spoil, word = SPOILT[case]
    at = folder(tmp_path)
    spoil(at)
    for verb in (["run", "autoregressive", "-p", "Hello"], ["bench", "autoregressive", "--quick"], ["serve"]):
        assert main([*verb, "--model", str(at)]) == 2
        said = capsys.readouterr().err
        assert word in said and "Traceback" not in said, said
