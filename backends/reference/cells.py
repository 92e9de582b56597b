"""The KV cache of a call with attribute `reuse`: positions computed by earlier calls of the sequence, each kept once.

A slot of a causal model's cache is a token after the same tokens. It keeps what the model computed there, and a new slot is
computed from the cached ones before it, not from the text: a slot cached under a wrong prefix leads to wrong rows, which tests
with the free model show. A head on the target's features has two kinds of slots: those that read the target's features alone,
and those below the root that read its own, which are valid for that root only. A masked model computes all cells of a canvas
together; the result of its last call is returned again for the same canvas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from decgraph.ir.values import Op
from decgraph.runtime.models import interface
from decgraph.runtime.models.features import Features
from decgraph.runtime.models.interface import Memory, Model, Scores
from decgraph.runtime.models.layered import Layered, LayerStates


@dataclass
class Cell:
    """A cached position. `made`: the model's keys and values there (None where a model does not show them); `scores`: the row
    after it, where a call computed it."""

    states: LayerStates | None = None
    scores: Scores | None = None
    heads: list[Scores] | None = None
    below: dict[int, Cell] = field(default_factory=dict)


class CausalCells:
    """The KV cache of one causal model in one sequence, as a trie of tokens."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layered = model if isinstance(model, Layered) else None
        self.root = Cell()

    def find(self, above: Sequence[Cell], path: Sequence[int]) -> Cell | None:
        """The slot of the last token of `path`, given those above it; None if it is not cached."""
        return (above[-1] if above else self.root).below.get(path[-1])

    def keep(self, above: Sequence[Cell], path: Sequence[int], cell: Cell) -> None:
        (above[-1] if above else self.root).below[path[-1]] = cell

    def reach(self, path: Sequence[int]) -> tuple[list[Cell], int]:
        """The slots along a path, and how many of them had to be computed."""
        cells: list[Cell] = []
        computed = 0
        for i in range(len(path)):
            here = path[: i + 1]
            cell = self.find(cells, here)
            if cell is None:
                interface.check_path(self.model, here[-1:])
                before = [c.states for c in cells if c.states is not None]
                cell = Cell(None if self.layered is None else self.layered.cell(here, before))
                self.keep(cells, here, cell)
                computed += 1
            cells.append(cell)
        return cells, computed

    def scores(self, paths: Sequence[tuple[int, ...]]) -> tuple[list[Scores], int]:
        """The scores after each path, and how many positions were computed for them."""
        computed = 0
        ends: list[Cell] = []
        for path in paths:
            cells, new = self.reach(path)
            computed += new
            ends.append(cells[-1] if cells else self.root)
        open_ = list(dict.fromkeys((id(c), p) for c, p in zip(ends, paths, strict=True) if c.scores is None))
        if self.layered is not None and all(c is not self.root for c in ends):
            for c in ends:
                if c.states is not None:
                    c.scores = c.scores or self.layered.read_out(c.states.last)
        elif open_:
            got = dict(zip((i for i, _ in open_), self.model.eval([p for _, p in open_], None), strict=True))
            for c in ends:
                c.scores = c.scores or got[id(c)]
        return [c.scores for c in ends if c.scores is not None], computed

    def heads(self, path: tuple[int, ...]) -> tuple[list[Scores], int]:
        """Medusa's heads after a path."""
        cells, computed = self.reach(path)
        end = cells[-1] if cells else self.root
        if end.heads is None:
            layered, made = self.layered, end.states
            if layered is not None and made is not None and layered.heads_count:
                end.heads = [layered.read_out(made.last, h) for h in range(layered.heads_count)]
            else:
                end.heads = self.model.heads(path)
        return end.heads or [], computed

    def memory(self, path: tuple[int, ...]) -> tuple[Memory, int]:
        """The model's memory of a path."""
        cells, computed = self.reach(path)
        if self.layered is None:
            return self.model.memory(path, None, None), computed
        return self.layered.remember(path, {i: c.states for i, c in enumerate(cells) if c.states is not None}), computed


