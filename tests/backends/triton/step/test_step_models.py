"""Steps with Hugging Face models of random weights: the torch driver's tokens. Scores are float32 and summed in another order,
so tokens could differ where two are within 1e-4 of each other; with these seeds none do."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import pytest
import torch
from hf_modules import LAYER, large, module
from step_runs import Guard, assert_stats, optimised, parameters
from triton.runtime.interpreter import InterpretedFunction

from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.triton.step import run
from decgraph.runtime.models import hf
from decgraph.runtime.models.hf_heads import HFFeatures, HFHeads
from decgraph.runtime.request import Request
from decgraph.zoo import modeling


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A target, the same with noise on its weights as a drafter, and heads."""
    made: dict[str, Any] = {}
    for name in ("target", "drafter"):
        path = tmp_path_factory.mktemp("models") / name
        of = module("llama")
        if name == "drafter":
            with torch.no_grad():
                for p in of.parameters():
                    p.add_(torch.randn_like(p) * 0.02)
        of.save_pretrained(path)
        made[name] = hf.load_causal(File(path), reuse=True)
    return made


@pytest.mark.quick("speculative")
@pytest.mark.parametrize(
    ("name", "temperature"),
    [
        ("speculative", 1),
        ("eagle2", 0),
        *[
            pytest.param(name, temperature, marks=pytest.mark.nightly)
            for name, temperature in (("recursive_sd", 0), ("eagle2", 1), ("medusa_match", 0), ("sequoia", 1), ("rsd_s", 1))
        ],
    ],
)
def test_the_drivers_tokens(models: dict[str, Any], name: str, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    target = models["target"]
    have = dict(models)
    if name == "eagle2":
        have["head"] = HFFeatures(large(modeling.EagleHead(modeling.EagleConfig(**LAYER))), target, "head")
    if name == "medusa_match":
        heads = large(modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=32, heads=3)))
        have["target"] = target.with_heads(HFHeads(heads, target, "heads"))
    graph = optimised(name)
    used = {p.name: have[p.name] for p in graph.entry.params if p.value.type.elem == "model"}
    asked = [
        Request(prompt=p, limit=6, seed=4, request_id=i, temperature=temperature)
        for i, p in enumerate([(1, 5, 9, 11), (7, 3), (2, 9, 9, 30, 21, 4, 4)])
    ]
    made, want = ([TorchMachine(graph, graph.main, used, parameters(name), r) for r in asked] for _ in range(2))
    assert not run.run_steps(made, width=3)
    ((_, program),) = run.kept(made[0].main).programs.values()
    with monkeypatch.context() as patched, torch.no_grad(), Guard():
        patched.setattr(InterpretedFunction, "run", lambda *args, **known: None)  # the interpreter reads what kernels read
        program.step.body()
    run.forget(made[0].main)
    for m, w in zip(made, want, strict=True):
        w.run()
        assert m.committed_tokens() == w.committed_tokens()
        assert_stats(m.tally.stats(), w.tally.stats())
