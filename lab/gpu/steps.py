"""Steps captured as CUDA graphs, over their floors: autoregressive, the verification of a tree of 64 nodes, draft and verify.

A floor is what reading weights, keys and values takes at the bandwidth of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import decgraph
from decgraph.bench.contenders import params_for, request_of, session_on
from decgraph.bench.prompts import of_ids
from decgraph.bench.timing import Spread
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row
from lab.gpu.sides import profiled


def steps_of(lab: Lab) -> int:
    """How many decoding steps are timed one after the other."""
    return 24 if lab.cuda else 2


@dataclass(frozen=True)
class Case:
    """An algorithm whose step is timed. drafts: forwards of the drafter in a step; wanted: floors it may take at most."""

    name: str
    algorithm: str
    params: dict[str, Any]
    drafts: int
    wanted: float
    cells: int  # of the target in a step, at most


CASES = [
    Case("autoregressive", "autoregressive", {}, 0, 1.15, 1),
    # no drafter, one forward of the target, 65 cells: what is left beside it is a table's rows
    Case("verification of 64 nodes", "token_recycling", {"shape": "table_64", "k": 8}, 0, 1.2, 65),
    Case("draft 4 and verify", "speculative", {"gamma": 4}, 4, 1.2, 5),
]


def stage(lab: Lab) -> Items:
    """The items of the stage `steps`."""
    yield "models of this size", lab.building
    for case in CASES:
        yield case.name, partial(timed, lab, case)
    yield "autoregressive, sampled", partial(timed, lab, CASES[0], sampled=True)
    yield "draft 4 and verify, sampled", partial(timed, lab, CASES[2], sampled=True)
    yield "autoregressive, 8 at a time", partial(timed, lab, CASES[0], batch=8)


def prepared(lab: Lab, case: Case, *, sampled: bool = False, batch: int = 1) -> tuple[Any, list[Any]]:
    """The program of a case on the device, and requests that it has room for."""
    from decgraph.backends.triton.step.distributions import Shape
    from decgraph.backends.triton.step.machine import Frame
    from decgraph.backends.triton.step.program import StepProgram, device_models
    from decgraph.backends.triton.step.why import needs_of

    made = lab.weights()
    algorithm = decgraph.load(case.algorithm)
    few = {"shape": "table_6"} if "shape" in case.params and lab.sizes.name == "tiny" else {}
    session = session_on(algorithm, made, params_for(algorithm, {**case.params, **few}), "triton")
    limit = (steps_of(lab) + 8) * (case.drafts + 7)  # more than the timed steps can commit
    prompts = of_ids(made.size, batch, lab.sizes.prompt)
    requests = [request_of(p, limit, sampled=sampled, number=n) for n, p in enumerate(prompts)]
    shape, name = Shape.of(requests[0]), session.function.name
    need = needs_of(session.module, name, session.models, session.params, shape)
    capacity = lab.sizes.prompt + limit
    models = device_models(session.models, need, batch, capacity, lab.device)
    frame = Frame(batch, capacity, shape, lab.device)
    return StepProgram(session.module, name, models, session.params, frame, need), requests


@contextmanager
def no_waits(lab: Lab) -> Iterator[None]:
    """Inside, an operation that waits for the device is an error."""
    if not lab.cuda:
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def timed(lab: Lab, case: Case, *, sampled: bool = False, batch: int = 1) -> Row:
    """Milliseconds of a decoding step without device-to-host synchronisation, over the floor."""
    program, requests = prepared(lab, case, sampled=sampled, batch=batch)
    first = begin(lab, program, requests)
    took = step_times(lab, program, requests)
    with no_waits(lab):
        step_body(program)()
    outcome, lost = program.outcomes(1)[0], bool(program.step.lost.any())
    each = len(outcome.tokens) / max(outcome.iterations, 1)
    made, cells = lab.weights(), lab.sizes.prompt + int(steps_of(lab) * each / 2)
    floor = lab.floor(made.target, batch * cells) + case.drafts * lab.floor(made.drafter, batch * cells)
    over = took.median / floor
    row: Row = {
        "algorithm": case.algorithm,
        "params": case.params,
        "batch": batch,
        "sampled": sampled,
        "first_s": first,
        "ms": took.to_json(),
        "floor_ms": floor,
        "over_floor": round(over, 3),
        "wanted": case.wanted,
        "reached": over <= case.wanted,
        "tokens_per_step": round(each, 3),
        "graph": program.replay is not None,
        "lost": lost,
        "right": not lost and outcome.iterations > 0,
        "profile": profiled(lab, lambda: [step_body(program)() for _ in range(2)]),
    }
    return {
        **row,
        "says": f"{took.median:.3f} ms, {over:.2f} floors ({floor:.3f} ms; {case.wanted} wanted), {each:.2f} tokens "
        f"a step{'' if row['graph'] or not lab.cuda else ', NOT CAPTURED'}",
    }


def begin(lab: Lab, program: Any, requests: list[Any]) -> float:
    """Seconds until a decoding step is captured, in some steps of the requests."""
    short = [request_of(r.prompt, 12 if lab.cuda else 2, sampled=bool(r.temperature), number=r.request_id) for r in requests]
    return lab.seconds(lambda: program.run(short), 1, 0).median


def step_body(program: Any) -> Any:
    """One decoding step, by the graph where there is one."""
    return program.replay or program.step.body


def step_times(lab: Lab, program: Any, requests: list[Any], rounds: int = 3) -> Spread:
    """Milliseconds of a decoding step: the requests begin again, then so many steps run between two clock reads."""
    found = []
    count = steps_of(lab)
    for _ in range(rounds if lab.cuda else 1):
        with torch.no_grad():
            program.step.admit(requests, program.needs.uncached, None)
            program.step.prologue()
            program.step.tally.iteration()

            def many() -> None:
                for _ in range(count):
                    step_body(program)()

            with torch.no_grad():
                found.append(1000 * lab.seconds(many, 1, 0).median / count)
    return Spread.of(found)
