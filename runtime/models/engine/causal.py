"""The engine of Hugging Face causal models: one forward per batch of calls, over the tokens that are not cached.

`engine_of` creates a `CausalEngine`, which all users of a model's weights share. It needs a step
(step.py) and a read-out from last states to logits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.batch import MOST, Batch, StraightMasks, batch_of, rows_of
from decgraph.runtime.models.engine.forward_call import Counted, DraftLoop, ForwardCall, OnMemories, Output
from decgraph.runtime.models.engine.slots import (
    FULL,
    LENGTH,
    ROWS,
    SLIDING,
    TAIL,
    CacheTooLarge,
    Layout,
    Slot,
    SlotPlan,
    SlotStates,
    SlotStore,
    plan,
)
from decgraph.runtime.models.engine.step import ForwardStep, NetStep, Tapped
from decgraph.runtime.models.interface import check_size
from decgraph.runtime.models.soft_inputs import replaced

if TYPE_CHECKING:
    from decgraph.runtime.models.engine.forward_graphs import ForwardGraphs

Graphs: TypeAlias = "Callable[[ForwardStep, Layout], ForwardGraphs | None]"
graphs_of: Graphs = lambda step, layout: None
"""The graphs of an engine's forwards; the triton backend sets it (forward_graphs.py)."""

_TOKENS = 8192  # of one forward, padding included, at most
_WASTE = {"cpu": 12}  # padding that is not worth another forward, in tokens: on a CPU each is arithmetic (`tune --rows`)
_FREE = 64  # ... elsewhere


