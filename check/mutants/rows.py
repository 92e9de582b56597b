"""Bugs of what draws and rows are made of, as machines that have them: noise that is shared, keys and values of another path,
requests that reach some of the rows only, rows of another position or canvas."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.reference.protocols import Context, RowSource, States
from decgraph.check.mutant import Mutant
from decgraph.check.profile import AlgorithmProfile
from decgraph.ir import machine
from decgraph.ir.data.dist import Dist, Row, Symbol
from decgraph.ir.data.noise import NoiseKey
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Tree
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Cell, Memory, Model, Scores
from decgraph.runtime.noise import Key
from decgraph.runtime.request import Request


class Keyed(ExactMachine):
    """Keys of draws go through `other`."""

    def key(self, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> Key:
        place = super().key(key, lane, row, index)
        return place if key.kind == "output" else self.other(place)

    def other(self, place: Key) -> Key:
        return place


class OneForSiblings(Keyed):
    """Siblings drawn with replacement read one noise: they are one token."""

    def other(self, place: Key) -> Key:
        return replace(place, lane=place.lane[:1])


class OneForIterations(Keyed):
    """The drafts of one step, or its coins, read one noise."""

    def other(self, place: Key) -> Key:
        return replace(place, counters=place.counters[:1])


class OneForSteps(Keyed):
    """Every step reads the noise of the first."""

    def other(self, place: Key) -> Key:
        return replace(place, counters=(0, *place.counters[1:]))


class OneForSites(Keyed):
    """The token after a rejection reads the noise of the rejected draft."""

    def other(self, place: Key) -> Key:
        return replace(place, site="", counters=place.counters[:1])


class OutputShifted(ExactMachine):
    """The output stream is read one position late: another text for the same seed."""

    def key(self, key: NoiseKey, lane: tuple[int, ...], row: Row | None = None, index: int | None = None) -> Key:
        place = super().key(key, lane, row, index)
        if key.kind != "output":
            return place
        return replace(place, counters=(*place.counters[:-1], place.counters[-1] + 1))


def sampled(f: AlgorithmProfile) -> bool:
    """Whether a program claims `in distribution` and a rule reads the distributions of its sampled drafts."""
    return f.reads_rows and f.sampled and "distribution" in f.modes


class SlotCache(ExactMachine):
    """The target's keys and values stand in slots by position; `fill` says what a verification leaves in them."""

    def start_run(self) -> None:
        super().start_run()
        self.slots: dict[int, Symbol] = {}
        self.filling: dict[int, Symbol] = {}

    def fill(self, t: Tree) -> dict[int, Symbol]:
        return {}

    def keep(self, before: int) -> None:
        """After a commit: what stays in the slots. `before`: tokens of the context before it."""

    def evaluate(self, op: Op, model: machine.Model, place: Datum, extra: dict[str, Datum]) -> Dist:
        if model is self.main and isinstance(place, Tree) and isinstance(place.base, tuple) and len(place) > 1:
            self.filling = self.fill(place)
        return super().evaluate(op, model, place, extra)

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        before = len(self.tokens)
        super().commit(op, x, tree)
        self.slots = {**self.slots, **self.filling}
        self.filling = {}
        self.keep(before)

    def score_paths(self, model: Model, states: Sequence[Context], given: Memory | None) -> list[Callable[[], Scores]]:
        if model is self.main and self.slots:
            committed = len(self.tokens)
            states = [tuple(self.slots.get(i, x) if i < committed else x for i, x in enumerate(s)) for s in states]
        return super().score_paths(model, states, given)


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

    def keep(self, before: int) -> None:
        self.slots = {i: x for i, x in self.slots.items() if i < len(self.tokens) - 1}


