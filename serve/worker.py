"""The one thread that owns the engines: requests join its schedule and advance a round at a time.

`submit`, `cancel` and `stop` are called from other threads; the news of a round go to one call of `tell`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from decgraph.errors import DecError, InternalError
from decgraph.runtime.backend import Backend
from decgraph.runtime.prompts import Prompt, request_for
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.session import Begun, Session
from decgraph.runtime.trace import Stats
from decgraph.serve.prefixes import PrefixCopies

if TYPE_CHECKING:
    from decgraph.backends.torch.machine import TorchMachine
    from decgraph.backends.torch.protocols import Schedule

_LOG = logging.getLogger("decgraph.serve")
_NUMBERS = itertools.count()
WIDTH, QUEUE = 16, 64
"""Answers that are computed at a time, and that may wait, by default."""

CANCELLED = "cancelled"
"""The reason of an answer whose client has gone."""


class Full(Exception):
    """The queue has no room."""


class ServerStopped(DecError):
    """The server ends before the request does."""


class JobOwner(Protocol):
    """Whoever submitted jobs."""

    def hear(self, told: Told, /) -> None:
        """Called with the news of each of them."""


@dataclass(eq=False)
class Job:
    """One answer that is to be computed. place: which of its owner's answers it is."""

    session: Session
    request: Request
    owner: JobOwner
    place: int
    arrived: float
    """When its request did (`time.perf_counter`), which then had to be read."""
    number: int = field(default_factory=lambda: next(_NUMBERS))
    received: float = field(default_factory=time.perf_counter)
    began: Begun | None = None
    reused: int = 0
    """Prompt tokens whose keys and values were there already."""
    sent: int = 0
    started: float = 0.0
    """When it left the queue (`time.perf_counter`), 0 before."""
    first: float = 0.0
    """When the first token was committed, 0 before."""
    opened: int = 0
    """How many tokens were committed then."""
    last: float = 0.0
    priority: int = 0
    """Those of lower ones leave the queue first."""

    @property
    def algorithm(self) -> str:
        return self.session.function.name


@dataclass(frozen=True)
class Told:
    """News of a job: tokens, and its result as the last item. gap: seconds a token since the last ones; None for the first."""

    job: Job
    tokens: tuple[int, ...] = ()
    result: Result | None = None
    gap: float | None = None


