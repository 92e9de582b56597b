"""A program on the device for a batch of requests: iterations are launched one after the other, or replayed as a CUDA graph,
and the host reads the flags every n iterations.

An iteration after the end changes nothing: sequences that are over keep their buffers. So reading the flags seldom costs a few
iterations at the end and saves a synchronisation in every one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.placement import captures
from decgraph.backends.triton.step import captured
from decgraph.backends.triton.step.causal import CausalOnDevice, device_model
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.heads import FeaturesOnDevice
from decgraph.backends.triton.step.machine import DeviceStep, Frame
from decgraph.backends.triton.step.why import Needs
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.request import Request
from decgraph.runtime.trace import Commits

EVERY = 8
"""Iterations between two reads of the flags, on a GPU."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request. tokens: the committed ones. lost: a case came up that only the driver of the torch backend
    handles (it raises the error, or grows smaller trees): it has to run the request again. iterations: iterations of `while not
    done`. calls: total, by model parameter. drafted, tested, accepted: as runtime/trace.py counts."""

    tokens: tuple[int, ...]
    lost: bool
    iterations: int
    calls: dict[str, int]
    drafted: int
    tested: tuple[int, ...]
    accepted: tuple[int, ...]


class StepProgram:
    """One program, captured for a batch size, a capacity and a shaping of requests.

    models: `DeviceModel`s by parameter name, built for this batch (`device_models`). graphs: whether iterations are captured
    (None: on CUDA). every: iterations between two reads of the flags (None: EVERY on CUDA, else 1). After `run`,
    `reads` is the number of device-to-host synchronisations.
    """

    def __init__(
        self,
        module: Module,
        function: str,
        models: Mapping[str, Any],
        params: Mapping[str, Any],
        frame: Frame,
        needs: Needs,
        *,
        every: int | None = None,
        graphs: bool | None = None,
    ) -> None:
        self.step = DeviceStep(module, function, models, params, frame)
        self.needs = needs
        self.every = every or (EVERY if frame.device.type == "cuda" else 1)
        self.graphs = captures(frame.device) if graphs is None else graphs
        self.replay: Callable[[], None] | None = None
        self.reads = 0
        self.interrupted = False  # by Ctrl-C, in the last run
        self.before: tuple[dict[str, int], int] = ({}, 0)  # calls and drafted tokens of the prologue
        self.each: tuple[dict[str, int], int] = ({}, 0)  # and of an iteration

    @torch.no_grad()
    def run(
        self,
        requests: Sequence[Request],
        shared: Mapping[Any, Any] | None = None,
        listeners: Sequence[Commits | None] = (),
    ) -> list[Outcome]:
        """Run requests, at most as many as the batch, to their ends, or to where Ctrl-C ends them (`interrupted`). shared: a
        session's states. listeners: of the requests; they hear what was committed after each look at the flags."""
        step, batch = self.step, self.step.frame.batch
        if not 0 < len(requests) <= batch:
            raise ValueError(f"{len(requests)} requests for a batch of {batch}")
        step.admit([*requests, *[requests[0]] * (batch - len(requests))], self.needs.uncached, shared)
        step.done[len(requests) :] = True
        self.reads = 0
        step.prologue()
        self.before = step.tally.iteration()
        if self.replay is None or not step.reusable:
            if self.graphs:
                captured.warm(step.body, step.device)
                self.replay = captured.captured(step.body, step.device)[0]
            else:
                step.body()
            self.each = step.tally.iteration()
        most = int(max(r.limit for r in requests)) + 1
        iterations, self.interrupted = 0, False
        try:
            while iterations < most + self.every and not self.over():
                for _ in range(self.every):
                    (self.replay or step.body)()
                iterations += self.every
                if any(listeners):
                    self.tell(listeners)
        except KeyboardInterrupt:  # the tokens committed so far are kept; the caller raises it again
            self.interrupted = True
        return self.outcomes(len(requests))

    def tell(self, listeners: Sequence[Commits | None]) -> None:
        """Tell listeners what their sequences have committed so far; not of those that the driver runs again."""
        s = self.step
        self.reads += 1
        tokens, base, length, lost = (a.cpu().numpy() for a in (s.tokens, s.base, s.length, s.lost))
        for b, listener in enumerate(listeners):
            if listener is not None and not lost[b]:
                listener.so_far(tuple(tokens[b, base[b] : length[b]].tolist()))

    def over(self) -> bool:
        """Whether all sequences are over: the only synchronisation before the end."""
        self.reads += 1
        return bool(self.step.over().all())

    def outcomes(self, n: int) -> list[Outcome]:
        """The outcomes of the first n sequences."""
        s = self.step
        self.reads += 1
        unfinished = s.lost if self.interrupted else s.lost | ~s.done
        tokens, length, base, iteration, lost, useless, tested, accepted = (
            a.cpu().numpy() for a in (s.tokens, s.length, s.base, s.iteration, unfinished, s.tally.useless, *s.tally.counted())
        )
        out = []
        for b in range(n):
            (once, few), (again, many) = self.before, self.each
            calls = {name: once.get(name, 0) + again.get(name, 0) * int(iteration[b]) for name in {**once, **again}}
            calls = {name: n for name, n in calls.items() if n}
            deep = int(np.flatnonzero(tested[b])[-1]) + 1 if tested[b].any() else 0
            out.append(
                Outcome(
                    tuple(tokens[b, base[b] : length[b]].tolist()),
                    bool(lost[b]),
                    int(iteration[b]),
                    calls,
                    few + many * int(iteration[b]) - int(useless[b]),
                    tuple(tested[b, :deep].tolist()),
                    tuple(accepted[b, :deep].tolist()),
                )
            )
        return out

    def states(self, n: int) -> dict[str, Tensor]:
        """The states of sequence n: tensors of any shape."""
        return {name: value[n].cpu() for name, value in self.step.states.items()}


def device_models(
    models: Mapping[str, Any], needs: Needs, batch: int, capacity: int, device: torch.device | str | None = None
) -> dict[str, Any]:
    """The `DeviceModel`s of a program's runtime models, for sequences of at most `capacity` tokens. Raises NotCapturable for a
    model that is not implemented on the device."""
    out: dict[str, Any] = {}
    try:
        for name, model in sorted(models.items(), key=lambda m: m[1].kind == "features"):
            tail = needs.tails[name]
            if model.kind == "features":
                target = next((t for t in out.values() if isinstance(t, CausalOnDevice)), None)
                if target is None:
                    raise NotCapturable(f"`{name}` reads the features of a model that is not on the device")
                out[name] = FeaturesOnDevice(model, target, tail)
                continue
            room = capacity + max(needs.tails.values()) + 2
            out[name] = device_model(model, batch, room, tail, device=device)
    except DecError as error:
        raise NotCapturable(str(error)) from error
    return {name: out[name] for name in models}