class CausalEngine:
    """Computes calls of one set of weights.

    step: the forward. head: last states [n, width] to logits [n, >= size]. name, size, context: the model's, for
    messages, the vocabulary's size and the most positions it reads. chunk: how many tokens of a sequence one
    forward computes at most (prefill goes in chunks). budget: bytes of cached keys, values and states at most.
    below: an engine whose last states the step takes in place of tokens: lower layers shared with others (exits.py).
    """

    def __init__(
        self,
        step: ForwardStep,
        layout: Layout,
        head: Callable[[Tensor], Tensor],
        *,
        name: str,
        size: int,
        context: int | None = None,
        chunk: int = 512,
        budget: int | None = None,
        below: CausalEngine | None = None,
    ) -> None:
        self.step, self.layout, self.head = step, layout, head
        self.name, self.size, self.context, self.chunk = name, size, context, chunk
        self.store = SlotStore(layout, budget)
        self.counted = Counted()
        self.below = below
        self.width = layout.width  # of last states; rows are wider where others are kept beside them (taps.py)
        self.taps: tuple[int, ...] = ()  # the layers whose entering states are
        self.with_memories: Callable[[], OnMemories] | None = None
        self.lowers: dict[int, CausalEngine] = {}  # engines of this model's first layers, by their number (exits.py)
        self._slots: dict[Hashable, Slot] = {}
        self._steps = torch.arange(ROWS, device=layout.device)
        self._straight = StraightMasks(layout)
        self._clock = 0
        self._waste = _WASTE.get(layout.device.type, _FREE)
        self._of_tokens = type(self) is CausalEngine  # a forward takes tokens and nothing else
        self.graphs = graphs_of(step, layout)

    slot = Slot  # what is known of a sequence's rows

    @cached_property
    def memories(self) -> OnMemories | None:
        """What computes calls with a given memory, made at the first; None: this engine does itself."""
        return None if self.with_memories is None else self.with_memories()

    # The public interface.

    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call; in its place the DecError of a call that fails: an over-long path, a token
        outside the vocabulary, NaN logits, out of memory. The others are computed. Raises DecError for the part "heads"."""
        on_memory = False
        for call in calls:
            if call.part != "logits":
                raise DecError(f"{self.name!r} has no heads; attach them with with_heads")
            on_memory = on_memory or call.memory is not None
        with torch.no_grad():
            if on_memory and self.memories is not None:
                return self.memories.compute(calls, self._compute, self.counted)
            return self._compute(calls)

    def _compute(self, calls: list[ForwardCall]) -> list[Output]:
        outputs = self.read(calls, self.states(calls))
        for n, made in enumerate(outputs):
            if isinstance(made, NotNumbers):
                outputs[n] = self._alone(calls[n], made)
        return outputs

    @torch.no_grad()
    def roll(self, loops: Sequence[DraftLoop]) -> list[Tensor | Exception]:
        """Drafts chains, all of one length: scores float32 [tokens, V] per draft loop, or its error; see `DraftLoop`."""
        calls: list[ForwardCall] = []
        rows: list[list[Tensor]] = []
        tokens: list[list[int]] = []
        for one in loops:
            calls.append(one.call)
            rows.append([])
            tokens.append([])
        out: list[Tensor | Exception | None] = [None] * len(loops)
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
                row = self._one_more(calls[going[0]], loops[going[0]], j, tokens[going[0]][-1])
                got = None if row is None else [row]
            if got is None:
                got = self.compute([_below(calls[n], loops[n].uids, tokens[n]) for n in going])
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

    def _one_more(self, call: ForwardCall, one: DraftLoop, j: int, token: int) -> Tensor | None:
        """The row [1, V] after one more token of a slot without branches. None where the slot has branches or no room."""
        slot = self._slots.get(call.sequence)
        if slot is None or not slot.linear or slot.number >= self.store.slots:
            return None
        if not self._of_tokens or self.below is not None or self.graphs is not None:
            return None
        row = slot.used
        depth, node = 0, int(call.rows[0])
        while node >= 0:
            node, depth = int(call.parents[node]), depth + 1
        length = -(-(row + 1) // LENGTH) * LENGTH
        position = len(call.context) + depth + j - 1
        if row != position or length > self.store.rows or (self.context is not None and position >= self.context):
            return None
        logits: Tensor = self.logits(self._straight_step(slot.number, row, [token], length))
        if not isfinite(float(logits.sum())):
            return None  # the general path reports the error and its request
        slot.extend([int(one.uids[j - 1])], [len(slot.uids) - 1], [position])
        counted = self.counted
        counted.calls += 1
        counted.sequence_calls += 1
        counted.rows += 1
        counted.computed += 1
        counted.requested += position + 1
        return logits

    def read(
        self, calls: Sequence[ForwardCall], states: Sequence[Output], head: Callable[[Tensor], Tensor] | None = None
    ) -> list[Output]:
        """The logits [rows, V] of last states [rows, width]: one read-out for all calls. To be called without gradients."""
        outputs = list(states)
        good: list[tuple[int, Tensor]] = []
        for n, rows in enumerate(states):
            if isinstance(rows, Tensor) and rows.shape[0]:
                good.append((n, rows))
        if not good:
            return outputs
        stacked = good[0][1] if len(good) == 1 else torch.cat([s for _, s in good])
        logits = self.logits(stacked, head)
        first = 0
        for n, rows in good:
            outputs[n] = logits if len(good) == 1 else logits[first : first + rows.shape[0]]
            first += rows.shape[0]
        # One read for all rows: NaN and inf propagate through the sum. Rows with a legal -inf (no mass) are read again.
        if self.layout.device.type != "cpu":
            self.counted.syncs += 1
        if not isfinite(float(logits.sum())):
            peaks = logits.amax(-1)
            first = 0
            for n, rows in good:
                bad = ~torch.isfinite(peaks[first : first + len(rows)])
                if bool(bad.any()):
                    outputs[n] = self._not_numbers(calls[n], int(bad.nonzero()[0, 0]))
                first += len(rows)
        return outputs

    def logits(self, states: Tensor, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Logits float32 [n, V] of last states [n, width]. Raises DecError where the head has fewer."""
        logits = (head or self.head)(states)
        if logits.shape[1] != self.size:
            logits = logits[:, : self.size]
            check_size(self.name, logits.shape[-1], self.size)
        return logits.float()

    def states(self, calls: Sequence[ForwardCall]) -> list[Output]:
        """The last hidden states [rows, width] per call, after the final norm; or the call's DecError. To be called
        without gradients."""
        self.counted.sequence_calls += len(calls)
        for call in calls:
            self.counted.requested += len(call.context) + len(call.parents)
        out: list[Output | None] = [None] * len(calls)
        waiting = list(enumerate(calls))
        while waiting:
            now: dict[Hashable, tuple[int, ForwardCall]] = {}
            later: list[tuple[int, ForwardCall]] = []
            for n, call in waiting:
                if call.sequence in now:
                    later.append((n, call))  # two calls of one sequence run one after the other
                else:
                    now[call.sequence] = n, call
            self._group(list(now.values()), out)
            waiting = later
        return cast("list[Output]", out)  # `_group` left none out

    @torch.no_grad()
    def features(self, call: ForwardCall, length: int) -> Tensor:
        """The last states [length, width] of the context's first positions, computed where they are missing. A view
        of the cache: use it before the next call. Raises the call's DecError."""
        if not self.caches(call, length):
            output = self.states([ForwardCall(call.sequence, call.context[:length], call.marks, name=call.name)])[0]
            if isinstance(output, DecError):
                raise output
        return self.store.state(self._slots[call.sequence].number, 0, length)

    def caches(self, call: ForwardCall, length: int) -> bool:
        """Whether the context's first `length` positions are cached, accepted draft tokens among them."""
        slot = self._slots.get(call.sequence)
        if slot is None:
            return False
        self.counted.moved += slot.commit(call, self.store.move)
        return len(slot.chain) >= length

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes."""
        self.store.budget = budget
        if self.below is not None:
            self.below.limit(budget)

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Compile decoders with torch.compile; returns whether there is one."""
        below = self.below is not None and self.below.compile(notice)
        compiled: Callable[[Callable[[str], None]], ForwardStep] | None = getattr(self.step, "compiled", None)
        if compiled is None:
            return below
        self.step = compiled(notice)
        self.graphs = graphs_of(self.step, self.layout)
        return True

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence and free its slot."""
        self._drop(sequence)
        if self.below is not None:
            self.below.close(sequence)
        if (memories := self.__dict__.get("memories")) is not None:
            memories.close(sequence)

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Keep a sequence's rows of the longest common beginning with a new request's prompt."""
        if sequence in self._slots:
            self._slots[sequence].rewind(context)
        if self.below is not None:
            self.below.rewind(sequence, context)
        if (memories := self.__dict__.get("memories")) is not None:
            memories.close(sequence)

    def _drop(self, sequence: Hashable) -> None:
        slot = self._slots.pop(sequence, None)
        if slot is not None:
            self.store.clear(slot.number)

    def onto(self, below: CausalEngine | None, step: ForwardStep, layout: Layout) -> None:
        """Computes from now on only the layers above another engine, or (None) all layers. Drops the cache."""
        for sequence in list(self._slots):
            self._drop(sequence)
        self.below, self.step, self.layout = below, step, layout
        self.store = SlotStore(layout, self.store.budget)
        self._straight = StraightMasks(layout)
        self.graphs = graphs_of(step, layout)

    # Slots and memory.

    def _slot(self, sequence: Hashable) -> Slot:
        slot = self._slots.get(sequence)
        if slot is None:
            taken = {s.number for s in self._slots.values()}
            slot = self._slots[sequence] = self.slot(next(n for n in range(len(taken) + 1) if n not in taken))
        self._clock += 1
        slot.stamp = self._clock
        return slot

    def _room(self, slots: Sequence[Slot], rows: int) -> None:
        """Makes room for rows of those slots. If the budget requires it, sequences of other batches are evicted, the
        least recently used first."""
        mine = {id(slot) for slot in slots}
        while True:
            try:
                self.store.need(1 + max(s.number for s in self._slots.values()), rows)
                break
            except CacheTooLarge:
                others = [(s.stamp, key) for key, s in self._slots.items() if id(s) not in mine]
                if not others:
                    raise
                self._drop(min(others, key=lambda pair: pair[0])[1])
                self._compact()
        while self._steps.shape[0] < self.store.rows:  # the store rounds up, and the short paths index all of its rows
            self._steps = torch.arange(2 * len(self._steps), device=self.layout.device)

    def _compact(self) -> None:
        """Slots 0, 1, 2, ... without holes."""
        for target, slot in enumerate(sorted(self._slots.values(), key=lambda s: s.number)):
            if slot.number != target:
                used = slot.used
                source, slot.number = slot.number, target
                if source < self.store.slots:
                    self.store.copy(source, target, used)
                    self.store.clear(source)
                self.counted.moved += used

    # Running.

    def _group(self, calls: list[tuple[int, ForwardCall]], out: list[Output | None]) -> None:
        """Computes calls of different sequences into `out`; halves the batch where it does not fit."""
        plans: list[SlotPlan] = []
        places: list[int] = []
        for n, call in calls:
            try:
                plans.append(self._plan(call))
                places.append(n)
            except DecError as error:
                out[n] = error
        try:
            if plans:
                self._compute_plans(plans)
            for n, made in zip(places, plans):
                out[n] = self._wanted(made)
        except (CacheTooLarge, MemoryError, RuntimeError) as error:
            if not _no_memory(error):
                raise
            left = [(n, p.call) for n, p in zip(places, plans) if out[n] is None]
            if len(left) > 1:
                self._group(left[: len(left) // 2], out)
                self._group(left[len(left) // 2 :], out)
                return
            n, call = left[0]
            self.close(call.sequence)
            why = str(error) if isinstance(error, CacheTooLarge) else "the device has no memory left"
            out[n] = DecError(
                f"{self.name!r} has no room for {call.request}: {why}", hint="a larger cache budget, or a shorter prompt"
            )

    def _plan(self, call: ForwardCall) -> SlotPlan:
        slot = self._slot(call.sequence)
        self.counted.moved += slot.commit(call, self.store.move)
        if len(slot.uids) > TAIL:
            wanted = {slot.offsets[uid] for uid in map(int, call.uids) if uid in slot.offsets}
            self.counted.moved += slot.trim(wanted, self.store.move)
        try:
            return plan(call, slot, self.context, self.name, self.size)
        except DecError:
            if not slot.used:
                self._drop(call.sequence)
            raise

    def _compute_plans(self, plans: Sequence[SlotPlan]) -> None:
        """Forwards until no plan has tokens left. The engine below computes their input states first."""
        if self.below is not None:
            for p in plans:
                p.below = self.below._plan(p.call) if p.total else None
            self.below._compute_plans([p.below for p in plans if p.below is not None])
        if len(plans) == 1:
            (alone,) = plans
            while alone.done < alone.total:
                self._forward(plans, [self._take(alone)], plans)
            return
        pending = [p for p in plans if p.total]
        if len(pending) > 1 and len(pending) == len(self._slots):
            self._compact()
        while pending:
            pending.sort(key=self._take)
            group = pending[:1]
            longest = self._take(pending[0])
            padded = 0
            for p in pending[1:]:  # from short to long, as long as padding is worth less than another forward
                take = self._take(p)
                waste = padded + len(group) * (take - longest)
                if waste > self._waste and 2 * waste > (len(group) + 1) * take or (len(group) + 1) * take > _TOKENS:
                    break
                group.append(p)
                padded, longest = waste, take
            # Long ones first: they may catch up with the short ones, and then share a forward.
            if len(group) < len(pending):
                group = self._longest(pending[len(group) :])
            self._forward(group, [self._take(p) for p in group], plans)
            pending = [p for p in pending if p.done < p.total]

    def _straight_step(self, number: int, first: int, tokens: Sequence[int], length: int) -> Tensor:
        """The last states [n, width] of tokens whose rows and positions are `first`, ..., over the first `length` rows of a
        slot. The slot caches them."""
        where = self._steps[first : first + len(tokens)][None]
        masks = self.straight_masks(first, len(tokens), length)
        part = self.store.part(number, 1, length)
        ids = torch.tensor([tokens], device=self.layout.device)
        states: Tensor = self.step(ids, where, where, part.keys, part.values, masks)[0]
        self.store.keep(number, first, states)
        return states

    def straight_masks(self, first: int, count: int, length: int) -> dict[str | int, Tensor]:
        """The masks [1, 1, count, length] of tokens at positions `first`, ... that attend to all rows up to their own."""
        if count <= MOST and getattr(self.step, "additive", False):
            return self._straight.of(first, count, length)
        steps = self._steps[first : first + count, None]
        seen = self._steps[:length] <= steps
        masks: dict[str | int, Tensor] = {FULL: seen[None, None]}
        if self.layout.window is not None:
            masks[SLIDING] = (seen & (self._steps[:length] > steps - self.layout.window))[None, None]
        return masks

    def _take(self, p: SlotPlan) -> int:
        """How many tokens of a plan the next forward can compute."""
        return min(p.total - p.done, self.chunk)

    def _longest(self, pending: Sequence[SlotPlan]) -> list[SlotPlan]:
        """The plans whose next forward takes at least half as many tokens as the longest one's."""
        most = self._take(pending[-1])
        group = [p for p in pending if 2 * self._take(p) >= most]
        return group[-max(_TOKENS // most, 1) :]

    def _forward(self, plans: Sequence[SlotPlan], takes: Sequence[int], together: Sequence[SlotPlan]) -> None:
        """One forward over the next tokens of plans; `together` are all plans of the batch, whose caches must be kept."""
        if len(plans) > 1:
            order = sorted(range(len(plans)), key=lambda n: plans[n].slot.number)
            plans, takes = [plans[n] for n in order], [takes[n] for n in order]
        length = rows_of(plans, takes)
        count, widest, last = len(plans), max(takes), plans[-1]
        if length > self.store.rows or last.slot.number >= self.store.slots:
            self._room([p.slot for p in together], length)
        if count == 1 and self._of_tokens and self.below is None and last.straight and self.graphs is None:
            at = last.done
            last.states = self._straight_step(last.slot.number, last.positions[at], last.ids[at : at + widest], length)
        else:
            if self.graphs is not None:
                widest, length = self.graphs.rounded(widest, length, self.store.rows)
            self._batched_step(plans, takes, widest, length)
            for p in plans:
                p.states = None
        for p, take in zip(plans, takes):
            p.finish(take)
        self.counted.calls += 1
        self.counted.computed += sum(takes)
        self.counted.padding += count * widest - sum(takes)

    def _batched_step(self, plans: Sequence[SlotPlan], takes: Sequence[int], width: int, length: int) -> None:
        """Computes and caches the next tokens of plans, in the order of their slots, padded to a width."""
        batch = batch_of(plans, takes, width, length, self.layout, self._steps)
        first, count = plans[0].slot.number, len(plans)
        back: Callable[[Tensor], None] | None = None
        if plans[-1].slot.number - first == count - 1:
            part = self.store.part(first, count, length)
        else:
            part, back = self.store.taken([p.slot.number for p in plans], length)
        states = self._run(batch, part, plans, takes)
        if count == 1:
            part.last.index_copy_(1, batch.write[0], states)
        else:
            part.last.scatter_(1, batch.write[:, :, None].expand(states.shape), states)
        if back is not None:
            back(batch.write)

    def _run(self, batch: Batch, part: SlotStates, plans: Sequence[SlotPlan], takes: Sequence[int]) -> Tensor:
        """The forward itself: new last states [B, T, width]."""
        if self.below is None and any(p.soft for p in plans):
            return self._softly(batch, part, plans, takes)
        inputs = batch.ids if self.below is None else self.inputs(batch, plans, takes)
        return self._stepped(self.step, inputs, batch, part, plans, takes)

    def _stepped(
        self, step: ForwardStep, inputs: Tensor, batch: Batch, part: SlotStates, plans: Sequence[SlotPlan], takes: Sequence[int]
    ) -> Tensor:
        """A step's last states [B, T, width] of tokens or entering states."""
        run = self.graphs if self.graphs is not None and step is self.graphs.step else step
        made = run(inputs, batch.positions, batch.write, part.keys, part.values, batch.masks)
        assert isinstance(made, Tensor), "taps are joined to the last states"
        return made

    def _softly(self, batch: Batch, part: SlotStates, plans: Sequence[SlotPlan], takes: Sequence[int]) -> Tensor:
        """The forward of tokens some of which are mixtures of embeddings, by the module itself. Raises DecError for an engine
        without one."""
        whole = self.step
        step = whole.inner if isinstance(whole, Tapped) else whole
        if not isinstance(step, NetStep):
            raise DecError(f"{self.name!r} reads tokens here, and a soft node has none")
        width = batch.ids.shape[1]
        rows = [
            replaced(step.looked_up, ids, {n - p.done: cell for n, cell in p.soft.items() if 0 <= n - p.done < width})
            for ids, p in zip(batch.ids, plans, strict=True)
        ]
        entering = step.placed(torch.cat(rows), batch.positions).view(*batch.ids.shape, -1)
        return self._stepped(whole.above() if isinstance(whole, Tapped) else step.above(), entering, batch, part, plans, takes)

    def inputs(self, batch: Batch, plans: Sequence[SlotPlan], takes: Sequence[int]) -> Tensor:
        """The states of the engine below for the tokens of a forward: [B, T, width], zeros for padding."""
        assert self.below is not None
        store = self.below.store
        out = store.layout.zeros(len(plans), batch.ids.shape[1], store.layout.width)
        for row, p, take in zip(out, plans, takes):
            assert p.below is not None
            split = len(p.fresh)
            rows = [
                p.start + n if n < split else p.below.base + p.below.places[p.nodes[n - split]]
                for n in range(p.done, p.done + take)
            ]
            if rows and rows[-1] - rows[0] == take - 1 and rows == list(range(rows[0], rows[0] + take)):  # no index to be made
                row[:take] = store.state(p.below.slot.number, rows[0], take)
            else:
                row[:take] = store.states(p.below.slot.number, rows)
        return out

    def _wanted(self, plan: SlotPlan) -> Tensor:
        """A copy of the wanted rows [rows, width]: the cache may be moved before all calls have theirs."""
        want = plan.want
        self.counted.rows += len(want)
        if not want or want[-1] - want[0] == len(want) - 1 and want == list(range(want[0], want[-1] + 1)):
            if want and plan.states is not None:  # those of the last forward, as it gave them
                count = plan.states.shape[0]
                first = plan.rows - count
                if want[0] >= first:
                    return plan.states if len(want) == count else plan.states[want[0] - first : want[-1] + 1 - first]
            return self.store.state(plan.slot.number, want[0] if want else 0, len(want)).clone()
        return self.store.states(plan.slot.number, want)

    def _not_numbers(self, call: ForwardCall, row: int) -> NotNumbers:
        slot = self._slots.get(call.sequence)
        if slot is not None:  # its rows may be NaN: a later call computes them again
            slot.forget()
            self.store.clear(slot.number)
        where = _position(call, call.rows[row])
        return NotNumbers(f"{self.name!r} gave logits that are not numbers at position {where}, in {call.request}")

    def _alone(self, call: ForwardCall, error: NotNumbers) -> Output:
        """The error at the first row that is NaN by itself: in one forward, a NaN in one token's row propagates through
        the mask to rows that do not attend to it."""
        for row in sorted(call.rows, key=lambda row: _position(call, row)):
            one = [replace(call, rows=[row])]
            (made,) = self.read(one, self.states(one))
            if isinstance(made, NotNumbers):
                return made
        return error


class NotNumbers(DecError):
    """A model gave logits that are NaN or +inf, or nothing but -inf."""


def _position(call: ForwardCall, row: int) -> int:
    position = len(call.context) - 1
    while row >= 0:
        row, position = int(call.parents[row]), position + 1
    return position


def _no_memory(error: Exception) -> bool:
    """Whether the error is the allocator's."""
    if isinstance(error, CacheTooLarge | MemoryError | torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error) or "out of memory" in str(error).lower()


def _below(call: ForwardCall, uids: Sequence[int], tokens: Sequence[int]) -> ForwardCall:
    """The call for the row after the tokens chosen so far, a chain below the call's own row."""
    if not tokens:
        return call
    cached = call.draft_tokens()
    parents = [call.rows[0], *range(len(cached), len(cached) + len(tokens) - 1)]
    return replace(call, tokens=[*cached, *tokens], parents=[*call.parents, *parents], uids=[*call.uids, *uids[: len(tokens)]],
                   rows=[len(cached) + len(tokens) - 1])  # fmt: skip
