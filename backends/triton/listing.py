"""The steps of a program as graphs, for `decgraph compile --emit triton`: those that a device replays, recorded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from decgraph.backends.triton.graph import Graph, traced
from decgraph.backends.triton.machine import TritonMachine
from decgraph.backends.triton.pieces import Pieces, flattened
from decgraph.backends.triton.program import Job, Program, more_slots, needs_of
from decgraph.backends.triton.shaping import need
from decgraph.backends.triton.support import MoreSlots, NotSteppable
from decgraph.ir.values import Module
from decgraph.runtime.request import Request

PROMPT, ROUNDS = 4, 64
"""Tokens of the prompt that the step is recorded behind; rounds until a loop's body must have come twice."""


class _Found(Exception):
    """Enough is recorded."""


@torch.no_grad()
def graphs_of(
    module: Module, function: str, models: Mapping[str, Any], params: Mapping[str, Any], lanes: int = 1, limit: int = 32
) -> Iterator[tuple[str, Graph]]:
    """The graphs of a program's decoding step, each with what it is: the whole step, or, where the host runs loops, the body of
    the innermost one. models: runtime models by parameter name. Raises NotSteppable where there is no step."""
    request = Request(tuple(range(1, 1 + PROMPT)), limit=limit, temperature=1.0)
    machine = TritonMachine(module, function, models, params, request)
    features = need(request, machine.vocab_size)
    needs = needs_of(machine, features)
    while True:
        try:
            yield _recorded(Job(0, machine, features, needs), lanes)
            return
        except MoreSlots as error:  # as lanes.py does
            needs = more_slots(Job(0, machine, features, needs), error.ahead)


def _recorded(job: Job, lanes: int) -> tuple[str, Graph]:
    """A request's step, and what it is the graph of."""
    program = Program(job, job.features, lanes, 1 << (job.size - 1).bit_length())
    program.admit(job)
    step = program.step
    if not program.loops and step.loop is not None:
        program.fill(None)
        program.body()
        return "one decoding step", traced(program.body, step)
    found: list[Graph] = []

    def record(body: Callable[[], Any], device: torch.device) -> Callable[[], None]:
        def handed_on() -> list[torch.Tensor]:
            tensors: list[torch.Tensor] = []
            flattened(body(), tensors)
            return tensors

        found.append(traced(handed_on, step))
        raise _Found

    step.pieces = Pieces(step, record)
    try:
        for _ in range(ROUNDS):
            program.fill(None)
            if step.loop is None or bool(step.done.all()):
                break
            program.body()
    except _Found:
        return "one iteration of the innermost loop", found[0]
    raise NotSteppable("its loops end before a body has run twice")
