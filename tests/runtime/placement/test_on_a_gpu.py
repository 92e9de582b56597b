"""Algorithms on a machine that says it has a GPU: the tokens of the CPU through every door, and no tensor of the CPU meets one
of the GPU. No kernel is run, and nothing is timed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.devices.pretended_gpu import one_gpu
from lib.server import served

import decgraph
from decgraph.bench.weights import read
from decgraph.cli.main import main
from decgraph.runtime.placement import Placement
from decgraph.serve.catalogue import Catalogue

PROMPTS = ["def f(x):", "import os\n"]
SAMPLED: dict[str, Any] = {"max_tokens": 10, "temperature": 0.8, "seed": 3}
FLOAT32 = "float32"  # the CPU's own; in the folders' bfloat16 near-ties would be decided otherwise

CAUSAL = ("autoregressive", "speculative", "prompt_lookup", "lookahead", "jacobi", "token_recycling", "staged_speculative",
          "contrastive_decoding", "cfg", "dola", "mirostat", "beam", "swift")  # fmt: skip
TREES = ("sequoia", "mcsd", "block_verification", "traversal")
HEADS = ("eagle1", "eagle2", "medusa", "kangaroo", "arbitrage", "autodeco")
MASKED = ("fast_dllm", "fast_dllm_uncached", "dkv_cache", "llada", "dream", "remdm_loop", "specdiff")
QUICK = ("speculative", "eagle2", "block_verification", "dola", "arbitrage", "fast_dllm")


@pytest.mark.budget(4)
@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("name", [*CAUSAL, *TREES, *HEADS, *MASKED])
def test_sessions(name: str) -> None:
    """A batch and one alone, greedy and sampled."""

    def tokens(device: str) -> list[Any]:
        made = decgraph.load(name).session(device=device, dtype=FLOAT32)
        found = made.generate(PROMPTS, **SAMPLED) + made.generate(PROMPTS[:1], max_tokens=10, temperature=0)
        assert all(one.error is None for one in found), [str(one.error) for one in found]
        assert {one.placement for one in found} == {Placement("cuda:0" if device == "auto" else "cpu", FLOAT32)}
        return [one.tokens for one in found]

    plain = tokens("cpu")
    with one_gpu():
        assert tokens("auto") == plain


@pytest.mark.budget(4)
@pytest.mark.quick("eagle2", "fast_dllm")
@pytest.mark.parametrize("name", ["speculative", "eagle2", "medusa", "kangaroo", "fast_dllm", "specdiff", "dola"])
def test_the_reference(name: str) -> None:
    def tokens(device: str) -> Any:
        found = decgraph.run(name, PROMPTS[0], backend="reference", device=device, dtype=FLOAT32, max_tokens=5)
        assert found.error is None, str(found.error)
        return found.tokens

    plain = tokens("cpu")
    with one_gpu():
        assert tokens("cuda") == plain


@pytest.mark.budget(4)
@pytest.mark.quick("speculative")
@pytest.mark.parametrize("name", ["speculative", "eagle2", "medusa", "fast_dllm"])
def test_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def found(*more: str) -> dict[str, Any]:
        assert main(["run", name, "-p", PROMPTS[0], "-n", "8", "--seed", "2", "--json", *more]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    plain = found()
    assert (plain["device"], plain["dtype"]) == ("cpu", "float32")
    with one_gpu():
        there = found("--dtype", "float32")
        assert (there["device"], there["dtype"], there["tokens"]) == ("cuda:0", "float32", plain["tokens"])
        own = found()
        assert (own["device"], own["dtype"]) == ("cuda:0", "bfloat16")
        assert main(["run", name, "-p", PROMPTS[0], "-n", "4"]) == 0  # with a listener
        assert "device        cuda:0, bfloat16" in capsys.readouterr().out


def test_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def f(x):\nimport os\n", encoding="utf-8")

    def found(out: str, *more: str) -> list[Any]:
        line = ["map", str(prompts), "-a", "speculative", "-o", str(tmp_path / out), "-n", "8", "-t", "0.8", *more]
        assert main(line) == 0, capsys.readouterr().err
        return [(one["id"], one["tokens"]) for one in map(json.loads, (tmp_path / out).read_text().splitlines())]

    plain = sorted(found("cpu.jsonl"))
    settings = json.loads((tmp_path / "cpu.jsonl.settings").read_text())
    assert (settings["device"], settings["dtype"]) == ("cpu", "float32")
    with one_gpu():
        assert sorted(found("gpu.jsonl", "--dtype", "float32")) == plain
        settings = json.loads((tmp_path / "gpu.jsonl.settings").read_text())
        assert (settings["device"], settings["dtype"]) == ("cuda", "float32")
        line = ["map", str(prompts), "-a", "speculative", "-o", str(tmp_path / "cpu.jsonl"), "-n", "8", "-t", "0.8", "--resume"]
        assert main(line) == 2  # the rest of a file is not decoded in another precision
        assert "another device, another dtype" in capsys.readouterr().err


@pytest.mark.budget(4)
@pytest.mark.quick("speculative")
@pytest.mark.parametrize("name", ["speculative", "eagle2", "medusa", "fast_dllm"])
def test_serve(name: str) -> None:
    def answered(device: str) -> tuple[Any, Any]:
        body = {"model": "decgraph", "prompt": PROMPTS[0], "max_tokens": 8, "temperature": 0.8, "seed": 2}
        with served(Catalogue([name], device=device, dtype=FLOAT32)) as server:
            asked = urllib.request.Request(
                f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked, timeout=120) as answer:
                text = json.load(answer)["choices"][0]["text"]
            with urllib.request.urlopen(f"{server.url}/v1/models", timeout=120) as answer:
                listed = json.load(answer)["data"]
        return text, {(one["device"], one["dtype"]) for one in listed}

    plain, where = answered("cpu")
    assert where == {("cpu", "float32")}
    with one_gpu():
        assert answered("auto") == (plain, {("cuda:0", "float32")})


@pytest.mark.budget(4)
@pytest.mark.quick("speculative")
@pytest.mark.parametrize("name", ["autoregressive", "speculative", "sequoia", "eagle2", "medusa", "prompt_lookup"])
def test_hf(name: str) -> None:
    """`generate` on a module that was moved; drafters and heads are folders, which follow it."""
    given: dict[str, dict[str, Any]] = {"speculative": {"drafter": "drafter"}, "sequoia": {"drafter": "drafter"},
                                        "eagle2": {"head": "eagle"}, "medusa": {"heads": "medusa"}}  # fmt: skip
    ids = torch.tensor([[5, 9, 50, 5, 9, 50, 5, 9]])
    kept = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 0}
    plain = read(decgraph.zoo.path("target"), Placement("cpu", FLOAT32)).generate(ids, **kept).tolist()
    with one_gpu():
        module = read(decgraph.zoo.path("target"), Placement("cuda", FLOAT32))
        door = decgraph.hf(name, **given.get(name, {}))
        got = module.generate(ids.to("cuda"), custom_generate=door, **kept)
        assert got.tolist() == plain and door.last[0].placement == Placement("cuda:0", FLOAT32)
