"""Calls of causal models on a memory: `small(t.leaves, given = target.memory(ctx.parent))`.

There are three paths, chosen per call. A memory equal to what the model would compute itself changes nothing, so the engine
ignores it: the target's own memory, its exits', those of a head over its lower layers. A memory that is all that the target
computed of the context is copied from the target's cache into a separate cache (`CopyingEngine`). Every other one (restricted,
joined, of another derived model, of a path below the context) is computed as a value, and the model reads it path by path
without a cache: slow but correct.

Zhang et al., Draft & Verify, 2024; Xia et al., SWIFT, 2025: the drafter reads the target's keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.derive import Applied, Headed, Upto
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Counted, ForwardCall, Output, Remembered, joined
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.engine.slots import CacheTooLarge
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import LayerMemory, Memory, Model

Make = Callable[[], "CopyingEngine"]


class Memories:
    """Computes one model's calls with a memory. `make`: builds an engine of its layers that reads the target's rows; None for
    models that need none."""

    def __init__(self, model: Model, make: Make | None = None) -> None:
        self.model, self._make = model, make
        self._plain = PlainEngine(model)
        # Rows at the context's end, which they compute themselves, and rows below it where the memory covers that end too.
        self._engines: dict[bool, CopyingEngine] = {}

    def compute(
        self, calls: Sequence[ForwardCall], exact: Callable[[list[ForwardCall]], list[Output]], counted: Counted
    ) -> list[Output]:
        """Logits [rows, V] per call, or its DecError; `exact` computes those without a memory. Adds other engines' counts to
        `counted`."""
        out: list[Output | None] = [None] * len(calls)
        easy: list[tuple[int, ForwardCall]] = []
        copied: dict[bool, list[tuple[int, ForwardCall, list[int]]]] = {False: [], True: []}
        for n, call in enumerate(calls):
            try:
                if call.memory is None or self._same(call, call.memory):
                    easy.append((n, replace(call, memory=None)))
                elif not call.soft and self._copied(call, call.memory):
                    for late, one, at in _parts(call):
                        copied[late].append((n, one, at))
                else:
                    out[n] = self._slow(call, counted)
            except DecError as error:
                out[n] = error
        for (n, _), made in zip(easy, exact([call for _, call in easy]) if easy else [], strict=True):
            out[n] = made
        halves: dict[int, list[tuple[list[int], Output]]] = {}
        for late, parts in copied.items():
            for (n, _, at), made in zip(parts, self._compute(late, [call for _, call, _ in parts], counted), strict=True):
                halves.setdefault(n, []).append((at, made))
        for n, both in halves.items():
            out[n] = joined(both)
        return [output for output in out if output is not None]

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence."""
        for engine in self._engines.values():
            engine.close(sequence)

    def _compute(self, late: bool, calls: list[ForwardCall], counted: Counted) -> list[Output]:
        if not calls:
            return []
        if late not in self._engines:
            assert self._make is not None
            self._engines[late] = self._make()
        engine = self._engines[late]
        before = replace(engine.counted)
        outputs = engine.compute(calls)
        counted.add(engine.counted.since(before))
        return outputs

    def _slow(self, call: ForwardCall, counted: Counted) -> Output:
        (made,) = self._plain.compute([call])
        counted.add(self._plain.counted)
        self._plain.counted = Counted()
        return made.float() if isinstance(made, Tensor) else made

    # Which path.

    def _same(self, call: ForwardCall, memory: Remembered) -> bool:
        """Whether the memory's rows equal the model's own. Raises DecError for a memory of another family."""
        if memory.model.family != self.model.family:
            raise strange(self.model, memory)
        return memory.plain and _agrees(self.model, memory.model) and _along(call, memory)

    def _copied(self, call: ForwardCall, memory: Remembered) -> bool:
        """Whether the memory is all that the target computed of the context's beginning, and the model one that copies."""
        whole = memory.plain and isinstance(memory.model, HFCausal) and memory.model.origin is None
        return whole and self._make is not None and inside(call, memory)


