"""Model calls that a driver waits for: the request to an engine, and the use of its result.

A driver yields such a call and is sent its value. Calls of several runs are computed together (schedule.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from torch import Tensor

from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import DraftLoop, Engine, ForwardCall

if TYPE_CHECKING:
    from decgraph.runtime.models.engine.canvas_call import CanvasCall, MaskedEngine

AnyEngine: TypeAlias = "Engine | MaskedEngine"
T = TypeVar("T")
V = TypeVar("V")


class SharedCalls:
    """In the place of an engine: what the sequences of a batch compute of one another's numbers. Nothing is kept."""

    def close(self, sequence: Hashable) -> None:
        return


BATCH = SharedCalls()
E = TypeVar("E", bound="Engine | MaskedEngine | SharedCalls | None", covariant=True)


class CallOf(ABC, Generic[E]):
    """A pending model call. engine: computes it (None: it needs none). sequence: the key of the run's KV cache in the engine.
    alone: not to be batched. Calls of one `kind` and engine are computed together."""

    engine: E
    sequence: Hashable
    alone: bool = False

    @property
    def kind(self) -> Hashable:
        return "ask"

    @abstractmethod
    def compute_all(self, calls: Sequence[Call]) -> Sequence[object]:
        """The engine's result for each of several calls of this one's kind, of which it is the first."""

    @abstractmethod
    def take(self, answer: object) -> object:
        """The value of the call from the engine's result; raises the result if it is an exception."""

    def compute_alone(self) -> object:
        """The value of the call, computed by itself."""
        return self.take(self.compute_all([self])[0])

    def again(self) -> None:
        """Reset the call before it is computed again from its start."""
        return


Call: TypeAlias = "CallOf[AnyEngine | SharedCalls | None]"
Steps = Generator[Call, object, T]
"""A run, or a part of one, as a generator of its calls, each to be sent its value, or thrown the exception raised instead."""


class EngineCall(CallOf[AnyEngine]):
    """A call that is a list of requests to an engine."""

    @property
    @abstractmethod
    def asks(self) -> Sequence[ForwardCall | CanvasCall]:
        """The requests."""

    def compute_all(self, calls: Sequence[Call]) -> Sequence[object]:
        asks = [call.asks for call in calls if isinstance(call, EngineCall)]
        got = iter(compute(self.engine, [ask for one in asks for ask in one]))
        return [[next(got) for _ in one] for one in asks]

    def compute_alone(self) -> object:
        return self.take(compute(self.engine, self.asks))


def compute(engine: AnyEngine, asks: Sequence[ForwardCall | CanvasCall]) -> Sequence[object]:
    """An engine's results for requests of its own kind, causal or masked."""
    return engine.compute(asks)  # type: ignore[arg-type]  # which of both they are is the model's kind


def computed(answer: object) -> object:
    """An engine's result; raises it if it is an exception."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


@dataclass
class PendingCall(EngineCall):
    """One request to an engine, and a function of its result."""

    engine: AnyEngine
    sequence: Hashable
    ask: ForwardCall | CanvasCall
    finish: Callable[[object], object]  # a tensor or a `CanvasOutput`, as the request is
    alone: bool = False

    @property
    def asks(self) -> Sequence[ForwardCall | CanvasCall]:
        return [self.ask]

    def take(self, answer: object) -> object:
        assert isinstance(answer, list)
        return self.finish(computed(answer[0]))

    def compute_alone(self) -> object:
        (answer,) = self.engine.compute([self.ask])  # type: ignore[list-item]  # see `compute`
        if isinstance(answer, BaseException):
            raise answer
        return self.finish(answer)


@dataclass
class ResolvedCall(CallOf[None]):
    """A call that needs no engine: its value is known already."""

    value: object
    sequence: Hashable = None
    engine: None = None

    def compute_all(self, calls: Sequence[Call]) -> Sequence[object]:
        return calls

    def take(self, answer: object) -> object:
        return self.value

    def compute_alone(self) -> object:
        return self.value


@dataclass
class MeetingCall(CallOf[SharedCalls], Generic[V]):
    """A value of this sequence, of which `of_all` makes something together with those of all sequences that wait at the same
    place of the program (`site`); `finish` is given this sequence's part. It is answered when no sequence of the batch waits
    for a model (schedule.py)."""

    value: V
    of_all: Callable[[list[V]], Sequence[object]]
    site: str
    finish: Callable[[object], object] = field(default=lambda part: part)
    sequence: Hashable = None
    engine: SharedCalls = BATCH
    alone: bool = False

    @property
    def kind(self) -> Hashable:
        return self.site

    def compute_all(self, calls: Sequence[Call]) -> Sequence[object]:
        return self.of_all([call.value for call in calls if isinstance(call, MeetingCall)])

    def take(self, answer: object) -> object:
        return self.finish(answer)


@dataclass
class JoinedCall(EngineCall):
    """Several calls of one model yielded as one. merged: one request for all of them, where they could be merged."""

    engine: AnyEngine
    sequence: Hashable
    calls: Sequence[PendingCall | ResolvedCall]
    merged: ForwardCall | None
    alone: bool = False

    @property
    def asks(self) -> Sequence[ForwardCall | CanvasCall]:
        return [self.merged] if self.merged is not None else [c.ask for c in self.calls if isinstance(c, PendingCall)]

    def take(self, answer: object) -> object:
        """The values of all parts, in order."""
        assert isinstance(answer, list)
        parts = [computed(part) for part in answer]
        if self.merged is not None:
            (rows,), parts, first = parts, [], 0
            assert isinstance(rows, Tensor)
            for c in self.calls:
                if isinstance(c, PendingCall):
                    parts.append(rows[first : first + len(c.ask.rows)])
                    first += len(c.ask.rows)
        left = iter(parts)
        return tuple(c.finish(next(left)) if isinstance(c, PendingCall) else c.value for c in self.calls)


@dataclass
class DraftLoopCall(CallOf[CausalEngine]):
    """An autoregressive draft loop that an engine computes; `chosen` are the tokens drawn so far."""

    engine: CausalEngine
    sequence: Hashable
    loop: DraftLoop
    alone: bool = False
    chosen: list[int] = field(default_factory=list)

    @property
    def kind(self) -> Hashable:
        return ("draft loop", len(self.loop.uids))

    def compute_all(self, calls: Sequence[Call]) -> Sequence[object]:
        return self.engine.roll([call.loop for call in calls if isinstance(call, DraftLoopCall)])

    def again(self) -> None:
        self.chosen.clear()

    def take(self, answer: object) -> object:
        """The scores [count, V]; raises the result if it is an exception."""
        return computed(answer)
