"""A table model on the device, for tests: its row at every cell of every possible canvas.

A table model has one layer, whose keys and values are the cells themselves, so a cached cell is seen as it was when it was
computed: the cache is one token a cell. That is right only while every cell is cached or computed; a call that sees less is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.canvas_model import Scores
from decgraph.backends.triton.step.canvas_symbols import plain
from decgraph.backends.triton.step.canvas_values import DeviceCanvas, DeviceCanvasMemory, constant
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.table import TableModel

MOST_ROWS = 6_000
"""The most rows of one sequence's table."""


class TableCanvas:
    """See `CanvasModel`."""

    def __init__(self, model: TableModel, batch: int, length: int, device: torch.device) -> None:
        self.model, self.name, self.vocab_size, self.device = model, model.name, model.vocab.size, device
        self.mask, self.batch, self.length, self.serial = -1, batch, length, 0
        self.ragged = False  # every sequence has a table of its own
        self.states = self.vocab_size + 1
        self.table = torch.zeros(batch, self.states**length, length, self.vocab_size, dtype=torch.float64, device=device)
        self.cached = torch.zeros(batch, length, dtype=torch.int64, device=device)

    @staticmethod
    def reason(model: TableModel, length: int) -> str | None:
        """Why a model cannot be such a table, or None."""
        if model.kind != "masked" or model.visibility != "full":
            return f"{model.name!r} is no table over whole canvases"
        rows = (model.vocab.size + 1) ** length * length
        return None if rows <= MOST_ROWS else f"the table of {model.name!r} would have {rows} rows"

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """See `CanvasModel`."""
        for b, prompt in enumerate(prompts):
            at = range(len(prompt), len(prompt) + self.length)
            rows = []
            for cells in product(range(self.states), repeat=self.length):
                canvas = (*prompt, *(MASK if c == 0 else c - 1 for c in cells))
                rows.append([s.to_float().logits for s in self.model.eval_canvas(canvas, list(at))])
            self.table[b].copy_(torch.from_numpy(np.array(rows)))

    def nothing(self) -> DeviceCanvasMemory:
        """See `CanvasModel`."""
        return DeviceCanvasMemory(self.name, np.zeros(self.length, dtype=bool), False, self.serial)

    def call(
        self, canvas: DeviceCanvas, at: np.ndarray | None, given: DeviceCanvasMemory | None, keep: bool, active: Tensor | None
    ) -> tuple[Scores, DeviceCanvasMemory | None]:
        """See `CanvasModel`; at: int64[N], active: bool[B]."""
        which = np.arange(self.length) if at is None else np.asarray(at, dtype=np.int64)
        active = plain(active)
        tokens, mark = plain(canvas.tokens), np.zeros(self.length, dtype=bool)
        whole = given is None or len(np.unique(which)) == self.length
        mark[which] = True
        if not whole:
            assert given is not None
            if not (given.cached | mark).all() or given.serial != self.serial:
                raise NotCapturable(f"a call of {self.name!r} that does not see every cell")
            tokens = torch.where(constant(mark, self.device), tokens, self.cached)
        memory = None
        if keep:
            self.serial += 1
            self.cached.copy_(tokens if active is None else torch.where(active[:, None], tokens, self.cached))
            memory = DeviceCanvasMemory(self.name, np.ones(self.length, dtype=bool), True, self.serial)
        powers = constant(self.states ** np.arange(self.length)[::-1], self.device)
        index = ((tokens + 1) * powers).sum(1)
        sequences = constant(np.arange(self.batch), self.device)
        return _Found(self.table[sequences, index], which), memory


class _Found:
    """See `Scores`."""

    def __init__(self, rows: Tensor, which: np.ndarray) -> None:
        self.rows, self.which, self.size = rows, which, int(rows.shape[-1])

    def logits(self, ids: np.ndarray) -> Tensor:
        """See `Scores`."""
        return self.rows.index_select(1, constant(self.which[ids], self.rows.device))
