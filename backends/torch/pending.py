"""Model calls that a driver waits for: the request to an engine, and the use of its result.

A driver yields such a call and is sent its value. Calls of several runs are computed together (schedule.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from decgraph.runtime.models.engine.canvas_call import CanvasCall, MaskedEngine
from decgraph.runtime.models.engine.forward_call import DraftLoop, Engine, ForwardCall, RollEngine

AnyEngine = Engine | MaskedEngine
E = TypeVar("E", bound=AnyEngine | None)


class Pending(ABC, Generic[E]):
    """A pending model call. engine: computes it (None: it needs none). sequence: the key of the run's KV cache in the engine.
    alone: not to be batched. Calls of one `kind` and engine are computed together."""

    engine: E
    sequence: Hashable
    alone: bool = False

    @property
    def kind(self) -> Hashable:
        return "ask"

    @classmethod
    @abstractmethod
    def compute_all(cls, calls: Sequence[Any]) -> list[Any]:
        """The engine's result for each of several calls of one kind."""

    @abstractmethod
    def take(self, answer: Any) -> Any:
        """The value of the call from the engine's result; raises the result if it is an exception."""

    def compute_alone(self) -> Any:
        """The value of the call, computed by itself."""
        return self.take(self.compute_all([self])[0])

    def again(self) -> None:
        """Reset the call before it is computed again from its start."""
        return


class _EngineCall(Pending[AnyEngine]):
    """Calls that are lists of requests to an engine."""

    asks: Sequence[ForwardCall | CanvasCall]

    @classmethod
    def compute_all(cls, calls: Sequence[_EngineCall]) -> list[Any]:
        engine: Any = calls[0].engine  # Any: causal or masked, as its requests are
        got = iter(engine.compute([ask for call in calls for ask in call.asks]))
        return [[next(got) for _ in call.asks] for call in calls]

    def compute_alone(self) -> Any:
        engine: Any = self.engine  # Any: see above
        return self.take(engine.compute(self.asks))


@dataclass
class PendingCall(_EngineCall):
    """One request to an engine, and a function of its result."""

    engine: AnyEngine
    sequence: Hashable
    ask: ForwardCall | CanvasCall
    finish: Callable[[Any], Any]
    alone: bool = False

    @property
    def asks(self) -> Sequence[ForwardCall | CanvasCall]:  # type: ignore[override]  # read, never set
        return [self.ask]

    def take(self, answer: Any) -> Any:
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return self.finish(answer[0])

    def compute_alone(self) -> Any:
        engine: Any = self.engine  # Any: see `_EngineCall`
        (answer,) = engine.compute([self.ask])
        if isinstance(answer, BaseException):
            raise answer
        return self.finish(answer)


@dataclass
class ResolvedCall(Pending[None]):
    """A call that needs no engine: its value is known already."""

    value: Any
    sequence: Hashable = None
    engine: None = None

    @classmethod
    def compute_all(cls, calls: Sequence[ResolvedCall]) -> list[Any]:
        return [call.value for call in calls]

    def take(self, answer: Any) -> Any:
        return self.value


class _Sequences:
    """In the place of an engine: what the sequences of a batch compute of one another's numbers. Nothing is kept."""

    def close(self, sequence: Hashable) -> None:
        return


SEQUENCES = _Sequences()


@dataclass
class MeetingCall(Pending[Any]):
    """A value of this sequence, of which `of_all` makes something together with those of all sequences that wait at the same
    place of the program (`site`); `finish` is given this sequence's part. It is answered when no sequence of the batch waits
    for a model (schedule.py)."""

    value: Any
    of_all: Callable[[list[Any]], list[Any]]
    site: str
    finish: Callable[[Any], Any] = field(default=lambda part: part)
    sequence: Hashable = None
    engine: Any = SEQUENCES
    alone: bool = False

    @property
    def kind(self) -> Hashable:
        return self.site

    @classmethod
    def compute_all(cls, calls: Sequence[MeetingCall]) -> list[Any]:
        return calls[0].of_all([call.value for call in calls])

    def take(self, answer: Any) -> Any:
        return self.finish(answer)


@dataclass
class Together(_EngineCall):
    """Several calls of one model yielded as one: one request for all of them where they could be merged."""

    engine: AnyEngine
    sequence: Hashable
    asks: Sequence[ForwardCall | CanvasCall]
    calls: Sequence[PendingCall | ResolvedCall]
    alone: bool = False

    def take(self, answer: Any) -> Any:
        """The values of all parts, in order."""
        for part in answer:
            if isinstance(part, BaseException):
                raise part
        if len(self.asks) < sum(isinstance(c, PendingCall) for c in self.calls):
            rows, answer, first = answer[0], [], 0
            for c in self.calls:
                if isinstance(c, PendingCall):
                    answer.append(rows[first : first + len(c.ask.rows)])
                    first += len(c.ask.rows)
        left = iter(answer)
        return tuple(c.finish(next(left)) if isinstance(c, PendingCall) else c.value for c in self.calls)


@dataclass
class DraftLoopCall(Pending[RollEngine]):
    """An autoregressive draft loop that an engine computes; `chosen` are the tokens drawn so far."""

    engine: RollEngine
    sequence: Hashable
    loop: DraftLoop
    alone: bool = False
    chosen: list[int] = field(default_factory=list)

    @property
    def kind(self) -> Hashable:
        return ("draft loop", len(self.loop.uids))

    @classmethod
    def compute_all(cls, calls: Sequence[DraftLoopCall]) -> list[Any]:
        return list(calls[0].engine.roll([call.loop for call in calls]))

    def again(self) -> None:
        self.chosen.clear()

    def take(self, answer: Any) -> Any:
        """The scores [count, V]; raises the result if it is an exception."""
        if isinstance(answer, BaseException):
            raise answer
        return answer
