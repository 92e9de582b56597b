"""The engine of masked Hugging Face models: canvases of many sequences in one forward, on memories or whole.

Results equal `HFMasked`'s, in the model's own precision. The engine saves work: memories stay on the device and
are overwritten in place, canvases of one shape share a forward, equal canvases are computed once, and each sequence's
last calls are remembered by content.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine import masked_forward as batch
from decgraph.runtime.models.engine.canvas_call import CanvasCall, CanvasOutput, MaskedEngine
from decgraph.runtime.models.engine.forward_call import Counted
from decgraph.runtime.models.engine.masked_memory import CachedMemory, CanvasEntry, CanvasMemo, Key, empty
from decgraph.runtime.models.hf_masked import CalledMasked, HFMasked
from decgraph.runtime.models.interface import check_size

_CPU_BUDGET = 2 << 30


def build_engine(model: HFMasked | CalledMasked) -> MaskedEngine:
    """The engine of a masked model of Hugging Face or of another module: batched."""
    return HFMaskedEngine(model)


@dataclass
class _Plan:
    """A call and its canvases: their keys in the memo, and the units that would compute them."""

    call: CanvasCall
    keys: list[Key]
    units: list[batch.Unit]
    rows: np.ndarray


class HFMaskedEngine:
    """See `MaskedEngine`. budget: bytes that one forward may take for rows, scores and copied memories; larger
    batches are split. remembered: bytes that remembered calls may take."""

    def __init__(self, model: HFMasked | CalledMasked, *, budget: int | None = None, remembered: int | None = None) -> None:
        assert model.mask is not None
        self.model, self.mask, self.counted = model, model.mask, Counted()
        self.step: batch.Forward
        self._head: Callable[[Tensor], Tensor] | None
        if isinstance(model, HFMasked):
            self.step, self._head = batch.CanvasStep(model.net.decoder, model.name), model.net.head
            self._cell_bytes = 24 * model.net.decoder.width * model.net.decoder.embedding.element_size()
        else:
            self.step, self._head, self._cell_bytes = batch.CalledStep(model), None, 8 * model.vocab.size
        self.device = self.step.blank.device
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 2 * _CPU_BUDGET
        self.budget = free // 2 if budget is None else budget
        self.memo = CanvasMemo(free // 8 if remembered is None else remembered)
        self._tables = batch.Tables(self.device)
        self._by_prompt = model.visibility[0] == "prompt+block"

    @torch.no_grad()
    def compute(self, calls: Sequence[CanvasCall]) -> list[CanvasOutput | DecError]:
        """See `MaskedEngine`: forwards for the canvases that are not remembered, then every call's rows and memory."""
        outputs: list[CanvasOutput | DecError | None] = [None] * len(calls)
        plans: dict[int, _Plan] = {}
        for n, (call, cells) in enumerate(zip(calls, self._on_host(calls), strict=True)):
            try:
                plans[n] = self._plan(call, cells)
            except DecError as error:
                outputs[n] = error
        known: dict[Key, CanvasEntry | DecError] = {}
        missing: dict[Key, batch.Unit] = {}
        for plan in plans.values():
            self.counted.sequence_calls += 1
            for key, unit in zip(plan.keys, plan.units, strict=True):
                self.counted.requested += unit.width
                if key in missing:
                    missing[key].keep |= unit.keep
                    continue
                entry = self.memo.get(key)
                if entry is None or (plan.call.keep and entry.memory is None):
                    missing[key] = unit
                else:
                    known[key] = entry
        keys = {id(unit): key for key, unit in missing.items()}
        for part in self._parts(list(missing.values())):
            try:
                known.update({keys[id(unit)]: entry for unit, entry in zip(part, self._computed(part), strict=True)})
            except DecError as error:
                known.update({keys[id(unit)]: error for unit in part})
        for n, plan in plans.items():
            try:
                new = {key: unit.width for key, unit in zip(plan.keys, plan.units, strict=True) if key in missing}
                outputs[n] = self._output(plan, known, sum(new.values()))
                self.memo.put(plan.call.sequence, [(k, e) for k in plan.keys if isinstance(e := known[k], CanvasEntry)])
            except DecError as error:
                outputs[n] = error
        return [a for a in outputs if a is not None]

    def empty(self, length: int) -> CachedMemory:
        """A memory of `length` positions with no row cached."""
        return empty(self.model.family, length)

    def limit(self, budget: int) -> None:
        """Bound what one forward may take, in bytes."""
        self.budget = budget

    def compile(self, notice: Callable[[str], None]) -> bool:
        """False: the forwards of masked models are not compiled."""
        return False

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence's calls; its memories live as long as there is a reference to them."""
        self.memo.close(sequence)

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Forget the sequence: a canvas does not go on where another one ended."""
        self.close(sequence)

    def _check_length(self, length: int) -> None:
        model = self.model
        if not length:
            raise DecError(f"{model.name!r} needs at least one token of context")
        if model.context is not None and length > model.context:
            raise DecError(f"{length} positions are past the context length of {model.name!r} ({model.context})")

    # -- calls

    def _on_host(self, calls: Sequence[CanvasCall]) -> list[np.ndarray]:
        """The cells of every call, in one transfer for those on the device."""
        away = [call.cells for call in calls if call.cells.device.type != "cpu"]
        if away:
            self.counted.syncs += 1
        flat = iter(torch.cat([c.reshape(-1) for c in away]).cpu().split([c.numel() for c in away]) if away else ())
        return [
            (call.cells if call.cells.device.type == "cpu" else next(flat).view(call.cells.shape)).numpy() for call in calls
        ]

    def _plan(self, call: CanvasCall, cells: np.ndarray) -> _Plan:
        """Raises DecError for a call that the model cannot compute."""
        model = self.model
        cells = np.ascontiguousarray(cells, dtype=np.int64)
        canvases = cells if cells.ndim == 2 else cells[None]
        length = canvases.shape[1]
        self._check_length(length)
        if canvases.min() < 0 or canvases.max() >= model.vocab.size:
            self._check_tokens(call, canvases)
        memory, fresh = call.memory, None
        if isinstance(model, CalledMasked) and (call.keep or (memory is not None and call.fresh is not None)):
            raise model.no_memory()
        if memory is not None and not isinstance(memory, CachedMemory):
            raise DecError(f"{model.name!r} cannot read {memory!r}: it is not a memory of its engine")
        if memory is not None and memory.family != model.family:
            raise DecError(f"{model.name!r} cannot read the memory of {memory.family!r}: they do not share keys and values")
        rows = _numbers(call.rows)
        if call.fresh is not None:
            fresh = _numbers(call.fresh)
            if not (fresh[1:] > fresh[:-1]).all():
                fresh = np.unique(fresh)
        self._check_positions(rows, length)
        if memory is not None and fresh is not None:
            self._check_positions(fresh, length)
            at = fresh.searchsorted(rows)
            if len(rows) and (at.max(initial=0) >= len(fresh) or (fresh[at] != rows).any()):
                raise DecError(f"{model.name!r} was asked for the scores of a position that the call does not compute")
            if model.shift:
                batch.check_sources(model.name, rows, fresh, memory, f"position {{}} of {call.request}")
            rows = at
        else:
            memory = None
            if fresh is not None and not len(fresh) and not len(rows):
                return _Plan(call, [], [], rows)  # nothing is computed and nothing seen
            fresh = None
        if memory is not None and fresh is not None and not len(fresh):
            return _Plan(call, [], [], rows)
        soft = None
        if call.soft is not None:
            soft = (np.asarray(call.soft[0], dtype=np.int64), call.soft[1], call.soft[2])
            self._check_positions(soft[0], length)
            if isinstance(model, CalledMasked):
                model.check_mixes()
        shared = (
            call.prompt if self._by_prompt else 0,
            None if soft is None else (soft[0].tobytes(), *((id(t), t._version) for t in soft[1:])),
            None if fresh is None else fresh.tobytes(),
            None if memory is None or fresh is None else memory.key(fresh),
        )
        single = len(canvases) == 1
        units = [batch.Unit(row, fresh, memory, rows, soft, call.keep or single, model.family, call.prompt) for row in canvases]
        if call.keep and not single:
            raise DecError(f"{model.name!r} was asked for one memory of {len(canvases)} candidate canvases")
        return _Plan(call, [(row.tobytes(), *shared) for row in canvases], units, rows)

    def _check_tokens(self, call: CanvasCall, canvases: np.ndarray) -> None:
        bad = ((canvases < 0) | (canvases >= self.model.vocab.size)) & (canvases != self.mask)
        if bad.any():
            c, i = (int(x) for x in np.argwhere(bad)[0])
            raise DecError(
                f"token {int(canvases[c, i])} at {call.position(i)} is not in the vocabulary of {self.model.name!r}, which has "
                f"{self.model.vocab.size} tokens"
            )

    def _check_positions(self, positions: np.ndarray, length: int) -> None:
        if len(positions) and (positions.min() < 0 or positions.max() >= length):
            raise DecError(f"{self.model.name!r} was asked for a position outside 0..{length - 1}")

    # -- forwards

    def _parts(self, units: list[batch.Unit]) -> Iterator[list[batch.Unit]]:
        """The units of each forward, none of them much over the budget."""
        for group in batch.grouped(units, self.step.whole):
            part: list[batch.Unit] = []
            spent = 0
            for unit in group:
                cost = self._cost(unit)
                if part and spent + cost > self.budget:
                    yield part
                    part, spent = [], 0
                part.append(unit)
                spent += cost
            yield part

    def _cost(self, unit: batch.Unit) -> int:
        kept = unit.width + (0 if unit.memory is None else len(unit.cells))
        return unit.width * self._cell_bytes + kept * self.step.blank.nbytes + 8 * len(unit.rows) * self.model.vocab.size

    def _computed(self, units: list[batch.Unit]) -> list[CanvasEntry]:
        """One forward: the entries of its units."""
        if units[0].memory is None:
            ids, part = batch.whole_part(units, self._tables, self.mask, self.model.visibility)
        else:
            ids, part = batch.given_part(units, self._tables, self.step.blank, self.model.visibility)
        for n, unit in enumerate(units):
            unit.start, unit.padding = n * part.width, part.width - unit.width
        inputs = torch.from_numpy(ids.ravel()).to(self.device)
        if any(unit.soft is not None for unit in units):
            inputs = self._mixed(inputs, units)
        hidden = self.step(inputs, part, units)
        computed = sum(unit.width for unit in units)
        self.counted.calls += 1
        self.counted.computed += computed
        self.counted.padding += len(hidden) - computed
        if part.record and part.store is not None:
            for slot, unit in enumerate(units):
                unit.new_memory = CachedMemory(self.model.family, part.store, slot, np.ones(unit.width, bool))
        predicting = batch.moved(hidden, units) if self.model.shift else hidden
        block, good = self._logits(predicting, np.concatenate([unit.start + unit.rows for unit in units]))
        entries, first = [], 0
        for unit in units:
            mine = slice(unit.start, unit.start + unit.width)
            own = hidden[mine] if self.model.shift and not self.step.whole else None
            wrong = None if good is None else good[first : first + len(unit.rows)]
            entries.append(CanvasEntry(predicting[mine], unit.rows, block, first, unit.new_memory, wrong, unit.soft, own))
            first += len(unit.rows)
        return entries

    def _mixed(self, ids: Tensor, units: list[batch.Unit]) -> Tensor:
        """Embeddings [n, width] of ids int64[n], mixed where cells are soft."""
        table = self.model.embedding
        rows = table[ids]
        for unit in units:
            if unit.soft is None:
                continue
            positions, weights, masked = unit.soft
            at, which = positions, np.arange(len(positions))
            if unit.fresh is not None:
                which = np.flatnonzero(np.isin(positions, unit.fresh))
                at = np.searchsorted(unit.fresh, positions[which])
            chosen = torch.from_numpy(which).to(weights.device)
            mix = weights[chosen].to(table) @ table[: weights.shape[1]]
            share = masked.to(weights.device)[chosen].to(table)
            rows[torch.from_numpy(at + unit.start).to(self.device)] = mix + share[:, None] * table[self.mask]
            if unit.memory is not None:  # padding repeats the last cell
                last = unit.start + unit.width
                rows[last : last + unit.padding] = rows[last - 1].clone()
        return rows

    def _logits(self, hidden: Tensor, where: np.ndarray) -> tuple[Tensor, np.ndarray | None]:
        """float32[n, vocabulary], the scores of the states `where`; bool[n], which of them are numbers, or None: all."""
        whole = len(where) == len(hidden) and bool((where == np.arange(len(where))).all())
        states = hidden if whole else hidden.index_select(0, torch.from_numpy(where).to(self.device))
        logits = (states if self._head is None else self._head(states))[:, : self.model.vocab.size].float()
        check_size(self.model.name, logits.shape[-1], self.model.vocab.size)
        if self.mask < self.model.vocab.size:
            logits[:, self.mask] = float("-inf")
        if not len(where):
            return logits, None
        good = np.isfinite(logits.amax(dim=1).cpu().numpy())  # a NaN is the largest of its row
        self.counted.syncs += self.device.type != "cpu"
        return logits, None if good.all() else good

    # -- outputs

    def _output(self, plan: _Plan, known: dict[Key, CanvasEntry | DecError], computed: int) -> CanvasOutput:
        """computed: how many positions of its canvases were not remembered. Raises DecError for NaN scores."""
        call = plan.call
        entries = []
        for key in plan.keys:
            found = known[key]
            if isinstance(found, DecError):
                raise found
            entry = known[key] = self._with_rows(found, plan.rows)
            entries.append(entry)
            if entry.good is not None and not entry.good.all():
                i = int(np.asarray(call.rows)[np.flatnonzero(~entry.good)[0]])
                raise DecError(f"{self.model.name!r} gave logits that are not numbers at {call.position(i)}")
        count = call.cells.shape[0] if call.cells.dim() == 2 else 1
        self.counted.rows += count * len(plan.rows)
        if not entries:
            logits = torch.zeros(count, 0, self.model.vocab.size, device=self.device)
        elif all(e.block is entries[0].block and e.start == entries[0].start + n * len(e.rows) for n, e in enumerate(entries)):
            start = entries[0].start
            logits = entries[0].block[start : start + count * len(plan.rows)].view(count, len(plan.rows), self.model.vocab.size)
        else:
            logits = torch.stack([e.logits for e in entries])
        memory = self._memory(plan, entries) if call.keep else None
        return CanvasOutput(logits if call.cells.dim() == 2 else logits[0], memory, computed)

    def _with_rows(self, entry: CanvasEntry, rows: np.ndarray) -> CanvasEntry:
        """The entry with these rows' scores; scores it lacks are computed from its states."""
        if entry.rows is rows or np.array_equal(entry.rows, rows):
            return entry
        place = {int(row): n for n, row in enumerate(entry.rows)}
        if all(int(row) in place for row in rows):
            at = np.array([place[int(row)] for row in rows], np.int64)
            block = entry.logits.index_select(0, torch.from_numpy(at).to(self.device))
            good = None if entry.good is None else entry.good[at]
        else:
            block, good = self._logits(entry.hidden, rows)
        return replace(entry, rows=rows, block=block, start=0, good=good)

    def _memory(self, plan: _Plan, entries: list[CanvasEntry]) -> CachedMemory:
        if not entries:
            memory, nothing = plan.call.memory, self.empty(plan.call.cells.shape[-1])
            kept = memory.join(nothing) if isinstance(memory, CachedMemory) else nothing
        else:
            assert entries[0].memory is not None
            kept = entries[0].memory
            if entries[0].states is not None:
                batch.keep_states(kept, plan.units[0], entries[0].states)
        return kept


def _numbers(ps: Sequence[int]) -> np.ndarray:
    """int64 of whole numbers."""
    return np.arange(ps.start, ps.stop, ps.step) if isinstance(ps, range) else np.asarray(ps, dtype=np.int64)
