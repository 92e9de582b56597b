"""Tokens: the CPU's by `decgraph run` and `decgraph serve` as a person types them, each in a process; the reference's on table
models; `generate`'s on random models in float32; and those of captured steps, with what these must bear."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Collection
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import decgraph
from decgraph import stdlib
from decgraph.bench.agreement import NEAR_TIE
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.hf.generate import custom_generate
from decgraph.runtime.request import Request
from decgraph.runtime.text import detokenizer_of
from lab.gpu.first import ROOT, Items, Row
from lab.gpu.lab import Lab

PROMPT, SECONDS = "def f(x):", 110
EAGLE = {"depth": 3, "k": 4, "budget": 12}
ALGORITHMS: dict[str, dict[str, Any]] = {"speculative": {}, "eagle2": EAGLE, "fast_dllm": {"length": 16, "block": 8}}
START = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lab.gpu.first; from decgraph.cli.main import main; sys.exit(main())"
)


def doors(lab: Lab) -> Items:
    """2. `decgraph run`, `decgraph serve` and `hf`: device, dtype, mode, and the tokens of the CPU, or of `generate`."""
    started: dict[str, Any] = {}
    for name in (*some(lab), "serve"):
        yield name, partial(door, lab, name, started)
    for family in FAMILIES if lab.cuda else ("llama",):
        yield f"hf {family}", partial(against_generate, lab, family)


def some(lab: Lab) -> list[str]:
    """The algorithms that are tried."""
    return [*ALGORITHMS] if lab.cuda else ["speculative"]


def command(lab: Lab, name: str, *more: str) -> list[str]:
    """A command of decgraph in this checkout."""
    given = [word for k, v in ALGORITHMS[name].items() for word in (f"--{k}", str(v))]
    where = ["--device", lab.device.type, "--dtype", "float32", "--backend", "triton"]
    return [sys.executable, "-c", START, *more, *given, *where]


def door(lab: Lab, name: str, started: dict[str, Any]) -> Row:
    """What one of the processes gives; the first call starts all of them."""
    if not started:
        asked = ("-p", PROMPT, "-n", "8", "-t", "0.8", "--json")
        lines = {one: command(lab, one, "run", one, *asked) for one in some(lab)}
        lines["serve"] = command(lab, "speculative", "serve", "-a", "speculative", "--port", "0", "--json")
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started |= {one: subprocess.Popen(line, **pipes) for one, line in lines.items()} | {"": time.perf_counter()}
    process, one, temperature = started[name], name, 0.8
    try:
        if name == "serve":
            one, temperature = "speculative", 0.0
            about = answered(process)
        else:
            out, told = process.communicate(timeout=SECONDS)
            if process.returncode:
                raise RuntimeError(f"exit code {process.returncode}: {told[-400:]}")
            about = json.loads(out)
    finally:
        process.kill()
    took = time.perf_counter() - started[""]
    how: dict[str, Any] = {"device": "cpu", "dtype": "float32", "backend": "torch", **ALGORITHMS[one]}
    want = decgraph.run(one, PROMPT, max_tokens=8, temperature=temperature, **how).text
    mode, same = about.get("mode", "graph mode"), about["text"] == want
    right = same and about["device"].startswith(lab.device.type) and mode == "graph mode"
    told = f"{took:.1f} s; {about['device']}, {about['dtype']}, {mode}; text {'equal' if same else 'NOT equal'}"
    return {"right": right, "text": about["text"], "cpu": want, "says": told}


def answered(server: Any) -> Row:
    """What `decgraph serve --json` prints, with the text of one answer."""
    said = ""
    while "}" not in said:
        if not (part := server.stdout.readline()):
            raise RuntimeError(f"the server ended: {said}{server.stderr.read()[-400:]}")
        said += part
    about: Row = json.loads(said)
    body = json.dumps({"model": "decgraph", "prompt": PROMPT, "max_tokens": 8, "temperature": 0}).encode()
    post = urllib.request.Request(f"{about['url']}/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(post, timeout=SECONDS) as answer:
        return {**about, "text": json.load(answer)["choices"][0]["text"]}


def capture(lab: Lab) -> Items:
    """9. The first token of a process."""
    yield "first token, cold and warm", partial(cold, lab)


def cold(lab: Lab) -> Row:
    """Seconds of a process that gives one token: with nothing compiled, and again."""
    line, took, texts = command(lab, "speculative", "run", "speculative", "-p", PROMPT, "-n", "1", "-q"), [], []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TRITON_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder, "DECGRAPH_CACHE": folder}
        for _ in range(2 if lab.cuda else 1):
            began = time.perf_counter()
            texts.append(subprocess.run(line, env=env, capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
            took.append(f"{time.perf_counter() - began:.1f} s")
    return {"right": len(set(texts)) == 1 and bool(texts[0]), "says": ", ".join(took)}


SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "initializer_range": 0.4, "vocab_size": 512, "max_position_embeddings": 128, "pad_token_id": 1, "bos_token_id": 3,
         "eos_token_id": 0}  # fmt: skip
GEMMA: dict[str, Any] = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}
GEMMA["layer_types"] = ["sliding_attention", "full_attention"]
FAMILIES: dict[str, dict[str, Any]] = {"llama": {}, "qwen2": {}, "gpt2": {"num_key_value_heads": None}, "gemma3_text": GEMMA}
ABC = list("abcdefg")
LETTERS: Any = SimpleNamespace(  # a tokenizer of a letter a token, for programs that read text
    pieces=ABC, detokenizer=detokenizer_of(ABC), decode=detokenizer_of(ABC).text, spelled=lambda token: None,
    encode=lambda text: tuple(ABC.index(c) if c in ABC else 0 for c in text),
    token=lambda text: ABC.index(text) if text in ABC else None,
)  # fmt: skip


def tables(lab: Lab) -> Items:
    """12. Every algorithm of stdlib/ on table models, by both backends, against the reference."""
    names = stdlib.names() if lab.cuda else ["speculative", "fast_dllm"]
    for backend in ("triton", "torch"):
        yield backend, partial(counted, lab, backend, names)


def counted(lab: Lab, tried: str, names: Collection[str]) -> Row:
    """How many runs differ, how many were in graph mode, and why the others were not."""
    wrong, modes = [], Counter[str]()
    for name, told in zip(names, lab.spread(compared_tables, [(name, tried) for name in names], 145), strict=True):
        differs, ran = ([told], []) if isinstance(told, str) else told
        wrong += [f"{name}: {what}" for what in differs]
        modes.update(ran)
    graph = modes.pop("graph mode", 0)
    says = f"{len(names)} algorithms, {len(wrong)} of {2 * len(names)} runs differ from the reference"
    if tried == "triton":
        says += f"; {graph} in graph mode, {modes.total()} by the driver: "
        says += "; ".join(f"{n} {mode.removeprefix('eager mode: ')}" for mode, n in modes.most_common(3))
    return {"graph_mode": graph, "driver": dict(modes.most_common()), "wrong": wrong, "right": not wrong, "says": says}


def compared_tables(_: Lab | None, task: tuple[str, str]) -> tuple[list[str], list[str]]:
    """The runs of an algorithm by a backend that differ from the reference's, greedy and drawn, and the modes of both."""
    name, tried = task
    seed, wrong, modes = stdlib.names().index(name), list[str](), list[str]()
    algorithm = decgraph.load(name)
    models, params = models_for(algorithm.function, 7, seed), params_for(algorithm.function, seed)
    given: dict[str, Any] = {"tokenizer": LETTERS, "externs": outside(algorithm.module)["externs"], **params}
    for temperature in (0, 1):
        request = Request((1, 2, 3, 1, 2), max_tokens=10, temperature=temperature, seed=seed)
        sessions = [algorithm.session(models, backend=backend, **given) for backend in ("reference", tried)]
        made = [session.run(request, keep_events=False) for session in sessions]
        ends = [str(r.error).split(" request ")[0] for r in made]  # the line of an error; backends say why in other words
        modes.append(re.sub(r"\d+:\d+: ", "", made[1].mode))
        if made[0].tokens != made[1].tokens or ends[0] != ends[1]:
            wrong.append(f"at {temperature}: {[str(r.error) if r.error else r.tokens for r in made]}")
    return wrong, modes


