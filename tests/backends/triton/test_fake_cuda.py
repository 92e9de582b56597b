"""Twenty algorithms on backend triton, on a GPU that there is not (far_graphs.py), through every door: the tokens of the CPU;
no tensor of the CPU meets one of the GPU; nothing is read while an iteration is recorded; every loop ends."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from far_graphs import gpu_with_graphs
from served import served
from step_runs import CANVASES, STATIC

import decgraph
from decgraph.bench.loading import read
from decgraph.cli.main import main
from decgraph.runtime.placement import Placement
from decgraph.serve.catalogue import Catalogue

PROMPT = "def f("
FLOAT32 = "float32"
FIELDS: dict[str, Any] = {"limit": 3, "temperature": 0.8, "seed": 3}
TREE, CHAIN = {"shape": "[[0], [1], [0, 0]]"}, {"gamma": 2}
CANVAS = {"length": 6, "block": 6}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "autoregressive": {}, "speculative": CHAIN, "prompt_lookup": {}, "lookahead": {}, "jacobi": {"length": 4}, "mirostat": {},
    "token_recycling": {**TREE, "k": 2}, "cfg": {}, "contrastive_decoding": {}, "block_verification": CHAIN, "sequoia": TREE,
    "mcsd": {"shape": "2x1"}, "rsd_s": {"width": 2, "depth": 2}, "eagle1": TREE, "eagle2": {"depth": 2, "k": 2, "budget": 4},
    "medusa": TREE, "kangaroo": {"gamma": 2}, "fast_dllm": CANVAS, "dkv_cache": CANVAS, "llada": {**CANVAS, "steps": 6},
}  # fmt: skip
"""With parameters that make a run short: Triton's interpreter is slow."""
MASKED = ("fast_dllm", "llada", "dkv_cache")
every = pytest.mark.parametrize("name", ALGORITHMS)


def graphed(name: str) -> bool:
    """Whether a whole step runs on the device. Which cells dkv_cache computes depends on which were decided: its step is one on
    table models, and is refused where a network has to compute only those."""
    return name != "dkv_cache" and (name in STATIC or name in CANVASES)


def plain(name: str, **more: Any) -> Any:
    """What the torch backend commits on the CPU."""
    made = decgraph.load(name).session(device="cpu", dtype=FLOAT32, **ALGORITHMS[name])
    return made.generate([PROMPT], **{**FIELDS, **more})[0]


def options(name: str) -> list[str]:
    given = {**ALGORITHMS[name], "max-new": FIELDS["limit"], "temperature": FIELDS["temperature"], "seed": FIELDS["seed"]}
    return [word for k, v in given.items() for word in (f"--{k}", str(v))]


def far() -> list[str]:
    return ["--device", "cuda", "--dtype", FLOAT32, "--backend", "triton"]


@pytest.mark.budget(13)
@pytest.mark.quick("kangaroo", "fast_dllm")
@every
def test_session(name: str) -> None:
    want = plain(name)
    with gpu_with_graphs() as graphs:
        made = decgraph.load(name).session(device="cuda", dtype=FLOAT32, backend="triton", **ALGORITHMS[name])
        (got,) = made.generate([PROMPT], **FIELDS)
    assert got.error is None and got.tokens == want.tokens and got.device == "cuda:0"
    assert (got.mode == "graph mode", graphs.recorded > 0) == (graphed(name), graphed(name)), got.mode
    assert graphs.count


@pytest.mark.budget(13)
@pytest.mark.quick("prompt_lookup")
@every
def test_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the text appearing: what is committed is heard after each look at the device."""
    want = plain(name)
    with gpu_with_graphs():
        assert main(["run", name, "-p", PROMPT, *options(name), *far()]) == 0
    out = capsys.readouterr().out
    mode = next(line for line in out.splitlines() if line.startswith("mode "))
    assert ("graph mode" in mode) == graphed(name) and "cuda:0" in out
    assert out.startswith(PROMPT + want.text)


@pytest.mark.budget(13)
@pytest.mark.quick("jacobi")
@every
def test_map(name: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(PROMPT + "\n", encoding="utf-8")
    want, out = plain(name, request_id=0), tmp_path / "out.jsonl"
    with gpu_with_graphs():
        assert main(["map", str(tmp_path / "in.txt"), "-a", name, "-o", str(out), *options(name), *far()]) == 0
    (line,) = map(json.loads, out.read_text().splitlines())
    assert tuple(line["tokens"]) == want.tokens


@pytest.mark.budget(13)
@pytest.mark.quick("mirostat")
@every
def test_serve(name: str) -> None:
    want = plain(name)
    asked = {"model": "decgraph", "prompt": PROMPT, "max_tokens": FIELDS["limit"], "temperature": 0.8, "seed": 3}
    with gpu_with_graphs():
        made = Catalogue([name], device="cuda", dtype=FLOAT32, backend="triton", params=ALGORITHMS[name])
        with served(made) as server:
            body, kind = json.dumps(asked).encode(), {"Content-Type": "application/json"}
            with urllib.request.urlopen(
                urllib.request.Request(f"{server.url}/v1/completions", body, kind), timeout=300
            ) as told:
                text = json.load(told)["choices"][0]["text"]
    assert text == want.text


@pytest.mark.budget(13)
@pytest.mark.quick("cfg")
@every
def test_hf(name: str) -> None:
    """`generate` with a module on the GPU; drafters and heads are folders, which follow it."""
    from transformers import AutoModelForMaskedLM, GenerationConfig

    known = decgraph.load(name).models
    parts = {k: v for k, v in {"drafter": "drafter", "head": "eagle", "adapter": "exit"}.items() if k in known}
    parts |= {"heads": "medusa"} if name == "medusa" else {}
    ids = torch.tensor([[5, 9, 50, 5, 9, 50]])
    settings = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

    def tokens(device: str, backend: str) -> Any:
        if name in MASKED:
            module = AutoModelForMaskedLM.from_pretrained(decgraph.zoo.path("masked"), dtype=torch.float32).to(device)
        else:
            module = read("target", Placement(device, FLOAT32))
        given = decgraph.hf(name, backend=backend, **parts, **ALGORITHMS[name])
        at = ids.to(device)
        if name in MASKED:
            return given(module, at, generation_config=GenerationConfig(**settings)).tolist(), given
        return module.generate(at, custom_generate=given, **settings).tolist(), given

    want, _ = tokens("cpu", "torch")
    with gpu_with_graphs():
        got, given = tokens("cuda", "triton")
    assert got == want
    steps = graphed(name) and name != "rsd_s"  # whose races need a temperature
    assert (given.last[0].mode == "graph mode") == steps, given.last[0].mode


def test_what_a_recording_must_not_do_is_noticed() -> None:
    with gpu_with_graphs() as graphs:
        far, device = torch.ones(3, device="cuda"), torch.device("cuda")
        for wrong in (
            lambda: far.tolist(),
            lambda: bool((far > 0).all()),
            lambda: far[far > 0],
            lambda: far.copy_(torch.zeros(3)),
            lambda: far + torch.tensor([1.0, 2.0, 3.0], device="cuda"),
            lambda: far.cpu(),
        ):
            with pytest.raises((RuntimeError, AssertionError)):
                graphs.captured(wrong, device)
        count = [1]
        replay, made = graphs.captured(lambda: far.mul_(2) + count[0], device)
        count[0] = 5
        replay()
        replay()
        assert far.tolist() == [4, 4, 4] and made.tolist() == [5, 5, 5], "the host's number stays what it was"
