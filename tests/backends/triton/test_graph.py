"""Recorded steps: whatever is done with a graph (folding, cutting into regions, printing and importing the text), it does what
the function did that it was recorded from, run after run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.devices.cubins import reports
from quick import examples
from torch import Tensor, fx

import decgraph
from decgraph.backends.triton import emit, replay
from decgraph.backends.triton import program as program_file
from decgraph.backends.triton.bodies import Bodies
from decgraph.backends.triton.graph import Graph, traced
from decgraph.backends.triton.kernels import truncate  # which registers its operation
from decgraph.backends.triton.listing import begun, graphs_of
from decgraph.backends.triton.program import Program
from decgraph.backends.triton.regions import cut, inductor, regions, written
from decgraph.backends.triton.state import Step
from decgraph.check.worlds import models_for, params_for
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

Run = Callable[[], Any]


def imported(made: Graph, folder: Path, step: Any = None) -> Run:
    """The printed text as a module: its step over the graph's tensors, without the constants that stand in the text."""
    file = folder / "printed.py"
    file.write_text(emit.text(made, "printed", step), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("printed", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.constants("cpu")
    given_ = {k: v for k, v in made.tensors.items() if k not in written}
    return torch.no_grad()(lambda: module.step(given_))


def functional(module: Any, given_: list[Any]) -> Any:
    """What a compiler makes of a region first: a function without effects, which knows nothing of shared memory, and copies of
    what it changed at the end."""
    from torch._dynamo.backends.debugging import aot_eager
    from torch._inductor.compile_fx import graph_returns_tuple, make_graph_return_tuple

    with torch.no_grad():
        return aot_eager(module, given_) if graph_returns_tuple(module) else make_graph_return_tuple(module, given_, aot_eager)


def forms(made: Graph, folder: Path) -> dict[str, Run]:
    """Everything that runs a graph."""
    cut = regions(made, functional)
    return {"graph": made, "regions": torch.no_grad()(lambda: cut(*made.tensors.values())), "text": imported(made, folder)}


# -- any program over buffers
CONSTANT = torch.arange(12).reshape(3, 4)
OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * (b % 3),
    "where": lambda a, b: torch.where(a > b, a, 7),
    "transposed": lambda a, b: a.t().reshape(3, 4),
    "sum": lambda a, b: a.sum(1, keepdim=True) % 100 + b,
    "sort": lambda a, b: torch.sort(a, 1)[0],
    "gather": lambda a, b: a.gather(1, b % 4),
    "not": lambda a, b: ~a & b,
    "constant": lambda a, b: (CONSTANT * 2 + 1) % 5,
    "fresh": lambda a, b: torch.zeros_like(a).add_(b),
    "max": lambda a, b: a.amax(0) + b,
    "clone": lambda a, b: a.clone(),
}
EFFECTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "copy_": lambda a, b: a.copy_(b % 1000),
    "add_": lambda a, b: a.add_(1),
    "row": lambda a, b: a[1].copy_(b[0] % 1000),
    "scatter_": lambda a, b: a.scatter_(1, torch.arange(3, -1, -1).expand(3, 4), b % 9),
    "column": lambda a, b: a[:, 2].mul_(-1),
    "shared": lambda a, b: a.copy_(CONSTANT),
}
NAMES = sorted(OPS) + sorted(EFFECTS) * 2
LINES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=14)


def program(lines: Sequence[tuple[str, int, int]], buffers: list[Tensor]) -> Run:
    """A function that does what the lines say: operations of earlier values, writes to buffers and to views of them."""

    def run() -> Tensor:
        values = [*buffers, CONSTANT]
        for name, x, y in lines:
            if name in OPS:
                values.append(OPS[name](values[x % len(values)], values[y % len(values)]))
            else:
                EFFECTS[name](buffers[x % len(buffers)], values[y % len(values)])
        return values[-1].clone()

    return run


def plain(*constants: Tensor) -> Any:
    """What stands for a step that has nothing but constants."""
    return SimpleNamespace(constants=lambda: constants, caches={}, op=None)


