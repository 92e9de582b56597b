"""Exported files inside SGLang itself, on a CPU: the same tokens as `decgraph.run` on the same weights.

DECGRAPH_SGLANG names folders, as PYTHONPATH does, that have sglang 0.5.23 and what it imports. PyPI's torchvision is for CUDA,
and there is no sgl_kernel for CPUs: empty modules stand in for both, whose names give classes and functions that raise.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import make, transformers

import decgraph
from decgraph.backends.seams.file import exported
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.request import Request

DRIVER = Path(__file__).parents[2] / "lib" / "engines" / "sglang_driver.py"
BLOCK, MASK, VOCAB = 8, 151669, 151936
SIZES = {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3000),
    pytest.mark.skipif("DECGRAPH_SGLANG" not in os.environ, reason="sglang is not here"),
]


def inside(tmp: Path, name: str, key: str, folder: Path, engine: dict[str, Any], batches: list[list[dict[str, Any]]]) -> Any:
    """What SGLang answers, by batch."""
    file = exported("sglang", decgraph.load(name).module, {}, key=key)
    path, out, job = tmp / f"{file.name}.py", tmp / "out.json", tmp / "job.json"
    path.write_text(file.text)
    about = {"folder": str(folder), "file": str(path), "name": file.class_name, "engine": engine, "batches": batches}
    job.write_text(json.dumps(about))
    root = Path(decgraph.__file__).parents[1]
    found = os.pathsep.join([str(root), os.environ["DECGRAPH_SGLANG"]])
    env = {**os.environ, "PYTHONPATH": found, "SGLANG_USE_CPU_ENGINE": "1", "DECGRAPH_SGLANG_JOB": str(job)}
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(out)], env=env, capture_output=True, text=True, check=False, timeout=3600
    )
    assert out.exists(), done.stderr[-4000:]
    return json.loads(out.read_text())


def test_a_logit_processor(tmp_path: Path) -> None:
    """mirostat with a tau of each request, prompts in parts of 16 tokens, four at a time, outputs a step late."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, num_key_value_heads=4, initializer_range=0.3, bos_token_id=1, eos_token_id=0, **SIZES
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path / "model")
    rng, asked = random.Random(3), []
    for i in range(9):
        prompt = [rng.randrange(2, 97) for _ in range([3, 40, 7, 25][i % 4])]
        own = {"tau": [2.0, 5.0][i % 2]}
        params = {"temperature": 1.0, "max_new_tokens": rng.randrange(8, 25), "sampling_seed": i, "custom_params": own}
        asked.append({"input_ids": prompt, "sampling_params": {**params, "ignore_eos": True}})
    wrong = {"input_ids": [3, 4], "sampling_params": {"top_k": 20, "max_new_tokens": 2, "custom_params": {}}}
    engine = {"enable_custom_logit_processor": True, "disable_overlap_schedule": False, "chunked_prefill_size": 16}
    tokens, refused = inside(tmp_path, "mirostat", "logits", tmp_path / "model", engine, [asked, [wrong]])
    assert "top_k would change nothing" in refused
    for r, got in zip(asked, tokens, strict=True):
        p = r["sampling_params"]
        run = decgraph.run(
            "mirostat", models={"target": model}, prompt=r["input_ids"], max_tokens=p["max_new_tokens"], eos=(),
            seed=p["sampling_seed"], temperature=1, params=p["custom_params"],
        )  # fmt: skip
        assert got == list(run.tokens)


@pytest.mark.parametrize("name", ["llada", "entropy_renoise"])
def test_a_dllm_algorithm(name: str, tmp_path: Path) -> None:
    """Two blocks of an SDAR model for each of six requests, first done, first out, at temperatures 0 and 1."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=VOCAB, hidden_size=32, num_key_value_heads=2, head_dim=16, initializer_range=0.3,
        tie_word_embeddings=False, eos_token_id=151643, **SIZES,
    )  # fmt: skip
    module = transformers.Qwen3ForCausalLM(config).eval()
    module.save_pretrained(tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**settings, "architectures": ["SDARForCausalLM"]}))
    (tmp_path / "dllm.yaml").write_text(f"block_size: {BLOCK}\n")
    rng, asked = random.Random(3), []
    for i, n in enumerate((8, 16, 8, 11, 3, 21)):
        params = {"temperature": i % 2, "max_new_tokens": (n // BLOCK + 2) * BLOCK - n, "sampling_seed": i, "ignore_eos": True}
        asked.append({"input_ids": [rng.randrange(2, 150000) for _ in range(n)], "sampling_params": params})
    wrong = {"input_ids": [3, 4], "sampling_params": {"repetition_penalty": 1.5, "max_new_tokens": 2}}
    label = "".join(word.capitalize() for word in name.split("_"))
    engine = {"dllm_algorithm": label, "dllm_algorithm_config": str(tmp_path / "dllm.yaml"), "chunked_prefill_size": -1}
    tokens, refused = inside(tmp_path, name, "dllm", tmp_path / "model", engine, [asked, [wrong]])
    assert "penalt" in refused
    vocab = Vocab("sdar", VOCAB)
    net = make.net_of_module(module)
    model = HFMasked(net, context=256, mask=MASK, visibility=("block", BLOCK), name="sdar", vocab=vocab, family="sdar")
    algorithm = decgraph.load(name)
    sizes = {p.name: BLOCK for p in algorithm.function.params if p.name in ("length", "block", "steps")}
    for r, got in zip(asked, tokens, strict=True):
        text, p = list(r["input_ids"]), r["sampling_params"]
        end = len(text) + p["max_new_tokens"]
        while len(text) < end:
            request = Request(
                prompt=tuple(text), max_tokens=BLOCK - len(text) % BLOCK, request_id=len(text) // BLOCK,
                temperature=p["temperature"], seed=p["sampling_seed"],
            )  # fmt: skip
            text += algorithm.session({"model": model}, **sizes).run(request).tokens
        assert got == text[len(r["input_ids"]) :]
