"""From plans of several sequences to the tensors of one forward; masks of tokens in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decgraph.runtime.models.engine.slots import FULL, LENGTH, SLIDING, Layout, SlotPlan

_POSITIONS, _WRITE, _LIMIT = 1, 2, 3  # rows of a table with a column per new token; row 0 has the token ids


@dataclass
class Batch:
    """One forward's tensors, as a step takes them."""

    ids: Tensor
    positions: Tensor
    write: Tensor
    masks: dict[str | int, Tensor]


def rows_of(plans: Sequence[SlotPlan], takes: Sequence[int]) -> int:
    """How many cache rows a forward over those tokens attends to, a spare one for padding among them."""
    rows, base, span, branched = 0, 0, 0, False
    for plan, take in zip(plans, takes):  # a generator would be a call for each
        rows = max(rows, plan.rows if plan.done + take == plan.total else plan.start + plan.done + take)
        base, span, branched = max(base, plan.base), max(span, plan.rows - plan.base), branched or not plan.linear
    if branched:
        rows = max(rows, base + span)
    return -(-(rows + 1) // LENGTH) * LENGTH


def batch_of(plans: Sequence[SlotPlan], takes: Sequence[int], width: int, length: int, layout: Layout, steps: Tensor) -> Batch:
    """The next `takes[b]` tokens of every plan, padded to `width`, over `length` rows (`rows_of`). `steps` is int64[n],
    0, 1, 2, ... on the device.

    A padding token writes to the last row, which no query attends to, and attends to row 0. A token of the chain
    attends to the rows up to its own; so does a tail without branches. A tail with branches has an ancestor matrix.
    """
    count = len(plans)
    if count == 1 and takes[0] == width and plans[0].tokens is None and layout.device.type == "cpu":
        return _of_one(plans[0], width, length, layout.window)
    branched = any(not p.linear and p.done + take > len(p.fresh) for p, take in zip(plans, takes))
    table = np.zeros((4, count, width), dtype=np.int64)
    table[_WRITE], table[_LIMIT] = length - 1, 1
    for b, (plan, take) in enumerate(zip(plans, takes)):
        table[:_LIMIT, b, :take] = _columns(plan, take)
        table[_LIMIT, b, :take] = table[_WRITE, b, :take] + 1
    ids, positions, write, limit = torch.from_numpy(table).to(layout.device).unbind(0)
    for b, (plan, take) in enumerate(zip(plans, takes)):
        if plan.tokens is not None:
            _from_device(plan, take, ids[b])
    row = steps[:length]
    seen = row < limit.view(count, 1, width, 1)
    masks: dict[str | int, Tensor] = {FULL: seen}
    if layout.window is not None:
        masks[SLIDING] = seen & (row > (positions - layout.window).view(count, 1, width, 1))
    if branched:
        tails = _tails(plans, takes, table, layout.window)
        base = torch.tensor([plan.base for plan in plans], device=layout.device)[:, None]
        where = (base + steps[: tails[FULL].shape[2]])[:, None, None].expand(count, 1, width, -1)
        for kind, mask in masks.items():
            mask.scatter_(3, where, torch.from_numpy(tails[kind]).to(layout.device)[:, None])
    return Batch(ids, positions, write, masks)


def _of_one(plan: SlotPlan, take: int, length: int, window: int | None) -> Batch:
    """The next `take` tokens of one plan on the CPU: the same tensors, of few NumPy arrays."""
    table = np.array(_columns(plan, take), dtype=np.int64)[:, None]
    seen = np.arange(length) <= table[_WRITE, 0, :, None]
    first = max(len(plan.fresh) - plan.done, 0)  # where draft tokens begin
    branched = not plan.linear and first < take
    if branched:
        begin = plan.done + first - len(plan.fresh)
        tail = plan.sees()[begin : begin + take - first]
        seen[first:, plan.base :] = False
        seen[first:, plan.base : plan.base + tail.shape[1]] = tail
    masks: dict[str | int, Tensor] = {FULL: torch.from_numpy(seen[None, None])}
    if window is not None:
        row = np.arange(length)
        if branched:
            row[plan.base : plan.base + plan.span] = plan.tail_positions()
        masks[SLIDING] = torch.from_numpy((seen & (row > table[_POSITIONS, 0, :, None] - window))[None, None])
    ids, positions, write = torch.from_numpy(table).unbind(0)
    return Batch(ids, positions, write, masks)


def _columns(plan: SlotPlan, take: int) -> tuple[list[int], list[int], list[int]]:
    """Tokens, positions and rows of the plan's next tokens."""
    first, end = plan.done, plan.done + take
    row, split = plan.start + first, plan.base
    if end <= len(plan.fresh):
        write = list(range(row, row + take))
    else:  # draft tokens: their rows come after the tail's cached ones
        cached = plan.rows - plan.start - plan.total
        write = [*range(row, split), *range(max(row, split) + cached, row + take + cached)]
    return plan.ids[first:end], plan.positions[first:end], write


def _from_device(plan: SlotPlan, take: int, ids: Tensor) -> None:
    """Copies token ids that are on the device only into their columns of `ids`."""
    first = max(plan.done - len(plan.fresh), 0)
    count = plan.done + take - len(plan.fresh) - first
    if plan.tokens is None or count <= 0:
        return
    nodes = plan.nodes[first : first + count]
    here = take - count
    if nodes[-1] - nodes[0] == count - 1:
        ids[here:take] = plan.tokens[nodes[0] : nodes[-1] + 1]
    else:
        ids[here:take] = plan.tokens[torch.tensor(nodes, device=ids.device)]


def _tails(
    plans: Sequence[SlotPlan], takes: Sequence[int], table: np.ndarray, window: int | None
) -> dict[str | int, np.ndarray]:
    """By layer type, bool[B, new tokens, widest tail]: the tail rows of its slot that each new token attends to."""
    width = max(plan.span for plan in plans)
    steps = np.arange(width)
    row = np.array([plan.base for plan in plans])[:, None, None] + steps
    full = row < table[_LIMIT, :, :, None]
    sliding = full if window is None else full & (row > table[_POSITIONS, :, :, None] - window)
    for b, (plan, take) in enumerate(zip(plans, takes)):
        first = max(len(plan.fresh) - plan.done, 0)
        if plan.linear or first >= take:
            continue
        begin = plan.done + first - len(plan.fresh)
        full[b, first:take] = False
        full[b, first:take, : plan.span] = plan.sees()[begin : begin + take - first]
        if window is not None:
            positions = np.full(width, -1)
            positions[: plan.span] = plan.tail_positions()
            near = positions > table[_POSITIONS, b, first:take, None] - window
            sliding[b, first:take] = full[b, first:take] & near
    return {FULL: full, SLIDING: sliding}


# Masks of a few tokens in a row, each of which attends to all rows before its own: views of one table. Comparing, broadcasting
# and converting would make four tensors a call, and a small drafter's whole step makes seventy. A table is `shown` where column
# <= row + reach. Its part [count, length] from column reach - first on is the mask of tokens at positions first, first + 1, ...
# over the cache rows 0 .. length - 1.

MOST = 64  # tokens


class StraightMasks:
    """Masks by layer type: numbers to add to scores, 0 or the dtype's lowest, in the layout's dtype."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._reach = 0
        self._tables: dict[str, Tensor] = {}

    def of(self, first: int, count: int, length: int) -> dict[str | int, Tensor]:
        """Masks [1, 1, count, length] for `count` <= MOST tokens from position `first` on, whose rows are their positions,
        over `length` rows; on a GPU copies, since its attention kernels read masks in aligned words of 16 bytes."""
        if max(first, length) > self._reach:
            self._grow(max(first, length))
        start = self._reach - first
        views: dict[str | int, Tensor] = {}
        for kind, table in self._tables.items():  # a comprehension would be a call for each token
            views[kind] = table.narrow(2, 0, count).narrow(3, start, length)
        if self.layout.device.type == "cpu":
            return views
        return {kind: view.clone(memory_format=torch.contiguous_format) for kind, view in views.items()}

    def _grow(self, wanted: int) -> None:
        reach = max(self._reach, 256)
        while reach < wanted:
            reach *= 2
        device, dtype, window = self.layout.device, self.layout.dtype, self.layout.window
        columns = torch.arange(2 * reach, device=device) - reach
        ahead = columns - torch.arange(MOST, device=device)[:, None]
        kinds = {FULL: ahead <= 0}
        if window is not None:
            kinds[SLIDING] = kinds[FULL] & (ahead > -window)
        shown, hidden = (torch.tensor(n, dtype=dtype, device=device) for n in (0.0, torch.finfo(dtype).min))
        self._tables = {kind: torch.where(seen, shown, hidden)[None, None] for kind, seen in kinds.items()}
        self._reach = reach
