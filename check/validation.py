"""Translation validation: a module before and after a pass, run on the same small worlds, must commit the same tokens.

Every world is run by the reference interpreter: a table model or a free model for each parameter, small parameters, two
requests in one session (states per session are carried from one to the other). Compared are the committed tokens, n-best
results, why the run ended, and everything that was computed on the way: the rows of distributions and the memories of the run
after the pass must all have been computed by the run before it, bit for bit. On free models a row is a hash of exactly what it
was computed from, so a wrong reuse of keys, values or features shows even where the tokens happen to be the same.

A batch is run as the attribute `joint` of model calls says. Each of its requests runs in a thread of its own of which one moves
at a time. A call with a group waits; now and then the calls that wait in one group are answered together, by the model of the
first of them. In what order threads move and groups are answered is drawn from a seed, so two seeds are two timings of the same
batch. Groups of one step ("target@step") make all requests wait for each other before every step, and what they wrote to shared
states is applied there, in request order.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypedDict, cast

import numpy as np

from decgraph.backends.reference.calls import model_of
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.backends.reference.places import read_path
from decgraph.backends.reference.protocols import RowSource
from decgraph.backends.reference.together import A, B
from decgraph.backends.reference.values import ReferenceMemory
from decgraph.backends.run import Stop
from decgraph.check.worlds import models_for, params_for, request_for
from decgraph.errors import DecError, InternalError
from decgraph.ir import machine as ir_machine
from decgraph.ir.data.dist import Dist, Row
from decgraph.ir.machine import Datum
from decgraph.ir.text import difference, print_module
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module, Op
from decgraph.passes.batching import STEP, distribution_only, meets
from decgraph.runtime.arguments import Externs, ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.parameters import shown
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params
from decgraph.runtime.text import Detokenizer, detokenizer_of

WORLDS = 12
TOKENS = 10
REQUESTS = 2
MOST_MOVES = 100_000
FOLD = "@fold "
"""What a request waits for at a fold over the batch, with the place."""
Ended = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], str | None]
"""What came of a request: its tokens, its results and why it ended."""
Shared = dict[tuple[str, str], object]
"""The states of a session, by function and name."""


@dataclass
class SessionRecord:
    """What a session did: tokens, results and the end of each request, and what was computed."""

    runs: list[Ended] = field(default_factory=list)
    rows: dict[tuple[object, ...], str] = field(default_factory=dict)

    def note(self, m: Watched, end: str | None) -> None:
        """One more request is over."""
        self.runs.append((m.committed_tokens(), tuple(map(tuple, m.results)), end))


class Watched(ReferenceMachine):
    """The reference, writing down every row and memory that a model returns."""

    seen: SessionRecord

    def model_row(self, source: RowSource) -> Row:
        row, model = super().model_row(source), source.model
        if model is not None:  # `warp` has rows of no model
            tokens = read_path(source.path)
            got = source.scores()
            key = (model.name, tokens, row.position, got.logits.tobytes() if got.logits is not None else got.weights)
            self.seen.rows.setdefault(key, f"{model.name} after {list(tokens)}, for position {row.position}")
        return row

    def memory(self, op: Op, model: ir_machine.Model, place: Datum, extra: dict[str, Datum]) -> ReferenceMemory:
        found, called = super().memory(op, model, place, extra), model_of(model)
        self.seen.rows.setdefault(
            ("memory", called.name, found.memory), f"the memory of {called.name} up to position {found.memory.length}"
        )
        return found


def end_of(machine: Watched) -> str:
    """Run a machine; why it ended."""
    try:
        machine.run()
    except Stop:
        return "stopped"
    except DecError as error:
        return f"error: {error}".split(": ")[-1]
    return machine.reason


@dataclass
class Member:
    """One request of the batch: its thread, and what it waits for ("" to go on, "@step", or a group): the model that
    answers its call, or what a fold makes of its value and the others'."""

    machine: Batched
    thread: threading.Thread
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: str = ""
    model: ir_machine.Model | None = None
    value: Any = None  # Any: as in backends/reference/together.py
    of_all: Callable[..., Sequence[object]] = list
    over: bool = False


