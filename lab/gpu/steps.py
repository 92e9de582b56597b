"""Decoding steps of a large random model over their floors: as a CUDA graph of torch's kernels, and with compiled regions. A
floor is what reading weights, keys and values takes at the bandwidth of a copy."""

from __future__ import annotations

import gc
import os
import time
from functools import partial
from typing import Any, NamedTuple

import torch

import decgraph
from decgraph.backends.triton.listing import begun
from decgraph.backends.triton.program import Program
from decgraph.backends.triton.replay import Replayed
from decgraph.backends.triton.run import DeviceRun
from decgraph.bench.contenders import params_for, request_of, run, session_on
from decgraph.bench.prompts import of_ids
from lab.gpu.first import Items, Row
from lab.gpu.lab import Lab


class Case(NamedTuple):
    """An algorithm whose step is timed. drafts: forwards of the drafter in a step; tokens: that a step may commit, at most."""

    algorithm: str
    params: dict[str, Any]
    drafts: int = 0
    tokens: int = 1
    sampled: bool = False
    batch: int = 1


ONE, DRAFTS = Case("autoregressive", {}), Case("speculative", {"gamma": 4}, 4, 5)
TREES = {
    "64 nodes, no drafter": Case("token_recycling", {"shape": "table_64", "k": 8}, 0, 8),
    "eagle2, 60 nodes": Case("eagle2", {"depth": 6, "k": 10, "budget": 59}, 0, 7),
}


def trees(lab: Lab) -> Items:
    """3. Steps of trees."""
    for name, case in TREES.items() if lab.cuda else ():
        yield name, partial(timed, lab, case)
    if not lab.cuda:
        yield "2 nodes", partial(timed, lab, Case("token_recycling", {"shape": "[[0], [1]]", "k": 2}, 0, 2))


def compiled(lab: Lab) -> Items:
    """4. Compiled regions beside a graph of torch's kernels."""
    yield "autoregressive", partial(timed, lab, ONE)
    yield "autoregressive, sampled", partial(timed, lab, ONE._replace(sampled=True))


def speculative(lab: Lab) -> Items:
    """7. Drafts and verification."""
    yield "draft 4 and verify", partial(timed, lab, DRAFTS)


def masked(lab: Lab) -> Items:
    """8. A canvas of a model of LLaDA's shape."""
    yield "dual cache", partial(canvas, lab)


def prepared(lab: Lab, case: Case, steps: int) -> Program:
    """The program of a case, its lanes at the end of their prompts, with room for so many steps."""
    made, algorithm = lab.weights(), decgraph.load(case.algorithm)
    session = session_on(algorithm, made, params_for(algorithm, case.params), "triton")
    prompts, limit = of_ids(made.size, case.batch, lab.sizes.prompt), steps * case.tokens
    asked = (request_of(prompt, limit, sampled=case.sampled, number=n) for n, prompt in enumerate(prompts))
    machines = [session.begin(request).machine for request in asked]
    return begun([m for m in machines if isinstance(m, DeviceRun)], lab.sizes.prompt + limit)


@torch.no_grad()
def timed(lab: Lab, case: Case, rounds: int = 0) -> Row:
    """Milliseconds of a step over the floor: as a CUDA graph of torch's kernels, that beside a thread that compiles, and with
    compiled regions; and a profile of the last. rounds: of each that are timed."""
    gc.collect()  # what an earlier case had
    count, rounds = lab.sizes.steps, rounds or (3 if lab.cuda else 1)
    ways = ("graph", "while compiling", "compiled") if lab.cuda else ("eager",)
    every = [count * (rounds + 1) + 4 for _ in ways]  # one to warm up; those that are recorded
    program, made = prepared(lab, case, sum(every) + 8), lab.weights()
    step, tokens = program.step, lab.sizes.prompt + sum(every) * min(case.tokens, 2) // 2
    floor = lab.floor(made.target, case.batch * tokens) + case.drafts * lab.floor(made.drafter, case.batch * tokens)
    if case.algorithm == "eagle2":
        floor += case.params["depth"] * (lab.floor(made.parts["features"]) + lab.floor(made.target.lm_head))
    row: Row = {**case._asdict(), "floor_ms": floor, "agreement": lab.agreement}
    said: list[str] = []
    os.environ["DECGRAPH_COMPILE"] = "0"
    steps = Replayed(program.body, step, step.device)
    for way in ways:
        began = time.perf_counter()
        if way == "while compiling":
            os.environ["DECGRAPH_COMPILE"] = "1"
            steps = Replayed(program.body, step, step.device)
        if way == "compiled":
            steps.thread.join()
        steps()
        ready, before = time.perf_counter() - began, (int(step.length.sum()), int(step.iteration.sum()))
        ms = 1000 * lab.seconds(steps, rounds, 1, count)
        each = (int(step.length.sum()) - before[0]) / max(int(step.iteration.sum()) - before[1], 1)
        row[way] = {"ms": ms, "over_floor": ms / floor, "tokens_per_step": each, "ready_s": ready, "mode": steps.mode}
        said.append(f"{way} {ms:.2f} ms = {ms / floor:.2f} floors")
    row["profile"] = lab.profiled(lambda: lab.seconds(steps, 2, 0))
    row["failed"] = str(steps.failed or "")
    right = not bool((step.lost | step.done).any()) and steps.mode == ("compiled" if lab.cuda else "eager")
    return {**row, "right": right, "says": f"{'; '.join(said)}; {each:.2f} tokens a step; floor {floor:.2f} ms {row['failed']}"}


def pages(lab: Lab) -> Items:
    """6. Requests of different lengths that join and leave."""
    yield "8 requests, 4 lanes", partial(staggered, lab)


def staggered(lab: Lab) -> Row:
    """Eight requests of eight lengths over four lanes, by the door of a session: milliseconds over the floor, which is one
    reading of the weights a token of the longest lanes."""
    made, algorithm, size = lab.weights(), decgraph.load("autoregressive"), lab.sizes
    session = session_on(algorithm, made, params_for(algorithm, {}), "triton")
    lengths = [max(4, size.prompt * (n + 1) // 4) for n in range(8)]
    limits = [size.steps * (1 + n % 3) for n in range(8)]
    asked = [
        request_of(of_ids(made.size, 1, length, seed=n)[0], limit, number=n)
        for n, (length, limit) in enumerate(zip(lengths, limits, strict=True))
    ]
    found, took = [], []
    for _ in range(2):  # the first captures
        began = time.perf_counter()
        found = session.generate(asked, batch=4)
        took.append(time.perf_counter() - began)
    rounds = -(-sum(limits) // 4)
    floor = rounds * lab.floor(made.target, sum(lengths) // 2) + sum(lengths) / 256 * lab.floor(made.target)
    right = all(r.mode == "graph mode" and len(r.tokens) == n for r, n in zip(found, limits, strict=True))
    says = f"{1000 * took[1]:.0f} ms for {sum(limits)} tokens (the first time {1000 * took[0]:.0f}); floor {floor:.0f} ms"
    return {"ms": [1000 * s for s in took], "floor_ms": floor, "right": right, "says": says}


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
    says = f"{ms:.2f} ms a call = {ms / floor:.2f} floors; {calls} calls; {result.mode}; floor {floor:.2f} ms"
    return {**row, "profile": profile, "right": right, "says": says}
