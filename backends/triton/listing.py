"""The steps of a program as graphs, for `decgraph compile --emit triton`: those that a device replays, recorded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from decgraph.backends.triton.bodies import Bodies, Replays
from decgraph.backends.triton.graph import Graph, traced
from decgraph.backends.triton.lanes import wants
from decgraph.backends.triton.machine import TritonMachine
from decgraph.backends.triton.program import LaneJob, Program
from decgraph.backends.triton.run import DeviceRun
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.values import Module
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request

PROMPT, LIMIT, ROUNDS = (1, 2, 3, 4), 32, 64
"""The request whose step is recorded; rounds until a loop's body must have come twice."""


class _Found(Exception):
    """Enough is recorded."""


def begun(machines: Sequence[DeviceRun], capacity: int) -> Program:
    """The program of some machines, each in a lane of its own of so many tokens, at the end of its prompt. Raises NotSteppable
    where there is no step."""
    program = _opened([LaneJob(n, machine, *wants(machine)) for n, machine in enumerate(machines)], capacity)
    program.fill(None)
    return program


def _opened(jobs: Sequence[LaneJob], capacity: int) -> Program:
    """The program of some jobs, whose texts are not computed yet."""
    features = frozenset[str]().union(*(job.features for job in jobs))
    program = Program(jobs[0], features, len(jobs), capacity)
    for job in jobs:
        if not program.admit(job):
            raise NotSteppable("there is no memory for its keys and values")
    return program


@torch.no_grad()
def graphs_of(
    module: Module, function: str, models: Mapping[str, Model], params: Mapping[str, ParamValue]
) -> Iterator[tuple[str, Graph]]:
    """The graphs of a program's decoding step, each with what it is: the whole step, or, where the host runs loops, the body of
    the innermost one; as it is on CUDA, with the kernels by hand. models: runtime models by parameter name, on the CPU. Raises
    NotSteppable where there is no step."""
    machine = TritonMachine(module, function, models, params, Request(PROMPT, max_tokens=LIMIT, temperature=1.0))
    job = LaneJob(0, machine, *wants(machine))
    yield _recorded(_opened([job], 1 << (job.size - 1).bit_length()))


def _recorded(program: Program) -> tuple[str, Graph]:
    """A program's step, and what it is the graph of."""
    step = program.step
    if not program.loops and step.loop is not None:
        program.fill(None)
        program.body()
        return "one decoding step", traced(program.body, step)
    found: list[Graph] = []

    def record(body: Callable[[], list[torch.Tensor]], step: Step) -> Replays:
        found.append(traced(body, step))
        raise _Found

    step.bodies = Bodies(step, record)
    try:
        for _ in range(ROUNDS):
            program.fill(None)
            if step.loop is None or bool(step.done.all()):
                break
            program.body()
    except _Found:
        return "one iteration of the innermost loop", found[0]
    raise NotSteppable("its loops end before a body has run twice")
