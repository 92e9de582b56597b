"""One-call programs over rows of logits: what an engine's logits processor needs.

The program draws, with its own noise, and the engine lets nothing else through: whatever the engine does to the row afterwards,
states are up to date in the same step, and tokens are those of `decgraph.run`. Tensors in, tensors out; nothing is read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.seams.seam import Lanes, Seam, checked, read
from decgraph.backends.triton.replay import Replayed
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.refused import unread


class Rows:
    """One program for requests that come and go. program: its module, or the text of one; lanes: how many requests there may be
    at once, preempted ones among them; capacity: tokens of a text; vocab: columns of logits; open: parameters that a request
    may set for itself. Raises NotSteppable for a program that does not draw one token from one row of logits, DecError for
    wrong values of parameters."""

    def __init__(
        self, program: str | Module, params: Mapping[str, ParamValue] | None = None, *, lanes: int, capacity: int, vocab: int,
        device: torch.device | str = "cpu", open: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.module, self.params, self.open = read(program), dict(params or {}), tuple(open)
        self.capacity, self.vocab, self.device = capacity, vocab, torch.device(device)
        self.lanes = Lanes(lanes, self._seam)
        if self.lanes.table.loop is None:
            raise NotSteppable("it has no loop `while not done`")
        self.loop = self.lanes.table.loop
        self.unread = unread(self.module.entry)
        self.records = self.device.type == "cuda"
        """Whether a step is recorded, once it has run."""
        self.recorded: dict[Seam, Replayed] = {}

    def _seam(self, lanes: int, features: frozenset[str]) -> Seam:
        return Seam(
            self.module, self.params, vocab=self.vocab, lanes=lanes, capacity=self.capacity, device=self.device,
            features=features, open=self.open,
        )  # fmt: skip

    @property
    def stateless(self) -> bool:
        """Whether a request can go on from its text alone, so that none has to be found again."""
        return not self.loop.operands and all(state.type.elem == "index" for state in self.module.entry.states)

    def check(self, settings: Mapping[str, Any], params: Mapping[str, float] | None = None) -> None:
        """Raises DecError for settings that the program does not read, and for values that its parameters do not take."""
        checked(self.module, self.params, self.open, settings, params or {})

    def enter(
        self, lane: int, prompt: Sequence[int], output: Sequence[int] = (), *, settings: Mapping[str, Any] | None = None,
        params: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """A request begins in a lane. output: what it has generated before, of a program that is `stateless`. settings: fields
        of `Request`, the seed and the id of its noise among them. Raises DecError as `check` does."""
        chosen = dict(settings or {})
        self.check(chosen, params)
        if output and not self.stateless:
            raise DecError(
                f"{self.module.main} has states, which are not in the text of a request that goes on",
                hint="name the request, so that it is found again after a preemption",
            )
        self.lanes.enter(lane, prompt, output, settings=chosen, params=params)

    @torch.no_grad()
    def step(self, at: Tensor, logits: Tensor, undo: Tensor | None = None) -> Tensor:
        """Tokens int64[n] for logits [n, V] of the lanes int64[n]. undo: bool[lanes], of which the engine did not take the last
        token, as of a part of a prompt."""
        s = self.lanes.step(at, undo)
        if s.logits is None:
            s.logits = torch.zeros((s.batch, self.vocab), dtype=torch.float32, device=self.device)
        s.logits[: len(at)].copy_(logits)
        length = s.length.clone()
        self._run(s)
        s.flag((s.length != length + 1) | (s.length > self.capacity))  # one token a step is what the engine asks for
        return self.lanes.store(at, s, 1)[:, 0]

    def _run(self, s: Seam) -> None:
        """One step."""
        if s in self.recorded:
            self.recorded[s]()
        elif self.records and s.counts.calls:
            self.recorded[s] = Replayed(s.body, s, self.device)
        else:
            s.body()

    def failed(self, at: Tensor) -> Tensor:
        """bool[n]: lanes in which the program has met an error, which `decgraph.run` would word."""
        return self.lanes.table.lost[at]
