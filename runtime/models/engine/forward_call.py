"""The interface of causal models' engines: forward calls, draft loops and counters.

A `ForwardCall` is one sequence's part of a forward: committed tokens, a draft tree below them, and the rows that
are wanted. An engine computes a list of them, of different sequences, together, and caches keys and values: a
cached token is never computed again. A draft token is identified by its uid: equal uid within a sequence means
equal token and equal ancestors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.interface import Memory, Model, Path, SoftCell
from decgraph.runtime.models.rounding import Bits

Part: TypeAlias = Literal["logits", "heads"]
Output: TypeAlias = Tensor | DecError  # an error belongs to one call: the others of the batch have their rows


@dataclass(frozen=True, eq=False)
class Remembered:
    """A causal model's memory by description: what `model` computes of the first `length` tokens, on top of `memory` where
    that is set, with `edits` applied in order. The reader decides whether rows have to be computed at all: an engine's cache
    often has the same ones.

    tokens: a sequence that only grows. edits: ("only" | "without", positions), ("quantized", bits), ("merged", groups of
    positions) or ("join", another memory).
    """

    model: Model
    tokens: Sequence[int]
    length: int
    memory: Remembered | None = None
    edits: tuple[tuple[str, object], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it is all that the model computes of a path, without another memory and without edits."""
        return self.memory is None and not self.edits

    @property
    def path(self) -> tuple[int, ...]:
        """The tokens that it covers."""
        return tuple(map(int, self.tokens[: self.length]))

    @cached_property
    def value(self) -> Memory:
        """The memory itself. Raises DecError for a model that does not expose one."""
        memory: Memory = self.model.memory(self.path, None, None if self.memory is None else self.memory.value)
        for how, what in self.edits:
            memory = memory.join(what.value) if isinstance(what, Remembered) else getattr(memory, how)(what)
        return memory

    def restrict(self, positions: ArrayLike, kind: str) -> Remembered:
        """With only these positions kept ("only"), or with them dropped ("without")."""
        kept = frozenset(int(i) for i in np.ravel(np.asarray(positions)))
        return replace(self, edits=(*self.edits, (kind, kept)))

    def quantized(self, bits: Bits) -> Remembered:
        """With keys and values rounded to so many bits, or each to its own number."""
        return replace(self, edits=(*self.edits, ("quantized", bits)))

    def merged(self, groups: Sequence[Sequence[int]]) -> Remembered:
        """With one row of keys and values for the positions of a group."""
        return replace(self, edits=(*self.edits, ("merged", groups)))

    def join(self, other: Remembered) -> Remembered:
        """Both; where both have a position, `other`'s rows."""
        return replace(self, edits=(*self.edits, ("join", other)))


@dataclass
class ForwardCall:
    """One sequence's part in a call of a causal model, of heads, or of a features model.

    sequence: which sequence; the engine opens a slot on first sight, `Engine.close` frees it; errors name it.
    context: committed tokens from position 0, the prompt included; between calls it only grows.
    marks: for every context position the uid of the node it came from, or -1. A shorter list is filled up with -1.
    tokens: int64[N], the draft tree below the context's end, parents before children.
    parents: [N] indices into `tokens`; -1 is the context's end. uids: [N] ids of the draft tokens, unique within the
    sequence and >= 0; a token with uid -1 is not cached.
    rows: which rows are wanted: -1 for the one after the context, i for the one after node i.
    part: "logits" for [rows, V]; "heads" for Medusa's [rows * heads, V], the heads of a row together.
    memory: the memory that the rows are computed on, as `Model.eval` reads it; None: the exact one (for features models:
    the target's of everything but each row's last token).
    name: how messages call the request; the sequence, if left out.
    soft: the places in `tokens` that are mixtures of embeddings; what stands there as a token is not read.
    """

    sequence: Hashable
    context: Sequence[int]
    marks: Sequence[int] = ()
    tokens: Sequence[int] | Tensor = ()
    parents: Sequence[int] = ()
    uids: Sequence[int] = ()
    rows: Sequence[int] = (-1,)
    part: Part = "logits"
    memory: Remembered | None = None
    name: str = ""
    soft: Mapping[int, SoftCell] = field(default_factory=dict)

    @property
    def request(self) -> str:
        """What messages call the sequence."""
        return self.name or f"request {self.sequence}"

    def draft_tokens(self) -> list[int]:
        """The draft tokens as ints (a device-to-host transfer, if they are on the device)."""
        return self.tokens.tolist() if isinstance(self.tokens, Tensor) else list(map(int, self.tokens))

    def paths(self) -> list[Path]:
        """The whole path of every wanted row, from position 0."""
        tokens, root = self.draft_tokens(), tuple(map(int, self.context))
        known: dict[int, Path] = {-1: root}
        for node, (token, parent) in enumerate(zip(tokens, self.parents, strict=True)):
            known[node] = (*known[int(parent)], self.soft.get(node, token))
        return [known[int(row)] for row in self.rows]