def strange(model: Model, memory: Remembered) -> DecError:
    """The error for a memory of another family."""
    return DecError(f"{model.name!r} cannot read the memory of {memory.model.name!r}: they do not share keys and values")


def features_of(memory: Remembered, target: HFCausal) -> bool:
    """Whether a memory's features are all that the target computes."""
    return memory.plain and isinstance(memory.model, HFCausal) and memory.model.net is target.net


def _agrees(reader: Model, writer: Model) -> bool:
    """Whether every row that `reader` reads of `writer`'s memory equals its own: their layers are the same up to the reader's
    last, so equal states enter them."""
    if writer is reader:
        return True
    if isinstance(reader, Headed):
        inner = reader.inner
        while isinstance(inner, Applied):
            inner = inner.inner
        if not isinstance(inner, Upto):
            return False
        return isinstance(inner.target, HFCausal) and _starts(writer, inner.target, inner.layer + 1)
    return isinstance(reader, HFCausal) and _starts(writer, reader, len(reader.net.decoder.uses))


def _starts(writer: Model, reader: HFCausal, count: int) -> bool:
    """Whether the writer's layers begin with the reader's first `count`."""
    if not isinstance(writer, HFCausal) or writer.net.layers is not reader.net.layers:
        return False
    mine, theirs = reader.net.decoder.uses[:count], writer.net.decoder.uses[:count]
    return len(mine) == len(theirs) and mine == theirs


def _along(call: ForwardCall, memory: Remembered) -> bool:
    """Whether the memory is of every wanted path's own beginning."""
    if inside(call, memory):
        return True
    covered = memory.path
    return all(path[: min(len(covered), len(path) - 1)] == covered[: len(path) - 1] for path in call.paths())


def inside(call: ForwardCall, memory: Remembered) -> bool:
    """Whether the memory is of the context's beginning."""
    length, known = len(call.context), memory.length
    if known > length:
        return all(row < 0 for row in call.rows) and list(memory.tokens[:length]) == list(call.context)
    return memory.tokens is call.context or list(memory.tokens[:known]) == list(call.context[:known])


def _parts(call: ForwardCall) -> list[tuple[bool, ForwardCall, list[int]]]:
    """(whether the memory covers the context's end, the call, which of its rows): a row at the end computes its own last
    token, rows below it read that token's keys and values from the memory."""
    assert call.memory is not None
    length = len(call.context)
    if call.memory.length < length:
        return [(False, call, list(range(len(call.rows))))]
    short = replace(call.memory, length=length - 1)
    below = [n for n, row in enumerate(call.rows) if row >= 0]
    end = [n for n, row in enumerate(call.rows) if row < 0]
    out = []
    if end:
        alone = replace(call, tokens=(), parents=(), uids=(), rows=[-1] * len(end), memory=short)
        out.append((False, alone, end))
    if below:
        out.append((True, replace(call, rows=[call.rows[n] for n in below]), below))
    return out


