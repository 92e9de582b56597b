"""The shipped models load, are small, share one tokenizer, and answer tasks that can be checked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from lib.waiting import SECONDS

from decgraph import DecError, zoo

MODELS = ("target", "drafter", "medusa", "eagle", "exit", "masked")
FOR_OTHERS = ("smollm2_eagle",)
"""Heads for models that are fetched."""
LIMIT = 60 * 1024 * 1024


def load(name: str) -> Any:
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    if name in ("target", "drafter"):
        return AutoModelForCausalLM.from_pretrained(zoo.path(name), dtype=torch.float32).eval()
    if name == "masked":
        return AutoModelForMaskedLM.from_pretrained(zoo.path(name), dtype=torch.float32).eval()
    import decgraph.zoo.modeling  # noqa: F401 - registers the heads

    return AutoModel.from_pretrained(zoo.path(name), dtype=torch.float32).eval()


def test_an_unknown_name_is_told_the_legal_ones() -> None:
    with pytest.raises(DecError, match="target, drafter, medusa, eagle, exit, masked, smollm2_eagle, tokenizer"):
        zoo.path("tarjet")


def test_finding_a_model_needs_no_torch() -> None:
    code = "import sys; from decgraph import zoo; zoo.card('masked'); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS).stdout == "False\n"


def test_every_name_has_a_folder_and_a_card() -> None:
    assert zoo.names() == [*MODELS, *FOR_OTHERS, "tokenizer"]
    for name in zoo.names():
        assert zoo.path(name).is_dir()
        assert zoo.card(name).startswith(f"## {name}\n")
        assert len(zoo.card(name).splitlines()) > 3
    assert "PSF-2.0" in (zoo.path("target").parent / "README.md").read_text()


def test_everything_together_is_at_most_60_mb() -> None:
    files = [file for file in zoo.path("target").parent.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= LIMIT
    assert {file.suffix for file in files} <= {".json", ".safetensors", ".md"}


@pytest.mark.parametrize("name", [*MODELS, *FOR_OTHERS])
def test_weights_are_bfloat16_and_finite(name: str) -> None:
    import torch
    from safetensors.torch import load_file

    weights = load_file(zoo.path(name) / "model.safetensors")
    weights = {
        key: tensor for key, tensor in weights.items() if tensor.is_floating_point()
    }  # a draft vocabulary is of integers
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert all(tensor.isfinite().all() for tensor in weights.values())


@pytest.mark.parametrize("name", ("target", "drafter"))
def test_causal_models_do_not_see_ahead(name: str) -> None:
    import torch

    model = load(name)
    ids = torch.arange(10, 30)[None]
    changed = ids.clone()
    changed[0, -1] = 500
    with torch.no_grad():
        before, after = model(ids).logits, model(changed).logits
    assert before.shape == (1, 20, 2048)
    torch.testing.assert_close(before[:, :-1], after[:, :-1], rtol=1e-5, atol=1e-4)
    assert not torch.equal(before[:, -1], after[:, -1])


def test_the_masked_model_sees_both_ways() -> None:
    import torch

    model = load("masked")
    ids = torch.arange(10, 30)[None]
    changed = ids.clone()
    changed[0, -1] = 500
    with torch.no_grad():
        assert (model(ids).logits - model(changed).logits)[0, 0].abs().max() > 1e-4


def test_heads_take_the_targets_states_and_do_not_see_ahead() -> None:
    import torch

    target = load("target")
    ids = torch.arange(10, 30)[None]
    with torch.no_grad():
        states = target.model(ids, output_hidden_states=True).hidden_states
        guesses = load("medusa")(states[-1])
        eagle, exit_adapter = load("eagle"), load("exit")
        whole = eagle(ids[:, 1:], states[-1][:, :-1]), exit_adapter(states[exit_adapter.config.exit_layer])
        short = (
            eagle(ids[:, 1:9], states[-1][:, :8]),
            exit_adapter(states[exit_adapter.config.exit_layer][:, :8]),
        )
    assert len(guesses) >= 3
    assert {guess.shape for guess in guesses} == {states[-1].shape}
    assert target.lm_head(guesses[0]).shape[-1] == 2048
    for full, part in zip(whole, short, strict=True):
        torch.testing.assert_close(full[:, :8], part, rtol=1e-4, atol=1e-3)


def test_all_models_share_the_tokenizer() -> None:
    shared = json.loads((zoo.path("tokenizer") / "tokenizer.json").read_text())
    for name in ("target", "drafter", "masked"):
        assert json.loads((zoo.path(name) / "tokenizer.json").read_text()) == shared
