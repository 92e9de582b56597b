"""The steps of a program as graphs, for `decgraph compile --emit triton`: those that a device replays, recorded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from decgraph.backends.triton.graph import Graph, traced
from decgraph.backends.triton.lanes import wants
from decgraph.backends.triton.machine import TritonMachine
from decgraph.backends.triton.pieces import Pieces
from decgraph.backends.triton.program import Job, Program
from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.values import Module
from decgraph.runtime.request import Request

PROMPT, LIMIT, ROUNDS = (1, 2, 3, 4), 32, 64
"""The request whose step is recorded; rounds until a loop's body must have come twice."""


class _Found(Exception):
    """Enough is recorded."""


def begun(machines: Sequence[Any], capacity: int) -> Program:
    """The program of some machines, each in a lane of its own of so many tokens, at the end of its prompt. Raises NotSteppable
    where there is no step."""
    jobs = [Job(n, machine, *wants(machine)) for n, machine in enumerate(machines)]
    features = frozenset[str]().union(*(job.features for job in jobs))
    program = Program(jobs[0], features, len(jobs), capacity)
    for job in jobs:
        program.admit(job)
    program.fill(None)
    return program


@torch.no_grad()
def graphs_of(
    module: Module, function: str, models: Mapping[str, Any], params: Mapping[str, Any]
) -> Iterator[tuple[str, Graph]]:
    """The graphs of a program's decoding step, each with what it is: the whole step, or, where the host runs loops, the body of
    the innermost one. models: runtime models by parameter name. Raises NotSteppable where there is no step."""
    machine = TritonMachine(module, function, models, params, Request(PROMPT, limit=LIMIT, temperature=1.0))
    program = begun([machine], 64)
    step = program.step
    if not program.hosted and step.loop is not None:
        program.run()
        yield "one decoding step", traced(step.body, step)
        return
    found: list[Graph] = []

    def record(body: Callable[[], Any], device: torch.device) -> Callable[[], None]:
        found.append(traced(body, step))
        raise _Found

    step.pieces = Pieces(step, record)
    try:
        for _ in range(ROUNDS):
            program.fill(None)
            if step.loop is None or bool(step.done.all()):
                break
            step.body()
    except _Found:
        yield "one iteration of the innermost loop", found[0]
        return
    raise NotSteppable("its loops end before a body has run twice")