class Worker:
    """Runs jobs, `width` at a time; up to `queue` more wait.

    tell: called by the thread with the news of a round. chunk: how many prompt tokens a round computes at most. prefixes: the
    KV caches of finished runs, for prompts that go on from them.
    """

    def __init__(
        self,
        tell: Callable[[list[Told]], None],
        *,
        width: int = WIDTH,
        queue: int = QUEUE,
        chunk: int | None = 256,
        prefixes: PrefixCopies | None = None,
    ) -> None:
        self.tell, self.width, self.queue, self.chunk = tell, width, queue, chunk
        self.prefixes = prefixes if prefixes is not None else PrefixCopies(0)
        self.cold = 0
        """How many runs of `start`'s own have not ended."""
        self.waiting: deque[Job] = deque()
        self.running: dict[int, Job] = {}
        self._change = threading.Condition()
        self._cancelled: list[Job] = []
        self._stopping = False
        self._news: list[Told] = []
        self._thread = threading.Thread(target=self._work, name="decgraph engines", daemon=True)

    def start(self, warm: Iterable[Session] = ()) -> None:
        """Begin to work. warm: sessions that run once, so that no client waits for what a first run loads and compiles."""
        for session in warm:
            prompt: Prompt = (0,) * 24 if session.tokenizer is None else "Hello there. " * 6
            with contextlib.suppress(DecError):  # a client is told
                self.waiting.append(Job(session, request_for(session, prompt, max_tokens=6), self, 0, time.perf_counter()))
        self.cold = len(self.waiting)
        self._thread.start()

    def hear(self, told: Told, /) -> None:
        """Take news of these runs."""
        self.cold -= told.result is not None

    def __len__(self) -> int:
        """How many jobs of clients wait or run."""
        with self._change:
            return sum(job.owner is not self for job in (*self.running.values(), *self.waiting))

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, all or none. Raises `Full` where they have no room, and `ServerStopped` after `stop`."""
        with self._change:
            if self._stopping:
                raise ServerStopped("the server is shutting down")
            if len(jobs) > self.width + self.queue - len(self):
                raise Full
            self.waiting = deque(sorted([*self.waiting, *jobs], key=lambda job: job.priority))
            self._change.notify()

    def cancel(self, jobs: Sequence[Job]) -> None:
        """End jobs before the next forward: their results have the reason `CANCELLED` and the tokens so far. Nothing happens
        for those that have ended."""
        waited = []
        with self._change:
            for job in jobs:
                if job in self.waiting:
                    self.waiting.remove(job)
                    waited.append(Told(job, result=Result((), "", Stats(), CANCELLED, 0.0)))
                else:
                    self._cancelled.append(job)
            self._change.notify()
        if waited:
            self.tell(waited)

    def stop(self) -> None:
        """End every job with an error, and the thread. Returns when it has ended."""
        with self._change:
            self._stopping = True
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join()

    # In the thread.

    def _work(self) -> None:
        schedule: Schedule[TorchMachine] | None = None
        while True:
            with self._change:
                while not (self.waiting or self._cancelled or self._stopping or (schedule is not None and len(schedule))):
                    self._change.wait()
                if self._stopping:
                    break
                cancelled, self._cancelled = self._cancelled, []
            try:
                for job in cancelled:
                    self._drop(schedule, job)
            except Exception as problem:  # as below
                _LOG.exception("a request could not be cancelled")
                self._fail_all(schedule, problem)
            joining = []
            with self._change:
                while self.waiting and len(self.running) < self.width:
                    job = self.waiting.popleft()
                    job.started = time.perf_counter()
                    self.running[job.number] = job
                    joining.append(job)
            if schedule is None and joining:  # all algorithms of a server have one backend
                machine = batching(joining[0].session.machine)
                schedule = machine.schedule(self._ended, width=self.width, chunk=self.chunk, apart=True)
            if schedule is None:
                continue
            for job in joining:
                self._begin(schedule, job)
            try:
                schedule.advance()
                self._look()
            except Exception as problem:  # a bug of ours: those in flight end with it, the next ones begin anew
                _LOG.exception("the schedule failed")
                self._fail_all(schedule, problem)
            self._say()
        self._fail_all(schedule, ServerStopped("the server is shutting down"))
        with self._change:
            left, self.waiting = list(self.waiting), deque()
        for job in left:
            self._news.append(Told(job, result=_failed(ServerStopped("the server is shutting down"))))
        self._say()

    def _begin(self, schedule: Schedule[TorchMachine], job: Job) -> None:
        try:
            job.began = job.session.begin(job.request)
            machine = batched(job.began)
            if schedule.drives(machine):
                job.reused = self.prefixes.attach(machine)
        except Exception as problem:  # what a run cannot begin with, and bugs of ours: this job's alone
            self._leave(job)
            self._news.append(Told(job, result=_failed(problem)))
            return
        schedule.join(job.number, machine)

    def _ended(self, number: int, machine: TorchMachine, problem: BaseException | None) -> None:
        job = self.running[number]
        assert job.began is not None
        self.prefixes.detach(machine, keep=problem is None and job.owner is not self)
        job.reused = min(max(job.reused, machine.reused), len(job.request.prompt) - 1)  # the last one is computed anew
        result = job.session.ended(job.began, problem)
        self._leave(job)
        self._news.append(self._told(job, result.tokens, result))

    def _drop(self, schedule: Schedule[TorchMachine] | None, job: Job) -> None:
        if schedule is None or job.number not in self.running or job.began is None:
            return
        schedule.cancel(job.number)
        self.prefixes.detach(batched(job.began), keep=False)
        result = replace(job.session.ended(job.began, KeyboardInterrupt()), reason=CANCELLED)
        self._leave(job)
        self._news.append(Told(job, result=result))

    def _fail_all(self, schedule: Schedule[TorchMachine] | None, problem: Exception) -> None:
        if schedule is not None:
            schedule.close()
        for job in list(self.running.values()):
            if job.began is not None:
                self.prefixes.detach(batched(job.began), keep=False)
            self._leave(job)
            self._news.append(Told(job, result=_failed(problem)))

    def _leave(self, job: Job) -> None:
        with self._change:
            self.running.pop(job.number, None)

    def _look(self) -> None:
        """News of the tokens that runs in flight have committed in this round."""
        for job in self.running.values():
            machine = job.began.machine if job.began is not None else None
            committed = machine.committed_tokens() if machine is not None else ()
            if len(committed) > job.sent:
                self._news.append(self._told(job, committed, None))

    def _told(self, job: Job, committed: tuple[int, ...], result: Result | None) -> Told:
        new, now, gap = committed[job.sent :], time.perf_counter(), None
        if new:
            if job.first:
                gap = (now - job.last) / len(new)
            else:
                job.first, job.opened = now, len(new)
            job.last, job.sent = now, len(committed)
        return Told(job, new, result, gap)

    def _say(self) -> None:
        if self._news:
            news, self._news = self._news, []
            self.tell(news)


def _failed(problem: BaseException) -> Result:
    """The result of a run that has not begun, or was ended."""
    if not isinstance(problem, DecError):
        problem = DecError(str(problem) if isinstance(problem, InternalError) else f"{type(problem).__name__}: {problem}")
    return Result((), "", Stats(), "error", 0.0, error=problem)


def batching(backend: type[Backend]) -> type[TorchMachine]:
    """A backend that can compute several runs together. Raises DecError for one that cannot."""
    from decgraph.backends.torch.machine import TorchMachine

    if not issubclass(backend, TorchMachine):
        raise DecError(f"the backend {backend.name} runs one request after the other", hint="serve with torch")
    return backend


def batched(run: Begun) -> TorchMachine:
    """The machine of a run that began, of a backend that `batching` accepts."""
    from decgraph.backends.torch.machine import TorchMachine

    assert isinstance(run.machine, TorchMachine)
    return run.machine
