"""The engine of models whose rotary frequencies change where a text grows past a boundary (`runtime/models/rotary.py`): two
engines, one of texts up to there and one of longer texts, each with a cache of its own.

Every row is read with the frequencies of its own path, so that a draft past the boundary changes none before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Counted, ForwardCall, Output, joined


class LengthsEngine:
    """make: the engine of texts up to the boundary (False) or past it (True); that of longer texts is made when one is."""

    def __init__(self, make: Callable[[bool], CausalEngine], boundary: int) -> None:
        self._make, self.boundary = make, boundary
        self._engines = {False: make(False)}
        self._budget: int | None = None

    def _of(self, past: bool) -> CausalEngine:
        if past not in self._engines:
            self._engines[past] = self._make(past)
            if self._budget is not None:
                self._engines[past].limit(self._budget)
        return self._engines[past]

    @property
    def counted(self) -> Counted:
        """The counters of both."""
        total = Counted()
        for engine in self._engines.values():
            total.add(engine.counted)
        return total

    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call, or its DecError."""
        asked: dict[bool, list[tuple[int, list[int], ForwardCall]]] = {False: [], True: []}
        for n, call in enumerate(calls):
            for past, places, part in self._parts(call):
                asked[past].append((n, places, part))
        found: list[list[tuple[list[int], Output]]] = [[] for _ in calls]
        for past, parts in asked.items():
            if parts:
                for (n, places, _), made in zip(parts, self._of(past).compute([p for *_, p in parts]), strict=True):
                    found[n].append((places, made))
        return [joined(pieces) for pieces in found]

    def _parts(self, call: ForwardCall) -> list[tuple[bool, list[int], ForwardCall]]:
        """The call of each engine, and which of the rows it computes."""
        first = len(call.context)
        if first > self.boundary or not len(call.parents):
            return [(first > self.boundary, list(range(len(call.rows))), call)]
        lengths = {-1: first}
        for node, parent in enumerate(call.parents):
            lengths[node] = lengths[int(parent)] + 1
        near = [place for place, row in enumerate(call.rows) if lengths[int(row)] <= self.boundary]
        far = [place for place, row in enumerate(call.rows) if lengths[int(row)] > self.boundary]
        if not far:
            return [(False, near, call)]
        parts = [(True, far, replace(call, rows=[call.rows[place] for place in far]))]
        return [(False, near, self._up_to(call, lengths, near)), *parts] if near else parts

    def _up_to(self, call: ForwardCall, lengths: dict[int, int], near: list[int]) -> ForwardCall:
        """The call without the nodes past the boundary."""
        kept = [node for node in range(len(call.parents)) if lengths[node] <= self.boundary]
        place = {-1: -1} | {node: n for n, node in enumerate(kept)}
        tokens = call.draft_tokens()
        return replace(
            call,
            tokens=[tokens[node] for node in kept],
            parents=[place[int(call.parents[node])] for node in kept],
            uids=[call.uids[node] for node in kept],
            rows=[place[int(call.rows[n])] for n in near],
            soft={place[node]: mixture for node, mixture in call.soft.items() if node in place},
        )

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes: half of it for each of the two."""
        self._budget = budget // 2
        for engine in self._engines.values():
            engine.limit(self._budget)

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Whether there is a decoder to compile."""
        compiled = [engine.compile(notice) for engine in self._engines.values()]
        return any(compiled)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence and free its slots."""
        for engine in self._engines.values():
            engine.close(sequence)

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Keep a sequence's rows of the longest common beginning with a new request's prompt."""
        for engine in self._engines.values():
            engine.rewind(sequence, context)
