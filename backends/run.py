"""The part of a run that does not depend on how a backend represents trees, draws and distributions: the request, the models,
how many tokens are committed, the states, the caller's functions, and guards against loops that never end.

Nothing here computes a distribution, draws, verifies a tree or decides what is committed: each backend does that by itself,
so that the conformance tests compare two implementations (docs/decisions/0007-shared-run.md).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, cast

import numpy as np

from decgraph.errors import ContextFullError, DecError
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.data.topology import Topology
from decgraph.ir.opdef import OpError
from decgraph.ir.types import Type
from decgraph.ir.values import Loc, Module, Op, Param
from decgraph.runtime import noise
from decgraph.runtime.answers import answer, check_tokens
from decgraph.runtime.backend import Backend
from decgraph.runtime.faults import is_outside, noted_outside, title_of
from decgraph.runtime.models.interface import Model, Scores, bounded_by, shortest_context
from decgraph.runtime.request import Request
from decgraph.runtime.result import ROWS, Logprobs, logprobs_of
from decgraph.runtime.shaping import shaped_probs
from decgraph.runtime.stop import StopMachine, StopState
from decgraph.runtime.text import Detokenizer
from decgraph.runtime.trace import DraftEnded, Emitted, Event, ModelCall, Noted, Stopped, Timing
from decgraph.runtime.words import TEXT, spelling_for, token_of

Seen = Mapping[str, tuple[tuple[int, int], int]]
"""By a loop's place its progress, and the iteration that made it."""
MOST_IDLE = 100
"""Consecutive iterations that may decide nothing: a schedule may skip some, a draw may miss a threshold."""


def idle(seen: Seen, where: str, iteration: int, now: tuple[int, int]) -> Seen:
    """Each loop's state before an iteration of the loop at `where`.

    Raises DecError after too many iterations without progress.
    """
    before = seen.get(where)
    if not iteration or before is None or before[0] != now:
        return {**seen, where: (now, iteration)}
    if iteration - before[1] >= MOST_IDLE:
        raise DecError(
            f"{where}: {MOST_IDLE} consecutive iterations of this loop decided no cell",
            hint="let the surest be chosen too: where sure(s, tau); or bound it: while condition at most n:",
        )
    return dict(seen)


WHERE = re.compile(r"^(\S+:\d+):\d+: (?:\w+(?:\.\w+)? cannot go on: )?")
"""The place that an error names, and its op: backends differ in the column and in how they divide a line into ops."""
P = ParamSpec("P")
T = TypeVar("T")

CALLS = frozenset(
    {
        *("model.eval", "model.evals", "model.memory", "model.read", "model.states", "model.attention"),
        *("head.read", "head.score"),
        *("run", "batch.fold", "batch.top"),
    }
)
"""Ops whose errors are a model's, another algorithm's or another sequence's, and end the run wherever they stand."""


class Drafting:
    """A block `draft t:` that is under way. `tree` is the tree as it is. An error that leaves the block ends the draft alone,
    which goes on with what was grown before, unless the request is strict or the error is not the program's own
    (docs/decisions/0010-errors-in-drafts.md)."""

    def __init__(self, run: Run, name: str, tree: Any) -> None:
        self.run, self.name, self.tree = run, name, tree

    def __enter__(self) -> Drafting:
        self.run.open_drafts.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.run.open_drafts.remove(self)
        if not isinstance(error, Exception) or is_outside(error) or self.run.request.strict:
            return False
        told = str(self.run.failure(error).diagnostics[0]).removeprefix("error: ").replace(f"{self.run.title}: ", "")
        self.run.end_draft(DraftEnded(self.name, WHERE.sub(r"\1: ", told)))
        return True


def calls(f: Callable[P, T]) -> Callable[P, T]:
    """The function, with what it raises noted as a model's."""

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return f(*args, **kwargs)
        except Exception as error:
            noted_outside(error)
            raise

    return call


REQUESTS = ("", "requests")
"""Among a session's states: how many requests it has begun."""


def no_token() -> OpError:
    """The error of a commit of a draw that found no mass."""
    return OpError("a draw has no token: fewer tokens have mass than were drawn", "look before: if x.prob > 0")


class Stop(Exception):
    """Ends a sub-run whose condition holds."""


