"""Draft loops: a causal engine drafts chains autoregressively and calls back to choose each token."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Protocol

import torch
from torch import Tensor

from decgraph.runtime.models.engine.cache import LENGTH, SlotStore
from decgraph.runtime.models.engine.forward_call import Counted, DraftLoop, ForwardCall, Output
from decgraph.runtime.models.engine.layout import ForwardStep, Layout
from decgraph.runtime.models.engine.slots import Slot


class DraftEngine(Protocol):
    """What a draft loop uses of a `CausalEngine`, whose attributes these are."""

    _slots: dict[Hashable, Slot]
    _of_tokens: bool
    _steps: Tensor
    context: int | None
    counted: Counted
    layout: Layout
    step: ForwardStep
    store: SlotStore

    @property
    def below(self) -> DraftEngine | None: ...

    def compute(self, calls: list[ForwardCall]) -> list[Output]: ...

    def straight_masks(self, first: int, count: int, length: int) -> dict[str | int, Tensor]: ...

    def logits(self, states: Tensor) -> Tensor: ...


def draft(engine: DraftEngine, loops: Sequence[DraftLoop]) -> list[Tensor | Exception]:
    """Scores float32 [tokens, V] per draft loop, all of one length unless a loop ends early; or the loop's error. To be
    called without gradients."""
    calls = [one.call for one in loops]
    rows: list[list[Tensor]] = [[] for _ in loops]
    out: list[Tensor | Exception | None] = [None] * len(loops)
    tokens: list[list[int]] = [[] for _ in loops]
    count = len(loops[0].uids)
    for j in range(count):
        going = []
        for n, one in enumerate(loops):
            if out[n] is None and not (j and tokens[n][-1] in one.ends):
                going.append(n)
        if not going:
            break
        got: Sequence[Output] | None = None
        if j and len(going) == 1:
            row = one_more(engine, calls[going[0]], loops[going[0]], j, tokens[going[0]][-1])
            got = None if row is None else [row]
        if got is None:
            got = engine.compute([below(calls[n], loops[n].uids, tokens[n]) for n in going])
        for n, row in zip(going, got, strict=True):
            if not isinstance(row, Tensor):
                out[n] = row
                continue
            rows[n].append(row)
            try:
                tokens[n].append(loops[n].choose(row))
            except Exception as error:  # the caller's processors may raise anything
                out[n] = error
    return [torch.cat(rows[n]) if made is None else made for n, made in enumerate(out)]


def below(call: ForwardCall, uids: Sequence[int], tokens: Sequence[int]) -> ForwardCall:
    """The call for the row after the tokens chosen so far, a chain below the call's own row."""
    if not tokens:
        return call
    cached = call.draft_tokens()
    parents = [call.rows[0], *range(len(cached), len(cached) + len(tokens) - 1)]
    return replace(call, tokens=[*cached, *tokens], parents=[*call.parents, *parents], uids=[*call.uids, *uids[: len(tokens)]],
                   rows=[len(cached) + len(tokens) - 1])  # fmt: skip


def one_more(engine: DraftEngine, call: ForwardCall, one: DraftLoop, j: int, token: int) -> Tensor | None:
    """The row [1, V] after one more token of a slot without branches. None where the slot has branches or no room."""
    slot = engine._slots.get(call.sequence)
    if slot is None or not slot.linear or slot.number >= engine.store.slots:
        return None
    if not engine._of_tokens or engine.below is not None or hasattr(engine.step, "bucket"):
        return None
    row = slot.used
    depth, node = 0, int(call.rows[0])
    while node >= 0:
        node, depth = int(call.parents[node]), depth + 1
    length = -(-(row + 1) // LENGTH) * LENGTH
    position = len(call.context) + depth + j - 1
    if row != position or length > engine.store.rows or (engine.context is not None and position >= engine.context):
        return None
    where = engine._steps[row : row + 1][None]
    masks = engine.straight_masks(row, 1, length)
    part = engine.store.part(slot.number, 1, length)
    ids = torch.tensor([[token]], device=engine.layout.device)
    states = engine.step(ids, where, where, part.keys, part.values, masks)[0]
    logits: Tensor = engine.logits(states)
    if not isfinite(float(logits.sum())):
        return None  # the general path reports the error and its request
    engine.store.keep(slot.number, row, states)
    slot.append(int(one.uids[j - 1]), len(slot.uids) - 1, position)
    counted = engine.counted
    counted.calls += 1
    counted.sequence_calls += 1
    counted.rows += 1
    counted.computed += 1
    counted.requested += position + 1
    return logits
