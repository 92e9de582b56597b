"""The repository form: what `decgraph export hf` writes, and `generate` running it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models.hf_models import MASK, PROMPT, RAGGED
from lib.stdlib.table_models import NAMES
from lib.waiting import SECONDS

import decgraph
from decgraph.cli.main import main
from decgraph.errors import DecError
from decgraph.hf import export

MINE = '''algorithm mine(target: causal, drafter: causal, gamma: int in 1..8 = 2, ratio: prob = 0.5):
    """A draft with a backslash \\\\ and 'quotes' of "both" kinds in its text (Nobody, 2026)."""
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
'''


def body(algorithm: decgraph.Algorithm) -> list[str]:
    """Its IR but for the first line, which names the file."""
    return algorithm.ir().splitlines()[1:]


@pytest.fixture(autouse=True)
def modules_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies a folder's code into a cache before it runs it: one for each test."""
    from transformers import dynamic_module_utils, utils

    place = str(tmp_path / "modules")
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", place)
    monkeypatch.setattr(utils, "HF_MODULES_CACHE", place, raising=False)
    monkeypatch.syspath_prepend(place)


def test_generate_runs_a_folder(target: Any, drafter: Any, tmp_path: Path) -> None:
    folder = tmp_path / "speculative"
    export("speculative", folder)
    settings = {"do_sample": False, "max_new_tokens": 16, "attention_mask": MASK, "repetition_penalty": 1.3}
    expected = target.generate(RAGGED, **settings)
    for more in ({"gamma": 3}, {"gamma": 2, "backend": "reference"}, {}):
        got = target.generate(RAGGED, custom_generate=str(folder), trust_remote_code=True, drafter=drafter, **more, **settings)
        assert got.tolist() == expected.tolist()
    sampled = {"do_sample": True, "max_new_tokens": 16, "eos_token_id": None}
    got = target.generate(PROMPT, custom_generate=str(folder), trust_remote_code=True, drafter=drafter, seed=3, **sampled)
    door = decgraph.hf("speculative", drafter=drafter, seed=3)
    assert got.tolist() == target.generate(PROMPT, custom_generate=door, **sampled).tolist()
    with pytest.raises(DecError, match="needs the model `drafter`"):
        target.generate(PROMPT, custom_generate=str(folder), trust_remote_code=True, **settings)
    with pytest.raises(DecError, match="num_beams"):
        beams = {"num_beams": 2, "max_new_tokens": 2}
        target.generate(PROMPT, custom_generate=str(folder), trust_remote_code=True, drafter=drafter, **beams)


def test_text_and_streams_come_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Here generate itself has the tokenizer and the streamer, so the folder hands them over."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, TextStreamer

    from decgraph import zoo

    model = AutoModelForCausalLM.from_pretrained(zoo.path("target"), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(zoo.path("target"))
    inputs = tokenizer(["def main():"], return_tensors="pt", return_token_type_ids=False)
    settings = {"do_sample": False, "max_new_tokens": 24, "tokenizer": tokenizer, "stop_strings": ["\n\n", "self"]}
    expected = model.generate(**inputs, **settings)
    export("prompt_lookup", tmp_path / "it")
    folder = {"custom_generate": str(tmp_path / "it"), "trust_remote_code": True}
    got = model.generate(**inputs, **folder, **settings, streamer=TextStreamer(tokenizer))
    assert got.tolist() == expected.tolist()
    assert capsys.readouterr().out == tokenizer.decode(got[0]) + "\n"
    config = GenerationConfig(do_sample=False, max_new_tokens=24, stop_strings=["\n\n", "self"])
    again = model.generate(**inputs, **folder, tokenizer=tokenizer, generation_config=config)
    assert again.tolist() == expected.tolist()
    assert config.stop_strings == ["\n\n", "self"], "the caller's own is left alone"


def test_the_text_is_carried_whatever_is_in_it(target: Any, drafter: Any, tmp_path: Path) -> None:
    for n, text in enumerate((MINE, MINE.replace("'quotes'", "'''quotes'''"))):
        folder = tmp_path / f"mine{n}"
        algorithm = decgraph.parse(text, path="mine.dec")
        export(algorithm, folder)
        names: dict[str, Any] = {}
        exec((folder / "custom_generate" / "generate.py").read_text(encoding="utf-8"), names)
        assert names["ALGORITHM"].strip() == text.strip()
        assert body(decgraph.parse(names["ALGORITHM"])) == body(algorithm)
        got = names["generate"](target, inputs=PROMPT, drafter=drafter, gamma=2, do_sample=False, max_new_tokens=8)
        assert got.tolist() == target.generate(PROMPT, do_sample=False, max_new_tokens=8).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_can_be_exported(name: str, tmp_path: Path) -> None:
    files = export(name, tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in files] == [
        "custom_generate/generate.py", "custom_generate/requirements.txt", "README.md", f"{name}.dec",
    ]  # fmt: skip
    assert body(decgraph.load(tmp_path / f"{name}.dec")) == body(decgraph.load(name))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "custom_generate" in card
    assert all(f"`{p}`" in card for p in (*decgraph.load(name).models, *decgraph.load(name).params))
    compile((tmp_path / "custom_generate" / "generate.py").read_text(encoding="utf-8"), name, "exec")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "it"
    assert main(["export", "hf", "eagle2", "--out", str(out)]) == 0
    assert f'custom_generate="{out}"' in capsys.readouterr().out
    assert main(["export", "hf", "eagle2", "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["export", "hf", "eagle2", "--out", str(out), "--force", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == 4
    assert main(["export", "hf", "no_such"]) == 2
    assert "error" in capsys.readouterr().err


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(DecError, match="cannot write"):
        (tmp_path / "file").write_text("")
        export("speculative", tmp_path / "file")
    asks = "grow x\n                break if judge(text_of(ctx))\n"
    judged = "extern judge(text) -> bool on host\n" + MINE.replace("grow x\n", asks)
    with pytest.raises(DecError, match="mine calls judge, which a folder cannot carry"):
        export(decgraph.parse(judged), tmp_path / "judged")
    from dataclasses import replace

    with pytest.raises(DecError, match="no text"):
        export(replace(decgraph.load("speculative"), text=""), tmp_path / "bare")


def test_importing_the_room_needs_no_torch() -> None:
    code = "import sys, decgraph.hf; print([m for m in ('torch', 'transformers') if m in sys.modules], callable(decgraph.hf))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/", timeout=SECONDS)
    assert done.stdout.strip() == "[] True"
