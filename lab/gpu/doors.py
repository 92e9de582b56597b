"""`decgraph run` and `decgraph serve` as a person types them, each in a process; and what captured steps must bear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from functools import partial
from typing import Any

import torch

import decgraph
from decgraph.runtime.request import Request
from lab.gpu.first import ROOT, Items, Row
from lab.gpu.lab import Lab

PROMPT, SECONDS = "def f(x):", 110
EAGLE = {"depth": 3, "k": 4, "budget": 12}
ALGORITHMS: dict[str, dict[str, Any]] = {"speculative": {}, "eagle2": EAGLE, "fast_dllm": {"length": 16, "block": 8}}
START = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lab.gpu.first; from decgraph.cli.main import main; sys.exit(main())"
)


def stage(lab: Lab) -> Items:
    """2. `decgraph run` and `decgraph serve`: device, dtype, mode, and the tokens of the CPU."""
    started: dict[str, Any] = {}
    for name in (*some(lab), "serve"):
        yield name, partial(door, lab, name, started)


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
    want = decgraph.run(one, PROMPT, limit=8, temperature=temperature, **how).text
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
    """7. Another thread that allocates, lanes of two temperatures that are refilled, and the first token."""
    yield "another thread allocates", partial(beside, lab)
    asked = [Request((5 + n, 9, 11), limit=4 + 3 * n, temperature=0.8 * (n % 2), seed=3, request_id=n) for n in range(5)]
    yield "5 requests, 2 lanes, 2 temperatures", partial(compared, lab, ["speculative"], asked, batch=2)
    yield "first token, cold and warm", partial(cold, lab)


def compared(lab: Lab, names: list[str], requests: list[Any], **given: Any) -> Row:
    """Where algorithms on the shipped models have other tokens on the device than on the CPU, or no step."""
    wrong = []
    for name in names:
        how, both = {"dtype": "float32", **ALGORITHMS[name]}, []
        for device, backend in (("cpu", "torch"), (lab.device.type, "triton")):
            session = decgraph.load(name).session(device=device, backend=backend, **how)
            both.append(session.generate(requests, **given))
        for here, there in zip(*both, strict=True):
            if here.tokens != there.tokens or there.mode != "graph mode":
                wrong.append(f"{name}: {there.error or there.tokens} for {here.tokens}, {there.mode}")
    return {"right": not wrong, "says": "equal, in graph mode" if not wrong else "; ".join(wrong)}


def beside(lab: Lab) -> Row:
    """Capture is local to its thread: another one allocates and frees memory of the device."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.001):
            torch.zeros(1 << 16, device=lab.device).sum().item()

    threading.Thread(target=work, daemon=True).start()
    try:
        return compared(lab, some(lab), [PROMPT], limit=8, temperature=0.8, seed=3)
    finally:
        ended.set()


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
