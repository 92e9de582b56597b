"""Exported programs inside a real vLLM, on a CPU: `make vllm` installs it, `make nightly` runs these.

What an engine does is provoked: six requests at most that come and go, prompts computed 32 tokens at a time, a KV cache too
small for all of them, so that some are preempted. Tokens are those of `decgraph.run` over the same weights by transformers.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.engines import published_seams, vllm_driver
from lib.repository import ROOT
from lib.waiting import started
from transformers import AutoModelForCausalLM, AutoTokenizer

import decgraph
from decgraph import zoo
from decgraph.backends.seams.file import exported

VENV = Path(os.environ.get("DECGRAPH_VLLM", ROOT / ".venv-vllm")) / "bin"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (VENV / "python").exists(), reason=f"no vLLM in {VENV}: `make vllm`, or DECGRAPH_VLLM=its environment"
    ),
]
TARGET = str(zoo.path("target"))
SMOLLM2 = Path(os.environ.get("DECGRAPH_CACHE") or Path.home() / ".cache" / "decgraph") / "models" / "smollm2"
"""The user's, looked for when tests are collected: fixtures give every test run another cache."""
PROGRAMS: dict[str, dict[str, float]] = {
    "autoregressive": {},
    "bregman_topk": {"price": 0.02},
    "dynamic_temperature": {"heat": 0.8},
    "frustratingly_simple": {"alpha": 0.3},
    "mirostat": {"tau": 3.0},
    "mirostat_v1": {"tau": 3.0},
    "momentum": {"alpha": 0.1},
    "repetition_aware": {"mass": 0.6},
    "top_n_sigma": {"n": 0.7},
    "typical": {"mass": 0.5},
    "windowed_penalties": {"frequency": 0.3},
    "xtc": {"chance": 0.9},
}
"""Programs of rows of logits, and what every other request sets for itself."""
TIGHT = {"max_num_seqs": 6, "max_num_batched_tokens": 32, "block_size": 32, "num_gpu_blocks_override": 8, "max_model_len": 160}
LOOKUP = {"method": "custom_class", "model": "prompt_lookup_vllm.PromptLookup", "num_speculative_tokens": 10}
LOOKUP_V2 = {"method": "ngram", "num_speculative_tokens": 10}


