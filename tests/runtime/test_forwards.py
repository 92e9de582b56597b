"""Results, the command line and the cost say which way a model's forward ran, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from lib.models import hf_models

import decgraph
from decgraph.cli.main import main
from decgraph.runtime.models import hf, sharing
from decgraph.runtime.models.decoder import decoder
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.forwards import ForwardChoice
from decgraph.runtime.native import decoder as native_decoder


class Doubling(torch.nn.Module):
    """An MLP of a class of its own."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) * 2


def ran(model: Any, **options: Any) -> dict[str, ForwardChoice]:
    return decgraph.load("autoregressive").session(target=model, **options).run(decgraph.Request((1, 5), max_tokens=3)).forwards


def test_by_the_decoder_and_not_run_yet() -> None:
    model = hf_models.llama(1)
    assert ran(model) == {"target": ForwardChoice("decoder")}
    assert ran(model, backend="reference") == {}


def test_as_a_module_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    model = hf_models.llama(1)
    model.model.layers[0].mlp = Doubling(model.model.layers[0].mlp)
    found = ran(model)["target"]
    assert found.way == "module" and "Doubling is no class of transformers' models" in found.reason
    assert found.reason in found.text()
    assert [r.levelname for r in caplog.records if "runs as transformers' own module" in r.message] == ["WARNING"]


def test_states_that_differ_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an entry got wrong, tokens are the module's."""
    right = ran(hf_models.llama(1))
    monkeypatch.setattr(native_decoder, "library", lambda: None)
    monkeypatch.setitem(decoder.ACTIVATIONS, "silu", torch.nn.functional.gelu)
    wrong = ran(hf_models.llama(1))["target"]
    assert right["target"].way == "decoder" and wrong.way == "module"
    assert "differ from the module's by" in wrong.reason


def test_the_cost_says_it(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    hf_models.llama(1).save_pretrained(tmp_path)
    command = ["compile", "autoregressive", "--emit", "cost", "--model", f"target={tmp_path}"]
    assert main([*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["forwards"]["target"]
    assert shown == {"way": "decoder", "reason": ""}
    assert main(command) == 0
    assert "target  decoder" in capsys.readouterr().out


def test_a_run_in_json_and_in_its_summary(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "autoregressive", "-p", "The", "-n", "2"]
    assert main([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["forwards"]["target"]
    assert (shown["way"], shown["reason"]) == ("decoder", "")
    assert main(arguments) == 0
    assert "forwards" not in capsys.readouterr().out  # nothing unusual
    sharing.forget()
    monkeypatch.setattr(hf, "decoder_net", lambda *_: UnknownToDecoder("a reason"))
    monkeypatch.setattr("decgraph.runtime.models.decoder.make.different", lambda *_: 1 / 0)
    assert main(arguments) == 0
    assert "as a module: ZeroDivisionError" in " ".join(capsys.readouterr().out.split())


def test_what_compile_does_not_take() -> None:
    assert main(["compile", "autoregressive", "--emit", "ir", "--model", "target=target"]) == 2


def test_the_door_keeps_it() -> None:
    model, door = hf_models.llama(2), decgraph.hf("prompt_lookup")
    model.generate(torch.tensor([[1, 5, 9]]), max_new_tokens=3, do_sample=False, custom_generate=door)
    assert door.last[0].forwards == {"target": ForwardChoice("decoder")}
