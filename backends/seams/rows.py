"""One-call programs over rows of logits: what an engine's logits processor needs.

The program draws, with its own noise, and the engine lets nothing else through: whatever the engine does to the row afterwards,
states are up to date in the same step, and tokens are those of `decgraph.run`. Tensors in, tensors out; nothing is read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.seams.seam import PLAIN, SETTINGS, Seam
from decgraph.backends.triton import shaping
from decgraph.backends.triton.replay import Replayed
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Shared
from decgraph.errors import DecError
from decgraph.ir.text import parse_module
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.refused import refuse_unread, unread
from decgraph.runtime.request import Request

GROUP = 8
"""A batch of more rows than that is computed as a multiple of it, so that few sizes have a step of their own."""


class Rows:
    """One program for requests that come and go. lanes: how many it may hold at once, preempted ones among them; capacity:
    tokens of a text; vocab: columns of logits; open: parameters that a request may set for itself. Raises NotSteppable for a
    program that does not draw one token from one row of logits, DecError for wrong values of parameters."""

    def __init__(
        self, program: str, params: Mapping[str, ParamValue] | None = None, *, lanes: int, capacity: int, vocab: int,
        device: torch.device | str = "cpu", open: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.module, self.params, self.open = parse_module(program), dict(params or {}), tuple(open)
        self.capacity, self.vocab, self.device = capacity, vocab, torch.device(device)
        self.table = self._seam(lanes, SETTINGS)
        if self.table.loop is None:
            raise NotSteppable("it has no loop `while not done`")
        self.unread = unread(self.module.entry)
        self.needs = [PLAIN] * lanes
        self.steps: dict[tuple[int, frozenset[str]], Seam] = {}
        self.recorded: dict[tuple[int, frozenset[str]], Replayed] = {}
        self.before: dict[int, Tensor] = {}
        """By place in `lasting`: what the lanes had before their last step."""

    def _seam(self, lanes: int, features: frozenset[str]) -> Seam:
        return Seam(
            self.module, self.params, vocab=self.vocab, lanes=lanes, capacity=self.capacity, device=self.device,
            features=features, open=self.open,
        )  # fmt: skip

    @property
    def stateless(self) -> bool:
        """Whether a request can go on from its text alone, so that none has to be found again."""
        s = self.table
        return not s.states and all(not isinstance(v, Tensor) for v in s.carried)

    def check(self, settings: Mapping[str, Any], params: Mapping[str, float] | None = None) -> None:
        """Raises DecError for settings that the program does not read, and for values that its parameters do not take."""
        for name in params or {}:
            if name not in self.open:
                known = f"a request may set {', '.join(self.open)}" if self.open else "a request may set none"
                raise DecError(f"{self.module.main} has no parameter `{name}` of a request's own", hint=known)
        refuse_unread(self.module.entry, Request(prompt=(0,), max_tokens=1, **settings), self.unread)

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
        self.table.enter(lane, prompt, output, settings=chosen, params=params)
        self.needs[lane] = shaping.need(Request(prompt=tuple(prompt), max_tokens=1, **chosen))

    @torch.no_grad()
    def step(self, at: Tensor, logits: Tensor, undo: Tensor | None = None) -> Tensor:
        """Tokens int64[n] for logits [n, V] of the lanes int64[n]. undo: bool[lanes], of which the engine did not take the last
        token, as of a part of a prompt."""
        table, n = self.table, len(at)
        if undo is not None and self.before:
            for place, (container, key) in enumerate(table.lasting()):
                now = container[key]
                if isinstance(now, Tensor):
                    old = self.before[place].to(now.dtype)
                    now.copy_(torch.where(undo.reshape(-1, *[1] * (now.ndim - 1)), old, now))
        size = n if n <= GROUP else -(-n // GROUP) * GROUP
        which = size, frozenset().union(PLAIN, *self.needs)
        s = self.steps.get(which) or self._sized(*which)
        rows = torch.cat([at, at[:1].expand(size - n)])
        for pairs in (zip(table.constant_rows(), s.constant_rows(), strict=True), zip(table.lasting(), s.lasting(), strict=True)):
            for (source, key), (target, _) in pairs:
                if isinstance(source[key], Tensor):
                    there = source[key].index_select(0, rows)
                    if isinstance(target[key], Tensor) and target[key].dtype == there.dtype:
                        target[key].copy_(there)
                    else:
                        target[key] = there
        assert s.logits is not None
        s.logits[:n].copy_(logits)
        s.done.fill_(False)
        length = s.length.clone()
        self._run(which, s)
        s.flag(s.length != length + 1)  # one token a step is what the engine asks for
        for place, ((container, key), (made, _)) in enumerate(zip(table.lasting(), s.lasting(), strict=True)):
            new = made[key]
            if not isinstance(new, Tensor) or isinstance(container[key], Shared):
                continue
            old = container[key] if isinstance(container[key], Tensor) else table.lanes(container[key]).clone()
            container[key] = old = old.to(torch.promote_types(old.dtype, new.dtype))
            was = self.before.get(place)
            was = self.before[place] = torch.zeros_like(old) if was is None else was.to(old.dtype)
            was.index_copy_(0, at, old.index_select(0, at))
            old.index_copy_(0, at, new[:n].to(old.dtype))
        last = length[:n].clamp(max=self.capacity)
        tokens = s.tokens[:n].gather(1, last[:, None])[:, 0]
        table.tokens[at, last] = tokens
        return tokens

    def _sized(self, size: int, features: frozenset[str]) -> Seam:
        """A step of so many rows."""
        s = self.steps[size, features] = self._seam(size, features)
        for row in range(size):
            s.admit(row, Request(prompt=(0,), max_tokens=1))
        s.begin_lanes(range(size), torch.ones_like(s.done))
        s.logits = torch.zeros((size, self.vocab), dtype=torch.float32, device=self.device)
        return s

    def _run(self, which: tuple[int, frozenset[str]], s: Seam) -> None:
        """One step: on a CUDA device recorded, once it has run."""
        if which in self.recorded:
            self.recorded[which]()
        elif self.device.type == "cuda" and s.counts.calls:
            self.recorded[which] = Replayed(s.body, s, self.device)
        else:
            s.body()

    def failed(self, at: Tensor) -> Tensor:
        """bool[n]: lanes in which the program has met an error, which `decgraph.run` would word."""
        return self.table.lost[at]
