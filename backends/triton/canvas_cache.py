"""The slots of a masked model: positions of the text and of the canvas behind it, seen as they were when they were computed.

A call without a memory computes text and canvas. A call on one computes its own cells, and what the memory lacks of the text.
A memory is a set of slots. They are not copied: a counter, written beside each, says when a slot was computed, and a memory
notes it. A lane whose memory has slots that a later call has written again is the driver's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.backends.triton.models.interface import DeviceModel, Seen, at_slots
from decgraph.backends.triton.state import Slots, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Canvas, OnDevice, Operand, Path
from decgraph.backends.triton.vectors import put_at

LEAST = 16
"""The fewest cells that a call computes: of few cells those of several programs are the same."""


@dataclass(frozen=True)
class CanvasMemory(OnDevice):
    """live: bool[B, S], the slots that it has; when: int64[B, S], their counters. base: int64[B], where the canvas begins."""

    cache: CanvasCache
    base: Tensor
    live: Tensor
    when: Tensor


@dataclass(frozen=True)
class Call:
    """The states [B, T, W] of a forward, the row of every slot in it, int64[B, S] (None: the slot itself), and the slots that
    are computed behind it, as for a memory."""

    states: Tensor
    row: Tensor | None
    live: Tensor
    when: Tensor
    every: Tensor | None = None
    """bool[B]: where a call on a memory computes everything, as one without does; None: it is without."""


class CanvasCache(Slots):
    """The slots of one masked model in a program. Nothing of the text waits to be computed, and nothing stands behind it: a
    canvas has the slots that the tokens will have."""

    def __init__(self, s: Step, name: str, model: DeviceModel) -> None:
        self.s, self.name, self.model = s, name, model
        self.width = s.frame.capacity
        if self.width > model.capacity - 1:
            raise NotSteppable(f"`{name}` has {model.capacity} slots, fewer than the text and its canvas")
        self.clock = s.buffer((1,), torch.int64)
        self.fed = s.buffer((s.frame.batch, 2, self.width), torch.int64) - 3
        self.scored = s.buffer((s.frame.batch, 2, self.width), torch.bool)
        """The canvases of the last two calls without a memory, and the cells whose scores were read."""
        self.when = s.buffer((s.frame.batch, self.width + 1), torch.int64)
        self.start()

    def start(self) -> None:
        """Nothing of before is used again."""
        self.last: list[tuple[tuple[Canvas, Operand, CanvasMemory | None, Tensor | None], Call]] = []

    def committed(self, before: Tensor, accepted: Tensor, most: int, path: Path | None) -> None:
        """Canvases keep what they are behind. before, kept: int64[B]."""

    def call(self, canvas: Canvas, at: Operand, memory: CanvasMemory | None) -> Call:
        """The forward of a canvas for some positions on a memory; the last ones are remembered."""
        key = (canvas, None if memory is None else at, memory, self.s.mask)
        for before, made in self.last:
            if all(x is y for x, y in zip(key, before, strict=True)):
                return made
        out = self._whole(canvas) if memory is None else self._part(canvas, at, memory)
        self.last = [*self.last, (key, out)][-2:]
        return out

    def _whole(self, canvas: Canvas) -> Call:
        s, slot = self.s, self.s.steps(self.width)
        live = (slot < (canvas.base + canvas.size)[:, None]) & s.active()[:, None]
        at = s.lanes(slot[None])
        end = (canvas.base + canvas.size)[:, None].expand(-1, self.width)
        states = self._forward(canvas, at, live, Seen(end))
        return Call(states, None, live, self.when[:, :-1].clone())

    def count(self, canvas: Canvas, rows: Tensor | None) -> None:
        """Count a call without a memory at a canvas, where the scores of cells bool[B, S] are read (None: it is for their
        memory). What one of the last two calls has computed is no call."""
        s, slot = self.s, self.s.steps(self.width)
        inside = slot < (canvas.base + canvas.size)[:, None]
        fed = torch.where(inside, self.read(canvas, s.lanes(slot[None])), -2)
        same = (fed[:, None] == self.fed).all(-1)
        known = same.any(1)
        if rows is not None:
            known = known & ~(rows & ~(same[..., None] & self.scored).any(1)).any(1)
        s.counts.call(self.name, ~known)
        cells = ~known[:, None].expand(-1, self.width) if rows is None else rows
        active = s.active()[:, None, None]
        self.fed.copy_(torch.where(active, torch.stack([self.fed[:, 1], fed], 1), self.fed))
        self.scored.copy_(torch.where(active, torch.stack([self.scored[:, 1], cells], 1), self.scored))

    def _part(self, canvas: Canvas, at: Operand, memory: CanvasMemory) -> Call:
        s, slot = self.s, self.s.steps(self.width)
        here = s.active()[:, None]
        end = canvas.base + canvas.size
        fresh = ((slot < canvas.base[:, None]) & ~memory.live) | self.marked(canvas.base, at)
        fresh = fresh & here
        s.flag((memory.when != self.when[:, :-1]) & memory.live & ~fresh)
        seen = memory.live | fresh
        inside = slot < end[:, None]
        gaps = inside & ~seen & here
        known = s.decided.cells.get(s.place)
        if not s.recording:  # how many cells are computed, and whether slots between are missing
            read = s.reads((fresh.sum(1) * 2).amax() + gaps.any())
            most, some = min(self.width, max(LEAST, 1 << max(0, read // 2 - 1).bit_length())), bool(read % 2)
            old, gone = known or (0, False)
            s.decided.cells[s.place] = max(most, old), some or gone
        else:  # as many as ever
            most, some = known or (self.width, True)
            s.odd.append((fresh.sum(1) > most).any())
            if not some:
                s.odd.append(gaps.any())
        if most < self.width:
            order = torch.sort((~fresh).to(torch.uint8), dim=1, stable=True).indices[:, :most]
            there = fresh.gather(1, order)
        else:
            order, there = s.lanes(slot[None]), fresh
        below, tail, first = end[:, None].expand(-1, most), None, None
        if some:
            below, first = torch.zeros_like(below), torch.zeros_like(end)
            tail = (seen & inside)[:, None].expand(-1, most, -1)
        states = self._forward(canvas, order, there, Seen(below, tail, first))
        every = (fresh.sum(1) == end) & s.active()
        s.counts.call(self.name, fresh.any(1) & ~every)
        row = None if most == self.width else (fresh.long().cumsum(1) - 1).clamp(0, most - 1)
        return Call(states, row, seen, torch.where(fresh, self.when[:, :-1], memory.when), every)

    def marked(self, base: Tensor, at: Operand) -> Tensor:
        """bool[B, S]: the slots of positions of a canvas behind int64[B] tokens."""
        ids, live = self.s.places(at)
        where = base[:, None] + ids
        live = live & (where >= 0) & (where < self.width)
        out = torch.zeros((self.s.frame.batch, self.width + 1), dtype=torch.bool, device=self.s.device)
        return (
            out.scatter(1, torch.where(live, where, self.width), True)[:, : self.width]
            if ids.shape[1]
            else out[:, : self.width]
        )

    def _forward(self, canvas: Canvas, at: Tensor, live: Tensor, seen: Seen) -> Tensor:
        """States of the cells at slots int64[B, T], of which `live` are computed and kept."""
        s, model, tokens = self.s, self.model, self.read(canvas, at)
        model.prompts.copy_(torch.where(s.active(), canvas.base, model.prompts))
        self.clock.add_(1)
        put_at(self.when, torch.where(live, at, self.width), self.clock.expand(at.shape[0], at.shape[1]))
        return model.forward(tokens, at, torch.where(live, at, model.capacity - 1), seen)

    def read(self, canvas: Canvas, at: Tensor) -> Tensor:
        """int64[B, T]: the tokens at slots int64[B, T] of a text and a canvas behind it."""
        base, mask = canvas.base[:, None], self.model.mask
        assert mask is not None
        cell = canvas.cells.gather(1, (at - base).clamp(0, canvas.most - 1)) if canvas.most else torch.full_like(at, -1)
        return torch.where(at < base, self.s.tokens.gather(1, at), torch.where(cell < 0, mask, cell))

    def rows(self, call: Call, canvas: Canvas, at: Tensor) -> Tensor:
        """Scores [B, n, V] at positions int64[B, n] of a canvas."""
        slots = (canvas.base[:, None] + at).clamp(0, self.width - 1)
        found = slots if call.row is None else call.row.gather(1, slots)
        return self.model.read(at_slots(call.states, found))


Step.slots["masked"] = CanvasCache
