"""What a step knows of a model: B lanes, each with slots for keys and values, and what a new token may attend to.

A committed token's slot is its position. The tokens of a step (of a tree, of a canvas) get slots from the number of committed
tokens upwards, in the order in which they are computed. What is kept by slot is in pools, which are cut into pages of the lanes
(pages.py). Lanes are axis 0 of every other tensor; what is the same for all lanes may have one row. Nothing here reads a
tensor's value on the host, but for `fill`, which runs outside of graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from decgraph.backends.triton.pages import PAGE, PagedTensor, Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Shared
from decgraph.backends.triton.vectors import put_at
from decgraph.errors import DecError
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.interface import Model

CHUNK = 512  # the most tokens of a prompt that one forward computes


class Seen(NamedTuple):
    """What each new token may attend to. below: int64[B or 1, T], the slots 0 .. below - 1. tail: bool[B or 1, T, U], which of
    the U slots from `first` int64[B or 1] on are seen beside them; None: no others. A token sees itself by one or the other."""

    below: Tensor
    tail: Tensor | None = None
    first: Tensor | None = None

    def dense(self, slots: int) -> Tensor:
        """bool[B or 1, T, slots]: the slots that each token sees, as a mask."""
        at = torch.arange(slots, device=self.below.device)
        seen = at < self.below[..., None]
        if self.tail is None or self.first is None or not self.tail.shape[2]:
            return seen
        count = self.tail.shape[2]
        index = at - self.first[:, None]
        lanes = max(len(self.tail), len(self.first))
        places = index.clamp(0, count - 1)[:, None].expand(lanes, self.tail.shape[1], -1)
        tail = self.tail.expand(lanes, -1, -1).gather(2, places)
        return seen | (tail & ((index >= 0) & (index < count))[:, None])

    def shifted(self, by: Tensor) -> Seen:
        """The same slots under numbers that are less by int64[B]."""
        return Seen(self.below - by[:, None], self.tail, None if self.first is None else self.first - by)


@dataclass(frozen=True)
class Chunk:
    """A part of one lane's prompt that is computed beside a step, in the same forward, so that weights are read once.
    tokens, at: int64[1, C], tokens and their slots, which are their positions; those that are none have the lane's last slot.
    lane: int64[1]."""

    tokens: Tensor
    at: Tensor
    lane: Tensor


class ModelPart(Shared):
    """A model, or a part of one without a forward of its own (`upto`, an adapter over it): what `derive` takes and gives. What
    is derived is made once for the same arguments."""

    kind = "layers"
    mask: int | None = None
    """The mask token of a masked model; None where there is none."""
    hosted = False
    """Whether its rows are read on the host, so that no graph has them."""

    def __init__(self, model: Model) -> None:
        self.model, self.name, self.layers = model, model.name, model.layers
        self._known: dict[Hashable, tuple[tuple[object, ...], ModelPart]] = {}

    def derive(self, how: str, *args: object) -> ModelPart:
        """A model that shares the weights and has buffers of its own; see runtime/models/derive.py. Models among `args` are
        device models, or parts of such. Raises NotSteppable where there is none."""
        key = (how, *(id(arg) if isinstance(arg, ModelPart) else repr(arg) for arg in args))
        if key not in self._known:
            try:
                made = derive(self.model, how, *(arg.model if isinstance(arg, ModelPart) else arg for arg in args))
            except DecError as error:
                raise NotSteppable(str(error.diagnostics[0]).removeprefix("error: ")) from error
            self._known[key] = args, self.build_derived(made)  # with the arguments: their ids stay theirs
        return self._known[key][1]

    def build_derived(self, model: Model) -> ModelPart:
        """What a derived runtime model is here."""
        return ModelPart(model)


class DeviceModel(ModelPart):
    """A model of a step: pools by slot, whose rows are moved alike. Tensors are on `device`.

    exact: whether logits are float64, those of a table model to the last bit; else they have the model's own type. dtype: of
    states. kind: "causal", "features" or "masked". behind: how many slots below its own a token's keys and values are. reach:
    slots from a root on that a call writes whatever it is asked. paged: whether its lanes may share a pool; else the pages of
    each lane are its own, one behind the other. mask: the token that stands for an undecided cell of a masked model.
    """

    of: ClassVar[Callable[..., DeviceModel]]
    """What makes one of a runtime model: `step_model` (device.py), which sets it."""
    kind = "causal"
    behind = reach = 0
    exact = False
    paged = True
    windowed = True
    """Whether it is read which positions slots have: by windows."""
    takes_chunks = False
    """Whether a forward can compute a chunk of a prompt beside its own tokens."""
    mask: int | None = None
    prompts: Tensor
    """int64[B]: the lengths of the lanes' prompts, of a masked model."""
    dtype: torch.dtype
    trunk: DeviceModel

    def __init__(self, model: Model, pages: Pages) -> None:
        super().__init__(model)
        self.vocab_size = model.vocab.size
        self.pages, self.batch, self.capacity, self.device = pages, pages.batch, pages.capacity, pages.device
        pages.behind = max(pages.behind, self.behind)
        self.origin: DeviceModel | None = None  # the device model that this one is derived from
        self.following = False
        self.pools: list[PagedTensor] = []
        self.slot_positions = torch.arange(self.capacity, device=self.device).repeat(self.batch, 1)
        """int64[B, S]: the positions of the tokens that slots have, those of committed ones being their numbers."""
        self.positioned = [self.slot_positions]
        """Those that are moved with slots: of this model and of what it is made of."""

    def pool(self, *after: int, dtype: torch.dtype, before: Sequence[int] = ()) -> PagedTensor:
        """A pool of zeros [*before, rows, *after]."""
        self.pools.append(self.pages.pool(before, after, dtype))
        return self.pools[-1]

    def stored(self, pool: PagedTensor, slots: Tensor, lanes: slice = slice(None)) -> Tensor:
        """What a pool [rows, W] has [b, R, W] at slots int64[b or 1, R] of some lanes; slots outside read the nearest one."""
        return pool.data[self.pages.at(slots.clamp(0, self.capacity - 1), lanes)]

    def placed(self, slots: Tensor, positions: Tensor, lanes: slice = slice(None)) -> None:
        """Note the positions of the tokens at slots, both int64[b or 1, K], of some lanes, where they are read."""
        if self.windowed:
            there = self.slot_positions[lanes]
            put_at(there, slots.expand(len(there), -1), positions)

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, *,
        parents: Tensor | None = None, known: Tensor | None = None, chunk: Chunk | None = None,
    ) -> Tensor:  # fmt: skip
        """The last states [B, T, W] of new tokens, all int64[B or 1, T], whose keys and values go to `slots`. A slot that is
        written twice gets equal values, but for the last one, which nobody reads. For features models: `parents` int64[B or 1,
        T], the slot of the token before each one, and `known` int64[B or 1]: features of positions below it are the target's
        own states, the others are the head's at the slots `parents`. For models that follow another one: below `known` keys and
        values are that one's. chunk: computed beside them by a model that `takes_chunks`."""
        tokens, positions, slots = (at.expand(self.batch, -1) for at in (tokens, positions, slots))
        parents = None if parents is None else parents.expand(self.batch, -1)
        known = None if known is None else known.expand(self.batch)
        if chunk is not None:
            return self.compute_with_chunk(chunk, tokens, positions, slots, seen)
        return self.compute(tokens, positions, slots, seen, parents, known)

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        """`forward`, with tensors of all lanes. tokens: int64[B, T]."""
        raise NotImplementedError

    def compute_with_chunk(self, chunk: Chunk, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen) -> Tensor:
        """`compute` of a model that `takes_chunks`, and of a chunk. tokens: int64[B, T]."""
        raise NotImplementedError

    @torch.no_grad()
    def fill(self, lane: int, tokens: Sequence[int], start: int, count: int) -> None:
        """Computes tokens[start : start + count] of one lane, whose slots below `start` are computed already, and in heads on
        a target's states those of the target too. Raises DecError for tokens that do not fit."""
        end, most = start + count, self.pages.width * PAGE
        if end > most:
            raise DecError(f"{end} tokens are more than the {most} slots of a lane of {self.name!r}", hint="more capacity")
        bad = next((t for t in tokens[:end] if not 0 <= t < self.vocab_size), None)
        if bad is not None:
            raise DecError(f"token {bad} is not in the vocabulary of {self.name!r}, which has {self.vocab_size} tokens")
        for first in range(start, end, CHUNK):
            ids = torch.tensor([tokens[first : min(first + CHUNK, end)]], dtype=torch.int64, device=self.device)
            at = torch.arange(first, first + ids.shape[1], device=self.device)[None]
            self.fill_part(ids, at, first, slice(lane, lane + 1))

    def fill_part(self, tokens: Tensor, at: Tensor, first: int, lanes: slice) -> None:
        """Computes tokens int64[1, n] of one lane at positions int64[1, n], from `first` on."""
        raise NotImplementedError

    def read(self, states: Tensor) -> Tensor:
        """Logits [..., vocab_size] of last states [..., W]."""
        raise NotImplementedError

    def move(self, source: Tensor, dest: Tensor) -> None:
        """Keys, values and what else is kept go from slots to slots, both int64[B or 1, K]: all are read before one is
        written."""
        there, here = self.pages.at(dest).flatten(), self.pages.at(source).flatten()
        for pool in self.pools:
            pool.data.index_copy_(pool.axis, there, pool.data.index_select(pool.axis, here))
        source, dest = (at.expand(self.batch, -1) for at in (source, dest))
        for positions in self.positioned:
            put_at(positions, dest, positions.gather(1, source))

    def begin(self, lane: int) -> None:
        """Another text begins in a lane. Runs outside of graphs."""
        for positions in self.positioned:
            positions[lane] = torch.arange(self.capacity, device=self.device)

    def heads(self, states: Tensor) -> Tensor:
        """Logits [B, R, n, vocab_size] of the model's own n heads at last states [B, R, W]. Raises NotSteppable for a model
        without heads."""
        raise NotSteppable(f"{self.name!r} has no heads of its own")

    def build_derived(self, model: Model) -> ModelPart:
        if model.kind == "layers":
            return super().build_derived(model)
        found = DeviceModel.of(model, self.pages, target=self)
        found.origin = self.origin or self
        return found

    def follow(self) -> None:
        """From now on a derived model is called on the memory of the one that it is derived from: `fill` copies that
        one's keys and values, and so does `forward` below `known`. Call it before `fill`. Raises NotSteppable for a model that
        is not of the same family."""
        if self.origin is None or self.origin.model.family != self.model.family:
            raise NotSteppable(f"{self.name!r} is called on the memory of a model that it is not derived from")
        self.following = True


def at_slots(buffer: Tensor, slots: Tensor) -> Tensor:
    """The rows [B, R, W] of [B, S, W] at slots int64[B or 1, R]; slots outside read the nearest one."""
    index = slots.clamp(0, buffer.shape[1] - 1)[..., None].expand(len(buffer), -1, buffer.shape[2])
    return buffer.gather(1, index)


def put(pool: PagedTensor, rows: Tensor, values: Tensor) -> None:
    """Writes values [B, T, W] to the rows int64[B, T] of a pool [rows, W]."""
    pool.data.index_copy_(0, rows.flatten(), values.flatten(0, 1))


def put_heads(pool: Tensor, rows: Tensor, values: Tensor) -> None:
    """Writes keys or values [B, H, T, D] to the rows int64[B, T] of a layer's part of a pool [H, rows, D]."""
    pool.index_copy_(1, rows.flatten(), values.transpose(0, 1).flatten(1, 2))
