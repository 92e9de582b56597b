"""Machines with bugs that engines had, below what a program can say: wrong distributions of drafts, ends of text that are not
seen, noise that is shared, keys and values of another path, requests that reach some rows only."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.reference.protocols import Context, RowSource
from decgraph.ir import machine
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, NoiseKey, Path, Row, Symbol
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Memory, Model, Scores
from decgraph.runtime.noise import Key
from decgraph.runtime.stop import StopMachine


class Unconditional(ExactMachine):
    """Draws without replacement are tested with the distribution of the first."""

    def siblings(self, op: Op, row: Row, face: str, place: Key, k: int, lane: int, race: bool = False) -> list[Draw]:
        out = super().siblings(op, row, face, place, k, lane, race)
        for d in out:
            d.law = row
        return out


class PointsAsDrawn(ExactMachine):
    """The likeliest tokens are tested as if they had been drawn."""

    def walk(self, op: Op, t: Tree, evidence: Datum, rest: tuple[Datum, ...]) -> Path | Canvas:
        for n in t.nodes:
            if isinstance(n.edge, Draw) and n.edge.point:
                n.edge.law, n.edge.law_face = n.edge.source, "shaped"
        return super().walk(op, t, evidence, rest)


class OncePerStep(ExactMachine):
    """An end of text inside an accepted path is not seen: stops are tested once a step."""

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        tokens = [edge_token(t) for t in self.commit_tokens(x, tree)]
        if self.parent is not None or len(tokens) < 2 or self.done():
            super().commit(op, x, tree)
            return
        *inner, last = tokens
        self.tokens += inner
        self.stop_state = replace(self.stop_state, count=self.stop_state.count + len(inner))
        if not self.stop_state.done:
            self.tokens.append(last)
            self.stop_state = StopMachine.feed(self.stop_state, last)
        self.learn_committed(self.tokens[-len(tokens) :])


class OneForIterations(ExactMachine):
    """The drafts of one step, or its coins, read one noise."""

    def key(self, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> Key:
        place = super().key(key, lane, row, index)
        return place if key.kind == "output" else replace(place, counters=place.counters[:1])


class OneForSites(ExactMachine):
    """The token after a rejection reads the noise of the rejected draft."""

    def key(self, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> Key:
        place = super().key(key, lane, row, index)
        return place if key.kind == "output" else replace(place, site="", counters=place.counters[:1])


class OutputShifted(ExactMachine):
    """The output stream is read one position late: another text for the same seed."""

    def key(self, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> Key:
        place = super().key(key, lane, row, index)
        shifted = (*place.counters[:-1], place.counters[-1] + 1)
        return replace(place, counters=shifted) if key.kind == "output" else place


class SlotCache(ExactMachine):
    """The target's keys and values stand in slots by position; `fill` says what a verification leaves in them."""

    def start_run(self) -> None:
        super().start_run()
        self.slots: dict[int, Symbol] = {}
        self.filling: dict[int, Symbol] = {}

    def fill(self, t: Tree) -> dict[int, Symbol]:
        return {}

    def evaluate(self, op: Op, model: machine.Model, place: Datum, extra: dict[str, Datum]) -> Dist:
        if model is self.main and isinstance(place, Tree) and isinstance(place.base, tuple) and len(place) > 1:
            self.filling = self.fill(place)
        return super().evaluate(op, model, place, extra)

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        super().commit(op, x, tree)
        self.slots = {**self.slots, **self.filling}
        self.filling = {}

    def score_paths(self, model: Model, states: Sequence[Context], memory: Memory | None) -> list[Callable[[], Scores]]:
        if model is self.main and self.slots:
            committed = len(self.tokens)
            states = [tuple(self.slots.get(i, x) if i < committed else x for i, x in enumerate(s)) for s in states]
        return super().score_paths(model, states, memory)


class Stale(SlotCache):
    """Keys and values of a rejected draft are read as those of the token that replaced it."""

    def fill(self, t: Tree) -> dict[int, Symbol]:
        node, out = 0, {}
        while t.children(node):
            node = t.children(node)[0]
            out[len(t.base) + t.nodes[node].depth - 1] = t.tokens(node)[-1]
        return out


class Scattered(SlotCache):
    """The accepted path's keys and values are taken from the first slots of the tree."""

    def fill(self, t: Tree) -> dict[int, Symbol]:
        return {len(t.base) + i - 1: t.tokens(i)[-1] for i in range(1, len(t))}

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        super().commit(op, x, tree)
        self.slots = {i: x for i, x in self.slots.items() if i < len(self.tokens) - 1}


class NoShaping(ExactMachine):
    """Top-k, top-p, min-p, penalties and biases are forgotten at drafted nodes."""

    def model_row(self, source: RowSource) -> Row:
        path = source.path
        below = len(path) > len(self.context()) if source.model is None else source.model is self.main and source.node
        if not below or self.parent is not None:
            return super().model_row(source)
        other = copy.copy(self)
        other.request = replace(self.request, top_k=None, top_p=None, min_p=None, bias={}, presence_penalty=0)
        return ExactMachine.model_row(other, replace(source, position=len(path)))


class OneTokenLate(ExactMachine):
    """Rows are read one position early, and do not know the last token of their path."""

    def score_path(self, model: Model, state: Context, memory: Memory | None) -> Scores:
        return super().score_path(model, state[:-1] if len(state) > 1 else state, memory)
