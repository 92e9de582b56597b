"""Decoding steps of a large random model over their floors: as a CUDA graph of torch's kernels, and compiled where graph.py has
that. A floor is what reading weights, keys and values takes at the bandwidth of a copy."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any, NamedTuple

import torch

import decgraph
from decgraph.backends.triton import capture, graph
from decgraph.backends.triton.listing import begun
from decgraph.backends.triton.program import Program
from decgraph.backends.triton.run import DeviceRun
from decgraph.bench.contenders import params_for, request_of, run, session_on
from decgraph.bench.prompts import of_ids
from lab.gpu.first import Items, Row
from lab.gpu.lab import Lab, Work


class Case(NamedTuple):
    """An algorithm whose step is timed. drafts: forwards of the drafter in a step; tokens: that a step may commit, at most."""

    algorithm: str
    params: dict[str, Any]
    drafts: int = 0
    tokens: int = 1
    sampled: bool = False
    batch: int = 1


CASES = {
    "autoregressive": Case("autoregressive", {}),
    "draft 4 and verify": Case("speculative", {"gamma": 4}, 4, 5),
    "64 nodes, no drafter": Case("token_recycling", {"shape": "table_64", "k": 8}, 0, 8),
    "eagle2, 60 nodes": Case("eagle2", {"depth": 6, "k": 10, "budget": 59}, 0, 7),
    "autoregressive, sampled": Case("autoregressive", {}, sampled=True),
    "autoregressive, 8 at a time": Case("autoregressive", {}, batch=8),
}


def stage(lab: Lab) -> Items:
    """5. Causal steps, then canvases of a model of LLaDA's shape."""
    for name, case in CASES.items():
        if lab.cuda or case.algorithm in ("autoregressive", "speculative") and case.batch == 1:
            yield name, partial(timed, lab, case)
    yield "fast_dllm", partial(canvas, lab)


def prepared(lab: Lab, case: Case) -> Program:
    """The program of a case, its lanes at the end of their prompts."""
    made, algorithm = lab.weights(), decgraph.load(case.algorithm)
    session = session_on(algorithm, made, params_for(algorithm, case.params), "triton")
    limit = 12 * lab.sizes.steps * case.tokens  # more than the timed steps can commit
    prompts = of_ids(made.size, case.batch, lab.sizes.prompt)
    asked = (request_of(prompt, limit, sampled=case.sampled, number=n) for n, prompt in enumerate(prompts))
    machines = [session.begin(request).machine for request in asked]
    return begun([m for m in machines if isinstance(m, DeviceRun)], lab.sizes.prompt + limit)


def replayed(work: Work, device: torch.device) -> Work:
    """A step as a CUDA graph; on a CPU, as it is."""
    if device.type != "cuda":
        return work
    capture.aside(work, device)
    return capture.captured(work, device)


@torch.no_grad()
def timed(lab: Lab, case: Case) -> Row:
    """Milliseconds of a step over the floor, each way that it runs; and a profile of the last."""
    gc.collect()  # what an earlier case had
    began = time.perf_counter()
    program, made, count = prepared(lab, case), lab.weights(), lab.sizes.steps
    step, cells = program.step, lab.sizes.prompt + count * case.tokens
    floor = lab.floor(made.target, case.batch * cells) + case.drafts * lab.floor(made.drafter, case.batch * cells)
    if case.algorithm == "eagle2":
        floor += case.params["depth"] * (lab.floor(made.parts["features"]) + lab.floor(made.target.lm_head))
    ready = time.perf_counter() - began
    row: Row = {**case._asdict(), "floor_ms": floor, "agreement": lab.agreement, "ready_s": ready}
    traced = graph.traced(program.body, step)  # one more step
    inductor: Any = graph.inductor if lab.cuda else lambda made, _: made.forward
    ways: dict[str, Any] = {
        "host": lambda: program.body,
        "graph": lambda: replayed(traced, step.device),
        "compiled": lambda: replayed(partial(graph.regions(traced, inductor), *traced.tensors.values()), step.device),
    }
    last, told = program.body, list[str]()
    for how, make in ways.items():
        began = time.perf_counter()
        try:
            last = make()
            ready, before = time.perf_counter() - began, (int(step.length.sum()), int(step.iteration.sum()))
            ms = 1000 * lab.seconds(last, 3 if lab.cuda else 1, 1, count)
        except Exception as error:  # then it runs as before
            row[how] = f"{type(error).__name__}: {error}"[:400]
            continue
        each = (int(step.length.sum()) - before[0]) / max(int(step.iteration.sum()) - before[1], 1)
        row[how] = {"ms": ms, "over_floor": ms / floor, "tokens_per_step": each, "ready_s": ready}
        told.append(f"{how} {ms:.2f} ms = {ms / floor:.2f} floors")
    row["profile"] = lab.profiled(lambda: [last() for _ in range(2)])
    right = not bool((step.lost | step.done).any()) and isinstance(row["graph"], dict) and isinstance(row["compiled"], dict)
    return {**row, "right": right, "says": f"{'; '.join(told)}; floor {floor:.2f} ms"}


def canvas(lab: Lab) -> Row:
    """fast_dllm with its dual cache: milliseconds a call of the model, of which one a block computes the whole canvas."""
    sizes, model = lab.sizes, lab.masked()
    session = decgraph.load("fast_dllm").session({"model": model}, backend="triton", length=sizes.canvas, block=sizes.block)
    (prompt,) = of_ids(sizes.masked["vocab_size"] - 1, 1, sizes.before)
    request = request_of(prompt, sizes.canvas)
    first = lab.seconds(lambda: run(session, request), 1, 0)
    result = run(session, request)
    calls, floor = result.stats.target_calls, lab.floor(model.net.base, sizes.before + sizes.canvas)
    ms = 1000 * lab.seconds(lambda: run(session, request), 2 if lab.cuda else 1, 0) / calls
    row = {"first_s": first, "calls": calls, "ms": ms, "floor_ms": floor, "over_floor": ms / floor, "mode": result.mode}
    profile, right = lab.profiled(lambda: run(session, request)), result.mode == "graph mode"
    says = f"{ms:.2f} ms a call = {ms / floor:.2f} floors; {calls} calls; {result.mode}"
    return {**row, "profile": profile, "right": right, "says": says}
