"""Which lane each request of an engine has: requests come, go, are computed in parts, and come back after a preemption.

Engines say where a request stands in their batch, and little else. What was drawn for a part of a prompt is thrown away, a
preempted request comes back as a new one, and none of them says so. Its text does: it is one token shorter than the lane's, or
it is the text of a lane that was left.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.seams.rows import Rows
from decgraph.errors import DecError

log = logging.getLogger("decgraph")


@dataclass
class Entered:
    """What a lane was entered with. told: whether an error of it was logged."""

    prompt: tuple[int, ...]
    settings: Mapping[str, Any]
    params: Mapping[str, float]
    told: bool = field(default=False, compare=False)


class Requests:
    """The lanes of `rows`, but for the last one, `spare`, which takes what is no request's. end: the token that ends a text in
    which the program has met an error; an engine gives a processor no other way to end one. seed, serial: the noise of requests
    that have no seed is that of `serial + 1`, `serial + 2`, ... under the seed: the same on every rank of a tensor-parallel
    group, each of which draws, so of no clock and no chance."""

    def __init__(self, rows: Rows, end: int, seed: int = 0, serial: int = 0) -> None:
        self.rows, self.spare = rows, len(rows.lanes.table.length) - 1
        self.seed, self.serial = seed, serial
        self.left = list(range(self.spare))
        """Lanes that no request of the batch has, the one that was left first in front. Those of preempted requests are among
        them: engines take those up again before any new one."""
        self.entered: dict[int, Entered] = {}
        self.ends = torch.full_like(rows.lanes.table.length, end)
        self.foreign = torch.zeros_like(rows.lanes.table.lost)
        """Lanes whose text is not what was drawn: something behind the program chose another token."""
        self.late: list[tuple[Tensor, list[tuple[int, Entered]], Any]] = []
        rows.enter(self.spare, (0,))

    def join(
        self, prompt: Sequence[int], output: Sequence[int], settings: Mapping[str, Any], params: Mapping[str, float],
        end: int | None = None,
    ) -> int:  # fmt: skip
        """The lane of a request that comes into the batch: the one that was left longest ago, or that it had before it was
        preempted. settings, params, output: as `Rows.enter` has them; settings that the program does not read are left out."""
        read = {name: value for name, value in settings.items() if name not in self.rows.unread}
        entry = Entered(tuple(prompt), read, dict(params))
        lane = self.left[0]
        if output and (before := self.found(entry, output)) is not None:
            if before in self.left:
                lane = before
            else:  # an engine that does not say what left: the lane may have a twin's request
                self.copy(before, lane)
        else:
            self.begin(lane, entry, output)
        if end is not None:
            self.ends[lane] = end
        self.left.remove(lane)
        return lane

    def begin(self, lane: int, entry: Entered, output: Sequence[int]) -> None:
        """A request begins in a lane, or goes on from its text alone."""
        self.entered[lane] = entry
        self.foreign[lane] = False
        self.serial += 1
        noise = {} if "seed" in entry.settings else {"seed": self.seed, "request_id": self.serial}
        settings = {**noise, **entry.settings}
        try:
            self.rows.enter(lane, entry.prompt, output, settings=settings, params=entry.params)
        except DecError as error:  # its states are gone; the others go on
            self.rows.enter(lane, entry.prompt, settings=settings, params=entry.params)
            self.rows.lanes.table.lost[lane] = True
            self.tell(lane, entry, str(error))

    def copy(self, source: int, lane: int) -> None:
        """Have what another lane has."""
        lanes = self.rows.lanes
        rows = torch.arange(self.spare + 1, device=self.ends.device)
        rows[lane] = source
        lanes.table.copy_lanes(lanes.table, rows)
        lanes.before = {place: was.index_select(0, rows) for place, was in lanes.before.items()}
        lanes.needs[lane] = lanes.needs[source]
        self.entered[lane] = replace(self.entered[source])
        self.foreign[lane] = self.foreign[source]
        if "seed" not in self.entered[lane].settings:  # else twins would draw the same from here on
            self.serial += 1
            for words in (lanes.table.settings.request, lanes.table.settings.noise_id):
                words[lane] = torch.tensor([self.serial & 0xFFFFFFFF, self.serial >> 32], device=words.device)

    def found(self, entry: Entered, output: Sequence[int]) -> int | None:
        """The lane of a request's text, where there is one: of those that were left, if they are told."""
        rest = [n for n in self.entered if n not in self.left]
        return next((n for n in (*self.left, *rest) if self.entered.get(n) == entry and self.holds(n, output)), None)

    def holds(self, lane: int, output: Sequence[int]) -> bool:
        """Whether a lane's text goes on after the prompt with these tokens (negative: not known yet), and at most one that was
        not taken."""
        table, begin = self.rows.lanes.table, len(self.entered[lane].prompt)
        end = begin + len(output)
        if int(table.length[lane]) - end not in (0, 1):
            return False
        return all(there in (own, -1) for own, there in zip(table.tokens[lane, begin:end].tolist(), output, strict=True))

    def leave(self, lane: int) -> None:
        """The request of a lane has left the batch, for good or for a while."""
        self.left.append(lane)

    @torch.no_grad()
    def draw(self, at: Tensor, logits: Tensor, lengths: Tensor, last: Tensor) -> Tensor:
        """Tokens int64[n] for logits [n, V] of lanes int64[n]. lengths: int64[n], tokens of the engine's text, prompt included.
        last: int64[n], the last of them; negative where the engine does not know it yet."""
        table = self.rows.lanes.table
        here = table.length[at]
        discarded = here == lengths + 1
        was = table.tokens[at, (lengths - 1).clamp(0, self.rows.capacity)]
        other = (~discarded & (here != lengths)) | ((last >= 0) & (last != was))
        other &= (at != self.spare) & ~table.lost[at]  # a text that ends with an error goes on by its end token
        undo = torch.zeros_like(table.lost).index_copy_(0, at, discarded)
        undo[self.spare] = True  # its text does not grow
        tokens = self.rows.step(at, logits, undo)
        self.foreign.index_copy_(0, at, self.foreign[at] | other)
        table.lost.index_copy_(0, at, table.lost[at] | other)
        return torch.where(self.rows.failed(at), self.ends[at], tokens)

    def report(self, lanes: Sequence[int]) -> None:
        """Log the errors of lanes, once each. On an accelerator that is a step late: nothing waits for it."""
        lost = self.rows.lanes.table.lost
        ready = None if lost.device.type == "cpu" else torch.Event(lost.device)
        self.late.append((lost.to("cpu", non_blocking=True), [(lane, self.entered[lane]) for lane in lanes], ready))
        if ready is not None:
            ready.record()
        while self.late and (self.late[0][2] is None or self.late[0][2].query()):
            flags, entries, _ = self.late.pop(0)
            for lane, entry in entries:
                if flags[lane] and not entry.told:
                    self.tell(lane, entry)

    def tell(self, lane: int, entry: Entered, why: str = "") -> None:
        """Log that a request ends with an error."""
        entry.told = True
        if not why and self.foreign[lane]:
            why = (
                "the engine's text has another token than was drawn: a setting or another processor behind this one chooses "
                "tokens (a thinking budget, a trace)"
            )
        why = why or "no token was left to draw, or a number was none: bans, masks and the model come before the program"
        log.error(
            "%s ends request %s (seed %s, prompt of %d tokens %s...) by token %d: %s",
            self.rows.module.main, entry.settings.get("request_id", 0), entry.settings.get("seed", "none"), len(entry.prompt),
            list(entry.prompt[:8]), int(self.ends[lane]), why,
        )  # fmt: skip


def only(logits: Tensor, tokens: Tensor) -> Tensor:
    """Rows [n, V] that let one token through, int64[n], whatever is done to them; negative: the row stays as it is."""
    none = tokens < 0
    at = tokens.clamp(min=0)[:, None]
    alone = torch.where(none[:, None], logits, -torch.inf)
    return alone.scatter_(1, at, torch.where(none[:, None], logits.gather(1, at), 0.0))
