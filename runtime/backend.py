"""The base class of every backend: the interface that a session uses.

A backend is a class. An instance is one run, a request decoded by a function of a module; what concerns the backend itself
(its memory, its compiler, which operations it has) is in class methods.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import ClassVar, Self

from decgraph.errors import DecError
from decgraph.ir.values import Loc, Module
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.result import Logprobs
from decgraph.runtime.text import Detokenizer
from decgraph.runtime.trace import Event, Stats, Timing


class Backend(ABC):
    """A backend, and with the arguments below one run of it.

    module, function: what runs. models: by parameter name. params: values by parameter name, checked by the caller
    (runtime/session.py). listener: called with every event (runtime/trace.py). shared: a session's states, by (function,
    name), written in place. externs: the caller's Python functions by name. detokenizer: for stop strings and programs that
    read text. parent: the run that this one is a part of. Raises DecError for a prompt that the models' context cannot hold.
    """

    name: ClassVar[str]
    """The name that `registry.machine` and `--backend` take."""
    counts: ClassVar[bool] = False
    """Whether a run counts its own statistics. Those of other backends are read from their events."""

    request: Request
    reason: str
    """Why the run stopped (runtime/stop.py: "limit", "eos", "stop", "context", "end"); set when it has ended."""
    mode: str = ""
    """How it decoded, in words, of a backend that has several ways: "graph mode", or "eager mode" and the reason, with
    whether forwards were CUDA graphs in between."""
    results: list[tuple[int, ...]]
    """The token ids of what the program returned, the n best of a search."""
    second_call: tuple[float, int] | None = None
    """When the target was called the second time (`time.perf_counter`), and how many tokens were committed by then: what came
    before is the first call, in which models get their decoders. None until then, and where a device calls them by itself."""
    _target_calls = 0

    def note_call(self, *, answered: bool = False) -> None:
        """Called at each call of the target. answered: when it was computed, not when it was wanted."""
        self._target_calls += 1
        if self.second_call is None and self._target_calls == (1 if answered else 2):
            self.second_call = time.perf_counter(), len(self.committed_tokens())

    @abstractmethod
    def __init__(
        self,
        module: Module,
        function: str,
        models: Mapping[str, Model],
        params: Mapping[str, object],
        request: Request,
        *,
        listener: Callable[[Event], None] | None = None,
        shared: dict[tuple[str, str], object] | None = None,
        externs: Mapping[str, Callable[..., object]] | None = None,
        detokenizer: Detokenizer | None = None,
        parent: Self | None = None,
    ) -> None: ...

    @abstractmethod
    def run(self) -> tuple[int, ...]:
        """Run to the end; returns the committed token ids. Raises DecError for any exception on the way, with the request and
        the program's line."""

    @abstractmethod
    def committed_tokens(self) -> tuple[int, ...]:
        """The token ids committed so far, without the prompt."""

    logprobs: Logprobs | None
    """The log-probabilities of the committed tokens, where the request asks for them; see `read_logprobs`."""
    prompt_logprobs: Logprobs | None
    """Likewise of the prompt's tokens after the first."""

    @abstractmethod
    def read_logprobs(self) -> None:
        """Called after the run: set `logprobs` where the request asks for them. Raises what the model raises."""

    def record(self, recorder: Timing) -> None:
        """Called before the run: tell a recorder (runtime/recording.py) of it. Does nothing where the backend has nothing to
        tell."""
        return

    def places(self) -> Iterable[Loc]:
        """Where the program is, the innermost operation first; empty where the backend cannot tell."""
        return ()

    def reuse(self, key: Hashable) -> None:
        """Called before the run: take over the KV cache that an earlier run left under a key, as far as their tokens begin
        alike, and leave this run's there. Does nothing for a backend without a cache."""
        return

    @classmethod
    def forget(cls, models: Mapping[str, Model], key: Hashable) -> None:
        """Free the KV cache that a run left under a key."""
        return

    def stats(self) -> Stats | None:
        """The statistics of the run where the backend counts them (`counts`), else None."""
        return None

    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """Run several of this backend, at most `width` at a time; here one after the other. `waiting` gives each run with its
        number when there is room for it; `ended(number, run, error)` is called as each ends. What one run raises ends that
        run alone; KeyboardInterrupt ends all and is raised again."""
        for number, run in waiting:
            try:
                run.run()
            except KeyboardInterrupt as stop:
                ended(number, run, stop)
                raise
            except Exception as error:
                ended(number, run, error)
            else:
                ended(number, run, None)

    @classmethod
    def limit_memory(cls, models: Mapping[str, Model], budget: int) -> None:
        """Bound the KV cache that each model keeps between calls to `budget` bytes. Does nothing for a backend without a
        cache."""
        return

    @classmethod
    def compile(cls, models: Mapping[str, Model], notice: Callable[[str], None]) -> None:
        """Compile the models' forwards. `notice` is called with a sentence for each that is not compiled. Raises
        DecError where the backend compiles nothing."""
        raise DecError(f"backend {cls.name} compiles nothing", hint="backend torch does")

    @classmethod
    @abstractmethod
    def supports(cls, opcode: str) -> str | None:
        """None where the backend implements the operation; else a sentence that says what happens instead or why it cannot run.
        Raises OpError for an opcode that is not in the op table."""
