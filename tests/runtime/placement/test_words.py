"""`device` and `dtype` at the doors: which words there are, what is not there, and what a loaded model has to say to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.devices.foreign_tensors import away
from lib.devices.pretended_gpu import one_gpu
from lib.models.hf_models import PROMPT, gpt2, llama

import decgraph
from decgraph.cli.main import main
from decgraph.errors import DecError
from decgraph.runtime.placement import Placement
from decgraph.scale import Decoder
from decgraph.serve.catalogue import Catalogue

VERBS = {
    "run": ["run", "autoregressive", "-p", "a"],
    "map": ["map", "PROMPTS", "-a", "autoregressive", "--out", "OUT"],
    "serve": ["serve", "--port", "0"],
    "bench": ["bench", "autoregressive", "--quick"],
    "tune": ["tune", "speculative", "--prompts", "PROMPTS"],
    "trace": ["trace", "autoregressive", "-p", "a"],
    "profile": ["profile", "autoregressive", "-p", "a"],
    "convert": ["convert", "HEAD", "--target", "target"],
}


def line(verb: str, tmp_path: Path) -> list[str]:
    (tmp_path / "prompts.txt").write_text("def f(x):\n", encoding="utf-8")
    places = {"PROMPTS": tmp_path / "prompts.txt", "OUT": tmp_path / "out", "HEAD": decgraph.zoo.path("eagle")}
    return [str(places.get(word, word)) for word in VERBS[verb]]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("option", "word", "said"),
    [
        ("--device", "gpu", "auto, cpu, cuda or a numbered one: cuda:1"),
        ("--dtype", "fp16", "auto, float32, bfloat16, float16"),
        ("--device", "cuda:7", "what is there: cpu"),
    ],
)
def test_every_verb_refuses_what_is_no_word_or_not_there(
    verb: str, option: str, word: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*line(verb, tmp_path), option, word]) == 2
    told = capsys.readouterr().err
    assert word in told and said in told, told


@pytest.mark.parametrize(
    "door",
    [
        lambda **more: decgraph.load("autoregressive").session(**more),
        lambda **more: decgraph.run("autoregressive", "a", **more),
        lambda **more: decgraph.models.bind(decgraph.load("autoregressive").function, {}, **more),
        lambda **more: decgraph.masked("masked", **more),
        lambda **more: Decoder("autoregressive", **more).session,
        lambda **more: Catalogue(["autoregressive"], **more),
    ],
    ids=["session", "run", "bind", "masked", "Decoder", "Catalogue"],
)
def test_every_function_refuses_them_too(door: Any) -> None:
    for more, said in (
        ({"device": "gpu"}, "cuda:1"),
        ({"dtype": "int3"}, "bfloat16"),
        ({"device": "cuda"}, "what is there: cpu"),
    ):
        with pytest.raises(DecError, match="try") as caught:
            door(**more)
        assert said in str(caught.value)


def test_torchs_own_objects_are_words() -> None:
    assert Placement.of(torch.device("cuda", 1), torch.bfloat16) == Placement("cuda:1", "bfloat16")
    made = decgraph.load("autoregressive").session(device=torch.device("cpu"), dtype=torch.float16)
    assert made.placement == Placement("cpu", "float16")


def test_what_is_there_is_said_with_its_number() -> None:
    with one_gpu():
        assert Placement().resolved().device == "cuda" and Placement("cuda:0").resolved().device == "cuda:0"
        with pytest.raises(DecError, match="what is there: cpu and cuda:0"):
            Placement("cuda:1").resolved()


def test_modules_stay_where_they_are_and_folders_follow(tmp_path: Path) -> None:
    llama(2).save_pretrained(tmp_path / "drafter")
    half = llama(1).to(torch.bfloat16)
    made = decgraph.load("speculative").session(target=half, drafter=str(tmp_path / "drafter"))
    assert {str(m.net.decoder.embedding.dtype) for m in made.models.values()} == {"torch.bfloat16"}  # type: ignore[attr-defined]
    for more, said in ({"dtype": "float32"}, "`target` is in bfloat16"), ({"device": "cuda"}, "`target` lies on cpu"):
        with pytest.raises(DecError, match=said):
            decgraph.load("speculative").session(target=half, drafter=str(tmp_path / "drafter"), **more)  # type: ignore[arg-type]
    with one_gpu():
        there = decgraph.load("speculative").session(target=away(llama(1)), drafter=str(tmp_path / "drafter"))
        assert {str(m.net.decoder.device) for m in there.models.values()} == {"cuda:0"}  # type: ignore[attr-defined]
        with pytest.raises(DecError, match="`target` lies on cuda:0 and `drafter` on cpu"):
            decgraph.load("speculative").session(target=away(llama(1)), drafter=llama(2))


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("asked", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("make", [llama, gpt2])
def test_a_dtype_is_honoured_on_the_cpu(make: Any, stored: str, asked: str, tmp_path: Path) -> None:
    """Every token is the likeliest of transformers' module in that dtype, or as good as that within its rounding."""
    import transformers

    make(3).to(getattr(torch, stored)).save_pretrained(tmp_path)
    dtype = getattr(torch, asked)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval()
    for name, models in {"autoregressive": {}, "speculative": {"drafter": str(tmp_path)}}.items():
        given = {"target": str(tmp_path), **models}
        got = decgraph.run(name, PROMPT[0].tolist(), given, max_tokens=24, eos=(), dtype=asked)
        assert got.error is None and (got.device, got.dtype) == ("cpu", asked)
        read = torch.cat([PROMPT[0], torch.tensor(got.tokens)])
        with torch.no_grad():
            logits = theirs(read[None]).logits[0, PROMPT.shape[1] - 1 : -1].float()
        behind = logits.max(-1).values - logits[torch.arange(24), torch.tensor(got.tokens)]
        assert float(behind.max()) <= 8 * torch.finfo(dtype).eps * float(logits.abs().max())
        assert int((behind > 0).sum()) <= 4 * (asked != "float32")


