"""Table models on the device: the rows of all contexts are one tensor, and a token's row is found from its last tokens.

A context of at most n tokens is a number of n digits to the base V + 1, the last token first: a token's digit is the token
plus one, and 0 is before the path's start. Scores are float64 and equal bit for bit those of the engine of table models
(runtime/models/engine/plain.py): both are computed by the same function.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from decgraph.backends.triton.step.causal_cells import Cells, Placed, fits, rows_of
from decgraph.errors import DecError
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.interface import Model, Scores
from decgraph.runtime.models.table import TableModel

_ENTRIES = 1 << 24  # of all rows together: 128 MiB


def refusal(model: Model) -> str | None:
    """Why a model is no table that fits on a device; None if it is one."""
    if not isinstance(model, TableModel) or model.kind != "causal":
        return "it is no causal table"
    if model.window is None:
        return "its rows depend on whole paths; a table needs a `window` to be a tensor"
    if (model.vocab.size + 1) ** model.window * model.vocab.size * (1 + model.heads_count) > _ENTRIES:
        return f"a window of {model.window} over {model.vocab.size} tokens has too many rows"
    return None


class TableOnDevice:
    """A `TableModel` with a window as a `DeviceModel`, and its Medusa heads (`heads`), if it has some.

    A token whose path has a hole (an ancestor that its bits do not name) gets a row of NaN. Raises DecError for a table that
    `refusal` refuses and for one without entries for some contexts.
    """

    exact = True

    def __init__(self, model: Model, batch: int, capacity: int, tail: int, device: torch.device | str = "cpu") -> None:
        why = refusal(model)
        if why is not None or not isinstance(model, TableModel) or model.window is None:
            raise DecError(f"{model.name!r} is not implemented on the device: {why}")
        self.name, self.context, self.window = model.name, model.context, model.window
        self.vocab_size, self.batch, self.capacity, self.tail = model.vocab.size, batch, capacity, tail
        self.device = torch.device(device)
        self._cells = Cells(batch, capacity, tail, self.device)
        own = _copied(model)
        self.rows = _filled(own, lambda path: own.eval([path])).squeeze(1).to(self.device)
        self.head_rows = _filled(own, own.heads).to(self.device) if model.heads_count else None
        self._hole = len(self.rows) - 1
        self._tokens = torch.zeros((batch, capacity), dtype=torch.int64, device=self.device)  # by slot
        self._index = torch.full((batch, capacity), self._hole, dtype=torch.int64, device=self.device)

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """See `DeviceModel`. Raises DecError for a wrong number of prompts."""
        if len(prompts) != self.batch:
            raise DecError(f"{len(prompts)} prompts for a batch of {self.batch}")
        tokens = torch.zeros((self.batch, self.capacity), dtype=torch.int64)
        index = torch.full((self.batch, self.capacity), self._hole, dtype=torch.int64)
        for lane, prompt in enumerate(prompts):
            fits(self.name, prompt, self.vocab_size, self.tail, self.capacity, self.context)
            tokens[lane, : len(prompt) - 1] = torch.tensor(list(prompt[:-1]), dtype=torch.int64)
            for end in range(1, len(prompt)):
                index[lane, end - 1] = _number(prompt[:end], self.window, self.vocab_size)
        self._tokens.copy_(tokens)
        self._index.copy_(index)

    def forward(
        self, tokens: Tensor, positions: Tensor, first: int, cached: Tensor, bits: Tensor, rows: Tensor | None
    ) -> Tensor:
        """See `DeviceModel`: float64 [B, R, V]."""
        placed = self._cells.place(tokens, positions, first, cached, bits)
        self._tokens.scatter_(1, placed.write, placed.tokens)
        index = self._contexts(placed)
        self._index.scatter_(1, placed.write, index)
        return self.rows[rows_of(index, rows)]

    def move(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        """See `DeviceModel`; source int64[B, K], cached and count int32[B]."""
        here, there = self._cells.kept(cached, source, count)
        for kept in (self._tokens, self._index):
            kept.scatter_(1, there, kept.gather(1, here))

    def heads(self, slots: Tensor) -> Tensor:
        """Scores float64 [B, heads, V] of the tokens after the one that follows each slot int64[B]. A committed token's
        slot is its position. Raises DecError for a table without heads."""
        if self.head_rows is None:
            raise DecError(f"{self.name!r} has no heads")
        return self.head_rows[self._index.gather(1, slots[:, None]).squeeze(1)]

    def _contexts(self, placed: Placed) -> Tensor:
        """int64[B, T]: the row of each new token."""
        cells = self._cells
        seen = cells.tail_seen(placed.bits)
        count = seen.shape[-1]
        slots = (placed.cached + cells.steps[:count]).clamp(max=self.capacity - 1)
        tail_tokens, tail_positions = self._tokens.gather(1, slots), cells.tail_positions[:, None, :count]
        index = torch.zeros_like(placed.positions)
        whole, scale = placed.real, 1
        for back in range(self.window):
            at = placed.positions - back
            here = seen & (tail_positions == at[..., None])
            committed = self._tokens.gather(1, at.clamp(0, self.capacity - 1))
            inside = at < placed.cached
            token = torch.where(inside, committed, (here * tail_tokens[:, None]).sum(-1))
            exists = at >= 0
            whole = whole & (~exists | inside | (here.sum(-1) == 1))
            index = index + torch.where(exists, token + 1, 0) * scale
            scale *= self.vocab_size + 1
        return torch.where(whole, index, self._hole)


def _copied(model: TableModel) -> TableModel:
    """The same table with its own list of touched entries: the model's lists those that a run read."""
    made = copy.copy(model)
    made._table = copy.copy(model._table)
    made._table.touched = {}
    return made


def _contexts(size: int, window: int) -> Iterator[tuple[int, ...]]:
    """Every context that has a row: of up to `window` tokens, and at least one."""
    for length in range(min(window, 1), window + 1):
        yield from product(range(size), repeat=length) if length else [()]


def _number(path: Sequence[int], window: int, size: int) -> int:
    index = 0
    for token in path[len(path) - min(window, len(path)) :]:
        index = index * (size + 1) + int(token) + 1
    return index


def _filled(model: TableModel, scores: Callable[[tuple[int, ...]], list[Scores]]) -> Tensor:
    """Rows float64 [contexts + 1, n, V] of every context's n scores; NaN where a number is no context's."""
    size, window = model.vocab.size, model.window or 0
    made: dict[int, Tensor] = {}
    for context in _contexts(size, window):
        path = context or (0,)  # a window of 0 sees none of it
        made[_number(context, window, size)] = stacked(scores(path), size)
    count = len(next(iter(made.values())))
    out = torch.full(((size + 1) ** window + 1, count, size), float("nan"), dtype=torch.float64)
    for number, rows in made.items():
        out[number] = rows
    return out