def module(family: str, device: torch.device, noise: float = 0.0) -> Any:
    """A random module in float32, the same on every device; noise on its weights makes a drafter that is right at times."""
    torch.manual_seed(11)
    config = AutoConfig.for_model(family, **{**SMALL, **FAMILIES[family]})
    model = AutoModelForCausalLM.from_config(config, trust_remote_code=False).eval().requires_grad_(False)
    for p in model.parameters() if noise else ():
        p.add_(torch.randn_like(p) * noise)
    return model.to(device)


def against_generate(lab: Lab, family: str) -> Row:
    """Rows whose tokens are those of `generate`; where one differs, how near the tie was."""
    from decgraph.zoo.modeling import EagleConfig, EagleHead

    target, drafter = module(family, lab.device), module(family, lab.device, 0.02)
    shape, algorithms = "[[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]", dict[str, dict[str, Any]](prompt_lookup={"k": 4})
    algorithms |= {"speculative": {"drafter": drafter, "gamma": 3}, "sequoia": {"drafter": drafter, "shape": shape}}
    if family == "llama":
        config: Any = EagleConfig(**{**SMALL, "num_hidden_layers": 1})
        head: Any = EagleHead(config).eval()
        algorithms["eagle2"] = {"head": head.to(lab.device), "depth": 3, "k": 3, "budget": 8}
    ids = torch.randint(5, 512, (3, 9), generator=torch.Generator().manual_seed(4))
    ids[torch.arange(9) < 2 * torch.arange(3)[:, None]] = 1  # padding
    given: dict[str, Any] = {"input_ids": ids.to(lab.device), "attention_mask": (ids != 1).long().to(lab.device),
                             "do_sample": False, "max_new_tokens": 24, "eos_token_id": None}  # fmt: skip
    plain = target.generate(**given)
    found: Row = {}
    for name, parts in algorithms.items():
        custom = custom_generate(name, backend="triton", **parts)
        gaps = [gap(target, mine, theirs) for mine, theirs in zip(target.generate(**given, custom_generate=custom), plain)]
        found[name] = {"same": gaps.count(None), "gaps": [g for g in gaps if g is not None], "mode": custom.last[0].mode}
    right = all(g <= NEAR_TIE for at in found.values() for g in at["gaps"])
    told = [f"{name} {at['same']}/3 the same, {at['mode']}" for name, at in found.items()]
    return {**found, "right": right, "says": "; ".join(told)}


@torch.no_grad()
def gap(target: Any, mine: torch.Tensor, theirs: torch.Tensor) -> float | None:
    """None where two rows int64[n] are equal; else how far apart the logits of the first two tokens that differ are."""
    differ = (mine != theirs).nonzero().view(-1)
    if not len(differ):
        return None
    at = int(differ[0])
    text = theirs[int((theirs[:9] == 1).sum()) : at]
    scores = target(input_ids=text[None], use_cache=False).logits[0, -1].double()
    return float((scores[mine[at]] - scores[theirs[at]]).abs())
