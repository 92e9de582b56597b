"""The steps of a program as graphs, for `decgraph compile --emit triton`: those that a device replays, recorded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from decgraph.backends.triton.graph import Graph, traced
from decgraph.backends.triton.machine import TritonMachine
from decgraph.backends.triton.pieces import Pieces
from decgraph.backends.triton.program import Job, Program, needs_of
from decgraph.backends.triton.shaping import need
from decgraph.backends.triton.support import NotSteppable
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
    job = Job(0, machine, features, needs_of(machine, features))
    program = Program(job, features, lanes, 1 << (job.size - 1).bit_length())
    program.admit(job)
    step = program.step
    if not program.hosted and step.loop is not None:
        program.fill(None)
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
