"""The triton machine: torch's, with generated kernels for ops over the vocabulary and for verification; and whole decoding
steps on the device (graph mode) for requests whose drafts nobody hears of.

A run has one of two modes, and commits the same tokens in both. Graph mode: where the steps of a program have static shapes,
they run on the device for a batch of sequences in lockstep, captured as graphs, and the host reads a flag now and then
(step/run.py, for canvases step/canvas_run.py). Eager mode, as on the torch backend, is for everything else: programs with
data-dependent shapes, requests with automata, penalties or stop strings, and runs whose listener hears every event
(`runtime.trace.Commits` does not). `mode` says which it was, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from decgraph.backends.base import Backend
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.triton.kit import KERNELS
from decgraph.backends.triton.placement import check, interpreted
from decgraph.backends.triton.step.captured import NothingRecorded
from decgraph.backends.triton.step.run import EVERY_EVENT
from decgraph.runtime.trace import Commits

_LOG = logging.getLogger("decgraph")


class TritonMachine(TorchMachine):
    """One request; its arguments are `Backend`'s."""

    name = "triton"
    mode = "eager mode: its model calls are batched with those of requests that come and go"  # by `steps`, as a server runs it
    kit = KERNELS

    @classmethod
    def supports(cls, opcode: str) -> str | None:
        """None for an operation that some generated kernel has; see operations.py for the others."""
        from decgraph.backends.triton import operations  # it loads every table of kernels

        return operations.supports(opcode)

    def start_run(self) -> None:
        check(self.models)
        _warn_of_the_interpreter()
        super().start_run()

    def run(self) -> tuple[int, ...]:
        if not by_steps([self], 1):
            return self.committed_tokens()
        return super().run()

    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """Run several at a time: in graph mode those that can, the others in eager mode with their model calls batched."""

        def driven() -> Iterator[tuple[int, Backend]]:
            while part := list(islice(waiting, width)):
                ours = [machine for _, machine in part if isinstance(machine, TorchMachine)]
                left = {id(machine) for machine, _ in by_steps(ours, width)}
                for number, machine in part:
                    if id(machine) in left:
                        yield number, machine
                    else:
                        ended(number, machine, None)

        super().run_many(driven(), width, ended)


def by_steps(machines: Sequence[TorchMachine], width: int) -> list[tuple[TorchMachine, str]]:
    """Decode in graph mode the machines that can; returns the others, with the reason."""
    left: list[tuple[TorchMachine, str]] = []
    silent: list[TorchMachine] = []
    for m in machines:
        if not (m.listener is None or isinstance(m.listener, Commits)):
            left.append((m, EVERY_EVENT))
        elif m.parent is not None or m.until is not None or m.externs:
            left.append((m, "it is a sub-run, or calls functions of the caller"))
        else:
            silent.append(m)
    masked = [m for m in silent if m.main is not None and m.main.kind == "masked"]
    causal = [m for m in silent if m.main is None or m.main.kind != "masked"]
    for some, decode in ((masked, canvases), (causal, trees)):
        try:
            left += decode(some, width) if some else []
        except NothingRecorded:  # eager mode may do as little, for ever
            raise
        except Exception as error:  # of the compiler, the driver, the memory of the device: eager mode may work
            _LOG.warning(
                "%s failed in graph mode and runs in eager mode: %s: %s",
                some[0].function.name,
                type(error).__name__,
                error,
            )
            left += [(m, str(error)) for m in some if not m.committed()]
    for m in machines:
        m.mode = "graph mode"
    for m, why in left:
        m.mode = f"eager mode: {why}"
        if isinstance(m.listener, Commits):
            m.listener.begin()
        _LOG.debug("%s: %s", m.title, m.mode)
    return left


def canvases(machines: Sequence[TorchMachine], width: int) -> list[tuple[TorchMachine, str]]:
    """Those of masked models, at most `width` at a time."""
    from decgraph.backends.triton.step.canvas_run import run_canvases

    parts = [machines[n : n + width] for n in range(0, len(machines), width)]
    ran = [(m, r.why) for part in parts for m, r in zip(part, run_canvases(part), strict=True)]
    return [(m, why) for m, why in ran if why is not None]


def trees(machines: Sequence[TorchMachine], width: int) -> list[tuple[TorchMachine, str]]:
    """Those of causal models."""
    from decgraph.backends.triton.step.run import run_steps

    return run_steps(machines, width=width)


@lru_cache(maxsize=1)
def _warn_of_the_interpreter() -> None:
    if interpreted():
        _LOG.warning("backend triton: kernels run in Triton's interpreter, for want of a CUDA device: correct, and very slow")