class FeatureCells:
    """The KV cache of a head on another model's features."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.slots: dict[tuple[int, tuple[int, ...]], interface.Row] = {}

    def key(self, path: tuple[int, ...], known: int) -> tuple[int, tuple[int, ...]]:
        """The key of the slot of a path's last token: at or above the root it depends on the target's features alone."""
        return (min(known, len(path) - 1) if len(path) - 1 > known else -1, path)

    def scores(self, paths: Sequence[tuple[int, ...]], memory: Memory) -> tuple[list[Scores], int]:
        """The scores after each path on the target's memory at the root's parent, and how many positions were computed."""
        computed, model = 0, self.model
        out: list[Scores] = []
        for path in paths:
            known = min(memory.length, len(path) - 1)
            own: dict[int, interface.Row] = {}
            for i in range(len(path)):
                key = self.key(path[: i + 1], known)
                if key not in self.slots:
                    computed += 1
                    self.slots[key] = None
                if i < known or not isinstance(model, Features):
                    continue
                if self.slots[key] is None:
                    self.slots[key] = model.feature(path[: i + 1], memory, own)
                own[i] = self.slots[key]
            if isinstance(model, Features) and own:
                out.append(model.target.read_out(own[len(path) - 1]))
            else:
                out += model.eval([path], memory)
        return out, computed


class CanvasCells:
    """The results of the last call of a masked model, by canvas, positions computed and memory seen."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.before: dict[object, dict[int, Scores]] = {}
        self.now: dict[object, dict[int, Scores]] = {}

    def begin(self) -> None:
        """Begin a call: only the results of the last one stay cached."""
        self.before, self.now = self.now, {}

    def key(self, cells: tuple[interface.Cell, ...], fresh: Sequence[int] | None, memory: Memory | None) -> object:
        return (cells, None if fresh is None else tuple(fresh), memory)

    def scores(
        self,
        cells: tuple[interface.Cell, ...],
        rows: Sequence[int],
        fresh: Sequence[int] | None,
        memory: Memory | None,
        prompt: int,
    ) -> tuple[list[Scores], int]:
        """The scores at `rows` of one canvas, and how many positions were computed for them. `fresh`: what a call on a memory
        computes. prompt: where the canvas begins."""
        key = self.key(cells, fresh, memory)
        known = self.now.get(key) or self.before.get(key) or {}
        computed = 0
        if any(r not in known for r in rows):
            at = fresh if memory is not None and fresh is not None else rows
            known = {**known, **dict(zip(at, self.model.after(prompt).eval_canvas(cells, at, memory), strict=True))}
            computed = len(at) if memory is not None else len(cells)
        self.now[key] = known
        return [known[r] for r in rows], computed


CanvasKey = tuple[tuple[interface.Cell, ...], tuple[int, ...] | None, int]
"""What a call of one canvas computed, as a key: its cells, the positions, and the memory that it saw."""
Computed = CanvasKey | tuple[CanvasKey, int]
"""A call of a canvas, or the scores of one of its cells."""


def canvas_key(cells: tuple[interface.Cell, ...], fresh: list[int] | None, memory: Memory | None) -> CanvasKey:
    """What a call of one canvas computed, as a key. Engines identify a memory by its storage and not by its numbers."""
    return (cells, None if memory is None or fresh is None else tuple(fresh), id(memory))


class LastCanvases:
    """What the last two calls of each masked model computed: the same again is no call."""

    def __init__(self) -> None:
        self.by_model: dict[int, list[tuple[set[Computed], Memory | None]]] = {}

    def new(self, model: Model, keys: set[Computed], memory: Memory | None) -> bool:
        """Whether none of the model's last two calls computed all of `keys`, which become the last call's. A memory in a key
        is kept alive with it."""
        before = self.by_model.setdefault(id(model), [])
        found = not keys <= {key for made, _ in before for key in made}
        self.by_model[id(model)] = [*before, (keys, memory)][-2:]
        return found

    def add_scores(self, model: Model, key: CanvasKey, length: int) -> None:
        """The last call has also the scores of a canvas's cells."""
        self.by_model[id(model)][-1][0].update((key, i) for i in range(length))


Store = CausalCells | FeatureCells | CanvasCells


class Sequences:
    """The KV caches of one sequence by name. A sub-run continues those of the models that were passed to it."""

    def __init__(self, outer: Sequences | None = None) -> None:
        self.stores: dict[str, Store] = {}
        self.outer = outer

    def store(self, op: Op, model: Model) -> Store | None:
        """The cache that a call continues; None where it computes from scratch."""
        name = op.attrs.get("reuse")
        return self.of(name, model) if name else None

    def of(self, name: str, model: Model) -> Store:
        """The cache called `name`; it belongs to the first model that used it."""
        if name not in self.stores:
            sorts: dict[str, type[Store]] = {"masked": CanvasCells, "features": FeatureCells}
            self.stores[name] = self.about(model) or sorts.get(model.kind, CausalCells)(model)
        return self.stores[name]

    def about(self, model: Model) -> Store | None:
        """The cache of a model in the runs around this one, or None."""
        if self.outer is None:
            return None
        mine = (s for s in self.outer.stores.values() if s.model is model)
        return next(mine, None) or self.outer.about(model)
