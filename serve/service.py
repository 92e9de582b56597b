"""The asynchronous side of the worker: a client's request becomes jobs, their news arrive in its queue, and jobs of a client
that went away are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from decgraph.errors import ConstraintError, DecError
from decgraph.runtime import chat
from decgraph.runtime.models.engine.saved_rows import caching_engine
from decgraph.serve.answers import Answer, AnswerWriter, PartGrowth
from decgraph.serve.catalogue import Catalogue
from decgraph.serve.generation import Generation, Limits, compiled, read_request, wants_grammar
from decgraph.serve.metrics import Metrics
from decgraph.serve.prefixes import PrefixCopies
from decgraph.serve.refusals import Refusal, bare, words_of
from decgraph.serve.wire import ChatRequest, CompletionRequest
from decgraph.serve.worker import QUEUE, WIDTH, Full, Job, ServerStopped, Told, Worker

T = TypeVar("T")
COMPILING = 30
"""Seconds after which a request whose grammar is not compiled is refused."""


class Exchange:
    """The answers to one client's request. `close` cancels what has not ended. writer: how they are written.
    arrived: when the request did (`time.perf_counter`). disconnected: the client went away before the end."""

    def __init__(self, service: Service, generation: Generation, writer: AnswerWriter, arrived: float) -> None:
        self.service, self.generation = service, generation
        self.writer = writer
        self.jobs = [
            Job(generation.session, request, owner=self, place=place, arrived=arrived, priority=generation.priority)
            for place, request in enumerate(generation.requests)
        ]
        self.answers = [Answer(generation, job) for job in self.jobs]
        self.news: asyncio.Queue[Told] = asyncio.Queue()
        self.disconnected = False

    def begin(self) -> None:
        """Queue its jobs. Raises `Refusal` where they have no room."""
        try:
            self.service.worker.submit(self.jobs)
        except Full:
            wait = str(self.service.patience())
            raise Refusal(429, "the queue is full", code="queue_full", headers={"Retry-After": wait}) from None
        except ServerStopped as error:
            raise Refusal(503, words_of(error), headers={"Retry-After": "5"}) from None
        self.service.open.add(self)

    async def close(self) -> None:
        """Cancel what has not ended, and wait until it has, so that its tokens are counted."""
        self.service.open.discard(self)
        left = [job for job, answer in zip(self.jobs, self.answers, strict=True) if answer.result is None]
        self.service.worker.cancel(left)
        while any(answer.result is None for answer in self.answers):
            told = await self.news.get()
            if told.result is not None:
                self.answers[told.job.place].result = told.result

    def hear(self, told: Told) -> None:
        """Take news of one of its jobs."""
        self.service.metrics.told(told)
        self.news.put_nowait(told)

    async def heard(self, patience: float | None = None) -> AsyncIterator[tuple[Answer, list[PartGrowth]] | None]:
        """Every answer that grew, and by what, until all have ended; None after so many seconds without news. Raises `Refusal`
        for the first one that fails."""
        left = len(self.answers)
        while left:
            try:
                told = await asyncio.wait_for(self.news.get(), patience)
            except TimeoutError:
                yield None
                continue
            answer = self.answers[told.job.place]
            if told.result is not None:
                answer.result, left = told.result, left - 1
                if told.result.error is not None:
                    error = told.result.error
                    if isinstance(error, ConstraintError):
                        # The place in the program is none of the client's.
                        raise Refusal(400, bare(words_of(error)), param=self.generation.grammar)
                    raise Refusal(503 if isinstance(error, ServerStopped) else 500, words_of(error))
            news = answer.grow(told)
            if news or told.result is not None:
                yield answer, news

    def told(self) -> dict[str, Any]:
        """Its line in the log."""
        ended = [a.result for a in self.answers if a.result is not None]
        first = [job.first - job.arrived for job in self.jobs if job.first]
        reasons = sorted({result.reason for result in ended})
        seconds = sum(job.last - job.first for job in self.jobs if job.first)
        request = self.jobs[0].request
        return {
            "response_id": self.writer.id,
            "model": self.generation.model,
            "algorithm": self.generation.algorithm,
            "answers": len(self.answers),
            "max_tokens": request.max_tokens,
            "temperature": float(request.temperature),
            "seed": request.seed,
            "ended": "disconnected" if self.disconnected else ", ".join(reasons),
            "finish_reasons": [answer.finish_reason or "" for answer in self.answers],
            "prompt_tokens": self.generation.prompt_tokens,
            "completion_tokens": sum(len(result.tokens) for result in ended),
            "target_calls": sum(result.stats.target_calls for result in ended),
            "drafted": sum(result.stats.drafted for result in ended),
            "accepted": sum(sum(result.stats.accepted) for result in ended),
            "ended_drafts": sum(result.stats.ended_drafts for result in ended),
            "reading_seconds": round(self.jobs[0].received - self.jobs[0].arrived, 4),
            "queued_seconds": round(max(max(0.0, job.started - job.received) for job in self.jobs), 4),
            "first_token_seconds": round(min(first), 4) if first else None,
            "tokens_per_second": round(sum(j.sent - j.opened for j in self.jobs) / seconds, 2) if seconds > 0 else None,
        }


class Service:
    """A server's state: catalogue, worker, metrics. `start` and `stop` belong to the event loop that serves."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        limits: Limits | None = None,
        width: int = WIDTH,
        queue: int = QUEUE,
        chunk: int | None = 256,
        prefix_bytes: int = 1 << 30,
    ) -> None:
        self.catalogue, self.limits = catalogue, limits or Limits()
        self.metrics, self.prefixes = Metrics(), PrefixCopies(prefix_bytes)
        self.worker = Worker(self._from_the_thread, width=width, queue=queue, chunk=chunk, prefixes=self.prefixes)
        self.open: set[Exchange] = set()
        catalogue.busy = self.worker.__len__
        self.draining = False
        self.began = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._templates = threading.Thread(target=self._read_templates, name="decgraph templates", daemon=True)
        self._reader = ThreadPoolExecutor(1, "decgraph requests")
        self._grammars = ThreadPoolExecutor(2, "decgraph grammars")
        kv = {"engines": self.engine_bytes, "prefixes": lambda: self.prefixes.bytes}
        self.metrics.watch(lambda: len(self.worker.waiting), lambda: len(self.worker.running), kv)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to work for this event loop."""
        self._loop = loop
        self._templates.start()
        self.worker.start(self.catalogue.every_session())

    @property
    def ready(self) -> bool:
        """Whether the first client waits no longer than the next ones: templates are read, and every algorithm has run."""
        return not self.worker.cold and not self._templates.is_alive()

    def _read_templates(self) -> None:
        """Use the chat templates once: what reads them takes seconds to import."""
        for tokenizer in {session.tokenizer for session in self.catalogue.sessions.values()}:
            with contextlib.suppress(DecError):  # none, or one that wants other messages
                chat.tokens_of(tokenizer, [{"role": "user", "content": "Hi"}])

    def stop(self) -> None:
        """End what is left with an error."""
        self.draining = True
        self.worker.stop()
        for pool in (self._reader, self._grammars):
            pool.shutdown(wait=False, cancel_futures=True)

    async def read(self, body: CompletionRequest | ChatRequest) -> Generation:
        """The generation that a body requests. Raises `Refusal`."""
        assert self._loop is not None
        grammar = None
        if wants_grammar(body):
            compiling = self._loop.run_in_executor(self._grammars, compiled, body, self.catalogue)
            try:
                grammar = await asyncio.wait_for(compiling, COMPILING)
            except TimeoutError:
                raise Refusal(400, f"the grammar was not read in {COMPILING} seconds: a simpler one may be") from None
        return await self.aside(read_request, body, self.catalogue, self.limits, grammar)

    async def aside(self, work: Callable[..., T], *args: Any) -> T:
        """What a function returns that reads texts, which one thread does, for the event loop has to go on."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work, *args)

    def patience(self) -> int:
        """Seconds after which a client that was refused may try again: more of them, the longer the queue."""
        return max(1, min(30, len(self.worker) // max(1, self.worker.width)))

    def engine_bytes(self) -> int:
        """Bytes of keys and values that the engines have allocated."""
        stores = {}
        for model in self.catalogue.models():
            if model.kind in ("causal", "features"):
                engine = caching_engine(model)
                if engine is not None:
                    store = engine.store
                    stores[id(store)] = store.slots * store.rows * store.layout.cell_bytes
        return sum(stores.values())

    def _from_the_thread(self, news: list[Told]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._spread, news)

    def _spread(self, news: list[Told]) -> None:
        for told in news:
            told.job.owner.hear(told)
