"""`decgraph zoo verify`: the decoder against the installed transformers on a small model of a folder's shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models.hf_models import llama
from lib.repository import python

import decgraph
from decgraph.cli.main import main
from decgraph.runtime.models import sharing
from decgraph.runtime.models.decoder import compared, decoder, small
from decgraph.runtime.models.decoder.families import FAMILIES
from decgraph.runtime.models.forwards import ForwardChoice
from decgraph.runtime.native import decoder as native_decoder

NOT_COMPARED = (
    "diffllama", "phimoe", "minimax_m2", "granitemoe", "granitemoeshared", "gpt_oss", "ernie4_5_moe", "hy_v3", "laguna", "axk1",
    "exaone_moe", "eurobert", "modernbert", "ministral", "nemotron", "hunyuan_v1_dense", "hunyuan_v1_moe", "dots1",
    "deepseek_v2",
)  # fmt: skip
"""Families whose folders, as transformers writes them now, are read by transformers, so that each is compared with the module
as it is read; and those of whose default configuration transformers itself makes no causal model."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without verdicts."""
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llama(1).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def ran(folder: Path) -> tuple[ForwardChoice, tuple[int, ...]]:
    """The way that a new session's model ran, and its tokens."""
    sharing.forget()
    result = decgraph.load("autoregressive").session(target=folder).run(decgraph.Request((1, 5), max_tokens=4, temperature=0))
    return result.forwards["target"], result.tokens


@pytest.mark.budget(6)
@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_family_s_default_shape(kind: str, cache: Path) -> None:
    from transformers import AutoConfig

    verdict = compared.compare(AutoConfig.for_model(kind).to_dict())
    assert verdict.found == "equal" or (verdict.found == "not compared" and kind in NOT_COMPARED), verdict.text()
    assert verdict.gap <= 3e-6


def test_equal_is_said_and_kept(cache: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "verify", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["found"] == "equal" and said["model"] == str(folder)
    assert main(["zoo", "verify", str(folder)]) == 0
    assert "the decoder equals the module of transformers" in capsys.readouterr().out
    assert len(json.loads((cache / "compared.json").read_text("utf-8"))) == 1
    assert ran(folder)[0] == ForwardChoice("decoder")


def test_a_difference_means_the_module(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry that is wrong for the installed version: folders of its shape run as the module, and say why."""
    right = ran(folder)
    with monkeypatch.context() as wrong:
        wrong.setattr(native_decoder, "library", lambda: None)
        wrong.setitem(decoder.ACTIVATIONS, "silu", torch.nn.functional.gelu)
        assert main(["zoo", "verify", str(folder)]) == 1
        assert "the decoder differs from the module of transformers" in capsys.readouterr().out
    way, tokens = ran(folder)
    assert right[0] == ForwardChoice("decoder") and way.way == "module" and tokens == right[1]
    assert "small random model of its shape differ" in way.reason
    assert main(["run", "autoregressive", "--model", str(folder), "--ids", "1 5", "-n", "2"]) == 0
    assert "as a module: the decoder differs" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(decgraph.DecError, match="has no weights in int8"):
        decgraph.load("autoregressive").session(target=folder, dtype="int8")
    monkeypatch.setattr(small, "version", lambda: "99.0")  # a verdict is of one version
    assert ran(folder)[0] == ForwardChoice("decoder")


def test_other_switches_are_another_shape_and_other_sizes_are_not(cache: Path) -> None:
    sizes = {"vocab_size": 32000, "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    config = {**llama(1).config.to_dict(), **sizes, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 11008}
    compared.compare(config)
    assert compared.known({**config, "vocab_size": 50000, "num_hidden_layers": 80, "hidden_size": 8192})
    assert compared.known({**config, "hidden_act": "gelu"}) is None


def test_what_is_no_causal_model_is_refused(cache: Path, tmp_path: Path) -> None:
    for source in (tmp_path / "nothing", decgraph.zoo.path("masked")):
        with pytest.raises(decgraph.DecError):
            decgraph.models.verify(source)


@pytest.mark.budget(6)
def test_a_run_imports_no_transformers_with_or_without_a_verdict(cache: Path, folder: Path) -> None:
    decgraph.models.verify(folder)
    code = f"""
import os, sys
os.environ["DECGRAPH_CACHE"] = {str(cache)!r}
import decgraph
session = decgraph.load("autoregressive").session(target={str(folder)!r})
session.run(decgraph.Request((1, 5), max_tokens=2))
print("transformers" in sys.modules)
"""
    assert python(code).strip() == "False"


def test_lists_by_layer_keep_every_kind() -> None:
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    made: Any = small.small({"num_hidden_layers": 24, "layer_types": kinds * 4})
    assert len(made["layer_types"]) == made["num_hidden_layers"] == small.LAYERS
    assert set(made["layer_types"]) == set(kinds)
