"""The KV caches of finished runs, for prompts that begin as an earlier text did: the next turn of a chat, one long preamble."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decgraph.backends.torch.machine import TorchMachine
    from decgraph.runtime.models.engine.causal import CausalEngine
    from decgraph.runtime.models.engine.saved_rows import SavedRows
    from decgraph.runtime.models.interface import Model

LEAST = 16
"""Tokens below which two texts that begin alike are not worth a copy."""


class PrefixCopies:
    """At most `budget` bytes of keys and values, copied out of the engines, the least recently used dropped first. They are
    found by what a text begins with, whatever algorithm wrote it. To be used by the thread that owns the engines."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes = 0
        self._copies: OrderedDict[int, tuple[CausalEngine, SavedRows]] = OrderedDict()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._copies)

    def attach(self, machine: TorchMachine) -> int:
        """Called before a run: give it what an earlier one left. Returns how many tokens of its main model that covers."""
        from decgraph.runtime.models.engine.saved_rows import put_back

        if not self.budget:
            return 0
        machine.reuse(("prefix", next(self._numbers)))
        prompt, covered = machine.request.prompt, 0
        for model, engine in _engines(machine):
            best, length = None, LEAST - 1
            for number, (owner, rows) in self._copies.items():
                if owner is engine and (same := alike(rows.tokens, prompt)) > length:
                    best, length = number, same
            if best is not None and put_back(engine, machine.engines.sequence, self._copies[best][1], length):
                self._copies.move_to_end(best)
                covered = length if model is machine.main else covered
        return covered

    def detach(self, machine: TorchMachine, *, keep: bool) -> None:
        """Called after a run: take its KV cache, or with `keep` unset free it."""
        from decgraph.runtime.models.engine.saved_rows import copied

        if machine.engines.cache_key is None:
            return
        for _, engine in _engines(machine) if keep else ():
            rows = copied(engine, machine.engines.cache_key)
            if rows is not None and len(rows.tokens) >= LEAST and rows.bytes <= self.budget:
                self._keep(engine, rows)
        machine.forget(machine.models, machine.engines.cache_key[1])

    def _keep(self, engine: CausalEngine, rows: SavedRows) -> None:
        for number, (owner, other) in list(self._copies.items()):
            if owner is not engine:
                continue
            same = alike(other.tokens, rows.tokens)
            if same == len(rows.tokens):
                self._copies.move_to_end(number)  # it has all of them
                return
            if same == len(other.tokens):
                self._drop(number)
        self._copies[next(self._numbers)] = (engine, rows)
        self.bytes += rows.bytes
        while self.bytes > self.budget:
            self._drop(next(iter(self._copies)))

    def _drop(self, number: int) -> None:
        self.bytes -= self._copies.pop(number)[1].bytes


def alike(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    most = min(len(mine), len(theirs))
    if tuple(mine[:LEAST]) != tuple(theirs[:LEAST]):
        most = min(most, LEAST)
    return next((n for n in range(most) if mine[n] != theirs[n]), most)


def _engines(machine: TorchMachine) -> Iterator[tuple[Model, CausalEngine]]:
    """The causal models of a run, and the engine of each; an engine of two models once."""
    from decgraph.runtime.models.engine.saved_rows import core_of

    seen: set[int] = set()
    for model in machine.models.values():
        engine = core_of(model)
        if engine is not None and id(engine) not in seen:
            seen.add(id(engine))
            yield model, engine
