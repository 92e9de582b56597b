"""Models that are pure functions of whole paths (tables; free and tiny models), and what is derived from them.

A cell's state is what it sees. Of a table whose rows depend on a few last tokens that is the number of its row: tokens are
digits to the base V + 1, the last one first, a token's digit is the token plus one, and 0 is before the path's start. Rows are
one tensor then, on any device. Every other such model is called on the host, by an operation that torch does not look into:
the state is the path, and rows are remembered by it. Such models stay on the CPU.

Rows are float64 and equal those of the engine (runtime/models/engine/plain.py) to the last bit. What has no row, a path with a
hole or a context for which a table has no entry, has NaN: lanes that are over compute on whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, dropwhile, product
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from decgraph.backends.triton.models.interface import DeviceModel, Seen, put
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.interface import MASK, Model, Scores, sees
from decgraph.runtime.models.layered import Layered
from decgraph.runtime.models.table import Tabled, TableModel, _canonical

_ENTRIES = 1 << 24  # numbers of all rows together: 128 MiB
_REMEMBERED = 200_000  # rows of paths


def is_function_of_paths(model: Model) -> bool:
    """Whether a model is called with paths alone, and has no tensors."""
    base = model.target_or_self()
    return bool(model.exact or isinstance(base, Layered))


class PathModel(DeviceModel):
    """See the module, and `DeviceModel`. For masked models the tokens of `forward` are those of cells, `mask` for an undecided
    one; cells see slots as they were when they were computed."""

    exact = True
    dtype = torch.int64

    def __init__(self, model: Model, whole: Model, pages: Pages) -> None:
        super().__init__(model, pages)
        self.kind, self.function = str(model.kind), whole.apart() if isinstance(whole, Tabled) else whole
        size, window = self.vocab_size, whole.window if isinstance(whole, TableModel) and whole.kind == "causal" else None
        self.count = int(whole.heads_count)
        few = window is not None and (size + 1) ** window * size * (1 + self.count) <= _ENTRIES
        self.window: int | None = window if few else None
        self.rows = self.head_rows = None
        if self.kind == "masked":
            self.mask: int | None = size
            self.prompts = torch.zeros(self.batch, dtype=torch.int64, device=self.device)
            if not isinstance(whole, TableModel):
                raise NotSteppable(f"{model.name!r} is a masked model that is called as a whole")
        elif self.kind not in ("causal", "features", "head"):
            raise NotSteppable(f"{model.name!r} is a {self.kind} model, which is not called at tokens")
        self.trunk = self
        """Of a head: the model whose states it reads, which are the paths themselves."""
        if self.window is not None and isinstance(whole, TableModel):
            made = _filled(whole, self.window, lambda path: self.function.eval([path]))
            self.rows = made[:, 0].to(self.device)
            if self.count:
                self.head_rows = _filled(whole, self.window, self.function.heads).to(self.device)
        self.hosted = self.rows is None
        self.number = next(_numbers)
        _models[self.number] = self
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.slot_tokens = self.pool(dtype=torch.int64)

    def fill_part(self, tokens: Tensor, at: Tensor, first: int, lanes: slice) -> None:
        put(self.slot_tokens, self.pages.at(at, lanes), tokens)

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """int64[B, T, 1], numbers of rows, or int64[B, T, capacity + 2], paths."""
        put(self.slot_tokens, self.pages.at(slots), tokens)
        self.placed(slots, positions)
        capacity, at = self.capacity, self.slot_positions
        inside = seen.dense(capacity) & ((at >= 0) & (at < capacity))[:, None]
        path = tokens.new_full((self.batch, positions.shape[1], capacity + 2), -1)
        there = self.slot_tokens.data[self.pages.rows]
        path.scatter_(2, torch.where(inside, at[:, None], capacity), there[:, None].expand(inside.shape))
        if self.window is not None:
            return self._number(path, positions)[..., None]
        path[..., capacity], path[..., capacity + 1] = positions, -1 if known is None else known[:, None]
        return path

    def _number(self, path: Tensor, positions: Tensor) -> Tensor:
        """int64[B, T]: the row of each cell, from the last `window` tokens that it sees; what is not seen is not there."""
        assert self.window is not None and self.rows is not None
        path, base = path[..., : self.capacity], self.vocab_size + 1
        there = (path >= 0) & (torch.arange(self.capacity, device=self.device) <= positions[..., None])
        after = there.sum(-1, keepdim=True) - there.cumsum(-1)  # how many tokens come after each one
        digits = torch.where(there & (after < self.window), path + 1, 0)
        index = sum((torch.where(after == n, digits, 0).sum(-1) * base**n for n in range(self.window)), positions * 0)
        return index.clamp(max=len(self.rows) - 1)

    def read(self, states: Tensor) -> Tensor:
        if self.rows is not None:
            return self.rows[states[..., 0]]
        made: Tensor = _rows(states, self.number, False, 1, 1 if self.kind == "head" else self.vocab_size)
        return made.squeeze(-2)

    def heads(self, states: Tensor) -> Tensor:
        if not self.count:
            return super().heads(states)
        if self.head_rows is not None:
            return self.head_rows[states[..., 0]]
        made: Tensor = _rows(states, self.number, True, self.count, self.vocab_size)
        return made

    # On the host, for one state.

    def looked_up(self, state: tuple[int, ...], heads: bool) -> Tensor:
        """Rows float64[1 or heads, V] at a state, of a head its value float64[1, 1]; NaN where it has none."""
        key = (heads, *state)
        made = self.known.get(key)
        if made is None:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            size = 1 if self.kind == "head" else self.vocab_size
            try:
                if self.kind == "head":
                    made = torch.tensor([[float(x) for x in self.function.read([_whole(state)])]], dtype=torch.float64)
                else:
                    made = stacked(self._scores(state, heads), size, self.name)
            except DecError:  # no entry for this path, which only lanes ask for that are over
                made = torch.full((self.count if heads else 1, size), float("nan"), dtype=torch.float64)
            self.known[key] = made
        return made

    def _scores(self, state: tuple[int, ...], heads: bool) -> list[Scores]:
        function, position, known = self.function, state[-2], state[-1]
        if self.kind == "masked":
            return [self._cell(state)]
        path = state[: position + 1]
        if not path or min(path) < 0:
            if not isinstance(function, TableModel) or heads or not path or path[-1] < 0:
                raise DecError("a path with a hole")
            return [function.entry(function._visible([(i, t) for i, t in enumerate(path) if t >= 0]), self.name)]
        if heads:
            return function.heads(path)
        if self.kind == "features" and known >= 0:
            memory = function.target_or_self().memory(path[: min(known, len(path) - 1)])
            return function.eval([path], memory=memory)
        if self.following and known >= 0:
            assert isinstance(self.origin, PathModel)
            memory = self.origin.function.memory(path[: min(known, len(path) - 1)])
            return function.eval([path], memory=memory)
        return function.eval([path])

    def _cell(self, state: tuple[int, ...]) -> Scores:
        there = {j: MASK if token == self.vocab_size else token for j, token in enumerate(state[:-2]) if token >= 0}
        position = state[-2]
        within = sees(self.function.visibility, position, max(there, default=0) + 1)
        cells = [(j, there[j]) for j in within if j in there]
        assert isinstance(self.function, TableModel)
        return self.function.entry((_canonical(cells), position), self.name)


def _whole(state: tuple[int, ...]) -> tuple[int, ...]:
    """The path of a state. Raises DecError for one with a hole."""
    path = state[: state[-2] + 1]
    if not path or min(path) < 0:
        raise DecError("a path with a hole")
    return path


_numbers = count()
_models: WeakValueDictionary[int, PathModel] = WeakValueDictionary()


@torch.library.custom_op("decgraph::path_rows", mutates_args=())
def _rows(states: Tensor, number: int, heads: bool, rows: int, size: int) -> Tensor:
    """Rows float64[..., rows, size] of states int64[..., W] of the model with this number, computed on the host."""
    model = _models[number]
    made = [model.looked_up(tuple(state), heads) for state in states.reshape(-1, states.shape[-1]).tolist()]
    out = (torch.stack(made) if made else torch.empty(0, rows, size, dtype=torch.float64)).to(states.device)
    return out.view(*states.shape[:-1], rows, size)


@_rows.register_fake
def _(states: Tensor, number: int, heads: bool, rows: int, size: int) -> Tensor:
    return states.new_empty((*states.shape[:-1], rows, size), dtype=torch.float64)


def _filled(model: TableModel, window: int, scores: Callable[[tuple[int, ...]], list[Scores]]) -> Tensor:
    """Rows float64[contexts + 1, n, V] of every context's n scores; NaN for numbers of none, and where the table has no
    entry. The last row is that of paths with a hole."""
    size, made = model.vocab.size, {}
    for number, digits in enumerate(product(range(size + 1), repeat=window)):
        context = tuple(d - 1 for d in dropwhile(lambda d: d == 0, digits))
        if -1 in context or (window and not context):  # a hole, or nothing that is seen
            continue
        try:
            made[number] = stacked(scores(context or (0,)), size)  # a window of 0 sees no token
        except DecError:
            continue
    if not made:
        raise NotSteppable(f"{model.name!r} has no entries")
    n = len(next(iter(made.values())))
    out = torch.full(((size + 1) ** window + 1, n, size), float("nan"), dtype=torch.float64)
    for number, rows in made.items():
        out[number] = rows
    return out