@settings(max_examples=examples(60), deadline=None)
@given(LINES)
def test_any_program(lines: list[tuple[str, int, int]]) -> None:
    """Reads before and after a write, views, results in place, constants, values that are computed twice."""
    import tempfile

    def begin() -> list[Tensor]:
        return [torch.arange(12).reshape(3, 4) * k % 7 for k in (1, 5)]

    direct = begin()
    run = program(lines, direct)
    want = [(run(), [b.clone() for b in direct]) for _ in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("graph", "regions", "text"):
            buffers = begin()
            made = traced(program(lines, buffers), plain(CONSTANT), {"b": buffers})
            run = forms(made, Path(folder))[name]
            for result, after in want[1:]:
                assert torch.equal(run(), result), name
                assert all(torch.equal(a, b) for a, b in zip(buffers, after, strict=True)), name
    assert torch.equal(CONSTANT, torch.arange(12).reshape(3, 4))


def test_what_follows_from_constants_is_computed_once_and_what_is_written_is_not() -> None:
    x, one, two = torch.zeros(3), torch.arange(3.0), torch.ones(3)

    def run() -> Tensor:
        table = torch.softmax(one * 2, 0).cumsum(0)
        two.add_(1)
        fresh = torch.zeros(3).add_(one)
        x.add_(table * two + fresh)
        return (x * one + x * one).sum()

    made = traced(run, plain(one, two), {"x": x, "two": two})
    names = [str(n.target) for n in made.nodes()]
    assert not [n for n in names if "softmax" in n or "cumsum" in n]
    assert sum("mul" in n for n in names) == 2, "the same product is computed once"
    assert "x" in made.tensors and two.tolist() == [2.0] * 3
    made()
    assert two.tolist() == [3.0] * 3


# -- steps of programs
def running(session: Session, requests: Sequence[Request]) -> Step:
    """The step of a session's program after an iteration, with a lane for every request."""
    made = begun([session.begin(r).machine for r in requests], max(len(r.prompt) + int(r.max_tokens) for r in requests))
    made.run()
    return made.step


def stepping(name: str) -> tuple[Step, list[Request], list[Any]]:
    """A step of an algorithm on table models, greedy and sampled; and what the reference commits."""
    algorithm = decgraph.load(name)
    models, params = models_for(algorithm.function, 7, 3), params_for(algorithm.function, 3)
    requests = [Request((1, 2, 3, 1, 2), max_tokens=9, temperature=t, seed=5, request_id=t) for t in (0, 1)]
    reference, steps = (algorithm.session(models, backend=b, **params) for b in ("reference", "triton"))
    return running(steps, requests), requests, [reference.run(r, keep_events=False).tokens for r in requests]


@pytest.mark.budget(14)
@pytest.mark.parametrize("form", ["graph", "regions", "text"])
@pytest.mark.parametrize("name", ["autoregressive", "speculative", "sequoia"])
def test_a_recorded_step_commits_what_the_program_commits(name: str, form: str, tmp_path: Path) -> None:
    step, requests, want = stepping(name)
    made = traced(step.body, step)
    run = forms(made, tmp_path)[form]
    for _ in range(12):
        if bool((step.done | step.lost).all()):
            break
        run()
    got = [tuple(step.tokens[b, 5 : int(step.length[b])].tolist()) for b in range(len(requests))]
    assert got == want and not step.lost.any()


def as_on_cuda(name: str, capability: int = 90) -> tuple[Graph, Any]:
    """The step of an algorithm on the shipped models as it runs on CUDA, and cut into regions."""
    algorithm = decgraph.load(name)
    session = algorithm.session(device="cpu", dtype="float32", backend="triton")
    given = session.module, session.function.name, session.models, session.params
    ((_, made),) = graphs_of(*given)
    return made, cut(made, capability)


def test_the_text_has_the_lines_of_the_program_and_the_kernels() -> None:
    step, _, _ = stepping("speculative")
    text = emit.text(traced(step.body, step), "speculative")
    source = Path(decgraph.load("speculative").module.functions["speculative"].loc.path)
    lines = source.read_text(encoding="utf-8").splitlines()
    found = re.findall(r"^    # speculative\.dec:(\d+)  (.+)$", text, re.M)
    assert len({n for n, _ in found}) > 3 and all(lines[int(n) - 1].strip() == said for n, said in found)
    assert "def race_kernel(" in text and "decgraph.draw" in text


@pytest.mark.budget(14)
def test_the_text_of_a_step_as_it_runs_on_a_gpu() -> None:
    """Inductor's Triton, without a GPU: every launch in it is in the table, with its lines; layers share their regions."""
    made, step = as_on_cuda("autoregressive")
    data = json.loads(json.dumps(emit.as_json(made, "autoregressive", step)))
    text, rows, totals = data["text"], data["launches"], data["totals"]["launches"]
    compile(text, "printed", "exec")
    assert f"# {sum(totals.values())} launches: " in text and totals.keys() == {"fused", "kernel", "product"}
    assert sum(row["count"] for row in rows) == sum(totals.values())
    size = sum(p.numel() * p.element_size() for p in made.tensors.values() if p.ndim == 2 and p.dtype == torch.float32)
    assert 0.5 * size < data["totals"]["bytes"]["weights"] <= size
    assert all(row["where"] and row["where"][0].startswith("autoregressive.dec:") for row in rows)
    layers = [row["names"] for row in rows].count(["attend"])
    assert layers > 2 and len(re.findall(r"^def region_", text, re.M)) < 2 * layers < text.count("region_3(") + 2 * layers
    launched = re.findall(r"^ +(triton_\w+)\.run\(", text, re.M)
    assert launched and set(launched) == set(re.findall(r"^def (triton_\w+)\(", text, re.M))
    assert "tl.extra.cuda.gdc_wait()" in text, "the next kernel begins before this one ends"
    assert data["tensors"]["tokens"].startswith("int64[1, ")


@pytest.mark.nightly
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", ["speculative", "fast_dllm"])
def test_inductors_kernels_compile_for_a_gpu(name: str, capability: int) -> None:
    made, step = as_on_cuda(name, capability)
    text = emit.text(made, name, step)
    assert ("gdc_wait" in text) is (capability == 90)
    found = reports(text)
    assert len(found) == len(re.findall(r"^def triton_\w+\(", text, re.M)) and {r.arch for r in found} == {capability}
    bodies = dict(re.findall(r"^def (triton_\w+)\((.*?)(?=^\S)", text, re.M | re.S))
    turns = {name for name, body in bodies.items() if "sin(" in body}  # of a large angle by eight words of memory
    assert turns and not [r for r in found if r.spills > 32 * (r.function in turns) or not r.registers]


# -- launches
def test_launches_of_small_functions() -> None:
    """On a GPU; one text of Inductor's a function."""
    x, w, v, ones = torch.randn(4, 64), torch.randn(64, 64), torch.randn(64), torch.ones(4).long()

    def norm(a: Tensor) -> Tensor:
        return a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-6) * v

    def shortened(a: Tensor) -> Tensor:
        return truncate.truncate(a, ones, x[:, 0], x[:, 1])  # type: ignore[no-any-return]

    for run, kinds in (
        (lambda: (x * 2 + 1).relu() * v, ["fused"]),
        (lambda: norm(x) @ w, ["fused", "product"]),
        (lambda: norm(x + norm(x @ w) @ w), ["product", "fused", "product", "fused"]),
        (lambda: torch.softmax(x @ w, -1).argmax(-1), ["product", "fused"]),
        (lambda: x.t().reshape(4, 64)[:2] * 2, ["fused"]),
        (lambda: torch.sort(x * 2, -1)[0] + 1, ["fused", "sort", "fused"]),
        (lambda: shortened(torch.softmax(x, -1)), ["fused", "kernel"]),
        (lambda: (x.add_(1), v.mul_(2))[0], ["fused", "fused"]),
    ):
        found = emit.launches(traced(run, plain(ones), {"x": x, "w": w, "v": v}))
        assert [row.kind for row in found] == kinds, emit.table(found)
        assert emit.totals(found)[0]["kernel"] == (3 if "kernel" in kinds else 0)