class Leaking(ExactMachine):
    """The verification's mask lets a node see its siblings."""

    leaks = False

    def evaluate(self, op: Op, model: machine.Model, place: Datum, extra: dict[str, Datum]) -> Dist:
        self.leaks = model is self.main and isinstance(place, Tree)
        try:
            return super().evaluate(op, model, place, extra)
        finally:
            self.leaks = False

    def place_states(self, place: Datum, extra: dict[str, Datum]) -> States:
        states, shape, ids = super().place_states(place, extra)
        if self.leaks and isinstance(place, Tree) and isinstance(place.base, tuple):
            states = [place.base + tuple(place.tokens(n)[-1] for n in range(1, i + 1)) for i in range(len(place))]
        return states, shape, ids


def verified(f: AlgorithmProfile) -> bool:
    """Whether a program verifies every draft by a causal model and claims the tokens or the distribution of another."""
    return f.lossless and f.causal and not f.unwalked


class Elsewhere(ExactMachine):
    """The rows of the target below the root, and those that the program shapes itself, come from another request or path."""

    def changed(self, request: Request) -> Request:
        return request

    def instead(self, path: Context) -> Context:
        return path

    def model_row(self, source: RowSource) -> Row:
        model, path = source.model, source.path
        below = len(path) > len(self.context()) if model is None else model is self.main and source.node
        if not below or self.parent is not None:
            return super().model_row(source)
        other = copy.copy(self)
        other.request = self.changed(self.request)
        return ExactMachine.model_row(other, replace(source, path=self.instead(path), position=len(path)))


class NoConstraints(Elsewhere):
    """Bans and the minimum length are forgotten at drafted nodes."""

    def changed(self, request: Request) -> Request:
        return replace(request, bans=frozenset(), min_length=0, allow=None)


class NoShaping(Elsewhere):
    """Top-k, top-p, min-p, penalties and biases are forgotten at drafted nodes."""

    def changed(self, request: Request) -> Request:
        return replace(request, top_k=None, top_p=None, min_p=None, bias={}, presence_penalty=0)


class RootPath(Elsewhere):
    """Penalties and the minimum length at a node count the root's path."""

    def instead(self, path: Context) -> Context:
        return self.context()


def below(f: AlgorithmProfile) -> bool:
    """The target's rows below the root decide something."""
    return f.lossless and f.causal and f.depth >= 1


class Uniform(ExactMachine):
    """Draws are uniform over the vocabulary: tokens without mass are drawn."""

    def race_token(self, place: Key, q: Sequence[Number] | np.ndarray, name: str) -> int:
        return super().race_token(place, (1,) * len(q), name)


class OneTokenLate(ExactMachine):
    """Rows are read one position early, and do not know the last token of their path."""

    def score_path(self, model: Model, state: Context, given: Memory | None) -> Scores:
        return super().score_path(model, state[:-1] if len(state) > 1 else state, given)


class Scored:
    """A masked model of which the scores of a canvas go through `scores` of the machine."""

    def __init__(self, model: Model, machine: CanvasScores) -> None:
        self.model, self.machine = model, machine

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)

    def after(self, prompt: int) -> Scored:
        return Scored(self.model.after(prompt), self.machine)

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], given: Memory | None) -> list[Scores]:
        return self.machine.scores(self.model, cells, list(at), given)


class CanvasScores(ExactMachine):
    """The scores of canvases, which `scores` gets wrong."""

    def start_run(self) -> None:
        super().start_run()
        self.before: dict[str, tuple[Cell, ...]] = {}

    def scores(self, model: Model, cells: tuple[Cell, ...], at: list[int], given: Memory | None) -> list[Scores]:
        raise NotImplementedError

    def eval_canvases(self, op: Op, model: Model, place: Datum, extra: dict[str, Datum]) -> Dist:
        return super().eval_canvases(op, Scored(model, self), place, extra)  # type: ignore[arg-type]


class RowBeside(CanvasScores):
    """Every cell of a canvas reads the row of the one to its left."""

    def scores(self, model: Model, cells: tuple[Cell, ...], at: list[int], given: Memory | None) -> list[Scores]:
        if given is None:
            return list(model.eval_canvas(cells, [max(0, i - 1) for i in at], None))
        out = list(model.eval_canvas(cells, at, given))  # what was not recomputed has no row
        return out[:1] + out[:-1]


