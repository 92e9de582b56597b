"""Models with layers, evaluated position by position: the skeleton that the free and the tiny model share.

A subclass implements embedding, keys and values, a step of attention, and read-out. This file defines every
model call: which positions are computed, which positions they attend to, which rows a memory keeps, and how
models that share weights are derived. It is written for clarity, not for speed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.interface import (
    Cell,
    LayerMemory,
    Memory,
    Model,
    Number,
    Path,
    Row,
    Scores,
    check_cells,
    check_family,
    first_computed,
    sees,
)
from decgraph.runtime.models.parts import LayerUse, check_layers, grouped, no_such, skip_name, without

_REMEMBERED = 50_000  # columns kept for causal prefixes before the memo starts afresh


@dataclass(frozen=True)
class LayerStates:
    """The results at one position: the state entering each layer and the last one, and each layer's
    K/V. A layer that the model does not use has no row.
    """

    states: Mapping[int, Row]
    kv: Mapping[int, Row]
    last: Row


class Layered(Model):
    """A model of `layers` layers of which it uses `uses`. Set in a subclass's constructor by `_setup`."""

    uses: tuple[LayerUse, ...]

    def _setup(self) -> None:
        self.uses = tuple(map(LayerUse, range(self.layers)))
        self._memo: dict[tuple[Cell, ...], LayerStates] = {}
        self.trunks: dict[int, Layered] = {}

    # A subclass implements these.

    def _embed(self, cell: Cell, position: int) -> Row:
        raise NotImplementedError

    def _keys_values(self, layer: int, position: int, state: Row) -> Row:
        raise NotImplementedError

    def _attention_logit(self, layer: int, position: int, state: Row, row: Row) -> Number:
        """q . k of the query at a position with a key row, the mean over heads."""
        raise NotImplementedError

    def _attend(self, layer: int, position: int, state: Row, rows: Sequence[Row], asks: Row | None = None) -> Row:
        """The next state from a state and the K/V rows it attends to, in order of position, its own among them. asks: the state
        whose query attends, where that is another one."""
        raise NotImplementedError

    def _attention(self, layer: int, position: int, state: Row, rows: Sequence[Row], asks: Row | None = None) -> Row:
        """The result of `_attend` if the layer's MLP is skipped."""
        raise NotImplementedError

    def _weights(self, layer: int, position: int, state: Row, rows: Sequence[Row]) -> Sequence[Number]:
        """How much attention a position gives each of these K/V rows, the mean over heads."""
        raise self._cannot("say what it attends to")

    def _mlp(self, layer: int, position: int, state: Row) -> Row:
        """The next state where the layer's attention is skipped."""
        raise NotImplementedError

    def read_state(self, state: np.ndarray) -> Scores:
        return self.read_out(state[0] if state.dtype == object else state)  # one object is a state without numbers

    def read_out(self, state: Row, head: int | None = None) -> Scores:
        """The scores of a last state, or those of the Medusa head `head`."""
        raise NotImplementedError

    def _coarse(self, bits: int) -> None:
        """Make this copy the `bits`-bit model of the same family."""
        raise NotImplementedError

    # The calls.

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        if self.kind != "causal":
            raise self._cannot("score the token after a path")
        return [self.read_out(self._path(path, memory)[len(path) - 1].last) for path in paths]

    def canvas_states(self, cells: tuple[Cell, ...], at: Sequence[int]) -> list[Row]:
        columns = self._canvas(cells, at, None)
        return [columns[i].last for i in at]

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        if self.kind != "masked":
            raise self._cannot("score the positions of a canvas")
        columns = self._canvas(cells, at, memory)
        return [self.read_out(columns[i].last) for i in at]

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, memory: Memory | None = None) -> Memory:
        cells = tuple(cells)
        if not cells:
            return Memory(self.family, 0, tuple(LayerMemory({}, {}) for _ in range(self.layers)))
        if self.kind == "causal":
            columns = self._path(cells, memory, at)
        else:
            columns = self._canvas(cells, range(len(cells)) if at is None else at, memory)
        made = self.remember(cells, columns)
        return made if memory is None else memory.join(made)

    def attention(self, path: Path, memory: Memory | None = None, last: int = 1) -> list[Number]:
        columns = self._path(path, memory)
        queries = sorted(columns)[-max(1, last) :]
        total: list[Number] = [Fraction(0) if self.exact else 0.0] * len(path)
        reads = {use.layer: use.layer if use.reads is None else use.reads for use in self.uses if use.attention}
        for layer in reads:
            rows = {} if memory is None else dict(memory.layers[layer].kv)
            rows.update({i: c.kv[layer] for i, c in columns.items()})
            for i in queries:
                seen = [j for j in sees(self.visibility, i, len(path)) if j in rows]
                weights = self._weights(layer, i, columns[i].states[reads[layer]], [rows[j] for j in seen])
                for j, w in zip(seen, weights, strict=True):
                    total[j] += w
        return [w / (len(queries) * max(1, len(reads))) for w in total]

    def remember(self, cells: Sequence[Cell], columns: Mapping[int, LayerStates]) -> Memory:
        """The memory with these columns of `cells`."""
        return Memory(
            self.family,
            len(cells),
            tuple(
                LayerMemory(
                    {i: c.kv[layer] for i, c in columns.items() if layer in c.kv},
                    {i: c.states[layer] for i, c in columns.items() if layer in c.states},
                )
                for layer in range(self.layers)
            ),
            {i: c.last for i, c in columns.items()},
            {i: cells[i] for i in columns},
        )

    def cell(self, path: Sequence[Cell], before: Sequence[LayerStates]) -> LayerStates:
        """The column at the end of a causal path, computed from the columns before it, whatever they were computed from."""
        cells = check_cells(self, path)
        return self._column(cells, len(cells) - 1, dict(enumerate(before)))

    def heads(self, path: Path) -> list[Scores]:
        if not self.heads_count:
            raise self._cannot("answer with heads")
        last = self._path(path, None)[len(path) - 1].last
        return [self.read_out(last, head) for head in range(self.heads_count)]

    def hidden(self, path: Path, layer: int, memory: Memory | None = None) -> dict[int, Row]:
        """The state entering `layer` (the last state if that is past the end) at every position of a path:
        computed where the path's call computes, taken from `memory` where it has one."""
        columns = self._path(path, memory)
        old: Mapping[int, Row] = {}
        if memory is not None:
            old = memory.layers[layer].states if layer < self.layers else memory.features
        new = {i: c.states[layer] if layer < self.layers else c.last for i, c in columns.items()}
        return {**{i: r for i, r in old.items() if i < len(path)}, **new}

    def hidden_at_ends(self, paths: Sequence[Path], layer: int, memory: Memory | None = None) -> list[Row]:
        """The state at the end of each path after those of the first `layer` layers that the model uses."""
        trunk = self.trunks.setdefault(layer, self._using(f"upto({layer})", [use for use in self.uses if use.layer < layer]))
        return [trunk._path(path, memory)[len(path) - 1].last for path in paths]

    def forward_from(self, layer: int, states: Mapping[int, Row], memory: Memory | None) -> Scores:
        """The scores after the last of positions whose states enter `layer`, read on what `memory` has of the others."""
        state = dict(states)
        for use in self.uses:
            if use.layer < layer:
                continue
            rows = {} if memory is None else {i: r for i, r in memory.layers[use.layer].kv.items() if i not in state}
            if use.attention:
                rows |= {i: self._keys_values(use.layer, i, s) for i, s in state.items()}
            state = {i: self._next(use, i, s, [rows[j] for j in sorted(rows) if j <= i], s) for i, s in state.items()}
        return self.read_out(state[max(state)])

    def _path(self, path: Sequence[Cell], memory: Memory | None, at: Sequence[int] | None = None) -> dict[int, LayerStates]:
        """The columns that a causal call computes."""
        cells = check_cells(self, path)
        check_family(self, memory)
        if memory is None:
            columns = self._prefixes(cells)
            return columns if at is None else {i: columns[i] for i in at}
        fresh = at if at is not None else range(first_computed(cells, memory), len(cells))
        return self._compute(cells, fresh, memory)

    def _canvas(self, cells: tuple[Cell, ...], at: Iterable[int], memory: Memory | None) -> dict[int, LayerStates]:
        """The columns that a masked call computes, at least those of `at`."""
        cells = check_cells(self, cells)
        check_family(self, memory)
        at = tuple(at)
        if any(not 0 <= i < len(cells) for i in at):
            raise DecError(f"{self.name!r} was asked for a position outside 0..{len(cells) - 1}")
        return self._compute(cells, range(len(cells)) if memory is None else at, memory)

    def attention_logits(self, cells: Sequence[Cell], queries: Sequence[int]) -> list[list[Number]]:
        """See `Model.attention_logits`."""
        columns = self._canvas(tuple(cells), range(len(cells)), None)
        return [
            [
                sum(self._attention_logit(u.layer, i, columns[i].states[u.layer], columns[j].kv[u.layer]) for i in queries)
                / len(queries)
                for j in range(len(cells))
            ]
            for u in self.uses
            if u.attention
        ]

    def _prefixes(self, cells: tuple[Cell, ...]) -> dict[int, LayerStates]:
        """All columns of a causal path without a given memory, each remembered by its prefix."""
        columns: dict[int, LayerStates] = {}
        for i in range(len(cells)):
            prefix = cells[: i + 1]
            if prefix not in self._memo:
                if len(self._memo) >= _REMEMBERED:
                    self._memo.clear()
                self._memo[prefix] = self._column(cells, i, columns)
            columns[i] = self._memo[prefix]
        return columns

    def _column(self, cells: tuple[Cell, ...], i: int, before: Mapping[int, LayerStates]) -> LayerStates:
        state, states, kv = self._embed(cells[i], i), {}, {}
        for use in self.uses:
            layer = use.layer
            states[layer] = state
            rows: list[Row] = []
            asks = state if use.reads is None else states[use.reads]
            if use.attention:
                kv[layer] = self._keys_values(layer, i, asks)
                rows = [before[j].kv[layer] for j in range(i)] + [kv[layer]]
            state = self._next(use, i, state, rows, asks)
        return LayerStates(states, kv, state)

    def _next(self, use: LayerUse, position: int, state: Row, rows: Sequence[Row], asks: Row) -> Row:
        """The state after a layer, or after the half of it that is used."""
        if not use.attention:
            return self._mlp(use.layer, position, state)
        attend = self._attend if use.mlp else self._attention
        return attend(use.layer, position, state, rows, None if asks is state else asks)

    def _compute(self, cells: tuple[Cell, ...], fresh: Iterable[int], memory: Memory | None) -> dict[int, LayerStates]:
        """Layer by layer: the fresh positions see each other and what `memory` holds, as far as they see at
        all."""
        fresh = sorted(set(fresh))
        state = {i: self._embed(cells[i], i) for i in fresh}
        states: dict[int, dict[int, Row]] = {i: {} for i in fresh}
        kv: dict[int, dict[int, Row]] = {i: {} for i in fresh}
        for use in self.uses:
            layer = use.layer
            rows = dict(memory.layers[layer].kv) if memory is not None else {}
            for i in fresh:
                states[i][layer] = state[i]
                if use.attention:
                    rows[i] = kv[i][layer] = self._keys_values(layer, i, states[i][layer if use.reads is None else use.reads])
            state = {
                i: self._next(
                    use,
                    i,
                    state[i],
                    [rows[j] for j in sees(self.visibility, i, len(cells)) if j in rows],
                    states[i][layer if use.reads is None else use.reads],
                )
                for i in fresh
            }
        return {i: LayerStates(states[i], kv[i], state[i]) for i in fresh}

    # Derived models: the same weights, the same family, other layers.

    def derive(self, how: str, *args: object) -> Model:
        match how, args:
            case "exit", (int(n),) if 1 <= n <= self.layers:
                return self._using(f"exit({n})", [use for use in self.uses if use.layer < n])
            case "skip", (Set() as attention, Set() as mlp):
                check_layers(self, {*attention, *mlp})
                return self._using(skip_name(attention, mlp), without(self.uses, attention, mlp))
            case "parallel", (int(size),) if size >= 1:
                return self._using(f"parallel({size})", grouped(self.uses, size))
            case "quantized", (int(bits),) if 1 <= bits <= 16:
                made = self._copy(f"quantized({bits})")
                made._coarse(bits)
                return made
        raise no_such(self.name, self.layers, how, args)

    def _using(self, how: str, uses: Sequence[LayerUse]) -> Self:
        made = self._copy(how)
        made.uses = tuple(uses)
        return made

    def _copy(self, how: str) -> Self:
        made = copy.copy(self)
        made.name = f"{self.name}.{how}"
        made._memo, made.trunks = {}, {}
        return made
