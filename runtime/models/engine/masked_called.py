"""The engine of masked models that are called whole: canvases of one length share a call, equal ones are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.canvas_call import CanvasCall, CanvasOutput
from decgraph.runtime.models.engine.masked_memo import Entry, Key
from decgraph.runtime.models.engine.masked_remembering import RememberingEngine
from decgraph.runtime.models.hf_masked import source_of
from decgraph.runtime.models.masked_called import CalledMasked

_CPU_BUDGET = 2 << 30


@dataclass
class _Canvas:
    """One canvas: its key, ids int64[1, length], its prompt's length, and embeddings [1, length, width] where it holds
    mixtures."""

    key: Key
    ids: Tensor
    prompt: int
    embeddings: Tensor | None


class CalledEngine(RememberingEngine):
    """See `MaskedEngine`. Results equal `CalledMasked`'s, in the module's own precision. budget: bytes that the scores of one
    call, and those that are remembered, may take."""

    def __init__(self, model: CalledMasked, *, budget: int | None = None) -> None:
        self.model, self.device = model, model.device
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 2 * _CPU_BUDGET
        super().__init__(model, budget=free // 4 if budget is None else budget, remembered=free // 4)

    def compute(self, calls: Sequence[CanvasCall]) -> list[CanvasOutput | DecError]:
        """See `MaskedEngine`."""
        outputs: list[CanvasOutput | DecError | None] = [None] * len(calls)
        plans: dict[int, list[_Canvas]] = {}
        for n, call in enumerate(calls):
            self.counted.sequence_calls += 1
            try:
                plans[n] = self._plan(call)
            except DecError as error:
                outputs[n] = error
        known: dict[Key, Entry | DecError] = {}
        missing: dict[Key, _Canvas] = {}
        for canvas in (c for plan in plans.values() for c in plan):
            self.counted.requested += canvas.ids.shape[1]
            entry = self.memo.get(canvas.key)
            if entry is None:
                missing[canvas.key] = canvas
            else:
                known[canvas.key] = entry
        for batch in self._batches(list(missing.values())):
            known.update(self._called(batch))
        for n, plan in plans.items():
            try:
                computed = sum(ids.shape[1] for ids in {c.key: c.ids for c in plan if c.key in missing}.values())
                outputs[n] = self._output(calls[n], [known[c.key] for c in plan], computed)
                entries = [(c.key, known[c.key]) for c in plan]
                self.memo.put(calls[n].sequence, [(key, e) for key, e in entries if isinstance(e, Entry)])
            except DecError as error:
                outputs[n] = error
        return [a for a in outputs if a is not None]

    def _plan(self, call: CanvasCall) -> list[_Canvas]:
        """Raises DecError for a call that the model cannot compute."""
        model = self.model
        canvases = call.cells.to(self.device).reshape(-1, call.cells.shape[-1])
        if call.keep or (call.given is not None and call.fresh is not None):
            raise model.no_memory()
        length = canvases.shape[1]
        self._check_length(length)
        if any(not 0 <= int(i) < length for i in call.rows):
            raise self._no_position(length)
        bad = ((canvases < 0) | (canvases >= model.vocab.size)) & (canvases != self.mask)
        if bool(bad.any()):
            c, i = (int(x) for x in bad.nonzero()[0])
            raise self._no_token(call, int(canvases[c, i]), i)
        prompt = call.prompt if model.visibility[0] == "prompt+block" else 0
        soft = None if call.soft is None else (tuple(call.soft[0]), *((id(t), t._version) for t in call.soft[1:]))
        made = []
        for row in canvases:
            ids = row[None]
            embeddings = None if call.soft is None else model.mixed(ids, call.soft)
            made.append(_Canvas((row.cpu().numpy().tobytes(), prompt, soft), ids, prompt, embeddings))
        return made

    def _batches(self, canvases: list[_Canvas]) -> Iterator[list[_Canvas]]:
        """The canvases that share a call: of one length and one prompt's length, no more scores than the budget."""
        groups: dict[tuple[int, int, bool], list[_Canvas]] = {}
        for c in canvases:
            groups.setdefault((c.ids.shape[1], c.prompt, c.embeddings is None), []).append(c)
        for (length, _, _), group in groups.items():
            most = max(1, self.budget // (8 * length * self.model.vocab.size))
            yield from (group[n : n + most] for n in range(0, len(group), most))

    def _called(self, batch: list[_Canvas]) -> dict[Key, Entry | DecError]:
        ids = torch.cat([c.ids for c in batch])
        mixed = [c.embeddings for c in batch if c.embeddings is not None]
        try:
            logits = self.model.logits(ids, batch[0].prompt, torch.cat(mixed) if mixed else None)
        except DecError as error:
            return {c.key: error for c in batch}
        self.counted.calls += 1
        self.counted.computed += ids.numel()
        return {c.key: Entry(rows, np.arange(len(rows)), rows, 0, None) for c, rows in zip(batch, logits, strict=True)}

    def _output(self, call: CanvasCall, entries: Sequence[Entry | DecError], computed: int) -> CanvasOutput:
        """Raises DecError for scores that are not numbers."""
        size, rows = self.model.vocab.size, [int(i) for i in call.rows]
        at = torch.tensor([source_of(self.model, i) for i in rows], dtype=torch.long, device=self.device)
        made = []
        for entry in entries:
            if isinstance(entry, DecError):
                raise entry
            scores = entry.hidden.index_select(0, at)[:, :size].float()
            if self.mask < size:
                scores[:, self.mask] = float("-inf")
            good = torch.isfinite(scores.amax(dim=1)).cpu().numpy() if len(rows) else np.ones(0, bool)
            if not good.all():
                where = call.position(rows[int(np.flatnonzero(~good)[0])])
                raise DecError(f"{self.model.name!r} gave logits that are not numbers at {where}")
            made.append(scores)
        self.counted.rows += len(made) * len(rows)
        out = torch.stack(made)
        return CanvasOutput(out if call.cells.dim() == 2 else out[0], None, computed)
