"""Bodies of loops that the host runs, as graphs of their own.

Where a program's control flow cannot be one graph (a canvas's block, whose iterations data counts), the body of the loop is
recorded once and replayed in every iteration. What a body reads from outside is copied into the tensors that it was recorded
with; what it hands on is copied out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import Decided
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Operand, flattened, rebuilt
from decgraph.ir.table import lookup
from decgraph.ir.values import Region, Value
from decgraph.ir.walk import free_values


class Replays(Protocol):
    """A recorded function. out: what its last run gave, the one that was recorded at first."""

    out: object

    def __call__(self) -> None: ...


Recorder = Callable[[Callable[[], list[Tensor]], Step], Replays]
"""Runs and records a function that reads and writes tensors of before: `replay.recorded` on a CUDA device."""
Inputs: TypeAlias = tuple[Tensor | None, list[Operand], list[Operand]]
"""What a body reads: the mask of its lanes, its arguments, and values from outside."""


@dataclass
class Body:
    """A recorded body. inputs: the tensors that it reads from outside; results: what it hands on, and whether something that
    the host decides was otherwise than when it was recorded; calls: the model calls that it counts."""

    inputs: list[Tensor]
    replay: Replays
    results: tuple[tuple[Operand, ...], list[Tensor]]
    calls: dict[str, int]


class Bodies:
    """The recorded bodies of a program's loops, by what they read."""

    most = 16
    """Recordings of one program; a body that is different in every iteration is run as it is."""

    def __init__(self, s: Step, record: Recorder) -> None:
        self.s, self.record = s, record
        self.known: dict[Hashable, Body | None] = {}
        self.seen: set[Hashable] = set()
        self.decided: dict[Hashable, Decided] = {}
        """What the host decided in a body the last time that it ran it."""

    def run(self, region: Region, arguments: Sequence[Operand]) -> tuple[Operand, ...]:
        """The yields of a loop's body for its arguments, in the lanes that are here."""
        before = self.s.decided
        try:
            return self._run(region, arguments)
        finally:
            self.s.decided = before

    def _run(self, region: Region, arguments: Sequence[Operand]) -> tuple[Operand, ...]:
        s = self.s
        outside = {v: s.env[v] for v in free_values(region) if v in s.env}
        tensors: list[Tensor] = []
        inputs = (s.mask, list(arguments), list(outside.values()))
        key = (region, flattened(inputs, tensors))
        body = self.known.get(key)
        s.decided = self.decided.setdefault(key, Decided())
        counted = [t.clone() for t in s.counts.buffers()] if body is None or body.results[1] else []
        if body is None:
            if key not in self.seen or key in self.known or len(self.known) >= self.most or not self.idle():
                self.seen.add(key)
                return tuple(s.region(region, arguments))
            body = self.known[key] = self.recorded(region, inputs, tensors, list(outside))
            if body is None:
                return tuple(s.region(region, arguments))
        else:
            for there, here in zip(body.inputs, tensors, strict=True):
                there.copy_(here)
            body.replay()
        out, odd = rebuilt(body.results, iter([t.clone() for t in cast(list[Tensor], body.replay.out)]))
        if odd and s.reads(torch.stack(odd).any()):  # nothing but slots and counts was written: run it as it is
            for there, was in zip(s.counts.buffers(), counted, strict=True):
                there.copy_(was)
            return tuple(s.region(region, arguments))
        for name, n in body.calls.items():
            s.counts.calls[name] = s.counts.calls.get(name, 0) + n
        return out

    def idle(self) -> bool:
        """Whether no model has slots in use that only Python knows of: bodies that draft are run as they are."""
        return all(not c.used and not c.asked for c in self.s.caches.values())

    def recorded(self, region: Region, inputs: Inputs, tensors: list[Tensor], outside: list[Value]) -> Body | None:
        """Record a body; None where it cannot be, as where the host has to read something inside.
        tensors: the inputs, of any shape."""
        s = self.s
        kept = [t.clone() for t in tensors]
        mask, arguments, values = rebuilt(inputs, iter(kept))
        before, env, counts, outer = dict(s.counts.calls), dict(s.env), s.counts.calls, s.mask
        made: tuple[tuple[Operand, ...], list[Tensor]] = (), []
        effects = any(lookup(op.opcode).effects in ("commit", "state") for op in region.walk())

        def body() -> list[Tensor]:
            nonlocal made
            counts.clear()
            counts.update(before)
            for cache in s.caches.values():
                cache.start()
            s.env.update(zip(outside, values, strict=True))
            s.mask = mask
            s.odd = []
            made = s.region(region, arguments), s.odd
            if s.odd and effects:
                raise NotSteppable("a body with effects that the host decides about", s.place)
            tensors: list[Tensor] = []
            flattened(made, tensors)
            return tensors

        s.recording = True
        try:
            replay = self.record(body, s)
        except NotSteppable:
            return None
        finally:
            s.recording, s.mask = False, outer
            s.env.clear()
            s.env.update(env)
            for cache in s.caches.values():
                cache.start()
        calls = {k: n - before.get(k, 0) for k, n in counts.items() if n != before.get(k, 0)}
        s.counts.calls = before
        return Body(kept, replay, made, calls)
