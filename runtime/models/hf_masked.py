"""Hugging Face masked language models: canvases, with memory by layer and position."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.hf_rows import held_of, memory_of
from decgraph.runtime.models.interface import (
    Cell,
    Memory,
    Model,
    Scores,
    Soft,
    Visibility,
    Vocab,
    check_cells,
    check_family,
    check_scores,
    sees,
)
from decgraph.runtime.models.rotary import bounded
from decgraph.runtime.models.tape import Tape

_Call = tuple[Tape, torch.Tensor, list[int]]  # a forward's tape, last hidden states and positions


class HFMasked(Model):
    """A masked language model in float32, its logits in float64. The mask itself is never predicted: its
    logit is -inf. Calls are pure, so the last few are remembered: scores and memory of one call share a
    forward.

    shift: the scores of position i are read from the last hidden state of position i - 1, those of position 0 from its own
    (Ye et al., Dream, 2025). A call on a memory reads a state that it does not compute from the memory.
    """

    def __init__(
        self,
        net: Net,
        *,
        name: str,
        vocab: Vocab,
        context: int | None,
        family: str,
        mask: int,
        visibility: Visibility = "full",
        shift: bool = False,
    ) -> None:
        self.kind = "masked"
        self.name, self.vocab, self.family, self.mask = name, vocab, family, mask
        self.context, self.bounded = bounded(context, getattr(net.base, "config", None), name)
        self.visibility, self.shift, self.prompt = visibility, shift, 0
        self.layers, self.net = len(net.layers), net
        self._calls: OrderedDict[tuple[Any, ...], tuple[Memory | None, _Call]] = OrderedDict()

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], given: Memory | None = None) -> list[Scores]:
        _, last, fresh = self._run(cells, at, given)
        row_of = {i: n for n, i in enumerate(fresh)}
        if not len(at):
            return []
        states = torch.stack([self._state(source_of(self, i), i, last, row_of, given) for i in at])
        return [self._row(row, i) for row, i in zip(self.net.logits(states).cpu().numpy(), at, strict=True)]

    def _state(self, source: int, i: int, last: torch.Tensor, row_of: dict[int, int], given: Memory | None) -> torch.Tensor:
        """The last hidden state [width] that position i is predicted from: of this call, or else of the memory."""
        if source in row_of:
            return last[row_of[source]]
        if given is None or source not in given.features:
            raise no_state(self.name, i)
        state: torch.Tensor = given.features[source]
        return state

    def after(self, prompt: int) -> HFMasked:
        """See `Model.after`. Calls are remembered together: what a prompt changes is in their keys."""
        if self.prompt == prompt or self.visibility in ("full", "causal") or self.visibility[0] != "prompt+block":
            return self
        made = copy.copy(self)
        made.prompt = prompt
        return made

    def _row(self, logits: np.ndarray, position: int) -> Scores:
        row = logits[: self.vocab.size].copy()
        if self.mask is not None and self.mask < len(row):
            row[self.mask] = -np.inf
        check_scores(self, position, row)
        return Scores(logits=row)

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, given: Memory | None = None) -> Memory:
        cells = tuple(cells)
        tape, last, fresh = self._run(cells, range(len(cells)) if at is None else at, given)
        made = memory_of(tape, last, self.family, self.layers, cells, fresh)
        return made if given is None else given.join(made)

    def attention_logits(self, cells: Sequence[Cell], queries: Sequence[int]) -> list[list[float]]:
        """See `Model.attention_logits`: another forward over the whole canvas."""
        cells = check_cells(self, tuple(cells))
        every = range(len(cells))
        tape = Tape(torch.arange(len(cells), device=self.net.device), self._visible(every, every, len(cells)))
        self.net.run(self._inputs(cells), tape)
        out: list[list[float]] = []
        for layer, keys in sorted(tape.keys.items()):
            query = tape.queries[layer][list(queries)].mean(0)
            keys = keys.repeat_interleave(len(query) // keys.shape[1], dim=1)
            out.append((keys * query).sum(-1).mean(-1).tolist())
        return out

    def _run(self, cells: tuple[Cell, ...], at: Iterable[int], given: Memory | None) -> _Call:
        """One forward over `at`, or over all without a memory: its tape, last states and positions."""
        cells = check_cells(self, cells)
        check_family(self, given)
        at = list(at)
        if any(not 0 <= i < len(cells) for i in at):
            raise DecError(f"{self.name!r} was asked for a position outside 0..{len(cells) - 1}")
        fresh = sorted(set(at)) if given is not None else list(range(len(cells)))
        # A memory is keyed by identity, and kept alive by its entry: an equal one is computed again.
        key = (cells, tuple(fresh), id(given), self.prompt)
        if key in self._calls and self._calls[key][0] is given:
            self._calls.move_to_end(key)
            return self._calls[key][1]
        positions = torch.tensor(fresh, dtype=torch.long, device=self.net.device)
        visible = self._visible(fresh, fresh, len(cells))
        held = {} if given is None else held_of(given, positions, fresh)
        for layer, rows in held.items():
            held[layer] = replace(rows, visible=self._visible(fresh, rows.positions.tolist(), len(cells)))
        tape = Tape(positions, visible, held)
        last = self.net.run(self._inputs([cells[i] for i in fresh]), tape)
        tape.held = {}
        self._calls[key] = (given, (tape, last, fresh))
        while len(self._calls) > 4:
            self._calls.popitem(last=False)
        return tape, last, fresh

    def _visible(self, queries: Sequence[int], keys: Sequence[int], length: int) -> torch.Tensor:
        """bool[queries, keys]: the attention mask."""
        rows = [sees(self.visibility, i, length, self.prompt) for i in queries]
        return torch.tensor([[j in seen for j in keys] for seen in rows], dtype=torch.bool, device=self.net.device)

    def _inputs(self, cells: Sequence[Cell]) -> torch.Tensor:
        """Token ids, or embeddings where a cell is soft."""
        return inputs_of(self.embedding, cells, self.mask)

    @property
    def embedding(self) -> torch.Tensor:
        """The input embeddings [vocabulary, width]."""
        return self.net.embedding


def inputs_of(table: torch.Tensor, cells: Sequence[Cell], mask: Any) -> torch.Tensor:
    """Token ids int64[n] of cells, the mask's where one is masked; embeddings [n, width] where a cell is soft. table: [V,
    width]."""
    ids = torch.tensor([c if isinstance(c, int) else mask for c in cells], device=table.device)
    if not any(isinstance(c, Soft) for c in cells):
        return ids
    rows = table[ids].clone()
    for n, cell in enumerate(cells):
        if isinstance(cell, Soft):
            weights = torch.tensor([float(w) for w in cell.weights], dtype=table.dtype, device=table.device)
            rows[n] = weights @ table[: len(weights)] + float(cell.mask) * table[mask]
    return rows


def source_of(model: Model, position: int) -> int:
    """The position whose output has the scores of a position."""
    return max(0, position - 1) if model.shift else position


def no_state(name: str, position: int | str) -> DecError:
    """Refuses the scores of a position of a model with a shift, of which neither the call nor its memory has the state
    before."""
    where = f"position {position}" if isinstance(position, int) else position
    return DecError(
        f"{name!r} predicts a position from the one before it, which neither the call nor its memory has: {where}",
        hint="compute the position before it in this call, or keep it in the memory: m.without(b) keeps what lies before b",
    )
