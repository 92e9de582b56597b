"""`decgraph run` and `decgraph serve` as a person types them, each in a process; on a GPU all at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from typing import Any

from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row
from lab.gpu.run import ROOT

PROMPT = "def f(x):"
ALGORITHMS: dict[str, dict[str, Any]] = {
    "speculative": {},
    "eagle2": {"depth": 3, "k": 4, "budget": 12},
    "fast_dllm": {"length": 16, "block": 8},
}
SERVE = "serve"
SECONDS = 100


def stage(lab: Lab) -> Items:
    """`decgraph run` with --json and a server: device, dtype, mode, and the tokens of the CPU."""
    started: dict[str, Any] = {}
    names = list(ALGORITHMS) if lab.cuda else ["speculative"]
    for name in (*names, SERVE):
        yield name if name == SERVE else f"run {name}", partial(door, lab, name, names, started)


def command(name: str, device: str, *more: str) -> list[str]:
    """A command of decgraph in this checkout."""
    given = [word for k, v in ALGORITHMS[name].items() for word in (f"--{k}", str(v))]
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lab.gpu.run import from_checkout; from_checkout(); "
    start += "from decgraph.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", start, *more, *given, "--device", device, "--dtype", "float32"]


def run_of(lab: Lab, name: str, limit: int, *more: str) -> list[str]:
    """`decgraph run` of an algorithm by backend triton."""
    return command(name, lab.device.type, "run", name, "-p", PROMPT, "-n", str(limit), "--backend", "triton", *more)


def limit_of(lab: Lab) -> int:
    """How many tokens are asked for."""
    return 12 if lab.cuda else 3


def door(lab: Lab, name: str, names: list[str], started: dict[str, Any]) -> Row:
    """What one of the processes gives; the first call starts all of them."""
    if not started:
        began = time.perf_counter()
        lines = {one: run_of(lab, one, limit_of(lab), "-t", "0.8", "--json") for one in names}
        lines[SERVE] = command("speculative", lab.device.type, "serve", "-a", "speculative", "--port", "0", "--json")
        for one, line in lines.items():
            started[one] = began, subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    began, process = started[name]
    try:
        row = served(lab, process) if name == SERVE else ran(lab, name, process)
    finally:
        process.kill()
        process.wait(30)
    took = time.perf_counter() - began
    return {**row, "wall_s": round(took, 1), "says": f"{took:.1f} s; {row['says']}"}


def plain(lab: Lab, name: str, temperature: float) -> Any:
    """The same on the CPU by backend torch."""
    import decgraph

    how: dict[str, Any] = {"device": "cpu", "dtype": "float32", "backend": "torch"}
    return decgraph.run(name, PROMPT, limit=limit_of(lab), temperature=temperature, **how, **ALGORITHMS[name])


def ran(lab: Lab, name: str, process: Any) -> Row:
    """`decgraph run --json`."""
    out, told = process.communicate(timeout=SECONDS)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {told[-400:]}")
    got, want = json.loads(out), plain(lab, name, 0.8)
    same = list(got["tokens"]) == list(want.tokens)
    right = same and got["device"].startswith(lab.device.type) and got["mode"] == "graph mode"
    return {
        "right": right, "cpu": list(want.tokens), "tokens": got["tokens"], "mode": got["mode"], "stderr": told[-2000:],
        "says": f"{got['device']}, {got['dtype']}, {got['mode']}; tokens {'equal' if same else 'NOT equal'}",
    }  # fmt: skip


def served(lab: Lab, process: Any) -> Row:
    """One answer of `decgraph serve`, and what it says of the device."""
    said = ""
    while "}" not in said:
        part = process.stdout.readline()
        if not part:
            raise RuntimeError(f"the server ended: {said}{process.stderr.read()[-400:]}")
        said += part
    about = json.loads(said)
    body = {"model": "decgraph", "prompt": PROMPT, "max_tokens": limit_of(lab), "temperature": 0}
    post = urllib.request.Request(
        f"{about['url']}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(post, timeout=SECONDS) as answer:
        text = json.load(answer)["choices"][0]["text"]
    want = plain(lab, "speculative", 0).text
    right = text == want and about["device"].startswith(lab.device.type)
    return {"right": right, "text": text, "cpu": want, "says": f"{about['device']}, {about['dtype']}: {text!r}"}


def cold(lab: Lab) -> Row:
    """Seconds of a process that gives one token: with nothing compiled, and again."""
    line = run_of(lab, "speculative", 1, "-q")
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TRITON_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder, "DECGRAPH_CACHE": folder}
        took, texts = [], []
        for _ in range(2 if lab.cuda else 1):
            began = time.perf_counter()
            texts.append(subprocess.run(line, env=env, capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
            took.append(round(time.perf_counter() - began, 1))
    return {"right": len(set(texts)) == 1 and bool(texts[0]), "seconds": took, "says": ", ".join(f"{s} s" for s in took)}