def test_auto_is_float32_on_a_cpu_and_the_folders_own_on_a_gpu(tmp_path: Path) -> None:
    for name, dtype in {"half": torch.float16, "brain": torch.bfloat16, "whole": torch.float32}.items():
        module = llama(3).to(dtype)
        module.save_pretrained(tmp_path / name)
        said = decgraph.load("autoregressive").session(target=str(tmp_path / name)).placement
        assert said == Placement("cpu", "float32")
        config = json.loads((tmp_path / name / "config.json").read_text())
        for silent in (False, True):  # a folder that does not say its dtype has one all the same
            if silent:
                (tmp_path / name / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "dtype"}))
            with one_gpu():
                made = decgraph.load("autoregressive").session(target=str(tmp_path / name))
                assert made.placement == Placement("cuda:0", str(dtype).removeprefix("torch."))


def test_frequencies_of_positions_stay_in_float32(tmp_path: Path) -> None:
    llama(3).save_pretrained(tmp_path)
    made: Any = decgraph.load("autoregressive").session(target=str(tmp_path), dtype="bfloat16").models["target"]
    found = {str(frequencies.dtype) for frequencies, _ in made.net.decoder.ropes.values()}
    assert found == {"torch.float32"}


def test_heads_follow_their_target() -> None:
    for name in ("eagle2", "medusa", "kangaroo"):
        with one_gpu():
            made: Any = decgraph.load(name).session()
            parts = [m for m in made.models.values() if hasattr(m, "module")]
            parts += [m.attached for m in made.models.values() if getattr(m, "attached", None) is not None]
            found = {(str(p.device), p.dtype) for m in parts for p in m.module.parameters()}
            assert found == {("cuda:0", torch.bfloat16)}, name


def test_a_head_module_is_moved_to_its_target_as_a_copy() -> None:
    from decgraph.bench.weights import read
    from lab.shipped.evaluate import load

    head = load("eagle")
    with one_gpu():
        target = read(decgraph.zoo.path("target"), Placement("cuda", "bfloat16"))
        made: Any = decgraph.load("eagle2").session(target=target, head=head)
        assert {p.device.type for p in made.models["head"].module.parameters()} == {"cuda"}
        assert {p.device.type for p in head.parameters()} == {"cpu"}