@dataclass
class DraftLoop:
    """A chain of draft tokens below a call's one row, each drawn from the row before it.

    uids: ids for the tokens, in order: as many rows are computed, the call's own first. choose: from the next row's
    scores [1, V] to its token; it is called once a row, in order, and an exception of it is the loop's output. ends:
    tokens after which the chain stops, so it may be shorter than `uids`.
    """

    call: ForwardCall
    uids: Sequence[int]
    choose: Callable[[Tensor], int]
    ends: Collection[int] = ()


@dataclass
class Counted:
    """An engine's counters.

    calls: forwards of the model. sequence_calls: `ForwardCall`s or `CanvasCall`s computed. rows: rows of scores
    returned. computed: tokens that went through the model. requested: tokens that the same calls cost without a cache.
    padding: tokens computed only because the sequences of a batch differ in length. syncs: device-to-host
    synchronisations. moved: cache rows that were moved.
    """

    calls: int = 0
    sequence_calls: int = 0
    rows: int = 0
    computed: int = 0
    requested: int = 0
    padding: int = 0
    syncs: int = 0
    moved: int = 0

    def since(self, before: Counted) -> Counted:
        """The difference to an earlier copy."""
        return Counted(**{name: now - getattr(before, name) for name, now in vars(self).items()})

    def add(self, other: Counted) -> None:
        """Add another engine's counts."""
        for name, more in vars(other).items():
            setattr(self, name, getattr(self, name) + more)


class Engine(Protocol):
    """Computes calls of one model. `counted` only grows; take differences."""

    @property
    def counted(self) -> Counted: ...

    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Per call the wanted rows [rows, V], float32 (Hugging Face) or float64 (all others), on the model's device; or
        the error that concerns that sequence only."""
        ...

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence; nothing happens for one that was never seen."""
        ...

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Before a new request goes on with a sequence's cache: keep the rows of the longest common beginning with its prompt,
        and forget the others, or all where there is no telling."""
        ...

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes."""
        ...

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Compile decoders with torch.compile; returns whether there is one. `notice` gets a message for each
        that cannot be compiled."""
        ...


def joined(parts: Sequence[tuple[Sequence[int], Output]]) -> Output:
    """The rows [rows, V] of a call that was computed in parts, each of which has the places of its rows; or the first error."""
    for _, made in parts:
        if isinstance(made, DecError):
            return made
    found = [made for _, made in parts if isinstance(made, Tensor)]
    if len(found) == 1:
        return found[0]
    out = found[0].new_empty(sum(map(len, found)), found[0].shape[1])
    for (places, _), rows in zip(parts, found, strict=True):
        out[list(places)] = rows
    return out


class Uncached:
    """The part of an engine that keeps nothing between calls."""

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes."""

    def compile(self, notice: Callable[[str], None]) -> bool:
        """False: there is no decoder to compile."""
        return False

    def close(self, sequence: Hashable) -> None:
        """Nothing: there is no cache."""

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Nothing: there is no cache."""


class OnMemories(Protocol):
    """An object that computes a model's calls on a memory (memories.py)."""

    def compute(
        self, calls: Sequence[ForwardCall], exact: Callable[[list[ForwardCall]], list[Output]], counted: Counted
    ) -> list[Output]:
        """Logits [rows, V] per call, or its DecError; `exact` computes those without a memory. Adds other engines' counts to
        `counted`."""
        ...

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence."""


Core = TypeVar("Core", bound=Engine)


class OverCore(Generic[Core]):
    """The part of an engine whose cache is another's, `core`."""

    core: Core

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes."""
        self.core.limit(budget)

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Compile decoders with torch.compile; returns whether there is one."""
        return bool(self.core.compile(notice))

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Keep the rows of the longest common beginning with a new request's prompt."""
        self.core.rewind(sequence, context)

    def close(self, sequence: Hashable) -> None:
        """Forget a sequence."""
        self.core.close(sequence)
