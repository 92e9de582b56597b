"""Sessions: an algorithm bound to models and parameters, which runs requests and streams their events."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar, Unpack

from decgraph.errors import DecError
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module
from decgraph.runtime.answers import check_tokens
from decgraph.runtime.arguments import Externs, Listener, ParamValue, Prompt, Tokenizing
from decgraph.runtime.backend import Backend
from decgraph.runtime.faults import fault, title_of
from decgraph.runtime.grammars import Grammar
from decgraph.runtime.models.forwards import forwards_of
from decgraph.runtime.models.interface import Model, bounded_by
from decgraph.runtime.models.sharing import alone, distinct, making, renewed_all
from decgraph.runtime.parameters import check_shapes, check_value, is_text
from decgraph.runtime.placement import Placement, own_modes, placement_of_all, refuse_autocast
from decgraph.runtime.prompts import end_of_text, request_for
from decgraph.runtime.refused import refuse_unavailable, refuse_unread, unread
from decgraph.runtime.request import Request, RequestFields
from decgraph.runtime.result import Result as Result
from decgraph.runtime.text import pieces_of
from decgraph.runtime.trace import Commits, Event, Stats, Timing
from decgraph.runtime.words import spelling_for, token_of, tokens_by_text

if TYPE_CHECKING:
    from decgraph.runtime.conversation import Conversation

Item = TypeVar("Item")
AT_A_TIME = 8
"""Default number of requests that `generate` runs at a time."""


@dataclass
class Begun:
    """A request under way: its run, its events so far, and when it began (`time.perf_counter`)."""

    machine: Backend
    request: Request
    events: list[Event]
    started: float


def _outcome(run: Begun) -> BaseException | None:
    """Run the request to its end. Returns the exception that ended it early, or None."""
    try:
        run.machine.run()
    except (Exception, KeyboardInterrupt) as problem:
        return problem
    return None


def check_params(function: Function, values: Mapping[str, ParamValue], *, unread: bool = False) -> dict[str, ParamValue]:
    """Parameter values with defaults filled in. Raises DecError for unknown names, missing values and values outside
    their range. unread: leaves out texts that a tokenizer will encode."""
    params = {p.name: p for p in function.params if p.value.type.elem != "model"}
    for name in values:
        if name not in params:
            import difflib

            near = difflib.get_close_matches(name, params, 1)
            raise DecError(
                f"{function.name} has no parameter `{name}`",
                hint=f"did you mean {near[0]}?" if near else f"it has {', '.join(params) or 'none'}",
            )
    out = {}
    for name, p in params.items():
        if name not in values and not p.has_default:
            raise DecError(f"{function.name} needs a value for `{name}`", hint=f"give it: {name} = ...")
        v = values.get(name, p.default)
        if unread and is_text(p, v):
            continue
        out[name] = check_value(function.name, p, v)
    return out


def check_externs(module: Module, name: str, functions: Collection[str], stand_ins: Collection[str] = ()) -> None:
    """Raises DecError where a program calls a Python function that is not among the given ones. stand_ins: the names that
    `--extern demo:NAME` takes."""
    for extern, (takes, gives) in module.externs.items():
        if extern not in functions:
            demo = f"; to try it: --extern demo:{extern}" if extern in stand_ins else ""
            raise DecError(
                f"{name} needs the function `{extern}`: ({', '.join(map(python, takes))}) -> {python(gives)}",
                hint=f"hand it over: --extern file.py:{extern}, or externs={{{extern!r}: function}}{demo}",
            )


def python(type: Type) -> str:
    """The Python type in which an extern gets or returns a value of a type, in a word."""
    plain = {"text": "str", "real": "float", "prob": "float", "token": "int", "int": "int", "bool": "bool"}
    return "array" if "[" in str(type) else plain.get(str(type.elem), str(type))


def check_models(function: Function, models: Mapping[str, Model]) -> dict[str, Model]:
    """The models of a function by name, each a separate object. Raises DecError for one that is missing, of another kind or
    vocabulary, or no model."""
    wanted = {p.name: p.value.type for p in function.params if p.value.type.elem == "model"}
    for name in models:
        if name not in wanted:
            raise DecError(f"{function.name} takes no model `{name}`", hint=f"it takes {', '.join(wanted)}")
    vocabs: dict[str, Model] = {}
    for name, t in wanted.items():
        if name not in models:
            hint = f"give one: {name} = folder or model"
            raise DecError(f"{function.name} needs the model `{name}` ({t.of[0]})", hint=hint)
        m = models[name]
        if not hasattr(m, "kind"):
            raise DecError(f"{function.name}: `{name}` must be a {t.of[0]} model, {m!r} is no model")
        if m.kind != t.of[0]:
            raise DecError(f"{function.name}: `{name}` must be a {t.of[0]} model, {m.name!r} is a {m.kind} model")
        vocab = str(t.of[1])
        first = vocabs.setdefault(vocab, m)
        if first.vocab != m.vocab:
            from decgraph.runtime.models.interface import check_vocab

            check_vocab(first, m)
    return distinct(models)


class Session:
    """Models and parameters bound to one algorithm. State `per session` lives here.

    `machine` is the class that runs a request: `decgraph.backends.registry.machine("reference")`. With a `tokenizer`
    (runtime/text.py) results have text, and stop strings work. `externs`: a Python function for each extern. `batch`: the
    default of `generate`'s number of requests at a time.
    """

    def __init__(
        self,
        module: Module,
        models: Mapping[str, Model],
        params: Mapping[str, ParamValue] | None = None,
        *,
        machine: type[Backend],
        name: str | None = None,
        tokenizer: Tokenizing | None = None,
        externs: Externs | None = None,
        batch: int | None = None,
    ) -> None:
        self.batch = batch or AT_A_TIME
        self.module, self.machine = module, machine
        self.function = module.functions[name or module.main]
        refuse_unavailable(replace(module, main=self.function.name))
        self.unread = unread(self.function)
        self._given, self.models = dict(models), check_models(self.function, models)
        self._caches = object()  # other sessions of the same models have caches of their own
        self._lock = threading.RLock()
        self._dropped: deque[Hashable] = deque()
        self.params = check_params(self.function, self._in_tokens(params or {}, tokenizer))
        if any(op.opcode == "model.derive" for op in self.function.body.walk()):
            from decgraph.runtime.models.derive import check_derivations

            check_derivations(self.function, self.models, self.params)
        check_tokens(self.function, self.params, self.models)
        if self.models:
            check_shapes(self.function, self.params, next(iter(self.models.values())).vocab.size)
        self.tokenizer, self.externs = tokenizer, dict(externs or {})
        self._texts = tokens_by_text(module, self.function.name, tokenizer, self._main)
        check_externs(module, self.function.name, self.externs)
        self.shared: dict[tuple[str, str], object] = {}
        self.generation: Mapping[str, object] | None = None
        """The generation settings that requests have their defaults from; None: the first model's."""
        self.load_seconds = 0.0
        """How long making the session took, for its results to report; set by the caller that measured it."""
        asked = {what for f in module.functions.values() for op in f.body.walk() for what in (op.opcode, op.attrs.get("what"))}
        table = not asked.isdisjoint(("relax", "live", "weights", "states"))
        for name, value in self.params.items():
            if isinstance(value, Grammar):
                size = next(iter(self.models.values())).vocab.size
                self.params[name] = (value.table if table else value.over)(tokenizer, end_of_text(self), size)

    @property
    def placement(self) -> Placement:
        """The device and the dtype of the first model's weights."""
        return placement_of_all(self.models)

    def __reduce__(self) -> NoReturn:
        raise DecError(
            f"a session of {self.function.name} cannot be pickled: its weights and caches are this process's",
            hint="make it in the worker: send the algorithm, and call algorithm.session(...) there; with Ray: "
            "decgraph.scale.Decoder",
        )

    def _in_tokens(self, params: Mapping[str, ParamValue], tokenizer: Tokenizing | None) -> dict[str, ParamValue]:
        """Parameter values, with the tokenizer's ids for a text where tokens are wanted; defaults included."""
        out = dict(params)
        for p in self.function.params:
            value = params.get(p.name, p.default if p.has_default else None)
            one = p.value.type.elem == "token" and not p.value.type.dims
            if one and isinstance(value, str) and (is_text(p, value) or p.name not in params):
                try:
                    out[p.name] = token_of(value, spelling_for(tokenizer, self._main))
                except DecError as error:
                    raise DecError(f"{self.function.name}: `{p.name}`: {error.diagnostics[0]}", hint=error.hint) from None
            elif tokenizer is not None and is_text(p, value):
                out[p.name] = list(tokenizer.encode(str(value)))
        return out

    def run(
        self,
        prompt: Request | Prompt,
        *,
        listener: Listener | None = None,
        keep_events: bool = True,
        cache_key: Hashable | None = None,
        **request: Unpack[RequestFields],
    ) -> Result:
        """Run one request: a `Request`, or a prompt (a text, token ids or messages) with the fields of a request.

        An exception after the start, of a model or of anything else that the run calls, becomes the result's `error`: a
        DecError that names the request and the line. The tokens committed before it are in the result.

        Without `keep_events` (and a listener) the result has statistics but no events, and the run is faster. Backend triton
        then decodes in graph mode, also with a listener `runtime.trace.Commits(f)`, which hears commits only.

        cache_key: the KV cache stays under this key after the run, and the next run with the key continues from it: the
        common beginning of the two prompts is not computed again, unless the weights have changed. `forget` frees it.

        Raises DecError for a listener that is no function, and for a prompt or a field that no request has.
        """
        if listener is not None and not callable(listener):
            raise DecError(f"listener is {listener!r}; it must be a function of an event")
        made = self._request(prompt, request)
        with self._alone():
            run = self._start(made, listener, keep_events)
            if cache_key is not None:
                run.machine.reuse((self._caches, cache_key))
            return self._result(run, _outcome(run))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclusive use of the session and its models. Where a model's module has changed since the last run, the models are
        made again and states `per session` start again. Raises DecError for a module that can no longer be used."""
        with self._lock, own_modes():
            with making:
                now = renewed_all(self._given)
            if any(now[name] is not model for name, model in self._given.items()):
                self._given, self.models = now, check_models(self.function, now)
                self.shared.clear()
            with alone(self.models.values()):
                while self._dropped:
                    self.machine.forget(self.models, (self._caches, self._dropped.popleft()))
                yield

    def begin(self, request: Request) -> Begun:
        """A run that the caller advances (`backends.torch.schedule.Schedule`), without events. It has its own states `per
        session`, so that it commits the tokens that it would commit alone. Raises DecError for a request that cannot start."""
        return self._start(request, None, False, {})

    def ended(self, run: Begun, problem: BaseException | None) -> Result:
        """The result of a run that `begin` returned and that has ended, with or without an error."""
        return self._result(run, problem)

    def chat(self, system: str | None = None, **request: Unpack[RequestFields]) -> Conversation:
        """A conversation: `.say(text)` returns the model's answer, and the text so far stays in the KV cache
        (runtime/conversation.py). system: the system message; None leaves it to the template. request: fields of every request.
        """
        from decgraph.runtime.conversation import Conversation

        return Conversation(self, system, request)

    def forget(self, cache_key: Hashable) -> None:
        """Free the KV cache of a key; an unknown key is ignored."""
        with self._lock, alone(self.models.values()):
            self.machine.forget(self.models, (self._caches, cache_key))

    def forget_later(self, cache_key: Hashable) -> None:
        """Free the KV cache of a key when the session is next used. Takes no lock: a finalizer may call it, which Python runs
        in any thread, and in the middle of anything."""
        self._dropped.append(cache_key)

    def generate(
        self,
        prompts: Iterable[Request | Prompt],
        *,
        batch: int | None = None,
        budget: int | None = None,
        progress: bool = False,
        listener: Callable[[int, Event], None] | None = None,
        finished: Callable[[int, Result], None] | None = None,
        keep_events: bool = False,
        commits_only: bool = False,
        **request: Unpack[RequestFields],
    ) -> list[Result]:
        """Run many requests, at most `batch` at a time (default: the session's), and return their results in order.

        prompts: requests, or texts, token ids or messages of a chat; these become requests with the fields of `request`
        (max_tokens, temperature, ...) and their place as `request_id`. budget: the most bytes of each model's keys and values;
        requests beyond it wait. progress: shown on stderr, as a bar at a terminal and else as a line every ten seconds.
        A run starts when another one ends. Each commits the tokens that it would commit alone, since its noise is keyed by
        `request_id` and seed. `listener(number, event)` gets the events of all runs (commits_only: as in `stream`), and
        `finished(number, result)` each result when its run ends. A failed request has its error in its result; after Ctrl-C
        the unfinished results have the reason "interrupted".
        Raises DecError for a request that cannot start.
        """
        from decgraph.runtime.progress import shown

        requests = self._requests(prompts, request)
        with self._alone(), shown(self.function.name, quiet=not progress) as report:
            if budget is not None:
                self.machine.limit_memory(self.models, budget)
            results: dict[int, Result] = {}

            def done(number: int, run: Begun, error: BaseException | None) -> None:
                results[number] = self._result(run, error)
                if progress:
                    count = sum(len(result.tokens) for result in results.values())
                    report(f"{len(results)} of {len(requests)} requests, {count} tokens", len(results), len(requests))
                if finished is not None:
                    finished(number, results[number])

            def listener_of(number: int) -> Callable[[Event], None] | None:
                if listener is None:
                    return None
                return Commits(partial(listener, number)) if commits_only else partial(listener, number)

            def ended_before(reason: str, error: DecError) -> Result:
                return Result((), "", Stats(), reason, 0.0, error=error, placement=self.placement)

            runs: dict[int, Begun] = {}

            def waiting() -> Iterator[tuple[int, Backend]]:
                for number, one in enumerate(requests):
                    try:
                        runs[number] = self._start(one, listener_of(number), keep_events)
                    except DecError as problem:
                        results[number] = ended_before("error", fault(problem, request=title_of(one)))
                        if finished is not None:
                            finished(number, results[number])
                        continue
                    yield number, runs[number].machine

            try:
                self.machine.run_many(waiting(), max(1, batch or self.batch), lambda n, _, error: done(n, runs[n], error))
            except KeyboardInterrupt as stop:
                for number in range(len(requests)):
                    if number not in results and number in runs:
                        done(number, runs[number], stop)
                    elif number not in results:
                        results[number] = ended_before("interrupted", DecError("interrupted"))
            return [results[number] for number in range(len(requests))]

    def _requests(self, prompts: Iterable[Request | Prompt], shared: RequestFields) -> list[Request]:
        """The requests of prompts, numbered by their place. Raises DecError for one that cannot start."""
        if isinstance(prompts, str | bytes | Mapping | Request) or not isinstance(prompts, Iterable):
            raise DecError(f"{prompts!r} is not a list of prompts", hint="put a single prompt into a list: [prompt]")
        made: list[Request] = []
        for i, p in enumerate(prompts):
            fields: RequestFields = {"request_id": i, **shared}
            made.append(p if isinstance(p, Request) else request_for(self, p, **fields))
        for one in made:
            self._check(one)
        return made

    def _request(self, prompt: Request | Prompt, fields: RequestFields) -> Request:
        """The request of a prompt. Raises DecError for fields beside a `Request`, which has its own."""
        if not isinstance(prompt, Request):
            return request_for(self, prompt, **fields)
        if fields:
            raise DecError(f"{', '.join(fields)} beside a Request, which has fields of its own",
                           hint="give the prompt with these fields, or a Request that has them")  # fmt: skip
        return prompt

    @property
    def _main(self) -> Model | None:
        """The first model that the function takes."""
        return next((self.models[p.name] for p in self.function.params if p.name in self.models), None)

    def _check(self, request: Request) -> None:
        refuse_unread(self.function, request, self.unread)
        main = self._main
        if main is not None:
            request.check_vocab(main.vocab.size)
        asks = request.logprobs is not None or request.prompt_logprobs is not None
        if asks and (main is None or main.kind != "causal"):
            raise DecError(
                f"{self.function.name} has no log-probabilities of committed tokens: its first model is not causal",
                hint="leave logprobs out; a canvas's confidences are in the events `Unmasked`",
            )

    def _start(
        self,
        request: Request,
        listener: Callable[[Event], None] | None,
        keep_events: bool,
        shared: dict[tuple[str, str], object] | None = None,
    ) -> Begun:
        """A run that is about to begin. shared: states `per session` to use instead of the session's own."""
        self._check(request)
        refuse_autocast(self.placement)
        events: list[Event] = []

        def hear(event: Event) -> None:
            events.append(event)
            if listener is not None:
                listener(event)

        try:
            detokenizer = self.tokenizer.detokenizer if self.tokenizer is not None else None
            machine = self.machine(
                self.module,
                self.function.name,
                self.models,
                {**self.params, **self._texts},
                request,
                listener=hear if keep_events or not self.machine.counts else listener,
                shared=self.shared if shared is None else shared,
                externs=self.externs,
                detokenizer=detokenizer,
            )
        except DecError:
            raise
        except Exception as error:  # a tokenizer, or a model that does not say what it is
            raise fault(error, request=title_of(request)) from error
        if isinstance(listener, Timing):
            listener.start(machine, self.function.loc.path)
            machine.record(listener)
        return Begun(machine, request, events, time.perf_counter())

    def _result(self, run: Begun, problem: BaseException | None) -> Result:
        """The result of a run that has ended. problem: the exception that cut it short."""
        if isinstance(problem, KeyboardInterrupt):
            error: DecError | None = DecError("interrupted")
            reason = "interrupted"
        elif problem is not None:
            error, reason = fault(problem, request=title_of(run.request)), "error"
        else:
            error, reason = None, run.machine.reason
            if reason == "context" and (why := bounded_by(self.models.values())):  # transformers would continue
                error, reason = fault(DecError(why, hint="a shorter limit"), request=title_of(run.request)), "error"
        tokens, text = run.machine.committed_tokens(), ""
        if error is None:
            try:
                run.machine.read_logprobs()
            except Exception as wrong:  # a model's own
                error, reason = fault(wrong, request=title_of(run.request), op="the log-probabilities"), "error"
        try:
            text = self.tokenizer.decode(tokens) if self.tokenizer is not None else ""
        except Exception as wrong:  # a result has its tokens even without a text
            if error is None:
                error, reason = fault(wrong, request=title_of(run.request), op="the text of its tokens"), "error"
        seconds = time.perf_counter() - run.started
        stats = run.machine.stats()
        stats = Stats.of(run.events) if stats is None else stats
        forwards = {} if run.machine.name == "reference" else forwards_of(self.models)
        results, logprobs = run.machine.results, run.machine.logprobs
        pieces = pieces_of(tokens, getattr(self.tokenizer, "detokenizer", None)) if text else ()
        second, before = run.machine.second_call or (None, 0)
        first = second - run.started if second is not None else seconds if stats.target_calls <= 1 else None
        decoded = len(tokens) - before if second is not None or first is None else 0
        return Result(
            tokens, text, stats, reason, seconds, run.events, results, error, logprobs, forwards, self.placement,
            load_seconds=self.load_seconds, first_call_seconds=first, decoding_tokens=decoded, pieces=pieces,
            mode=run.machine.mode, prompt_logprobs=run.machine.prompt_logprobs,
        )  # fmt: skip

    def stream(
        self,
        prompt: Request | Prompt,
        *,
        cache_key: Hashable | None = None,
        commits_only: bool = False,
        **request: Unpack[RequestFields],
    ) -> Iterator[Event | Result]:
        """Run one request, given as for `run`, in a thread. Yields its events as they happen, then its Result as the last item.

        Events are those of runtime/trace.py: drafted, accepted, rejected (and why), emitted, unmasked, committed. A
        consumer that stops early ends the run at its next event. cache_key: as in `run`. commits_only: yields only `Committed`
        and `Stopped`, so that backend triton may decode in graph mode; the result has no events.
        """

        made = self._request(prompt, request)

        def work(hear: Callable[[Event | Result], None]) -> None:
            listener = Commits(hear) if commits_only else hear
            hear(self.run(made, listener=listener, keep_events=not commits_only, cache_key=cache_key))

        for item in self._streamed(work):
            yield item
            if isinstance(item, Result):
                return

    def stream_many(
        self,
        prompts: Iterable[Request | Prompt],
        *,
        batch: int | None = None,
        commits_only: bool = False,
        **request: Unpack[RequestFields],
    ) -> Iterator[tuple[int, Event | Result]]:
        """Run many requests together, as `generate` does, and yield (number, event) as events happen; the last item of each
        request is its Result. commits_only: as in `stream`. Raises DecError for a request that cannot start.

        A consumer that stops early ends all runs at the next event of any of them.
        """
        requests = self._requests(prompts, request)

        def work(hear: Callable[[tuple[int, Event | Result]], None]) -> None:
            self.generate(
                requests,
                batch=batch,
                listener=lambda number, event: hear((number, event)),
                commits_only=commits_only,
                finished=lambda number, result: hear((number, result)),
            )

        left = len(requests)
        for item in self._streamed(work) if requests else ():
            yield item
            left -= isinstance(item[1], Result)
            if not left:
                return

    def _streamed(self, work: Callable[[Callable[[Item], None]], None]) -> Iterator[Item]:
        """The items that `work` passes to its listener in another thread, as they come. Raises what `work` raises."""
        items: queue.SimpleQueue[Item | BaseException] = queue.SimpleQueue()
        stopped = threading.Event()

        def hear(item: Item) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            items.put(item)

        def run() -> None:
            try:
                work(hear)
            except BaseException as problem:  # raised again in the consumer's thread
                items.put(problem)

        thread = threading.Thread(target=run, name=f"decgraph {self.function.name}", daemon=True)
        thread.start()
        try:
            while True:
                item = items.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stopped.set()
            thread.join()
