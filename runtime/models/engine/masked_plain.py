"""The engine of masked models that are pure functions of canvases (table, free, tiny): it remembers the rows of a
sequence's last two calls of whole canvases, as the reference does, and nothing else.

Its rows and memories are the model's own, so that backends on engines can be compared with the reference exactly.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch

from decgraph.errors import DecError
from decgraph.runtime.models.engine.canvas_call import CanvasCall, CanvasOutput
from decgraph.runtime.models.engine.forward_call import Counted, Uncached
from decgraph.runtime.models.interface import MASK, Cell, LayerMemory, Memory, Model, SoftCell, check_scores

_CALLS = 2  # a sequence's last calls that are remembered, as by the reference and by `masked_memo`
_Known = dict[tuple[Cell, ...], dict[int, np.ndarray]]  # a call's rows, by canvas and position
_CallKey = tuple[tuple[Cell, ...], tuple[int, ...] | None, int]  # a call: its canvas, what it computed of it, on which memory


def build_engine(model: Model) -> PlainMaskedEngine:
    """The engine of a masked model that has no other: the model's own calls."""
    return PlainMaskedEngine(model)


class PlainMaskedEngine(Uncached):
    """See `MaskedEngine`: float64 rows of the model's own calls, one canvas after the other."""

    def __init__(self, model: Model) -> None:
        self.model, self.counted = model, Counted()
        self.mask: int = -1 if model.mask is None else model.mask
        self._last: dict[Hashable, list[_Known]] = {}
        self._computed: dict[Hashable, list[tuple[_CallKey, Memory | None]]] = {}

    def empty(self, length: int) -> Memory:
        """A memory of `length` positions with no row cached."""
        nothing = (LayerMemory({}, {}),) * self.model.layers
        return Memory(self.model.family, length, nothing)

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Forget the sequence: a canvas does not go on where another one ended."""
        self.close(sequence)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence's last calls."""
        self._last.pop(sequence, None)
        self._computed.pop(sequence, None)

    def compute(self, calls: Sequence[CanvasCall]) -> list[CanvasOutput | DecError]:
        """See `MaskedEngine`."""
        out: list[CanvasOutput | DecError] = []
        for call in calls:
            self.counted.sequence_calls += 1
            try:
                out.append(self._compute(call))
            except DecError as error:
                out.append(error)
        return out

    def _compute(self, call: CanvasCall) -> CanvasOutput:
        canvases = call.cells.cpu().reshape(-1, call.cells.shape[-1]).tolist()
        past = call.memory if isinstance(call.memory, Memory) and call.fresh is not None else None
        fresh = None if call.fresh is None else sorted({int(i) for i in call.fresh})
        if call.keep and len(canvases) > 1:
            raise DecError(f"{self.model.name!r} was asked for one memory of {len(canvases)} candidate canvases")
        rows = [int(i) for i in call.rows]
        if past is not None and fresh is not None and not set(rows) <= set(fresh):
            raise DecError(f"{self.model.name!r} was asked for the scores of a position that the call does not compute")
        soft = self._soft(call)
        known: dict[tuple[Cell, ...], np.ndarray] = {}
        last = self._last.get(call.sequence, []) if past is None else []
        memory, before = None, self.counted.computed
        read = [tuple(soft.get(i, MASK if t == self.mask else t) for i, t in enumerate(tokens)) for tokens in canvases]
        for cells in read:
            if cells not in known:
                cached = {i: row for one in last for i, row in one.get(cells, {}).items()}
                if rows and all(i in cached for i in rows):
                    known[cells] = np.stack([cached[i] for i in rows])
                    self.counted.requested += len(cells)
                else:
                    known[cells] = self._rows(call, cells, rows, fresh, past)
                    if rows:
                        self._count(call.sequence, cells, fresh, past)
            if call.keep:
                memory = self._memory(cells, fresh, past)
                empty = past is None and fresh == []
                if not empty and self._count(call.sequence, cells, fresh, past):  # usually the call before computed it
                    self.counted.calls += 1
                    self.counted.computed += len(cells) if past is None or fresh is None else len(fresh)
        self.counted.rows += len(canvases) * len(rows)
        if rows and past is None:
            made = {c: dict(zip(rows, x, strict=True)) for c, x in known.items()}
            self._last[call.sequence] = [*last, made][-_CALLS:]
        out = torch.from_numpy(np.stack([known[cells] for cells in read]))
        return CanvasOutput(out if call.cells.dim() == 2 else out[0], memory, self.counted.computed - before)

    def _rows(
        self, call: CanvasCall, cells: tuple[Cell, ...], rows: list[int], fresh: list[int] | None, memory: Memory | None
    ) -> np.ndarray:
        """float64[rows, vocabulary]."""
        self.counted.requested += len(cells) if memory is None or fresh is None else len(fresh)
        out = np.empty((len(rows), self.model.vocab.size))
        if not rows:
            return out
        self.counted.calls += 1
        self.counted.computed += len(cells) if memory is None or fresh is None else len(fresh)
        at = rows if memory is None or fresh is None else fresh
        scores = dict(zip(at, self.model.eval_canvas(cells, at, memory), strict=True))
        for n, i in enumerate(rows):
            out[n] = scores[i].to_float().logits
            try:
                check_scores(self.model, i, out[n])
            except DecError:
                raise DecError(f"{self.model.name!r} gave logits that are not numbers at {call.position(i)}") from None
        return out

    def _count(self, sequence: Hashable, cells: tuple[Cell, ...], fresh: list[int] | None, memory: Memory | None) -> bool:
        """Whether none of the sequence's last calls computed this one, which becomes the last."""
        key = (cells, None if memory is None or fresh is None else tuple(fresh), id(memory))
        made = self._computed.setdefault(sequence, [])
        self._computed[sequence] = [*made, (key, memory)][-_CALLS:]  # with the memory, so that no other one gets its id
        return all(key != one for one, _ in made)

    def _memory(self, cells: tuple[Cell, ...], fresh: list[int] | None, memory: Memory | None) -> Memory:
        if fresh is not None and not fresh and memory is None:
            return self.empty(len(cells))
        return self.model.memory(cells, fresh, memory)

    def _soft(self, call: CanvasCall) -> dict[int, SoftCell]:
        if call.soft is None:
            return {}
        positions, weights, masked = call.soft
        return {
            int(i): SoftCell(tuple(w), m)
            for i, w, m in zip(positions, weights.double().cpu().tolist(), masked.double().cpu().tolist(), strict=True)
        }
