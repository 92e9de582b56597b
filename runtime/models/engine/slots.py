"""The rows of keys, values and states that sequences have in an engine, and which tokens these rows belong to.

A sequence has one slot of the store; row i of it belongs to one token. Rows 0 .. n-1 are the committed chain; the rows after it
are the tail: draft tokens below the chain's end, by uid. When tokens of the tail are committed, their rows become part of the
chain; they are moved where they are not in order. A plan says which tokens a call has to compute beside those that are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import ContextFullError, DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.interface import SoftCell

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Layout:
    """The cache layout of a module: per layer the heads and the sizes of keys and values; its layers' types in order,
    the window of sliding ones, the width of its last states, their dtype and device."""

    shapes: tuple[tuple[int, int, int], ...]
    types: tuple[str, ...]
    window: int | None
    width: int
    dtype: torch.dtype
    device: torch.device

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of this dtype on this device."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def cell_bytes(self) -> int:
        """Bytes of one token in a cache: keys, values and its last state."""
        kept = sum(heads * (keys + values) for heads, keys, values in self.shapes)
        return int((kept + self.width) * self.dtype.itemsize)


ROWS = 64  # capacities are multiples of this
LENGTH = 16  # lengths handed to a forward are: attention costs what they say, and each new one is a view of every layer
_PARTS = 64  # views that are remembered
_CPU_BUDGET = 4 << 30
_GPU_SHARE = 0.8  # of the memory free when the store is created


class CacheTooLarge(Exception):
    """The budget does not allow that many slots of that many rows."""

    def __init__(self, slots: int, rows: int, needed: int, budget: int) -> None:
        super().__init__(f"{slots} sequences of {rows} tokens need {needed} bytes, the budget is {budget}")
        self.slots, self.rows, self.needed, self.budget = slots, rows, needed, budget


@dataclass(frozen=True)
class SlotStates:
    """Some slots' keys and values [B, heads, rows, size] by layer, and last states [B, rows, width]."""

    keys: list[Tensor]
    values: list[Tensor]
    last: Tensor