class RowsBefore(CanvasScores):
    """Cells are decided by the scores of the canvas before the last ones were decided."""

    def scores(self, model: Model, cells: tuple[Cell, ...], at: list[int], given: Memory | None) -> list[Scores]:
        before = self.before.get(model.name, cells)
        self.before[model.name] = cells
        return list(model.eval_canvas(before if len(before) == len(cells) else cells, at, given))


def supported(f: AlgorithmProfile) -> bool:
    """Whether a program claims `keeps support`."""
    return "keeps_support" in f.modes


MUTANTS = (
    # Lanes of nodes that stand side by side may share noise unseen: verification goes below one of them only.
    Mutant.of(
        OneForSiblings, "noise-shared-by-siblings", lambda f: sampled(f) and f.twice, "V = 3, two siblings", "M08; ar.md L7"
    ),
    Mutant.of(
        OneForIterations,
        "noise-shared-in-a-loop",
        lambda f: sampled(f) and f.depth >= 1 and f.height >= 2,
        "V = 2, two drafts",
        "M08; ar.md L7",
    ),
    Mutant.of(OneForSteps, "noise-shared-by-steps", sampled, "V = 2, one draft, two steps", "M08; ar.md L7", steps=2),
    # of several draws at once each has a number
    Mutant.of(
        OneForSites,
        "noise-shared-by-sites",
        lambda f: sampled(f) and f.rejected and "draw" in f.drafting,
        "V = 3, one draft",
        "M08",
    ),
    Mutant.of(OutputShifted, "output-shifted", lambda f: "tokens" in f.modes and f.output, "V = 2", "M44"),
    Mutant.of(
        Stale,
        "rollback-forgotten",
        lambda f: verified(f) and f.rejected,
        "V = 2, one draft, two steps",
        "M22, M23, M33",
        steps=2,
    ),
    # In a chain growth order is the path's order.
    Mutant.of(
        Scattered,
        "path-not-gathered",
        lambda f: verified(f) and f.width >= 2 and f.depth >= 1,
        "V = 2, two siblings, two steps",
        "M28, M36",
        steps=2,
    ),
    Mutant.of(
        Leaking, "siblings-seen", lambda f: verified(f) and f.spread and f.depth >= 1, "V = 2, two siblings", "M37; ar.md L2"
    ),
    Mutant.of(
        NoConstraints, "constraints-at-the-root-only", below, "V = 2, one draft, a ban", "M20, M55", worlds=(7, 5), asks=True
    ),
    Mutant.of(
        NoShaping,
        "shaping-at-the-root-only",
        below,
        "V = 3, one draft, top-k",
        "M06, M21, M54; ar.md L5",
        worlds=(3, 9, 13, 11),
        asks=True,
    ),
    Mutant.of(
        RootPath, "shaping-of-the-root's-path", below, "V = 2, one draft, a penalty", "M51, M52", worlds=(11, 5), asks=True
    ),
    # Where every token that can be drawn has mass in all worlds (a shuffle), uniform draws are the same; and another model's
    # support may allow whatever is drawn, or what of it is kept.
    Mutant.of(
        Uniform,
        "support-uniform-draw",
        lambda f: supported(f) and f.zeroed and not f.allied,
        "V = 3, a token without mass",
        worlds=(2,),
    ),
    Mutant.of(
        OneTokenLate,
        "support-one-token-late",
        lambda f: supported(f) and f.causal,
        "V = 3, a token without mass",
        "M09",
        worlds=(2,),
    ),
    Mutant.of(RowBeside, "support-row-beside", lambda f: supported(f) and not f.causal, "V = 3, two cells", worlds=(2,)),
    # A canvas that is scored once, before any of its cells is decided, has no scores from before.
    Mutant.of(RowsBefore, "support-rows-before", lambda f: supported(f) and f.rescored, "V = 3, two cells", worlds=(2,)),
)