def export(name: str, folder: Path) -> None:
    """Write the exported file of a program, where it is not there."""
    if not (folder / f"{name}_vllm.py").exists():
        chosen = decgraph.load(name)
        key = "logits" if name in PROGRAMS else "drafts"
        (folder / f"{name}_vllm.py").write_text(exported("vllm", chosen.module, {}, key=key, source=chosen.source).text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for exported files."""
    return tmp_path_factory.mktemp("exported")


Inside = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def inside(folder: Path, tmp_path: Path) -> Inside:
    """Runs jobs inside vLLM: `inside(jobs, "v2")`."""

    def run(jobs: list[dict[str, Any]], *runner: str) -> list[dict[str, Any]]:
        for name in {program for one in jobs for program in one["programs"]}:
            export(name, folder)
        (tmp_path / "jobs.json").write_text(json.dumps(jobs))
        done = subprocess.run(
            [str(VENV / "python"), vllm_driver.__file__, str(tmp_path / "jobs.json"), str(tmp_path / "results.json"), *runner],
            env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}, capture_output=True, text=True, timeout=3600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        print(done.stdout)
        results: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())
        return [{**result, "errors": done.stderr} for result in results]

    return run


@cache
def weights(model: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TARGET)


def requests(name: str, *, most: int = 2000, repeats: bool = False, count: int = 9) -> list[dict[str, Any]]:
    rng = random.Random(3)
    out = []
    for i in range(count):
        prompt = [rng.randrange(4, most) for _ in range((5, 18, 70)[i % 3])]
        if repeats:
            prompt = (prompt[:6] * 8)[: (9, 24, 40)[i % 3]]
        extra = {"seed": 1000 + i, **(PROGRAMS[name] if i % 2 else {})}
        heat = 0.3 if repeats and name != "mirostat" else 1  # mirostat refuses another; colder texts repeat themselves
        settings = {"temperature": heat, "max_tokens": 20 + 4 * i, "ignore_eos": True, "extra_args": extra}
        out.append({"prompt": prompt, "settings": settings})
    return out


def job(name: str, model: str, asked: list[dict[str, Any]], **engine: Any) -> dict[str, Any]:
    named = f"{name}_vllm:{''.join(word.capitalize() for word in name.split('_'))}"
    kwargs = {**TIGHT, "logits_processors": [named], **engine}
    programs = [name, *(["prompt_lookup"] if "speculative_config" in engine else [])]
    arrivals = [3, 0, 2, 0, 0, 1, 1, 0, 2]
    return {
        "name": name, "model": model, "engine": kwargs, "requests": asked, "arrivals": arrivals, "programs": programs
    }  # fmt: skip


def expected(name: str, model: str, request: dict[str, Any]) -> list[int]:
    """What `decgraph.run` gives a request."""
    settings = dict(request["settings"])
    own = dict(settings.pop("extra_args"))
    noise = {"seed": own.pop("seed"), "request_id": own.pop("request_id", 0)}
    del settings["ignore_eos"]
    models = {"target": weights(model)}
    return list(decgraph.run(name, models=models, prompt=request["prompt"], eos=(), params=own, **noise, **settings).tokens)


def check(jobs: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    for one, result in zip(jobs, results, strict=True):
        wanted = [expected(one["name"], one["model"], request) for request in one["requests"]]
        same = sum(a == b for a, b in zip(wanted, result["tokens"], strict=True))
        tokens = sum(map(len, wanted))
        print(f"{one['name']}: {same} of {len(wanted)} requests equal, {tokens} tokens, a step {result['processor']['ms']} ms")
        assert result["tokens"] == wanted, one["name"]


SIGNATURES = """
import inspect, json
from dataclasses import fields
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor as V1
from vllm.v1.spec_decode.custom_class_proposer import create_custom_proposer
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor as V2, LogitsProcRequestState
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

def of(kind, names):
    return {name: list(inspect.signature(getattr(kind, name)).parameters) for name in names}

print(json.dumps([
    of(V1, ["__init__", "apply", "is_argmax_invariant", "update_state", "validate_params"]),
    of(V2, ["__init__", "add_request", "apply", "apply_staged_writes", "validate_params"]),
    *([f.name for f in fields(kind)] for kind in (BatchUpdate, LogitsContext, LogitsProcRequestState)),
    of(BaseSpeculator, ["init_cudagraph_manager", "capture", "propose"])["propose"],
]))
"""


def test_published_names_are_those_of_the_installed_engine() -> None:
    env = {**os.environ, **vllm_driver.ENVIRONMENT}
    done = subprocess.run(
        [str(VENV / "python"), "-c", SIGNATURES], env=env, capture_output=True, text=True, check=True, timeout=900
    )
    *found, propose = json.loads(done.stdout.splitlines()[-1])
    p = published_seams
    typed = (p.VLLM_LOGITS, p.VLLM_LOGITS_V2, p.VLLM_UPDATE, p.VLLM_CONTEXT, p.VLLM_STATE)
    assert found == json.loads(json.dumps(typed))
    assert propose[1 : 1 + len(p.VLLM_V2_POSITIONAL)] == list(p.VLLM_V2_POSITIONAL)
    assert {*p.VLLM_V2_KEYWORDS} <= {*propose}


def test_twelve_programs(inside: Inside) -> None:
    jobs = [job(name, TARGET, requests(name)) for name in PROGRAMS]
    results = inside(jobs)
    assert {result["runner"] for result in results} == {"vllm.v1.worker.cpu_model_runner"}
    assert min(result["preemptions"] for result in results) > 0
    check(jobs, results)


def test_a_vocabulary_of_49152(inside: Inside) -> None:
    if not SMOLLM2.exists():
        pytest.skip(f"no {SMOLLM2}: `decgraph zoo fetch smollm2`")
    model = str(SMOLLM2)
    jobs = [job(name, model, requests(name, most=49000)) for name in ("mirostat", "top_n_sigma", "typical", "xtc")]
    results = inside(jobs)
    assert min(result["preemptions"] for result in results) > 0
    check(jobs, results)


def test_runner_v2(inside: Inside) -> None:
    """With preemptions, then along the drafts of an exported drafter: the tokens are those without it, sampled."""
    drafter = {"speculative_config": LOOKUP_V2, "worker_extension_cls": "prompt_lookup_vllm.V2"}
    jobs = [
        job("mirostat", TARGET, requests("mirostat")),
        *(job(name, TARGET, requests(name, repeats=True, count=5), **drafter) for name in ("mirostat", "typical")),
    ]
    results = inside(jobs, "v2")
    assert {result["runner"] for result in results} == {"vllm.v1.worker.cpu.model_runner"}
    assert results[0]["preemptions"] > 0
    assert min(result["accepted"] for result in results[1:]) > 0
    check(jobs, results)


def test_two_ranks_draw_the_same(inside: Inside) -> None:
    """With seeds, and without: then the noise is that of the engine's seed and the number of the request."""
    asked = requests("mirostat", count=4)
    without = [{**request, "settings": {**request["settings"], "extra_args": {}}} for request in asked[:2]]
    engine = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    (result,) = inside([job("mirostat", TARGET, [*asked, *without], **engine)], "two ranks")
    for n, request in enumerate(without):
        request["settings"]["extra_args"] = {"seed": 0, "request_id": (1 << 40) + len(asked) + 1 + n}
    assert result["tokens"] == [expected("mirostat", TARGET, request) for request in (*asked, *without)]


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_drafts_are_verified_and_spare_steps(runner: str, inside: Inside) -> None:
    code = "def area(w, h):\n    return w * h\n\ndef volume(w, h, d):\n    return area(w, h) * d\n\n"
    loop = "for i in range(10):\n    print(i)\n"
    prompts = [code * 3 + "def area(w, h):\n", loop * 2 + "for", "import os\nimport sys\n", "x = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5"]
    settings = {"temperature": 0, "max_tokens": 64, "ignore_eos": True}
    asked = [{"prompt": list(tokenizer()(text).input_ids), "settings": settings} for text in prompts]
    spec = {"speculative_config": LOOKUP} if runner == "v1" else {
        "speculative_config": LOOKUP_V2, "worker_extension_cls": "prompt_lookup_vllm.V2"
    }  # fmt: skip
    engines: list[dict[str, Any]] = [{}, spec]
    jobs = [
        {"model": TARGET, "requests": asked, "engine": {"max_num_seqs": 4, **engine}, "programs": ["prompt_lookup"]}
        for engine in engines
    ]
    plain, drafted = inside(jobs, *([runner] if runner == "v2" else []))
    assert drafted["tokens"] == plain["tokens"]
    assert drafted["accepted"] > 100
    assert drafted["forward"]["calls"] < 0.75 * plain["forward"]["calls"]
    print(f"steps {plain['forward']['calls']} -> {drafted['forward']['calls']}, a draft {drafted['drafter']['ms']} ms")


def test_an_error_of_one_request_is_its_own(inside: Inside) -> None:
    """Of five requests one may write the end token alone, and not yet: no token is left."""
    asked = requests("typical", count=5)
    asked[2]["settings"] |= {"allowed_token_ids": [0], "min_tokens": 4, "ignore_eos": False}
    (result,) = inside([job("typical", TARGET, asked)])
    assert "typical ends request 0 (seed 1002" in result["errors"]
    assert "no token was left to draw" in result["errors"]
    assert set(result["tokens"][2]) == {0}
    for n in (0, 1, 3, 4):
        assert result["tokens"][n] == expected("typical", TARGET, asked[n])


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """vLLM's own server, with a mirostat that is exported."""
    export("mirostat", folder)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    command = [
        str(VENV / "python"), "-m", "vllm.entrypoints.openai.api_server", "--model", TARGET, "--dtype", "float32",
        "--enforce-eager", "--max-model-len", "256", "--host", "127.0.0.1", "--port", str(port),
        "--served-model-name", "target", "--logits-processors", "mirostat_vllm:Mirostat", "--generation-config", "vllm",
    ]  # fmt: skip
    env = {**os.environ, **vllm_driver.ENVIRONMENT, "PYTHONPATH": f"{folder}:{ROOT}", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    log = folder / "server.log"
    with log.open("w") as out, started(command, seconds=3600, env=env, stdout=out, stderr=subprocess.STDOUT) as process:
        for _ in range(600):
            assert process.poll() is None, log.read_text()[-4000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"extra_body": {"top_k": 5}}, "top_k would change nothing"),
    ({"temperature": 0.5}, "temperature would change nothing"),
    ({"extra_body": {"vllm_xargs": {"tua": 3.0}}}, "may set tau, eta"),
    ({"extra_body": {"vllm_xargs": {"tau": 21.0}}}, "must be in 0..20"),
]


def test_refusals_are_http_400(server: str, request: pytest.FixtureRequest) -> None:
    import openai

    asked = requests("mirostat", count=1)[0]
    plain: dict[str, Any] = {"model": "target", "prompt": asked["prompt"], "max_tokens": 8, "temperature": 1}
    client = openai.OpenAI(base_url=server, api_key="none", max_retries=0, timeout=300)
    request.addfinalizer(client.close)
    answer = client.completions.create(**{**plain, "extra_body": {"vllm_xargs": {"seed": 1000}, "ignore_eos": True}})
    tokens = expected("mirostat", TARGET, {**asked, "settings": {**asked["settings"], "max_tokens": 8}})
    assert answer.choices[0].text == tokenizer().decode(tokens)
    for refused, said in REFUSED:
        with pytest.raises(openai.BadRequestError, match=said) as error:
            client.completions.create(**{**plain, **refused})
        assert error.value.status_code == 400
        print(error.value.message)