class SlotStore:
    """Preallocated keys, values and last states of many sequences: [slots, heads, rows, size] per layer, in place. `slots` and
    `rows` say how many there are; both grow by doubling, within a budget in bytes. Unwritten rows are zeros: they are masked,
    and zero times a masked weight is zero.

    budget: the most bytes to allocate; None takes 4 GiB on the CPU and 80 % of the free memory of a GPU.
    """

    def __init__(self, layout: Layout, budget: int | None = None) -> None:
        self.layout = layout
        if budget is None:
            on_gpu = layout.device.type == "cuda"
            budget = int(_GPU_SHARE * torch.cuda.mem_get_info(layout.device)[0]) if on_gpu else _CPU_BUDGET
        self.budget = budget
        self.slots = self.rows = 0
        # Tensors of one size are one block [n, slots, heads, rows, size], so that moving rows is one operation.
        sizes = [(h, k) for h, k, _ in layout.shapes] + [(h, v) for h, _, v in layout.shapes]
        kinds = list(dict.fromkeys(sizes))
        self._where = [(kinds.index(size), sizes[:n].count(size)) for n, size in enumerate(sizes)]
        self._blocks = [layout.zeros(sizes.count(kind), 0, kind[0], 0, kind[1]) for kind in kinds]
        self._last = layout.zeros(0, 0, layout.width)
        self._parts: dict[tuple[int, int, int], SlotStates] = {}

    def need(self, slots: int, rows: int) -> None:
        """Makes room for that many slots of that many rows. Raises CacheTooLarge, or an error of the allocator; cached rows
        stay valid either way. A slot past `slots` may be lost where the budget has no room for it."""
        rows = -(-rows // ROWS) * ROWS
        if slots <= self.slots and rows <= self.rows:
            return
        for wanted in (
            (_doubled(self.slots, slots), _doubled(self.rows, rows)),
            (_doubled(self.slots, slots), max(self.rows, rows)),
            (max(self.slots, slots), max(self.rows, rows)),
            (slots, max(self.rows, rows)),
            (slots, rows),
        ):
            if self._bytes(*wanted) <= self.budget:
                break
        else:
            raise CacheTooLarge(slots, rows, self._bytes(slots, rows), self.budget)
        kept = (min(self.slots, wanted[0]), min(self.rows, wanted[1]))
        # If the allocator fails half way, the blocks already enlarged do no harm: `slots` and `rows` say what is used.
        self._parts = {}
        for n, block in enumerate(self._blocks):
            if block.shape[1] != wanted[0] or block.shape[3] != wanted[1]:
                made = self.layout.zeros(block.shape[0], wanted[0], block.shape[2], wanted[1], block.shape[4])
                made[:, : kept[0], :, : kept[1]] = block[:, : kept[0], :, : kept[1]]
                self._blocks[n] = made
        last = self.layout.zeros(*wanted, self.layout.width)
        last[: kept[0], : kept[1]] = self._last[: kept[0], : kept[1]]
        self._last = last
        self.slots, self.rows = wanted

    def _bytes(self, slots: int, rows: int) -> int:
        return slots * rows * self.layout.cell_bytes

    def _layers(self, blocks: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values by layer, of blocks cut like this store's."""
        every = [blocks[block][place] for block, place in self._where]
        half = len(every) // 2
        return every[:half], every[half:]

    def part(self, first: int, count: int, rows: int) -> SlotStates:
        """Views of neighbouring slots, cut to that many rows."""
        made = self._parts.get((first, count, rows))
        if made is None:
            slots = slice(first, first + count)
            keys, values = self._layers([block[:, slots, :, :rows] for block in self._blocks])
            made = SlotStates(keys, values, self._last[slots, :rows])
            if len(self._parts) >= _PARTS:
                self._parts.clear()
            self._parts[first, count, rows] = made
        return made

    def taken(self, slots: Sequence[int], rows: int) -> tuple[SlotStates, Callable[[Tensor], None]]:
        """Copies of slots that are not neighbours, and a function that writes their rows int64[B, T] back."""
        index = torch.tensor(slots, device=self.layout.device)
        blocks = [block[:, :, :, :rows].index_select(1, index) for block in self._blocks]
        last = self._last[:, :rows].index_select(0, index)

        def back(write: Tensor) -> None:
            here, there = torch.arange(len(index), device=index.device)[:, None], index[:, None]
            for block, copy in zip(self._blocks, blocks, strict=True):
                block[:, there, :, write] = copy[:, here, :, write]
            self._last[there, write] = last[here, write]

        return SlotStates(*self._layers(blocks), last), back

    def state(self, slot: int, row: int, count: int = 1) -> Tensor:
        """A view of last states [count, width]."""
        return self._last[slot, row : row + count]

    def keep(self, slot: int, row: int, states: Tensor) -> None:
        """Last states [count, width] of rows from `row` on."""
        self._last[slot].narrow(0, row, states.shape[0]).copy_(states)

    def states(self, slot: int, rows: Sequence[int]) -> Tensor:
        """A copy of last states [n, width]."""
        return self._last[slot].index_select(0, torch.tensor(rows, device=self.layout.device))

    def read(self, slot: int, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's keys and values [heads, n, size] in some rows."""
        keys, values = self._layers([block[:, slot, :, first:end] for block in self._blocks])
        return keys[layer], values[layer]

    def write(self, slot: int, layer: int, first: int, keys: Tensor, values: Tensor) -> None:
        """Makes rows of a layer, from `first` on, these keys and values [heads, n, size]."""
        for mine, theirs in zip(self.read(slot, layer, first, first + keys.shape[1]), (keys, values), strict=True):
            mine.copy_(theirs)

    def move(self, slot: int, source: Sequence[int], first: int) -> None:
        """The rows `source` of a slot become its rows `first`, `first + 1`, ..."""
        index = torch.tensor(source, device=self.layout.device)
        end = first + len(source)
        for block in self._blocks:
            one = block[:, slot]
            one[:, :, first:end] = one.index_select(2, index)
        one = self._last[slot]
        one[first:end] = one.index_select(0, index)

    def copy(self, source: int, target: int, rows: int) -> None:
        """One slot's first rows become another's; the rest of that one's are zeros."""
        for block in self._blocks:
            block[:, target, :, :rows] = block[:, source, :, :rows]
            block[:, target, :, rows:] = 0
        self._last[target, :rows] = self._last[source, :rows]
        self._last[target, rows:] = 0

    def copied(self, slot: int, rows: int) -> tuple[list[Tensor], Tensor]:
        """Copies of a slot's first rows: by block [n, heads, rows, size], and last states [rows, width]."""
        return [block[:, slot, :, :rows].clone() for block in self._blocks], self._last[slot, :rows].clone()

    def put(self, slot: int, blocks: Sequence[Tensor], last: Tensor, rows: int) -> None:
        """Writes copies (`copied`), blocks [n, heads, rows, size] and last states [rows, width], to the first `rows` rows of a
        slot."""
        for mine, theirs in zip(self._blocks, blocks, strict=True):
            mine[:, slot, :, :rows] = theirs[:, :, :rows]
        self._last[slot, :rows] = last[:rows]

    def clear(self, slot: int) -> None:
        """Zeros a slot: a NaN that a model left there would propagate through a mask."""
        if slot < self.slots:
            for block in self._blocks:
                block[:, slot] = 0
            self._last[slot] = 0


def _doubled(have: int, want: int) -> int:
    """At least `want`, by doubling what there is."""
    size = max(have, 1)
    while size < want:
        size *= 2
    return size if have else want


Move = Callable[[int, Sequence[int], int], None]  # slot, rows, where they go

_COMPARED = 16  # tokens
TAIL = 1024  # draft tokens that stay cached, at most, beside those of the present call


class Slot:
    """One sequence's cached tokens. `used` is the number of rows in use."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.stamp = 0  # when it was last used
        self.forget()

    def forget(self) -> None:
        """Forget all rows."""
        self.chain: list[int] = []
        self.drop_tail()

    def drop_tail(self) -> None:
        """Forget the draft tokens' rows."""
        self.offsets: dict[int, int] = {}  # uid -> place in the tail
        self.uids: list[int] = []
        self.parents: list[int] = []  # places in the tail, -1 for the chain's end
        self.positions: list[int] = []
        self.linear = True  # every token's parent is the one before it

    def rewind(self, context: Sequence[int]) -> None:
        """Keep the rows of the longest common beginning with another context, compared token by token."""
        pairs = enumerate(zip(self.chain, context))
        same = next((n for n, (mine, theirs) in pairs if mine != theirs), min(len(self.chain), len(context)))
        del self.chain[same:]
        self.drop_tail()

    @property
    def used(self) -> int:
        return len(self.chain) + len(self.uids)

    def extend(self, uids: Sequence[int], parents: Sequence[int], positions: Sequence[int]) -> None:
        """Adds draft tokens at the tail's end."""
        for place, (uid, parent) in enumerate(zip(uids, parents), len(self.uids)):
            if parent != place - 1:
                self.linear = False
            if uid >= 0:
                self.offsets[uid] = place
        self.uids.extend(uids)
        self.parents.extend(parents)
        self.positions.extend(positions)

    def commit(self, call: ForwardCall, move: Move) -> int:
        """Extend the chain by the tokens of a call's context that are cached in the tail; a call about a place on the chain,
        without a draft, changes nothing. Returns how many rows were moved. Callers promise that a context has grown, so only
        the last tokens that it shares with the chain are compared."""
        context, marks = call.context, call.marks
        cached, length = len(self.chain), len(context)
        end = min(cached, length)
        first = max(end - _COMPARED, 0)
        shorter = length < cached and (not length or len(call.parents))
        if shorter or self.chain[first:end] != list(context[first:end]):
            self.rewind(context)  # not a context that grew
            return 0
        if length <= cached or not self.uids:
            return 0
        accepted: list[int] = []
        for position in range(cached, min(length, len(marks))):
            place = self.offsets.get(marks[position], -1) if marks[position] >= 0 else -1
            if place < 0 or self.parents[place] != (accepted[-1] if accepted else -1):
                break
            accepted.append(place)
        survivors: dict[int, int] = {}
        if accepted and len(accepted) == length - cached:
            survivors = {accepted[-1]: -1}
            for place, parent in enumerate(self.parents):
                if parent in survivors and place not in survivors:
                    survivors[place] = len(survivors) - 1
            del survivors[accepted[-1]]
        return self._keep(accepted, survivors, context, move)

    def trim(self, wanted: set[int], move: Move) -> int:
        """Keep of the tail only the places wanted and their ancestors."""
        keep = set(wanted)
        for place in range(len(self.parents) - 1, -1, -1):
            if place in keep and self.parents[place] >= 0:
                keep.add(self.parents[place])
        kept = {place: n for n, place in enumerate(sorted(keep))}
        return self._keep([], kept, self.chain, move)

    def _keep(self, accepted: list[int], places_after: dict[int, int], context: Sequence[int], move: Move) -> int:
        """Moves the rows of accepted places to the chain's end, and those of places that stay in the tail behind them;
        `places_after` maps the latter to their new places."""
        start = len(self.chain)
        places = [*accepted, *places_after]
        in_order = places == list(range(len(places)))
        chain, uids, parents, positions = self.chain, self.uids, self.parents, self.positions
        self.forget()  # if moving fails half way, no row here is valid
        if not in_order:
            move(self.number, [start + place for place in places], start)
        chain.extend(map(int, context[start : start + len(accepted)]))
        self.chain = chain
        above = [places_after.get(parents[place], -1) for place in places_after]
        self.extend(list(map(uids.__getitem__, places_after)), above, list(map(positions.__getitem__, places_after)))
        return 0 if in_order else len(places)


@dataclass
class SlotPlan:
    """The work of a call: its new tokens in the order in which they are computed, and the rows wanted.

    fresh: the context's new tokens. nodes: which of the call's nodes are new, after them. ids: the tokens of both;
    where `tokens` is set, the nodes' are there, on the device. linear: every new token attends to exactly the rows
    before its own. places: where in the tail each of the call's nodes is, -1 for those not needed. want: rows of the
    slot. rows: how many rows are used when all is computed. total: how many tokens are new. base: the first row of the tail,
    the context's length. straight: linear, and of tokens that are known here: row and position of a token are one number.
    done: how many tokens were computed.
    """

    call: ForwardCall
    slot: Slot
    start: int
    fresh: list[int]
    nodes: list[int]
    ids: list[int]
    tokens: Tensor | None
    positions: list[int]
    parents: list[int]
    uids: list[int]
    linear: bool
    places: list[int]
    want: list[int]
    rows: int
    total: int
    base: int
    straight: bool
    done: int = 0
    below: SlotPlan | None = None
    states: Tensor | None = None  # last states [n, width] of the last n rows, where a straight step has just computed them
    soft: dict[int, SoftCell] = field(default_factory=dict)  # places in `ids` that are mixtures
    _sees: np.ndarray | None = field(default=None, repr=False)

    @property
    def span(self) -> int:
        """How many rows the tail has when all are computed."""
        return self.rows - self.base

    def finish(self, count: int) -> None:
        """Records the next `count` tokens as computed and cached in the slot."""
        slot, split = self.slot, len(self.fresh)
        first, end = self.done, self.done + count
        if first < split:
            slot.chain.extend(self.fresh[first:end])
        if end > split:
            begin = max(first, split)
            here = slice(begin - split, end - split)
            slot.extend(self.uids[here], self.parents[here], self.positions[begin:end])
        self.done = end

    def sees(self) -> np.ndarray:
        """bool[new nodes, span]: the tail rows that each new node attends to, itself among them."""
        if self._sees is None:
            cached = len(self.slot.uids) - max(self.done - len(self.fresh), 0)
            parents = np.array([*self.slot.parents[:cached], *self.parents], dtype=np.int64)
            out = np.zeros((len(self.parents), len(parents)), dtype=bool)
            rows, places = np.arange(len(out)), np.arange(cached, len(parents))
            while len(rows):  # as often as the tree is deep
                out[rows, places] = True
                places = parents[places]
                rows, places = rows[places >= 0], places[places >= 0]
            self._sees = out
        return self._sees

    def tail_positions(self) -> np.ndarray:
        """int64[span]: the positions of the tail's tokens."""
        cached = len(self.slot.uids) - max(self.done - len(self.fresh), 0)
        return np.array([*self.slot.positions[:cached], *self.positions[len(self.fresh) :]], dtype=np.int64)


def plan(call: ForwardCall, slot: Slot, context: int | None, name: str, size: int) -> SlotPlan:
    """The work of `call` on a slot that follows its context. Raises DecError for a call that cannot be computed."""
    start, length = min(len(slot.chain), len(call.context)), len(call.context)
    fresh = list(map(index, call.context[start:]))
    if not length and (-1 in call.rows or not len(call.tokens)):
        raise DecError(f"{name!r} needs at least one token of context, and {call.request} has none")
    parents, uids = call.parents, call.uids
    count = len(parents)
    on_device = isinstance(call.tokens, Tensor) and call.tokens.device.type != "cpu"
    tokens = None if on_device else call.draft_tokens() if count else []
    needed = _needed(call, count)
    places: list[int] = [-1] * count
    nodes: list[int] = []
    node_positions: list[int] = []
    new_parents: list[int] = []
    new_uids: list[int] = []
    ids, cached, linear = list(fresh), len(slot.uids), slot.linear
    last = cached - 1  # the last place taken
    for node, (uid, parent) in enumerate(zip(uids if len(uids) else [-1] * count, parents)):
        if not needed[node]:
            continue
        place = slot.offsets.get(uid, -1)  # no token without a uid is among them
        if place < 0:
            above = places[parent] if parent >= 0 else -1
            linear = linear and above == last
            place = last = last + 1
            if above < 0:
                node_positions.append(length)
            else:
                node_positions.append(1 + (slot.positions[above] if above < cached else node_positions[above - cached]))
            nodes.append(node)
            ids.append(0 if tokens is None else tokens[node])
            new_parents.append(above)
            new_uids.append(int(uid))
        places[node] = place
    soft: dict[int, SoftCell] = {}
    if call.soft:
        soft = {len(fresh) + i: call.soft[n] for i, n in enumerate(nodes) if n in call.soft}
        for i in soft:
            ids[i] = 0  # its embedding is replaced
    if ids and (min(ids) < 0 or max(ids) >= size):
        bad = next(t for t in ids if not 0 <= t < size)
        raise DecError(f"token {bad} is not in the vocabulary of {name!r}, which has {size} tokens ({call.request})")
    positions = [*range(start, length), *node_positions]
    if context is not None and positions and max(positions) >= context:
        raise ContextFullError(
            f"{max(positions) + 1} positions are past the context length of {name!r} ({context}), in {call.request}",
            hint="a shorter prompt, or fewer tokens to generate",
        )
    want: list[int] = []
    for row in call.rows:  # a comprehension would be a call for each plan
        want.append(length - 1 if row < 0 else length + places[row])
    return SlotPlan(
        call=call,
        slot=slot,
        start=start,
        fresh=fresh,
        nodes=nodes,
        ids=ids,
        tokens=call.tokens if on_device and isinstance(call.tokens, Tensor) else None,
        positions=positions,
        parents=new_parents,
        uids=new_uids,
        linear=linear,
        places=places,
        want=want,
        rows=length + cached + len(nodes),
        total=len(ids),
        base=length,
        straight=linear and not on_device and not soft,
        soft=soft,
    )


def _needed(call: ForwardCall, count: int) -> list[bool]:
    """Which nodes are wanted rows or their ancestors; all of them if no row is wanted."""
    if not count or not len(call.rows) or len({-1, *call.rows}) == count + 1:
        return [True] * count
    needed = [False] * count
    for row in call.rows:
        if row >= 0:
            needed[row] = True
    for node in range(count - 1, -1, -1):
        if needed[node] and call.parents[node] >= 0:
            needed[call.parents[node]] = True
    return needed