class CopyingEngine(CausalEngine):
    """Some of a target's layers, perhaps quantised, on the target's keys and values for as many positions as the memory has.

    A slot's first rows are copies of the target's rows; those after it were computed on them, and are dropped when
    the memory covers more. source: the target's engine. layers: the target's numbers of this engine's layers, in order.
    """

    def __init__(self, like: CausalEngine, source: CausalEngine, layers: Sequence[int]) -> None:
        super().__init__(like.step, like.layout, like.head, name=like.name, size=like.size, context=like.context,
                         chunk=like.chunk, budget=like.store.budget, below=like.below)  # fmt: skip
        self.source, self.places = source, layers
        self._taken: dict[Hashable, int] = {}

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call, or its DecError. `memory` is set in all of them."""
        return self._compute(calls)

    def _group(self, calls: list[tuple[int, ForwardCall]], out: list[Output | None]) -> None:
        ready: list[tuple[int, ForwardCall]] = []
        missing = [call for _, call in calls if not _cached(self.source, of := _context(call), len(of.context))]
        if missing:
            self.source.states([_context(call) for call in missing])  # in one batch; errors are reported below, per call
        for n, call in calls:
            try:
                self._take_over(call, [a for _, a in calls])
                ready.append((n, call))
            except DecError as error:
                out[n] = error
            except CacheTooLarge as error:
                if len(calls) > 1:
                    half = len(calls) // 2
                    self._group(calls[:half], out)
                    self._group(calls[half:], out)
                    return
                self._drop(call.sequence)
                out[n] = DecError(f"{self.name!r} has no room for {call.request}: {error}",
                                  hint="a larger cache budget, or a shorter prompt")  # fmt: skip
        super()._group(ready, out)

    def _take_over(self, call: ForwardCall, together: Sequence[ForwardCall]) -> None:
        """Copies the target's rows to the slot's first rows, as many as the memory covers."""
        of = _context(call)
        known, wanted = len(of.context), list(map(int, of.context))
        slot = self._slot(call.sequence)
        taken = min(self._taken.get(call.sequence, 0), len(slot.chain))
        if taken == known and slot.chain[:known] == wanted:
            return
        keep = 0
        while keep < min(taken, known) and slot.chain[keep] == wanted[keep]:
            keep += 1
        del slot.chain[keep:]
        slot.drop_tail()
        self._taken[call.sequence] = keep
        if known > keep:
            self._room([self._slots[a.sequence] for a in together if a.sequence in self._slots], known)
            for place, layer in enumerate(self.places):
                self.store.write(slot.number, place, keep, *_rows(self.source, of, layer, keep, known))
            slot.chain.extend(wanted[keep:])
            self._taken[call.sequence] = known
            self.counted.moved += known - keep

    def _drop(self, sequence: Hashable) -> None:
        super()._drop(sequence)
        self._taken.pop(sequence, None)


def _context(call: ForwardCall) -> ForwardCall:
    """The target's call that computes the positions that the memory covers."""
    assert call.memory is not None
    known = min(call.memory.length, len(call.context))
    return ForwardCall(call.sequence, call.context[:known], call.marks, name=call.name)


def _cached(source: CausalEngine, of: ForwardCall, length: int) -> bool:
    return not length or (source.caches(of, length) and (source.below is None or source.below.caches(of, length)))


def _rows(source: CausalEngine, of: ForwardCall, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
    """Keys and values [heads, n, size] of a layer from the target's cache, computed where they are missing."""
    if not _cached(source, of, end):
        for engine in (source, source.below):
            if engine is not None and not engine.caches(of, end):
                (made,) = engine.states([of])
                if isinstance(made, DecError):
                    raise made
    lower = 0 if source.below is None else len(source.below.layout.shapes)
    if source.below is not None and layer < lower:
        return source.below.store.read(source.below._slots[of.sequence].number, layer, first, end)
    return source.store.read(source._slots[of.sequence].number, layer - lower, first, end)


def kept_rows(source: CausalEngine, call: ForwardCall, model: HFCausal) -> Memory:
    """The memory of a call as a value, with copies of the rows in the target's cache, which later calls change."""
    of = _context(call)
    known = len(of.context)
    layers = []
    for layer in range(model.layers):
        keys, values = (rows.transpose(0, 1).clone() for rows in _rows(source, of, layer, 0, known))
        layers.append(LayerMemory(dict(enumerate(zip(keys, values, strict=True))), {}))
    return Memory(model.family, known, tuple(layers), {}, dict(enumerate(map(int, of.context))))


def copying(model: HFCausal, target: CausalEngine, like: Callable[[], CausalEngine], since: int = 0) -> Make:
    """A builder of the engine of `model` on its target's rows. like: an engine of its layers; since: how many of its layers
    the engine below that one has."""
    layers = [use.layer for use in model.net.decoder.uses[since:] if use.attention]
    return lambda: CopyingEngine(like(), target, layers)