class RequestBatch:
    """A session's requests, side by side."""

    def __init__(self, module: Module, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: list[Member] = []
        self.back = threading.Semaphore(0)
        self.shared: Shared = {}
        self.steps = any(str(op.attrs.get("joint", "")).endswith(STEP) for op in module.entry.body.walk())

    def add(self, machine: Batched, work: Callable[[], None]) -> None:
        """One more request; `work` runs it."""
        row: Member

        def body() -> None:
            row.go.acquire()
            try:
                work()
            finally:
                row.over = True
                self.back.release()

        row = Member(machine, threading.Thread(target=body, daemon=True))
        machine.batch, machine.row = self, row
        self.rows.append(row)

    def wait(self, row: Member, what: str) -> None:
        """Called by a request's thread: the others move until what it waits for is there."""
        row.waits = what
        self.back.release()
        row.go.acquire()

    def run(self) -> None:
        """Move the requests until all are over. Raises DecError after `MOST_MOVES` moves."""
        for row in self.rows:
            row.thread.start()
        for _ in range(MOST_MOVES):
            live = [r for r in self.rows if not r.over]
            if not live:
                return
            ready = [r for r in live if not r.waits]
            groups = sorted({r.waits for r in live if not r.waits.startswith(FOLD)} - {"", STEP})
            folds = sorted({r.waits for r in live if r.waits.startswith(FOLD)})
            if ready and (not groups or self.random.random() < 0.7):
                self.move(self.random.choice(ready))
            elif groups:
                group = self.random.choice(groups)
                self.answer([r for r in live if r.waits == group])
            elif folds:  # of all sequences that come here: none waits for a model
                self.fold([r for r in live if r.waits == folds[0]])
            else:
                self.step(live)
        raise DecError("the batch does not come to an end")

    def move(self, row: Member) -> None:
        row.go.release()
        self.back.acquire()

    def answer(self, rows: Sequence[Member]) -> None:
        """One forward for all requests that wait in a group, of the model that the first one calls."""
        for row in rows:
            row.waits, row.model = "", rows[0].model

    def fold(self, rows: Sequence[Member]) -> None:
        """What all requests that wait at a place make of one another's values."""
        for row, found in zip(rows, rows[0].of_all([row.value for row in rows]), strict=True):
            row.waits, row.value = "", found

    def step(self, live: Sequence[Member]) -> None:
        """All wait before a step: what was written is there for everybody."""
        for row in self.rows:
            self.shared.update(row.machine.written)
            row.machine.written.clear()
        for row in live:
            row.waits = ""


class Batched(Watched):
    """A request of a batch."""

    batch: RequestBatch
    row: Member
    inside = False

    def start_run(self) -> None:
        super().start_run()
        self.written: Shared = {}
        if self.parent is not None:  # a sub-run belongs to the request that runs it
            outer = self.parent
            self.batch, self.row, self.written = outer.batch, outer.row, outer.written

    def joint(self, op: Op, model: ir_machine.Model) -> ir_machine.Model:
        """The model that is called: that of the group, once all of the group wait."""
        group = op.attrs.get("joint")
        if group is None or self.inside or self.parent is not None:
            return model
        self.row.model = model
        self.batch.wait(self.row, str(group))
        return self.row.model

    def evaluate(self, op: Op, model: ir_machine.Model, place: Datum, extra: dict[str, Datum]) -> Dist:
        return super().evaluate(op, self.joint(op, model), place, extra)

    def evaluate_parts(self, op: Op, model: ir_machine.Model, parts: Sequence[tuple[Datum, dict[str, Datum]]]) -> list[Dist]:
        model = self.joint(op, model)
        self.inside = True
        try:
            return super().evaluate_parts(op, model, parts)
        finally:
            self.inside = False

    def memory(self, op: Op, model: ir_machine.Model, place: Datum, extra: dict[str, Datum]) -> ReferenceMemory:
        return super().memory(op, self.joint(op, model), place, extra)

    def meet(self, op: Op, mine: A, of_all: Callable[[list[A]], list[B]]) -> B:
        self.row.value, self.row.of_all = mine, of_all
        self.batch.wait(self.row, f"{FOLD}{op.loc.line}:{op.loc.column}")
        answer: B = self.row.value
        return answer

    def while_iteration(self, op: Op, i: int, values: tuple[Datum, ...] = ()) -> None:
        super().while_iteration(op, i, values)
        if self.parent is None and self.batch.steps and op.attrs.get("bound") == "done":
            self.batch.wait(self.row, STEP)

    def read_state(self, name: str) -> Datum:
        store, key = self._state(name)
        value = self.written[key] if store is self.shared and key in self.written else store[key]
        return cast(Datum, value)  # what backends of all kinds keep for a session is an object to it

    def write_state(self, name: str, value: Datum) -> None:
        store, key = self._state(name)
        if store is self.shared and self.batch.steps:
            self.written[key] = value
        else:
            store[key] = value


def side_by_side(
    module: Module,
    models: Mapping[str, Model],
    params: Mapping[str, ParamValue],
    requests: Sequence[Request],
    seed: int,
    externs: Externs | None = None,
    detokenizer: Detokenizer | None = None,
) -> tuple[SessionRecord, str]:
    """What the requests of one session did side by side, and the shared states after them."""
    seen = SessionRecord()
    batch = RequestBatch(module, seed)
    ends: list[str | None] = [None] * len(requests)
    engine = type("Batching", (Batched,), {"seen": seen})
    for n, request in enumerate(requests):
        machine = engine(
            module, module.main, models, params, request, shared=batch.shared, externs=externs, detokenizer=detokenizer
        )

        def work(n: int = n, machine: Batched = machine) -> None:
            try:
                ends[n] = end_of(machine)
            except Exception as error:  # a wrong pass may break anything: that is a difference, not a crash
                ends[n] = f"{type(error).__name__}: {error}"

        batch.add(machine, work)
    batch.run()
    batch.step([])
    for row, end in zip(batch.rows, ends, strict=True):
        seen.note(row.machine, end)
    return seen, repr(sorted(batch.shared.items(), key=lambda item: str(item[0])))


@dataclass(frozen=True)
class ComparedWorld:
    """Models, parameters and requests of one comparison, all generated from `seed`."""

    seed: int
    free: bool
    models: Mapping[str, Model]
    params: Mapping[str, ParamValue]
    requests: tuple[Request, ...]

    def __str__(self) -> str:
        params = ", ".join(f"{k} = {shown(v)}" for k, v in self.params.items()) or "none"
        return f"world {self.seed} of {'free' if self.free else 'table'} models; parameters: {params}"


def worlds(function: Function, count: int = WORLDS, params: Mapping[str, ParamValue] | None = None) -> Iterator[ComparedWorld]:
    """`count` worlds, tables and free models alternating. Raises DecError for a function without small worlds."""
    for seed in range(count):
        free = seed % 2 == 1
        size = 3 + seed % 3
        span = 4 + seed % 3 if "masked" in str(next((p.value.type for p in function.params), "")) else 0
        given = params_for(function, seed, deeper(function, seed) | dict(params or {}), span)
        requests = tuple(
            replace(request_for(size, seed + 2 * n, span or TOKENS, greedy=seed % 4 == 2), seed=seed + 10 * n, request_id=n)
            for n in range(REQUESTS)
        )
        yield ComparedWorld(seed, free, models_for(function, size, seed, free=free), check_params(function, given), requests)


def deeper(function: Function, seed: int) -> dict[str, ParamValue]:
    """In half of the worlds trees three levels deep: what hangs below two different parents shows there only."""
    return {
        p.name: 3
        for p in function.params
        if p.name == "depth" and seed % 4 in (1, 2) and p.value.type.elem == "int" and (p.low or 0) <= 3 <= (p.high or 3)
    }


def answer(name: str, returns: Type) -> Callable[..., bool | int | float | np.ndarray]:
    """A function to stand for an extern: an arbitrary result (of several tokens an array [k]) that depends on the
    arguments alone, of fractional numbers on what is the same on every machine."""

    several = returns.is_token and bool(returns.dims)

    def spelled(a: object) -> str:
        return f"{float(a):.6g}" if isinstance(a, float | np.floating | Fraction) else str(a)

    def judge(*args: object) -> bool | int | float | np.ndarray:
        word = hashlib.blake2b(repr((name, [spelled(a) for a in args])).encode(), digest_size=2).digest()
        if several:  # some of the tokens that every vocabulary has
            return np.array([v for v in range(3) if word[0] >> v & 1], dtype=np.int64)
        return bool(word[0] & 1) if str(returns) == "bool" else word[0] / 256 if str(returns) in ("real", "prob") else word[0]

    return judge


class Outside(TypedDict):
    """What a machine is handed besides models and parameters."""

    externs: dict[str, Callable[..., bool | int | float | np.ndarray]]
    detokenizer: Detokenizer


def outside(module: Module) -> Outside:
    """What a machine is handed besides models and parameters: functions for externs, and a text for every token."""
    return {
        "externs": {name: answer(name, returns) for name, (_, returns) in module.externs.items()},
        "detokenizer": detokenizer_of([f"t{i}" for i in range(8)]),
    }


def observe(module: Module, world: ComparedWorld, machine: type[Watched] = Watched, *, apart: bool = False) -> SessionRecord:
    """Run a world's requests one after the other in one session, or each in its own (`apart`)."""
    seen = SessionRecord()
    shared: Shared = {}
    engine = type("Watching", (machine,), {"seen": seen})
    for request in world.requests:
        m = engine(module, module.main, world.models, world.params, request, shared={} if apart else shared, **outside(module))
        seen.note(m, end_of(m))
    return seen


def differences(before: Module, after: Module, world: ComparedWorld, machine: type[Watched] = Watched) -> str:
    """What differs in one world, in a line; "" if nothing does."""
    return compared(observe(before, world), observe(after, world, machine))


def compared(old: SessionRecord, new: SessionRecord) -> str:
    """What differs in what two sessions did, in a line; "" if nothing does."""
    for n, (a, b) in enumerate(zip(old.runs, new.runs, strict=True)):
        for what, x, y in zip(("tokens", "results", "end"), a, b, strict=True):
            if x != y:
                return f"request {n}: {what} {x} before, {y} after"
    for key, words in new.rows.items():
        if key not in old.rows:
            return f"computed from something else: {words}"
    return ""


TIMINGS = (1, 2, 3)


def batch_differences(before: Module, after: Module, world: ComparedWorld) -> str:
    """What a batch of a world's requests does otherwise than the requests alone, or in another timing; "" if nothing."""
    if not any("joint" in op.attrs for op in after.entry.body.walk()):
        return ""
    alone = observe(before, world, apart=True)
    first: tuple[SessionRecord, str] | None = None
    for seed in TIMINGS:
        seen, states = side_by_side(after, world.models, world.params, world.requests, seed, **outside(after))
        first = first or (seen, states)
        if seen.runs != first[0].runs or states != first[1] or set(seen.rows) != set(first[0].rows):
            return "a batch: what it does depends on which of its requests comes first to a call"
        for n, (a, b) in enumerate(zip(alone.runs, seen.runs, strict=True)):
            if a != b and not distribution_only(after.entry):
                return f"request {n}: {a} alone, {b} in a batch"
        for key, words in seen.rows.items():
            if key not in alone.rows and not meets(after.entry):
                return f"a batch computed from something else: {words}"
    return ""


class NotTheSame(InternalError):
    """A pass that changed what a program does. The text is a reproducer: the world, the request, both modules."""


class Validation:
    """Raises NotTheSame, with a reproducer, where a pass changes what a program does in one of `count` worlds. It is called for
    every pass in order; the results of the pass before are not computed again."""

    def __init__(self, params: Mapping[str, ParamValue] | None = None, count: int | None = None) -> None:
        self.params, self.count = dict(params or {}), WORLDS if count is None else count
        self.known: tuple[Module, dict[int, SessionRecord]] | None = None

    def __call__(self, before: Module, after: Module, name: str) -> None:
        old = self.known[1] if self.known is not None and self.known[0] is before else {}
        new: dict[int, SessionRecord] = {}
        for world in worlds(before.entry, self.count, self.params):
            first = old.get(world.seed) or observe(before, world)
            new[world.seed] = observe(after, world)
            found = compared(first, new[world.seed]) or batch_differences(before, after, world)
            if found:
                raise NotTheSame(reproducer(before, after, world, name, found))
        self.known = (after, new)


def reproducer(before: Module, after: Module, world: ComparedWorld, name: str, finding: str) -> str:
    """Everything that is needed to see a difference again."""
    requests = "\n".join(f"  request {n}: {r}" for n, r in enumerate(world.requests))
    return (
        f"pass {name} changed what {before.main} does\n  {finding}\n  {world}\n{requests}\n"
        f"  again: check.validation.differences(before, after, list(worlds(before.entry, {world.seed + 1}))[-1])\n\n"
        f"difference of the two modules\n{difference(before, after)}\n\nbefore\n{print_module(before)}\n"
        f"after\n{print_module(after)}"
    )