# -- replays
def played(monkeypatch: pytest.MonkeyPatch, run: Run, compiled: Any, log: list[str]) -> replay.Replayed:
    """On a device that is played: what is captured is run by its replay."""
    monkeypatch.setattr(replay, "aside", lambda run, device: (log.append("aside"), run()))
    monkeypatch.setattr(replay, "captured", lambda run, device: (log.append("captured"), run)[1])
    monkeypatch.setattr(replay, "inductor", compiled)
    return replay.Replayed(run, None, torch.device("cuda"))


def test_a_graph_is_replayed_as_it_is_until_its_regions_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(3)
    go, log = threading.Event(), []

    def compiled(module: Any, given_: Any) -> Any:
        go.wait(30)
        log.append("compiled")
        return type(module).forward.__get__(module)

    replayed = played(monkeypatch, lambda: x.add_(1).clone(), compiled, log)
    modes, outs = [], [replayed.out]
    for _ in range(3):
        replayed()
        modes.append(replayed.mode)
        outs.append(replayed.out)
    go.set()
    while replayed._compiled is None and replayed.failed is None:
        pass
    for _ in range(2):
        replayed()
        modes.append(replayed.mode)
        outs.append(replayed.out)
    assert modes == ["graph", "graph", "graph", "compiled", "compiled"] and x.tolist() == [6.0] * 3
    assert [float(out[0]) for out in outs] == [1, 2, 3, 4, 5, 6], "what a step gives is its own, whatever runs it"
    assert log == ["aside", "captured", "compiled", "aside", "captured"] and replayed.failed is None