def loops_of(ops: Iterable[Op]) -> dict[Op, bool]:
    """The loops among operations that call models, and whether each is in no other one of them."""
    inner = {op: [o for region in op.regions for o in region.walk()] for op in ops if op.opcode in ("for", "while")}
    calling = {op for op, within in inner.items() if any(o.opcode in CALLS for o in within)}
    nested = {o for op in calling for o in inner[op]}
    return {op: op not in nested for op in calling}


class Run(Backend):
    """A run of one request: the part that the reference and the torch backend share."""

    num: Any = FLOAT  # Any: float64, or the exact checker's fractions (backends/exact/numbers.py)
    most_iterations: ClassVar[int] = 100_000

    def __init__(
        self,
        module: Module,
        function: str,
        models: Mapping[str, Model],
        params: Mapping[str, Any],
        request: Request,
        *,
        listener: Callable[[Event], None] | None = None,
        shared: dict[tuple[str, str], object] | None = None,
        externs: Mapping[str, Callable[..., Any]] | None = None,
        detokenizer: Detokenizer | None = None,
        parent: Self | None = None,
    ) -> None:
        self.module, self.function = module, module.functions[function]
        self.models, self.params, self.request = dict(models), dict(params), request
        self.listener, self.externs = listener, dict(externs or {})
        self.shared: dict[tuple[str, str], object] = shared if shared is not None else {}
        self.detokenizer, self.parent = detokenizer, parent
        self.noise_id: int = self._number() if parent is None else parent.noise_id
        """The id that keys the noise of this request, but for the stream `output`: `noise.apart`."""
        self.title = title_of(request)
        self.memo: dict[object, Any] = {}
        self.site_prefix = ""
        self.counter_prefix: tuple[int, ...] = ()
        self.results = []
        self.until: Callable[[Any], bool] | None = None
        """The condition that ends a sub-run."""
        self.main = self.main_model()
        self.vocab_size = self.main.vocab.size if self.main is not None else 0
        self.mask_token = next((m.mask for m in self.models.values() if m.mask is not None), -1)
        self.last_progress = (-1, -1)
        self.decided = 0
        """Canvas cells decided so far."""
        self.idle: Mapping[str, Any] = {}
        self.learning = [s for s in self.function.states if s.type.elem == "index" and s.type.of[0] in ("suffixes", "ngrams")]
        """The states that are indexes of the text, which committed tokens are appended to."""
        self.open_drafts: list[Drafting] = []
        """The drafts that are under way, the innermost last."""
        self.start_run()

    def _number(self) -> int:
        """Counts the request in its session, where the program has states that outlive it."""
        if all(s.scope == "sequence" for f in self.module.functions.values() for s in f.states):
            return self.request.request_id
        number = cast("int", self.shared.get(REQUESTS, 0))
        self.shared[REQUESTS] = number + 1
        return noise.apart(self.request.request_id, number)

    def join(self, shared: dict[tuple[str, str], object]) -> None:
        """Become the next request of the session that has these states."""
        self.shared = shared
        self.noise_id = self._number()

    def start_run(self) -> None:
        """Begin at the prompt. Raises DecError where it is longer than the context."""
        self.tokens: list[int] = list(self.request.prompt)
        self.base = len(self.tokens)
        self._stop: StopState = StopMachine.start(self.request, self.detokenizer)
        self.sequence_states: dict[Any, Any] = {}
        """The states of this sequence, by name."""
        self.window = min((m.context for m in self.models.values() if m.context is not None), default=None)
        if self.window is not None and self.base > self.window:
            raise DecError(
                f"the prompt has {self.base} tokens, {shortest_context(self.models)} is {self.window}",
                hint=bounded_by(self.models.values()) or "shorten the prompt",
            )

    @property
    def stop_state(self) -> StopState:
        """The state of the stop machine."""
        return self._stop

    @stop_state.setter
    def stop_state(self, state: StopState) -> None:
        self._stop = state

    # -- recordings
    recorder: Timing | None = None
    """What hears more of the run than its events; None: nobody records it."""

    def record(self, recorder: Timing) -> None:
        self.recorder = recorder

    def places(self) -> Iterable[Loc]:
        """Where the program is, the innermost operation first."""
        return ()

    def tell_emitted(self, token: int, depth: int, tested: bool, p: float | None = None, raw: float | None = None) -> None:
        """Tell which token the verification that runs has emitted after `depth` drafts. tested: there were others, which it did
        not take. p, raw: its probability, and that before the request's shaping."""
        if self.recorder is not None:
            self.recorder.emits(p, raw)
        from decgraph.ir.emissions import emits_own

        at = next(iter(self.places()), None)
        walks = (op for op in self.function.body.walk() if op.opcode == "tree.walk" and op.loc == at)
        own = tested and any(map(emits_own, walks))
        self.emit_event(Emitted(token, "own" if own else "residual" if tested else "bonus" if depth else "plain"))

    # -- models and parameters
    def main_model(self) -> Model | None:
        """The model that claims are about: the first one that the function takes."""
        for p in self.function.params:
            if p.value.type.elem == "model" and p.name in self.models:
                return self.models[p.name]
        return None

    @property
    def whole(self) -> Self:
        """The whole run, of which this may be a sub-run."""
        return self if self.parent is None else self.parent.whole

    def parameter(self, p: Param) -> Any:
        """The value of a parameter that is no model. Raises DecError where the caller gave none."""
        if p.name not in self.params:
            raise DecError(f"{self.function.name} needs a value for `{p.name}`")
        v = self.params[p.name]
        if isinstance(v, str) and p.value.type.elem == "token":  # the default of a program that another one runs
            return self.token_of(v)
        if p.value.type.elem == "topology" and not isinstance(v, Topology):
            return Topology.of(v)
        check_tokens(self.function, {p.name: v}, self.models)
        return self.num.const(v)

    def arguments(self) -> list[Any]:
        """A value for every parameter of the function, in order."""
        return [self.models[p.name] if p.value.type.elem == "model" else self.parameter(p) for p in self.function.params]

    # -- what is committed
    def committed(self) -> int:
        """How many tokens are committed, without the prompt."""
        return len(self.tokens) - self.base

    def committed_tokens(self) -> tuple[int, ...]:
        return tuple(self.tokens[self.base :])

    def done(self) -> bool:
        """Whether the stop machine has fired, or the text has reached past the last position of the context."""
        return bool(self.stop_state.done) or (self.window is not None and len(self.tokens) > self.window)

    def context_full(self) -> bool:
        """Whether the text holds a token at every position of the context. One more can be committed, which no model reads."""
        return self.window is not None and len(self.tokens) >= self.window

    def request_field(self, field: str) -> Any:
        """A field of the request, or what follows from it. Raises OpError for an end token where there is none."""
        r = self.request
        if field == "prompt":
            return np.array(r.prompt, dtype=np.int64)
        if field == "limit":
            return r.max_tokens
        if field == "room":
            return r.max_tokens - self.committed()
        if field == "greedy":
            return r.greedy
        if field == "mask":
            return self.mask_token
        if field == "eos" and not r.eos:
            raise OpError("the request has no end token", "ask before: if eos >= 0; x == eos is never true without one")
        return min(r.eos, default=-1 if field == "eos_or_none" else 0)

    def bounds(self, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        """The longest text that a tree drafts, with the prompt, and the tokens below which it drafts nothing (attribute until
        of tree.new)."""
        place = "place" in until or ("greedy place" in until and self.request.greedy)
        return (
            self.base + self.request.max_tokens - place if "limit" in until else None,
            frozenset(self.request.eos) if "ends" in until else frozenset(),
        )

    def canvas_room(self) -> int:
        """How many cells a canvas may have."""
        left = self.request.max_tokens - self.committed()
        return max(0, left if self.window is None else min(left, self.window - len(self.tokens)))

    def finish(self) -> None:
        """Set why the run has ended."""
        state = self.stop_state
        self.reason = str(state.reason if state.done else "context" if self.context_full() else "end")
        self.emit_event(Stopped(self.reason))

    def ended_by(self, error: DecError) -> bool:
        """Whether an error is the end of the text: a model of the program has no position left for what it was asked, and
        there are tokens to keep. Without any, the request does not fit its models, and that is an error."""
        if not isinstance(error, ContextFullError) or self.parent is not None or not self.committed():
            return False
        self.stop_state = replace(self.stop_state, done=True, reason="context")
        self.finish()
        return True

    @abstractmethod
    def failure(self, error: Any, /) -> DecError:
        """An exception as an error of this request, at the line of the program that raised it."""

    # -- drafts
    def drafting(self, name: str, tree: Any) -> Drafting:
        """For the time in which a block drafts the tree of a name: an error of the program's own ends the block."""
        return Drafting(self, name, tree)

    def now(self, tree: Any) -> None:
        """The tree that is being drafted was grown, cut or marked: an error leaves it like this."""
        if self.open_drafts:
            self.open_drafts[-1].tree = tree
        if self.recorder is not None and tree is not None:  # a program may carry a tree that it has not drafted yet
            self.recorder.marks(self.columns_of(tree))

    def columns_of(self, tree: Any) -> Mapping[str, Sequence[Any]]:
        """What a tree's nodes hold, for a recorder: columns by name, their log-probability among them, a value a node."""
        return {}

    def end_draft(self, event: DraftEnded) -> None:
        """Called where an error has ended a draft."""
        self.emit_event(event)

    # -- log-probabilities
    logprobs: Logprobs | None = None
    """Of the committed tokens, where the request asks for them; set at the end of the run."""
    prompt_logprobs: Logprobs | None = None
    """Likewise of the prompt's tokens after the first."""

    def read_logprobs(self) -> None:
        """Set `logprobs` and `prompt_logprobs`, where the request asks for them and they are not set. Raises what the model
        raises."""
        if self.request.prompt_logprobs is not None and self.prompt_logprobs is None:
            read = self.own_logits(1, self.base)
            self.prompt_logprobs = logprobs_of(read, self.tokens[1 : self.base], self.request.prompt_logprobs)
        if self.request.logprobs is not None and self.logprobs is None:
            rows = self.own_logits(self.base, len(self.tokens))
            parts = self._shaped(rows) if self.request.shaped else rows
            self.logprobs = logprobs_of(parts, self.committed_tokens(), self.request.logprobs)

    def _shaped(self, parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Rows of `own_logits` as logarithms of what the request makes of them."""
        end = self.base
        for logits in parts:
            ends = range(end, end + len(logits))
            end = ends.stop
            rows = [
                shaped_probs(Scores(logits=row.astype(np.float64)), self.tokens[:n], self.request)
                for n, row in zip(ends, logits, strict=True)
            ]
            with np.errstate(divide="ignore"):  # a token without mass
                yield np.log(np.asarray(rows, dtype=np.float64))

    def own_logits(self, begin: int, end: int) -> Iterator[np.ndarray]:
        """The main model's own logits [n, V] before each of the tokens from `begin`, 1 or more, to `end`, at most `ROWS` rows
        at a time."""
        assert self.main is not None
        for first in range(begin, end, ROWS):
            ends = range(first, min(first + ROWS, end))
            rows = self.main.eval([tuple(self.tokens[:end]) for end in ends])
            yield np.array([row.to_float().logits for row in rows])

    # -- loops
    def check_progress(self, where: str, i: int) -> None:
        """Called before every iteration of `while not done`. Raises DecError where the last one committed and decided
        nothing."""
        if self.recorder is not None:
            self.recorder.begin_iteration(i)
        now = (len(self.tokens) - self.base, self.decided)
        if i and now == self.last_progress:
            if self.context_full():  # a block of cells, or a draft whose root is read, needs a position
                raise ContextFullError(f"{where}: the context is full ({self.window} positions)")
            raise DecError(
                f"{where}: an iteration of `while not done` committed nothing and decided nothing",
                hint="commit at least one token on every way through the loop",
            )
        self.last_progress = now

    def check_waiting(self, where: str, i: int) -> None:
        """Called before every iteration of a loop that waits for cells to be decided. Raises DecError where none are."""
        self.idle = idle(self.idle, where, i, (self.committed(), self.decided))
        self.check_bound(where, i)

    def check_bound(self, where: str, i: int) -> None:
        """Called before every iteration of other loops. Raises DecError after too many."""
        if i > self.most_iterations:
            raise DecError(
                f"{where}: this loop has run {i} iterations without ending", hint="bound it: while condition at most n:"
            )

    # -- states
    @abstractmethod
    def initial_states(self, values: Sequence[Any]) -> Mapping[str, Callable[[], Any]]:
        """A function for the initial value of every state, given the function's arguments."""

    def start_states(self, values: Sequence[Any]) -> None:
        """Set every state that has no value yet to its initial value."""
        starts = self.initial_states(values)
        for s in self.function.states:
            store, key = self._state(s.name)
            if key not in store:
                store[key] = starts[s.name]()

    def _state(self, name: str) -> tuple[dict[Any, Any], Any]:
        for s in self.function.states:
            if s.name == name:
                return (self.sequence_states, name) if s.scope == "sequence" else (self.shared, (self.function.name, name))
        raise KeyError(name)

    def read_state(self, name: str) -> Any:
        """The value of a state."""
        store, key = self._state(name)
        return store[key]

    def write_state(self, name: str, value: Any) -> None:
        """Set a state."""
        store, key = self._state(name)
        store[key] = value

    def learn_committed(self, tokens: Sequence[int]) -> None:
        """Append committed tokens to the indexes of the text: each request to a text of its own."""
        for s in self.learning if tokens else ():
            value, key = self.read_state(s.name), ("learning", self.function.name, s.name, self.request.request_id)
            number = self.sequence_states.get(key, 0 if s.scope == "sequence" else -1)
            grown = value.extend(tokens, number)
            self.sequence_states[key] = number if grown.learned == value.learned else grown.learned - 1
            self.write_state(s.name, grown)

    # -- sub-runs
    def inner_run(
        self, callee: str, site: str, base: tuple[int, ...], bound: int, args: Mapping[str, Any], counters: Sequence[Any]
    ) -> Self:
        """A run of another function on a scratch context that begins with the tokens `base`, for at most `bound` new ones. Its
        draws are keyed below `site` and `counters`."""
        f = self.module.functions[callee]
        models = {k: v for k, v in args.items() if f.param(k).value.type.elem == "model"}
        params = {p.name: p.default for p in f.params if p.has_default}
        params.update({k: v for k, v in args.items() if k not in models})
        listener = self.listener
        inner = type(self)(
            self.module,
            f.name,
            models,
            params,
            replace(self.request, prompt=base, max_tokens=max(1, bound), prompt_length=self.request.begins),
            listener=None if listener is None else lambda event: listener(event) if isinstance(event, ModelCall) else None,
            shared=self.shared,
            externs=self.externs,
            detokenizer=self.detokenizer,
            parent=self,
        )
        inner.site_prefix = f"{self.site_prefix}{site}:"
        inner.counter_prefix = self.counter_prefix + tuple(int(c) for c in counters)
        if self.recorder is not None:
            inner.record(self.recorder.inside())
        return inner

    # -- the caller's functions
    def extern(self, op: Op, args: Sequence[Any]) -> Any:
        """Call a function of the caller, once per distinct arguments; over a vector of what it takes, element by element.
        Raises DecError where there is none, for what it raises, and for what is not of the type that it declares."""
        name = op.attrs["extern"]
        f = self.externs.get(name)
        if f is None:
            raise DecError(f"the program needs the function `{name}`", hint=f"hand it over: externs={{{name!r}: f}}")
        each = (a for a, wanted in zip(args, op.attrs["params"], strict=True) if not wanted.dims)
        vector = next((a for a in each if isinstance(a, list | np.ndarray) and np.ndim(a)), None)
        if vector is None:
            return self.extern_once(name, f, tuple(args), op.attrs["returns"])
        calls = [tuple(a[i] if a is vector else a for a in args) for i in range(len(vector))]
        return np.array([self.extern_once(name, f, call, op.attrs["returns"]) for call in calls])

    def extern_once(self, name: str, f: Callable[..., Any], args: tuple[Any, ...], returns: Type) -> Any:
        """The result of a function of the caller, called once for equal arguments. Raises DecError for what it raises, and for
        a result of another type than is declared."""
        key = ("extern", name, tuple(str(a) for a in args))
        if key not in self.memo:
            try:
                found = f(*args)
            except Exception as error:  # the caller's function may raise anything, and its author should see it
                raise noted_outside(DecError(f"`{name}` raised {type(error).__name__}: {error}")) from error
            try:
                self.memo[key] = answer(f"`{name}`", returns, found, self.vocab_size)
            except DecError as error:
                raise noted_outside(error) from error
        return self.memo[key]

    # -- events
    def emit_event(self, event: Event) -> None:
        """Call the listener, where there is one."""
        if self.listener is not None:
            self.listener(event)

    def token_of(self, text: str) -> int:
        """The token that has a text: as the session has bound it, else as the main model spells it."""
        found = self.whole.params.get(TEXT + text)
        return int(found) if found is not None else token_of(text, spelling_for(None, self.whole.main))

    def note(self, name: str, value: Any, /, *, token: bool) -> None:
        """Tell a figure of the program, a number; those of a sub-run are not the run's."""
        if self.parent is None:
            self.tell_note(Noted(name, value if isinstance(value, int) else float(value), token))

    def tell_note(self, event: Noted) -> None:
        """Called with a figure of the program."""
        self.emit_event(event)

    def nothing(self, op: Op, what: str) -> Any:
        """A choice among no candidates. Raises OpError."""
        raise OpError(what, "make sure that there is at least one candidate")
