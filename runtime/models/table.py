"""Table models: the distribution after every context is an entry of a table, in fractions.

The entries are given, or drawn from a seed at first use and remembered. A counterexample shows the
entries that were touched (`describe`), so it can be checked by hand.

What an entry's key is: for a causal model the tokens seen, for a masked one the cells seen and the position.
With a given memory, cached cells are read as they were when they were computed. That makes a table model a
model of one layer whose key and value row is the cell itself.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Literal, Self

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.free import small_weights
from decgraph.runtime.models.interface import (
    Cell,
    LayerMemory,
    Memory,
    Model,
    OfTarget,
    Path,
    Row,
    Scores,
    Visibility,
    Vocab,
    check_cells,
    check_family,
    check_path,
    first_computed,
    sees,
)
from decgraph.runtime.models.parts import called
from decgraph.runtime.noise import hash32

Key = tuple[Row, ...]  # tokens, cells and positions, as described above
Weights = Sequence[Fraction | int | str]


class _Table:
    """The entries, given or generated, and which were touched."""

    def __init__(self, size: int, seed: int | None, entries: Mapping[Hashable, Weights], zeros: bool, power: int) -> None:
        self._size, self._seed, self.zeros, self.power = size, seed, zeros, power
        self._entries: dict[Key, tuple[Fraction, ...]] = {
            k if isinstance(k, tuple) else (k,): _row(v, size) for k, v in entries.items()
        }
        self.touched: dict[Key, Scores] = {}

    def __call__(self, key: Key, name: str) -> Scores:
        if key not in self.touched:
            if key in self._entries:
                weights = self._entries[key]
            elif self._seed is None:
                raise DecError(f"table model {name!r} has no entry for {_spell(key)}")
            else:
                weights = small_weights(f"{self._seed}:{key!r}", self._size, zeros=self.zeros, power=self.power)
            self.touched[key] = Scores(weights=weights)
        return self.touched[key]

    def entries(self) -> dict[Key, tuple[Fraction, ...]]:
        return {key: row.weights for key, row in self.touched.items() if row.weights is not None}

    def describe(self, title: str) -> str:
        rows = (f"  p(. | {_spell(k)}) = {_row_text(row)}" for k, row in self.entries().items())
        return "\n".join([title, *rows])


def _row_text(row: Sequence[Fraction]) -> str:
    """Every probability; of a large vocabulary those that are not zero, with their tokens, where they are few."""
    if len(row) > 16 and 2 * sum(map(bool, row)) < len(row):
        return ", ".join(f"{p} of token {t}" for t, p in enumerate(row) if p) + ", else 0"
    return " ".join(map(str, row))


def _row(weights: Weights, size: int) -> tuple[Fraction, ...]:
    row = tuple(Fraction(w) for w in weights)
    if len(row) != size or min(row) < 0 or not any(row):
        raise DecError(f"a row of a table with {size} tokens is {size} weights, not negative and not all zero: {row}")
    return tuple(w / sum(row) for w in row)


class Tabled(Model):
    """A model whose scores are entries of a table."""

    _table: _Table

    def entry(self, key: Key, name: str) -> Scores:
        """The scores under a key; errors call the model by this name. Raises DecError where the table has none."""
        return self._table(key, name)

    def apart(self) -> Self:
        """The same model with a list of touched entries of its own."""
        made = copy.copy(self)
        made._table = copy.copy(self._table)
        made._table.touched = {}
        return made

    def entries(self) -> dict[Key, tuple[Fraction, ...]]:
        """The entries used so far, in the order of their first use."""
        return self._table.entries()

    def forget(self) -> None:
        """Clear the record of used entries for `entries` and `describe`; the scores do not change."""
        self._table.touched.clear()


class TableModel(Tabled):
    """A table over `size` tokens.

    seed: entries not in `table` are drawn from it; without a seed they are errors. table: from the tokens
    seen (causal) or the cells seen and the position (masked, `((cells...), position)`) to weights. window:
    how many of the last tokens a causal entry depends on (0: none, the same row everywhere). zeros: some
    drawn tokens have no mass. power: drawn weights are perfect powers, so that temperatures stay rational.
    heads: how many Medusa heads. counted: somebody reads how many layers it has, so an exit after all of them is the
    table itself; else an exit at any layer is another one.
    """

    counted: bool = False

    def __init__(
        self,
        size: int,
        seed: int | None = None,
        table: Mapping[Hashable, Weights] | None = None,
        *,
        kind: Literal["causal", "masked"] = "causal",
        visibility: Visibility | None = None,
        window: int | None = None,
        zeros: bool = False,
        power: int = 1,
        heads: int = 0,
        vocab: str = "table",
        name: str = "",
        context: int | None = None,
        family: str = "",
    ) -> None:
        self.kind, self.vocab, self.exact, self.context = kind, Vocab(vocab, size), True, context
        self.visibility = visibility or ("causal" if kind == "causal" else "full")
        self.seed, self.window, self.heads_count = seed, window, heads
        self.name = name or f"table{'' if seed is None else seed}"
        self.family = family or f"{self.name}({kind}, {size})"
        self._table = _Table(size, seed, table or {}, zeros, power)

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        if self.kind != "causal":
            raise self._cannot("score the token after a path")
        return [self._table(self._context(path, memory), self.name) for path in paths]

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        if self.kind != "masked":
            raise self._cannot("score the positions of a canvas")
        cells = check_cells(self, cells)
        check_family(self, memory)
        now = _seen(cells, memory, range(len(cells)) if memory is None else at)
        rows = []
        for i in at:
            if not 0 <= i < len(cells):
                raise DecError(f"{self.name!r} was asked for a position outside 0..{len(cells) - 1}")
            visible = [(j, now[j]) for j in sees(self.visibility, i, len(cells)) if j in now]
            rows.append(self._table((_canonical(visible), i), self.name))
        return rows

    def canvas_states(self, cells: tuple[Cell, ...], at: Sequence[int]) -> list[Key]:
        """The cells that each position sees, as a state of which `read_state` gives the scores of `eval_canvas`."""
        cells = check_cells(self, cells)
        return [("cell", _canonical([(j, cells[j]) for j in sees(self.visibility, i, len(cells))]), i) for i in at]

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, memory: Memory | None = None) -> Memory:
        cells = check_cells(self, cells) if cells else ()
        check_family(self, memory)
        if at is None:
            held = 0 if memory is None or self.kind == "masked" else min(memory.length, max(len(cells) - 1, 0))
            at = range(held, len(cells))
        rows = {i: cells[i] for i in at}
        made = Memory(self.family, len(cells), (LayerMemory(rows, rows),), rows, rows)
        return made if memory is None else memory.join(made)

    def attention(self, path: Path, memory: Memory | None = None, last: int = 1) -> list[Fraction]:
        """Drawn from what each of these positions sees; the entries of the table stay what they are."""
        path = check_path(self, path)
        check_family(self, memory)
        fresh = range(first_computed(path, memory), len(path))
        seen, queries = _seen(path, memory, fresh), fresh[-max(1, last) :]
        total = [Fraction(0)] * len(path)
        for i in queries:
            visible = sorted((j, cell) for j, cell in seen.items() if j <= i)
            weights = small_weights(f"{self.seed}:attention:{visible!r}", len(visible))
            for (j, _), w in zip(visible, weights, strict=True):
                total[j] += w / len(queries)
        return total

    def attention_logits(self, cells: Sequence[Cell], queries: Sequence[int]) -> list[list[Fraction]]:
        """See `Model.attention_logits`: an entry for each query, position and canvas."""
        seen = _canonical(list(enumerate(check_cells(self, cells))))
        hashed = [[hash32((self.seed or 0, i, j, *repr(seen).encode())) for i in queries] for j in range(len(cells))]
        return [[Fraction(sum(h % 97 for h in row), 97 * len(row)) for row in hashed]]

    def heads(self, path: Path) -> list[Scores]:
        if not self.heads_count:
            raise self._cannot("answer with heads")
        key = self._context(path, None)
        return [self._table(("head", head, *key), self.name) for head in range(self.heads_count)]

    def derive(self, how: str, *args: object) -> Model:
        """Another table of the same family: `exit`, `skip`, `quantized`, `parallel` and `expert` models have entries of their
        own, unless they have all the layers, one after the other. Raises DecError for other derivations."""
        if how not in ("exit", "skip", "quantized", "parallel", "expert"):
            raise DecError(f"{self.name!r} has no {called(how, args)}")
        if how == "skip" and args[0] == args[1]:  # whole layers: one set says it
            args = args[:1]
        key = tuple(sorted(a) if isinstance(a, set | frozenset) else a for a in args)
        whole = {"skip": not any(args), "parallel": args[0] == 1, "exit": self.counted and args[0] == self.layers}
        if whole.get(how):  # the same layers: the same entries
            same = copy.copy(self)
            same.name = f"{self.name}.{how}{key}"
            return same
        return TableModel(
            self.vocab.size,
            None if self.seed is None else hash32((self.seed, *f"{how}{key}".encode())),
            kind="masked" if self.kind == "masked" else "causal",
            visibility=self.visibility,
            window=self.window,
            zeros=self._table.zeros,
            power=self._table.power,
            vocab=self.vocab.name,
            name=f"{self.name}.{how}{key}",
            context=self.context,
            family=self.family,
        )

    def hidden(self, path: Path, layer: int, memory: Memory | None = None) -> dict[int, Key]:
        """The state entering a layer: the cells seen up to each position, which is all that such a model
        computes."""
        path = check_path(self, path)
        check_family(self, memory)
        fresh = range(first_computed(path, memory), len(path))
        seen = _seen(path, memory, fresh)
        return {
            i: ("layer", layer, _canonical(sorted((j, c) for j, c in seen.items() if j <= i))) for i in seen if i < len(path)
        }

    def hidden_at_ends(self, paths: Sequence[Path], layer: int, memory: Memory | None = None) -> list[Key]:
        """The state at the end of each path after the first `layer` layers: what is seen there, and of which model it is."""
        return [("leaving", self.name, layer, self._context(path, memory)) for path in paths]

    def normed(self, state: Key) -> Key:
        """A state after the last norm: another state."""
        return ("normed", state)

    def read_bare(self, state: Key) -> Scores:
        """The scores of a state without the last norm: another entry."""
        return self.read_out(("bare", state))

    def read_state(self, state: np.ndarray) -> Scores:
        own: Row = state[0] if state.dtype == object else state
        return self.read_out(own[1:] if own[:1] == ("cell",) else own)

    def forward_from(self, layer: int, states: Mapping[int, Row], memory: Memory | None) -> Scores:
        """The scores after the last of positions whose states enter `layer`: an entry of its own, but where they are the states
        that the table itself has there, which makes it the table."""
        kv = {} if memory is None else memory.layers[0].kv
        held = {i: c for i, c in kv.items() if i < max(states) and i not in states}
        if all(s[:2] == ("layer", layer) for s in states.values()):
            return self._table(
                self._visible(sorted({**held, **{i: _newest(s[2]) for i, s in states.items()}}.items())), self.name
            )
        return self._table(("since", layer, _canonical(sorted(held.items())), *(states[i] for i in sorted(states))), self.name)

    def read_out(self, state: Key) -> Scores:
        """The scores of a state (of `hidden`, or an adapter's): a separate entry."""
        return self._table(state, self.name)

    def _context(self, path: Path, memory: Memory | None) -> Key:
        if memory is None and self.window is None and path in self._table.touched and len(path) > 0:
            return path  # an entry is only made for a path that passed the checks
        path = check_path(self, path)
        check_family(self, memory)
        fresh = range(first_computed(path, memory), len(path))
        return self._visible([(i, cell) for i, cell in sorted(_seen(path, memory, fresh).items()) if i < len(path)])

    def _visible(self, cells: list[tuple[int, Cell]]) -> Key:
        """The key of the entry after these cells, by position."""
        if self.window is not None:
            return tuple(cell for _, cell in cells[max(0, len(cells) - self.window) :])
        return _canonical(cells)

    def describe(self) -> str:
        return self._table.describe(f"{self.kind} table {self.name}, {self.vocab.size} tokens:")


class TableFeatures(Tabled, OfTarget[Model]):
    """An EAGLE head as a table: an entry per (cells of the target's memory at the root's parent, the path
    below)."""

    def __init__(self, target: Model, seed: int, *, zeros: bool = False, power: int = 1, name: str = "") -> None:
        self.kind = "features"
        self.target, self.vocab, self.context = target, target.vocab, target.context
        self.layers, self.family, self.exact = target.layers, target.family, True
        self.name = name or f"{target.name}.features{seed}"
        self._table = _Table(target.vocab.size, seed, {}, zeros, power)

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """Scores of the token after each path. `memory` is the target's memory at the root's parent; left out,
        it is the target's memory of everything but the path's last token."""
        rows = []
        for path in paths:
            path = check_path(self, path)
            past = self.target.memory(path[:-1]) if memory is None else memory
            check_family(self, past)
            known = first_computed(path, past)
            held = _canonical([(i, past.cells[i]) for i in sorted(past.cells) if i < known])
            rows.append(self._table((held, path[known:]), self.name))
        return rows

    def states(self, path: Path, memory: Memory) -> dict[int, Key]:
        """The features that it predicts at the positions that the memory does not cover."""
        path = check_path(self, path)
        known = first_computed(path, memory)
        held = _canonical([(i, memory.cells[i]) for i in sorted(memory.cells) if i < known])
        return {i: ("feature", self.name, held, path[known : i + 1]) for i in range(known, len(path))}

    def read_state(self, state: np.ndarray) -> Scores:
        return self._table(state[0][2:], self.name)

    def describe(self) -> str:
        return self._table.describe(f"features table {self.name} (target's memory, then the path below):")


class TableAdapter(Model):
    """An adapter from states to states for a table target: its state is the states it has seen, under its own
    seed."""

    def __init__(self, target: TableModel, seed: int) -> None:
        self.kind = "layers"
        self.seed, self.vocab, self.context, self.exact = seed, target.vocab, target.context, True
        self.name = f"{target.name}.adapter{seed}"
        self.family = f"adapter {seed} of {target.family}"

    def apply(self, states: Mapping[int, Key]) -> dict[int, Key]:
        """The state at every position, from the states of the positions up to it."""
        return {i: ("adapter", self.seed, tuple(states[j] for j in sorted(states) if j <= i)) for i in states}


def _seen(cells: Sequence[Cell], memory: Memory | None, fresh: Iterable[int]) -> dict[int, Cell]:
    """The visible cells by position: cached cells as they were computed, then the fresh ones."""
    seen = dict(memory.layers[0].kv) if memory is not None else {}
    seen.update({i: cells[i] for i in fresh})
    return seen


def _canonical(visible: Sequence[tuple[int, Cell]]) -> Key:
    """The cells alone where nothing is missing from position 0 on, so that exact reuse has the key of no
    reuse; pairs of position and cell where something was evicted."""
    if all(i == n for n, (i, _) in enumerate(visible)):
        return tuple(cell for _, cell in visible)
    return ("evicted", *visible)


def _newest(seen: Key) -> Cell:
    """The last of the cells that a state has seen (`_canonical`)."""
    last: Row = seen[-1]
    return last[1] if isinstance(last, tuple) else last


def _spell(key: object) -> str:
    if isinstance(key, tuple):
        return " ".join(f"({_spell(part)})" if isinstance(part, tuple) else str(part) for part in key) or "nothing"
    return str(key)