def test_steps_go_on_where_nothing_can_be_compiled(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.zeros(3)

    def compiled(module: Any, given_: Any) -> Any:
        raise RuntimeError("no compiler")

    every = [played(monkeypatch, lambda: x.add_(1), compiled, []) for _ in range(2)]
    for replayed in every:
        while replayed.failed is None:
            pass
        replayed()
        replayed()
        assert str(replayed.failed) == "no compiler" and replayed.mode == "graph"
    assert x.tolist() == [6.0] * 3 and caplog.text.count("no compiler") == 1
    monkeypatch.setenv("DECGRAPH_COMPILE", "0")
    monkeypatch.setattr(threading.Thread, "start", None)
    played(monkeypatch, lambda: x.add_(1), compiled, [])()
    near = replay.Replayed(lambda: x.add_(1), None, torch.device("cpu"))
    near()
    assert x.tolist() == [10.0] * 3 and near.mode == "eager"


@pytest.mark.slow
@pytest.mark.budget(20)
@pytest.mark.parametrize("wait", [0, 1.5])
def test_a_process_may_end_while_regions_are_compiled(wait: float) -> None:
    program = f"""
import time, torch
from decgraph.backends.triton import replay
replay.aside = lambda run, device: run()
replay.captured = lambda run, device: run
x = torch.zeros(3)
steps = replay.Replayed(lambda: x.add_(torch.sort(x)[0].sin() * 2), None, torch.device("cuda"))
steps()
time.sleep({wait})
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr


@pytest.mark.budget(14)
def test_kernels_by_hand_in_a_recorded_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, where their torch forms run; the tokens of the model without them."""
    from decgraph.backends.triton.models import decoder

    monkeypatch.setattr(decoder, "uses_kernels", lambda _: True)
    plain, session = (
        decgraph.load("autoregressive").session(device="cpu", dtype="float32", backend=b) for b in ("torch", "triton")
    )
    request = decgraph.models.request_for(session, prompt="def main():", max_tokens=6)
    step = running(session, [request])
    made = traced(step.body, step)
    while not bool(step.done):
        made()
    assert tuple(step.tokens[0, len(request.prompt) : int(step.length[0])].tolist()) == plain.run(request).tokens
    kernels = [str(n.target) for n in made.nodes() if emit.by_hand(n)]
    assert len(kernels) == session.models["target"].layers + 1


def test_regions_that_differ_are_compiled_apart() -> None:
    """Those that are as long, over as many numbers; what is the same is compiled once."""
    x, w = torch.randn(4, 4), torch.randn(4, 4)

    def run() -> Tensor:
        y = x
        for f in (torch.sin, torch.cos, torch.sin):
            y = torch.mm(f(y) + 1, w)
        return y

    compiled: list[fx.GraphModule] = []
    made = regions(traced(run, None, {"x": x, "w": w}), lambda module, _: compiled.append(module) or module.forward)
    assert len(compiled) == 2
    torch.testing.assert_close(made(x, w), run())


# -- Inductor's C++, which stands for its Triton
KINDS: dict[str, dict[str, Any]] = {
    "autoregressive": {}, "speculative": {"gamma": 1}, "sequoia": {"shape": "[[0], [1], [0, 0]]"},
    "eagle2": {"depth": 2, "k": 2, "budget": 3}, "fast_dllm": {"length": 8, "block": 4},
}  # fmt: skip
"""Programs of every kind: a chain, drafts and verification, a tree of a given form, one of a given size, a canvas. Small ones,
since a compiler of C++ takes seconds for each region."""


class Compiled:
    """A recorded step or body whose regions Inductor compiled, on a CPU: what `Replayed` is in the end on a device."""

    count = 0

    def __init__(self, run: Run, step: Step) -> None:
        self.graph = traced(run, step)
        self.out, self.cut = self.graph.first, regions(self.graph, inductor)

    @torch.no_grad()
    def __call__(self) -> None:
        Compiled.count += 1
        self.out = self.cut(*self.graph.tensors.values())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if n else pytest.mark.slow) for n, name in enumerate(KINDS)]
)
def test_compiled_regions_commit_what_the_program_commits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy and drawn, in place on the buffers."""

    def begun_(self: Program, *given: Any) -> None:
        made(self, *given)
        self.records = not self.loops
        self.step.bodies = Bodies(self.step, Compiled) if self.loops else None

    made = Program.__init__
    monkeypatch.setattr(Program, "__init__", begun_)
    monkeypatch.setattr(program_file, "Replayed", lambda run, step, device: Compiled(run, step))
    Compiled.count = 0
    algorithm = decgraph.load(name)
    models, params = models_for(algorithm.function, 7, 3), params_for(algorithm.function, 3) | KINDS[name]
    requests = [Request((1, 2, 3, 1, 2), max_tokens=12, temperature=t, seed=5, request_id=t) for t in (0, 1)]
    reference, steps = (algorithm.session(models, backend=b, **params) for b in ("reference", "triton"))
    got = steps.generate(requests, batch=2)
    assert [g.tokens for g in got] == [reference.run(r, keep_events=False).tokens for r in requests]
    assert {g.mode for g in got} == {"graph mode"} and Compiled.count > 2


@pytest.mark.slow
@pytest.mark.budget(60)
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """Of what the first one left in the user's cache."""
    program = """
import torch
from torch._dynamo.utils import counters
from decgraph.backends.triton.graph import traced
from decgraph.backends.triton.regions import inductor, regions
x, w = torch.zeros(3, 4), torch.ones(4, 4)
made = traced(lambda: x.add_((x.sin() @ w).cos().sum(-1, keepdim=True)), None, {"x": x, "w": w})
cut = regions(made, inductor)
with torch.no_grad():
    cut(*made.tensors.values())
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"], float(x.sum()))
"""
    env = {k: v for k, v in os.environ.items() if "INDUCTOR" not in k} | {"DECGRAPH_CACHE": str(tmp_path)}
    ran = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=env) for _ in range(2)
    ]
    first, second = (r.stdout.split() for r in ran)
    assert first[:2] == ["2", "0"] and second[:2] == ["0", "2"] and first[2] == second[2], [r.stderr[-2000:] for r in ran]
    assert (tmp_path / "inductor").is_dir()


@pytest.mark.slow
@pytest.mark.budget(60)
def test_the_text_with_what_inductor_writes_does_the_same(tmp_path: Path) -> None:
    """In C++, on a CPU."""
    step, requests, want = stepping("autoregressive")
    made = traced(step.body, step)
    run = imported(made, tmp_path, regions(made, written))
    for _ in range(8):
        run()
    assert [tuple(step.tokens[b, 5 : int(step.length[b])].tolist()) for b in range(len(requests))] == want
