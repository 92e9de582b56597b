"""Decoding steps of a large random model over their floors: as a CUDA graph of torch's kernels, and compiled where graph.py has
that. A floor is what reading weights, keys and values takes at the bandwidth of a copy."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import decgraph
from decgraph.backends.triton import program as programs
from decgraph.bench.contenders import params_for, request_of, run, session_on
from decgraph.bench.prompts import of_ids
from lab.gpu.lab import Lab, Work
from lab.gpu.report import Items, Row


@dataclass(frozen=True)
class Case:
    """An algorithm whose step is timed. drafts: forwards of the drafter in a step; tokens: that a step may commit, at most."""

    name: str
    algorithm: str
    params: dict[str, Any] = field(default_factory=dict)
    drafts: int = 0
    tokens: int = 1
    sampled: bool = False
    batch: int = 1


CASES = [
    Case("autoregressive", "autoregressive"),
    Case("draft 4 and verify", "speculative", {"gamma": 4}, 4, 5),
    Case("64 nodes, no drafter", "token_recycling", {"shape": "table_64", "k": 8}, 0, 8),  # else a table's rows only
    Case("eagle2, 60 nodes", "eagle2", {"depth": 6, "k": 10, "budget": 59}, 0, 7),
    Case("autoregressive, sampled", "autoregressive", sampled=True),
    Case("autoregressive, 8 at a time", "autoregressive", batch=8),
]


def stage(lab: Lab) -> Items:
    """Causal steps, then canvases of a model of LLaDA's shape."""
    yield "models of this size", lab.building
    for case in CASES if lab.cuda else CASES[:2]:
        yield case.name, partial(timed, lab, case)
    yield "fast_dllm", partial(canvas, lab)


def prepared(lab: Lab, case: Case) -> programs.Program:
    """The program of a case, its lanes in the middle of their texts."""
    made, algorithm = lab.weights(), decgraph.load(case.algorithm)
    few = {"shape": "table_6"} if "shape" in case.params and not lab.cuda else {}
    session = session_on(algorithm, made, params_for(algorithm, {**case.params, **few}), "triton")
    limit = 8 * lab.sizes.steps * case.tokens  # more than the timed steps can commit
    jobs = []
    for n, prompt in enumerate(of_ids(made.size, case.batch, lab.sizes.prompt)):
        machine = session._start(request_of(prompt, limit, sampled=case.sampled, number=n), None, False).machine
        jobs.append(programs.Job(n, machine, *programs.wants(machine)))
    program = programs.Program(jobs[0], jobs[0].features, case.batch, lab.sizes.prompt + limit)
    for job in jobs:
        program.admit(job)
    program.fill(None)
    return program


def compiled(program: programs.Program) -> tuple[Work, Work]:
    """The step with its regions compiled: run by the host, and as it is captured. Raises ImportError where there is no graph.py."""
    from decgraph.backends.triton import graph  # type: ignore[attr-defined, unused-ignore]

    traced = graph.traced(program._body, program.step)
    made = graph.regions(traced, graph.inductor)
    by_hand = partial(made, *traced.tensors.values())
    return by_hand, lambda: graph.captured(by_hand, program.step.device)


@torch.no_grad()
def timed(lab: Lab, case: Case) -> Row:
    """Milliseconds of a step, over the floor, each way; and a profile of the last."""
    lab.tidy()  # what an earlier case had
    began = time.perf_counter()
    program = prepared(lab, case)
    step, count = program.step, lab.sizes.steps
    row: Row = {"params": case.params, "batch": case.batch, "ready_s": round(time.perf_counter() - began, 1)}
    cells = lab.sizes.prompt + count * case.tokens // 2
    made = lab.weights()
    floor = lab.floor(made.target, case.batch * cells) + case.drafts * lab.floor(made.drafter, case.batch * cells)
    if case.algorithm == "eagle2":
        floor += case.params["depth"] * (lab.floor(made.parts["features"]) + lab.floor(made.target.lm_head))
    row["floor_ms"], best = floor, program._body

    def measured(how: str, work: Work) -> None:
        before, iterations = int(step.length.sum()), int(step.iteration.sum())
        took = lab.seconds(lambda: [work() for _ in range(count)], 3 if lab.cuda else 1, 1)
        each = (int(step.length.sum()) - before) / max(int(step.iteration.sum()) - iterations, 1)
        over = 1000 * took.median / count / floor
        row[how] = {"ms": 1000 * took.median / count, "over_floor": round(over, 3), "tokens_per_step": round(each, 3)}

    measured("by the host", program._body)
    if lab.cuda:
        step.recording = True
        best = programs.captured(program._body, step.device)
        step.recording = False
        measured("graph", best)
    try:
        began = time.perf_counter()
        by_hand, captured = compiled(program)
        by_hand()
        best = captured() if lab.cuda else by_hand
        row["compiling_s"] = round(time.perf_counter() - began, 1)
        measured("compiled", best)
    except Exception as error:  # the graph is what runs then
        row["not_compiled"] = f"{type(error).__name__}: {error}"[:300]
    row["profile"] = lab.profiled(lambda: [best() for _ in range(2)])
    over = not bool(step.lost.any()) and not bool(step.done.any())
    told = [
        f"{how} {at['ms']:.2f} ms = {at['over_floor']:.2f} floors"
        for how, at in row.items()
        if isinstance(at, dict) and "ms" in at
    ]
    return {**row, "right": over, "says": f"{'; '.join(told)}; floor {floor:.2f} ms"}


def canvas(lab: Lab) -> Row:
    """fast_dllm with its dual cache: milliseconds a call of the model, of which one a block computes the whole canvas."""
    sizes, model = lab.sizes, lab.masked()
    session = decgraph.load("fast_dllm").session({"model": model}, backend="triton", length=sizes.canvas, block=sizes.block)
    (prompt,) = of_ids(sizes.masked["vocab_size"] - 1, 1, sizes.before)
    request = request_of(prompt, sizes.canvas)
    began = time.perf_counter()
    result = run(session, request)
    first = time.perf_counter() - began
    took = lab.seconds(lambda: run(session, request), 2 if lab.cuda else 1, 0)
    calls = result.stats.target_calls
    each, floor = 1000 * took.median / calls, lab.floor(model.net.base, sizes.before + sizes.canvas)
    row = {"first_s": first, "calls": calls, "ms": each, "floor_ms": floor, "over_floor": round(each / floor, 3), "mode": result.mode,
           "right": result.mode == "graph mode", "profile": lab.profiled(lambda: run(session, request))}  # fmt: skip
    return {**row, "says": f"{each:.2f} ms a call, {each / floor:.2f} floors, {calls} calls; {result.mode}"}
