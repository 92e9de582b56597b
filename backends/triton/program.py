"""Programs of steps in flight: lanes that requests join and leave between two steps.

A program is one algorithm with its models, parameters and sizes, for B lanes. A request gets a free lane, its prompt is computed
in chunks while the other lanes go on, and then it takes part in every step until it ends. After each step the host is shown the
lanes: on a CUDA device by a copy into pinned memory that nothing waits for until the next step has been launched, so that the
host reads one step while the device computes another. What a lane computes past the end that the host finds is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton import shaping
from decgraph.backends.triton.models import step_model
from decgraph.backends.triton.models.interface import CHUNK, Part
from decgraph.backends.triton.state import Frame, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import InternalError
from decgraph.ir.drafting import drafting
from decgraph.ir.memo import memo_of
from decgraph.runtime.faults import fault
from decgraph.runtime.placement import placement_of
from decgraph.runtime.trace import Committed

_LOG = logging.getLogger("decgraph")
KEPT = 2
"""Programs without a request that are kept with a model, each with its lanes' keys and values."""
LEAST = 16
"""Tokens below which two texts that begin alike are not worth a copy."""
RECENT = 64
"""Tokens of a lane that the host is shown after each step; where more are new, it reads the lane."""
PATIENCE = 64
"""Rounds for which a request waits for the memory of another program before that program's lanes are evicted."""
SETTLED = 16
"""Iterations within which what a step leaves uncomputed must stay the same."""
LOST = "a case came up that only the driver handles"
Ended = Callable[[int, Any, "BaseException | None"], None]
Left = Callable[[int, Any, str], None]


@dataclass(frozen=True)
class Needs:
    """What a program needs behind a text: slots for the nodes of a step; and the bytes of keys and values of one slot."""

    ahead: int
    bytes: int


@dataclass
class Kept:
    """What is kept with a main model. needs: by program, or why it has no step. budget: bytes of all programs, None: free."""

    programs: OrderedDict[int, Program] = field(default_factory=OrderedDict)
    needs: OrderedDict[Any, tuple[Any, Needs | NotSteppable]] = field(default_factory=OrderedDict)
    budget: int | None = None

    def limit(self, budget: int) -> None:
        """Bound the bytes of all programs; those that no request uses are freed until they fit."""
        self.budget = budget
        for program in [p for p in self.programs.values() if not len(p)]:
            if sum(p.bytes for p in self.programs.values()) > budget:
                self.programs.pop(id(program))


def kept(model: Any) -> Kept:
    """The programs of a main model."""
    return memo_of(model).once("steps", Kept)


def forget(model: Any) -> None:
    """Free the memory of the programs that are kept with a main model."""
    memo_of(model).forget("steps")


def home(models: dict[str, Any]) -> torch.device:
    """The device of the models' weights; of models without any, CUDA where it is there."""
    for model in models.values():
        if (found := placement_of(model)) is not None:
            return torch.device(found.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def key_of(m: Any) -> Any:
    """What requests that share a program have in common."""
    models = tuple(sorted((name, id(model)) for name, model in m.models.items()))
    return id(m.module), m.function.name, models, tuple(sorted((name, str(v)) for name, v in m.params.items()))


def needs_of(m: Any, features: frozenset[str]) -> Needs:
    """What a machine's program needs; found with one lane of few slots, once. Raises NotSteppable."""
    if m.main is None:
        raise NotSteppable("no model is called")
    # A canvas is computed whole, and some find out about their sizes only there.
    room = len(m.request.prompt) + int(m.request.limit) if m.main.kind == "masked" else 0
    known, key = kept(m.main).needs, (key_of(m), features, room)
    if key not in known:
        try:
            found: Needs | NotSteppable = _measured(m, features, room)
        except NotSteppable as error:
            found = error
        known[key] = ((m.module, m.models), found)  # so that their ids stay theirs
        while len(known) > 64:
            known.popitem(last=False)
    out = known[key][1]
    if isinstance(out, NotSteppable):
        raise out
    return out


def _measured(m: Any, features: frozenset[str], room: int) -> Needs:
    slots = max(64, room + 2)
    step = built(m, Frame(1, slots - 2, home(m.models), features), slots)
    settle(step)
    size = sum(t.nbytes for cache in step.caches.values() for t, *_ in getattr(cache.model, "buffers", ()))
    return Needs(max((c.peak + c.behind for c in chains(step)), default=0) + 2, -(-size // slots))


def chains(step: Step) -> list[Any]:
    """The slots of causal models, which compute the last tokens of a text with a step's first call."""
    return [c for c in step.caches.values() if hasattr(c, "behind")]


@torch.no_grad()
def built(m: Any, frame: Frame, slots: int) -> Step:
    """The step of a machine's program, with models of so many slots a lane. Raises NotSteppable."""
    made: dict[str, Any] = {}
    order = sorted(m.models.items(), key=lambda item: (item[1] is not m.main, item[1].kind == "features"))
    for name, model in order:
        if model.kind == "layers":
            made[name] = Part(model)
            continue
        target = next((d for d in made.values() if getattr(d, "kind", "") == "causal"), None)
        made[name] = step_model(model, frame.batch, slots, frame.device, target=target)
    return Step(m.module, m.function.name, {name: made[name] for name in m.models}, m.params, frame)


@torch.no_grad()
def settle(step: Step) -> bool:
    """Run iterations in which no lane takes part, until what they leave uncomputed stays the same: every later one is like the
    last. Derived models are made there. Whether the host runs loops in them. Raises NotSteppable."""
    if step.after:
        raise NotSteppable("there are operations after `while not done`", step.after[0])
    turns: dict[Any, int] = {}

    def reads(flag: Tensor) -> int:
        """One iteration of every loop that the host runs."""
        turns[step.place] = turns.get(step.place, 0) + 1
        return turns[step.place] % 2 if step.place is not None and step.place.opcode == "while" else 1

    step.reads = reads  # type: ignore[method-assign]
    try:
        step.start_states(range(step.frame.batch))
        step.prologue(torch.zeros(step.frame.batch, dtype=torch.bool, device=step.device))
        behind = {id(c): c.behind for c in chains(step)}
        for _ in range(SETTLED if step.loop is not None else 0):
            step.body()
            now = {id(c): max(c.behind, behind.get(id(c), 1)) for c in chains(step)}
            for cache in chains(step):
                cache.behind = now[id(cache)]
            if now == behind:
                break
            behind = now
        else:
            if step.loop is not None:
                raise NotSteppable("a model is not called in every iteration, and what it has not computed grows", step.loop)
    finally:
        del step.reads
    return bool(turns)


@dataclass(eq=False)
class Job:
    """A request in flight. filled: tokens of its lane whose keys and values are computed. seen: tokens of its text that the host
    has, with the prompt. rows: what an evicted lane held. tests: the statistics at the last look."""

    number: int
    machine: Any
    features: frozenset[str]
    needs: Needs
    program: Program | None = None
    lane: int = -1
    filled: int = 0
    begun: bool = False
    seen: int = 0
    waited: int = 0
    rows: list[Tensor] | None = None
    tests: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Tokens that its text may come to."""
        return len(self.machine.request.prompt) + int(self.machine.request.limit)

    @property
    def sharing(self) -> int | None:
        """What tells requests that write the same states of a session: one runs after the other."""
        shares = any(state.scope != "sequence" for state in self.machine.function.states)
        return id(self.machine.shared) if shares else None


class Program:
    """B lanes of one program. `refused`: requests that a step left to the driver, with the reason."""

    def __init__(self, job: Job, features: frozenset[str], batch: int, capacity: int) -> None:
        m = job.machine
        self.key, self.features, self.capacity, self.about = key_of(m), features, capacity, (m.module, m.models)
        device = home(m.models)
        self.step = built(m, Frame(batch, capacity, device, features), capacity + job.needs.ahead)
        self.hosted = settle(self.step)
        self.behind = {id(c): c.behind for c in chains(self.step)}
        self.each = dict(self.step.counts.calls) if self.step.loop is not None else {}
        self.once: dict[str, int] = {}
        self.jobs: list[Job | None] = [None] * batch
        self.texts: list[list[int]] = [[] for _ in range(batch)]
        """What the slots of lanes hold, as far as they are computed."""
        self.used = [0] * batch
        self.turn = 0
        self.commits = not any(op.opcode.startswith("canvas.") for op in m.function.body.walk())
        self.shown: deque[tuple[list[Job], Callable[[], np.ndarray]]] = deque()
        self.replay: Callable[[], None] | None = None
        self.bytes = job.needs.bytes * batch * (capacity + job.needs.ahead)
        self.models = sorted((c for c in self.step.caches.values() if c.model.kind != "masked"), key=lambda c: c.features)
        self.reuses = bool(self.models)
        self.slack = 1 + max(self.behind.values(), default=0)

    def __len__(self) -> int:
        """Lanes with a request."""
        return sum(job is not None for job in self.jobs)

    # -- requests
    @torch.no_grad()
    def admit(self, job: Job, others: Sequence[Program] = ()) -> None:
        """Give a free lane to a request: the one whose slots begin as its text does, if there is one. others: programs whose
        lanes are copied from where they know more of it."""
        m, step = job.machine, self.step
        tokens = [*m.request.prompt, *m.committed_tokens()]
        free = [lane for lane, there in enumerate(self.jobs) if there is None]
        lane = max(free, key=lambda n: (self.known(n, tokens), -self.used[n]))
        known = self.known(lane, tokens)
        sources = [(p.known(n, tokens), p, n) for p in (self, *others) if p.serves(self) for n in range(len(p.texts))]
        most, source, best = max(sources, key=lambda found: found[0], default=(0, self, 0))
        if most >= known + LEAST:
            lane, known = min(free, key=lambda n: self.used[n]), most
            for mine, theirs in zip(self.models, source.counterparts(self), strict=True):
                copied(theirs.model, best, mine.model, lane, known)
        job.program, job.lane, job.seen, job.tests = self, lane, len(tokens), None
        job.filled, job.begun = known, False
        m.reused = job.filled if job.rows is None else m.reused
        self.jobs[lane], self.texts[lane] = job, tokens[: job.filled]
        self.turn += 1
        self.used[lane] = self.turn
        step.admit(lane, m.request)
        step.settings.admit(lane, m.request, m.committed_tokens())
        new = tokens[len(m.request.prompt) :]
        if new:
            step.tokens[lane, len(m.request.prompt) : len(tokens)] = torch.tensor(new, device=step.device)
            step.length[lane] = len(tokens)
        step.done[lane] = True  # until its text is computed

    def known(self, lane: int, tokens: Sequence[int]) -> int:
        """How many of a text's first tokens a lane has keys and values of; the last one is computed in any case."""
        return min(alike(self.texts[lane], tokens), len(tokens) - 1) if self.reuses else 0

    def counterparts(self, other: Program) -> list[Any]:
        """This program's slots of the models that another one has, as far as there are any."""
        mine = {id(getattr(c.model, "model", None)): c for c in self.models}
        return [mine[id(c.model.model)] for c in other.models if id(getattr(c.model, "model", None)) in mine]

    def serves(self, other: Program) -> bool:
        """Whether lanes of this program can be copied into lanes of another."""
        there = self.counterparts(other)
        return len(there) == len(other.models) and all(
            len(a.model.buffers) == len(b.model.buffers) for a, b in zip(there, other.models, strict=True)
        )

    @torch.no_grad()
    def fill(self, chunk: int | None) -> None:
        """Compute at most `chunk` tokens of texts (None: all), in the order of the requests, and begin those that are complete."""
        left, ready = chunk if chunk is not None else 1 << 60, []
        for job in sorted((j for j in self.jobs if j is not None and not j.begun), key=lambda j: self.used[j.lane]):
            tokens = [*job.machine.request.prompt, *job.machine.committed_tokens()]
            while job.filled < len(tokens) - 1 and left > 0:
                n = min(len(tokens) - 1 - job.filled, left, CHUNK)
                for cache in self.models:
                    cache.model.fill(job.lane, tokens, job.filled, n)
                job.filled += n
                left -= n
                self.texts[job.lane] = tokens[: job.filled]
            if job.filled >= len(tokens) - 1:
                ready.append(job)
        if ready:
            self.begin(ready)

    def begin(self, jobs: Sequence[Job]) -> None:
        """The texts of requests are computed: their lanes take part in the steps from now on."""
        step, fresh = self.step, [job for job in jobs if job.rows is None]
        mask = torch.zeros(step.frame.batch, dtype=torch.bool, device=step.device)
        for job in jobs:
            step.done[job.lane], job.begun = False, True
            mask[job.lane] = job.rows is None
            for held, row in zip(self.lasting(), job.rows or (), strict=job.rows is not None):
                held[job.lane].copy_(row)
            job.rows = None
        for job in fresh:
            step.start_states([job.lane], job.machine.shared)
        if fresh:
            before = step.carried
            self._behind()
            step.prologue(mask)
            if before:  # the others go on with what they carry
                new, step.carried = step.carried, before
                step.carry(mask, new)
            self.once = dict(step.counts.calls)

    def _behind(self) -> None:
        """Every step computes as many of the last tokens as any may have left."""
        for cache in chains(self.step):
            cache.behind = self.behind[id(cache)]

    def lasting(self) -> list[Tensor]:
        """The tensors that a lane's steps hand on, beside its text, settings, keys and values."""
        s = self.step
        values = [s.iteration, *s.states.values(), *s.carried, *vars(s.counts).values()]
        return [v for v in values if isinstance(v, Tensor) and len(v) == s.frame.batch]

    @property
    def evictable(self) -> bool:
        """Whether all that a lane hands on is in tensors by lane."""
        return all(isinstance(v, Tensor) and len(v) == self.step.frame.batch for v in self.step.states.values())

    def evict(self, job: Job) -> None:
        """Take a request out of its lane, to go on in another one, of another program perhaps."""
        if job.begun:
            job.rows = [held[job.lane].clone() for held in self.lasting()]
        self.leave(job)

    def leave(self, job: Job) -> None:
        """Free a request's lane; its slots stay for texts that begin alike."""
        m = job.machine
        if job.begun:
            text = [*m.request.prompt, *m.committed_tokens()]
            self.texts[job.lane] = text[: max(0, min(job.seen, len(text)) - self.slack)]
        self.step.done[job.lane] = True
        self.jobs[job.lane] = job.program = None  # type: ignore[assignment]

    # -- steps
    @torch.no_grad()
    def advance(self, chunk: int | None) -> Iterator[tuple[Job, np.ndarray]]:
        """One round: a chunk of prompts, a step, and a look at an earlier one (at the same, on a CPU). Yields each request with
        its row of what the host was shown."""
        self.fill(chunk)
        jobs = [job for job in self.jobs if job is not None and job.begun]
        if jobs:
            if self.step.loop is not None:
                self.run()
            self.shown.append((jobs, self.show()))
        while len(self.shown) > (self.step.device.type == "cuda" and bool(jobs)):
            shown, read = self.shown.popleft()
            rows = read()
            for job in shown:
                if job.program is self and self.jobs[job.lane] is job:  # it has not left since
                    yield job, rows[job.lane]

    def run(self) -> None:
        """One step of all lanes."""
        if self.step.device.type != "cuda" or self.hosted:
            self._body()
            return
        if self.replay is None:
            self.step.recording = True
            try:
                self.replay = captured(self._body, self.step.device)
            finally:
                self.step.recording = False
        self.replay()

    def _body(self) -> None:
        self._behind()
        self.step.body()

    def show(self) -> Callable[[], np.ndarray]:
        """A copy of what the host looks at, begun now: a function that waits for it and gives int64[B, ...]: length, done, lost,
        iteration, drafted, the statistics by depth, and the last RECENT tokens."""
        s = self.step
        at = (s.length[:, None] - RECENT + torch.arange(RECENT, device=s.device)).clamp(min=0)
        numbers = torch.stack([s.length, s.done.long(), s.lost.long(), s.iteration, s.counts.drafted], 1)
        told = torch.cat([numbers, s.counts.tested, s.counts.accepted, s.tokens.gather(1, at)], 1)
        if s.device.type != "cuda":
            return lambda: told.numpy()
        pinned = torch.empty(told.shape, dtype=told.dtype, pin_memory=True)
        pinned.copy_(told, non_blocking=True)
        event = torch.cuda.Event()
        event.record()

        def read() -> np.ndarray:
            event.synchronize()
            return pinned.numpy()

        return read

    def new_tokens(self, job: Job, row: np.ndarray) -> list[int]:
        """The tokens that a look shows and the host has not had."""
        length = int(row[0])
        fresh = length - job.seen
        job.seen = length
        if fresh > RECENT:
            found: list[int] = self.step.tokens[job.lane, length - fresh : length].tolist()
            return found
        return [int(t) for t in row[len(row) - fresh :]] if fresh else []


def copied(source: Any, there: int, model: Any, lane: int, count: int) -> None:
    """Copy what a model keeps at the first `count` slots of a lane to a lane of a model with the same buffers."""
    for (theirs, lanes, slots), (mine, *_) in zip(source.buffers, model.buffers, strict=True):
        row, held = (t.narrow(lanes, n, 1).narrow(slots, 0, count) for t, n in ((mine, lane), (theirs, there)))
        row.copy_(held)


def alike(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    most = min(len(mine), len(theirs))
    a, b = np.array(mine[:most]), np.array(theirs[:most])
    different = np.flatnonzero(a != b)
    return int(different[0]) if len(different) else most


class Steps:
    """Requests in flight on the device, of any programs. To be used by one thread.

    ended(number, machine, error): called as each ends. left(number, machine, why): called for one that the driver has to run,
    from its beginning. width: lanes of a program. chunk: tokens of prompts that a round computes in each program.
    """

    def __init__(self, ended: Ended, left: Left, *, width: int = 8, chunk: int | None = None) -> None:
        self.ended, self.left, self.width, self.chunk = ended, left, width, chunk
        self.waiting: deque[Job] = deque()
        self.running: list[Program] = []

    def __len__(self) -> int:
        return len(self.waiting) + sum(map(len, self.running))

    def join(self, number: int, machine: Any) -> None:
        """Take up a request. Raises NotSteppable for one that the driver has to run."""
        self.waiting.append(Job(number, machine, *wants(machine)))

    def jobs(self) -> list[Job]:
        """All requests in flight."""
        return [*(j for p in self.running for j in p.jobs if j is not None), *self.waiting]

    def cancel(self, number: int) -> bool:
        """End a request between two steps; `ended` is not called. False where it is not in flight."""
        job = next((j for j in self.jobs() if j.number == number), None)
        if job is not None:
            self._drop(job)
        return job is not None

    def close(self, stop: BaseException | None = None) -> None:
        """End all requests. `ended` is called with `stop` where that is a KeyboardInterrupt."""
        for job in self.jobs():
            self._drop(job)
            if isinstance(stop, KeyboardInterrupt):
                self.ended(job.number, job.machine, stop)
        self._settle()

    def _drop(self, job: Job) -> None:
        if job.program is not None:
            job.program.leave(job)
        else:
            self.waiting.remove(job)

    def advance(self) -> bool:
        """One round: lanes for those that wait, and a step of every program. Whether any request is left."""
        self._place()
        for program in list(self.running):
            try:
                for job, row in program.advance(self.chunk):
                    self._hear(program, job, row)
            except NothingRecorded:  # the driver would do as little, for ever
                raise
            except Exception as error:  # of the compiler, the driver, the memory of the device: eager mode may work
                name, why = program.step.function.name, f"{type(error).__name__}: {error}"
                if isinstance(error, NotSteppable):
                    why = str(error)
                else:
                    _LOG.warning("%s failed in graph mode and goes on in eager mode: %s", name, why)
                for job in [j for j in program.jobs if j is not None]:
                    program.leave(job)
                    self.left(job.number, job.machine, why)
                kept(job.machine.main).programs.pop(id(program), None)
                program.shown.clear()
        self._settle()
        return len(self) > 0

    # -- lanes
    def _place(self) -> None:
        """Give lanes to those that wait, in their order."""
        busy = {job.sharing for p in self.running for job in p.jobs if job is not None} - {None}
        for job in list(self.waiting):
            if job.sharing in busy:
                continue
            known = list(kept(job.machine.main).programs.values())  # before one makes room
            try:
                program = self._program(job)
            except NotSteppable as error:
                self.waiting.remove(job)
                self.left(job.number, job.machine, str(error))
                continue
            if program is None:
                job.waited += 1
                continue
            self.waiting.remove(job)
            program.admit(job, [p for p in (*known, *self.running) if p is not program])
            busy |= {job.sharing} - {None}
            if program not in self.running:
                self.running.append(program)

    def _program(self, job: Job) -> Program | None:
        """A program with a free lane for a request; None where it has to wait. Raises NotSteppable where none has the memory."""
        store, key = kept(job.machine.main), key_of(job.machine)
        mine = [p for p in store.programs.values() if p.key == key and p.step.frame.batch >= self._places(job)]
        for program in mine:
            if shaping.covers(program.features, job.features) and program.capacity >= job.size:
                if len(program) < program.step.frame.batch:
                    store.programs.move_to_end(id(program))
                    return program
                if program.step.frame.batch >= self.width:
                    return None
        idle = [p for p in mine if not len(p)]
        features = frozenset().union(job.features, *(p.features for p in idle))
        batch, capacity = self._places(job), self._capacity(job)
        for program in idle:  # the new one serves what they did
            self._free(store, program)
        while not self._fits(store, job, batch, capacity):
            old = next((p for p in store.programs.values() if not len(p)), None)
            if old is not None:
                self._free(store, old)
            elif any(map(len, store.programs.values())):
                if job.waited < PATIENCE:
                    return None
                for program in [p for p in store.programs.values() if p.evictable]:
                    for other in [j for j in program.jobs if j is not None]:
                        program.evict(other)
                        self.waiting.append(other)
            elif batch > 1:
                batch //= 2
            else:
                size = job.needs.bytes * (capacity + job.needs.ahead)
                raise NotSteppable(f"a text of {job.size} tokens needs {size / 2**20:,.0f} MiB of keys and values")
        made = Program(job, features, batch, capacity)
        store.programs[id(made)] = made
        return made

    def _places(self, job: Job) -> int:
        """Lanes of a new program: as many as there are requests, up to the width."""
        if job.sharing is not None:
            return 1
        alike = sum(key_of(j.machine) == key_of(job.machine) for j in self.waiting)
        return min(self.width, 1 << max(0, alike - 1).bit_length())

    def _capacity(self, job: Job) -> int:
        most = max(j.size for j in self.waiting if j.machine.main is job.machine.main)
        masked = job.machine.main.kind == "masked"  # whose every call computes all slots
        size = -(-most // 8) * 8 if masked else 1 << max(6, (most - 1).bit_length())
        return size if job.machine.window is None else max(job.size, min(size, int(job.machine.window) + 1))

    def _fits(self, store: Kept, job: Job, batch: int, capacity: int) -> bool:
        wanted = job.needs.bytes * batch * (capacity + job.needs.ahead)
        if store.budget is not None:
            return wanted + sum(p.bytes for p in store.programs.values()) <= store.budget
        device = home(job.machine.models)
        return device.type != "cuda" or wanted <= 0.8 * torch.cuda.mem_get_info(device)[0]

    def _free(self, store: Kept, program: Program) -> None:
        store.programs.pop(id(program), None)
        if program in self.running:
            self.running.remove(program)

    def _settle(self) -> None:
        """Programs without requests stop; the last of them are kept."""
        for program in [p for p in self.running if not len(p)]:
            program.shown.clear()
            self.running.remove(program)
            store = next((kept(m) for m in program.about[1].values() if id(program) in kept(m).programs), None)
            idle = [p for p in store.programs.values() if not len(p)] if store is not None else []
            for old in idle[: max(0, len(idle) - KEPT)]:
                store.programs.pop(id(old))  # type: ignore[union-attr]

    # -- what the host hears
    def _hear(self, program: Program, job: Job, row: np.ndarray) -> None:
        """What a look says of a request: its new tokens, and whether it has ended."""
        m, done, lost = job.machine, bool(row[1]), bool(row[2])
        new = program.new_tokens(job, row)
        if lost or not (done or new or not program.commits):  # an iteration that commits nothing is the driver's error
            program.leave(job)
            self.left(job.number, m, LOST)
            return
        try:
            cut = self._feed(m, new)
        except Exception as error:  # a function of the caller's, or the listener
            program.leave(job)
            self.ended(job.number, m, fault(error, request=m.title))
            return
        told = counted(job, row, len(new) - cut if cut or done else None)
        if done or m.done():
            self._finish(program, job, row, told)

    def _feed(self, m: Any, new: Sequence[int]) -> int:
        """Feed tokens to a request's stop machine; how many came after its end."""
        fed: list[int] = []
        for token in new:
            if m.done():
                break
            m.feed(token)
            m.marks.append(-1)
            fed.append(token)
        m.tally.tokens += len(fed)
        m.note_call(answered=True)
        cut = len(new) - len(fed)
        if new and m.listener is not None:
            m.listener(Committed(tuple(fed), cut))
        return cut

    def _finish(self, program: Program, job: Job, row: np.ndarray, told: np.ndarray) -> None:
        """A request has ended: its statistics, states and log-probabilities."""
        m, iterations = job.machine, int(row[3])
        m.tally.drafted += int(row[4])
        tested, accepted = told
        for depth in np.flatnonzero(tested).tolist():
            m.tally.tested[depth] = int(tested[depth])
            if accepted[depth]:
                m.tally.accepted[depth] = int(accepted[depth])
        for name in {**program.once, **program.each}:
            self._count(m, name, program.once.get(name, 0) + program.each.get(name, 0) * iterations)
        for state in m.function.states:
            if state.scope != "sequence" and isinstance(program.step.states.get(state.name), Tensor):
                m.shared[(m.function.name, state.name)] = program.step.states[state.name][job.lane].cpu().numpy()
        program.leave(job)
        problem: Exception | None = None
        try:
            m.finish()
            m.read_logprobs()
        except Exception as error:
            problem = fault(error, request=m.title)
        m.release()
        self.ended(job.number, m, problem)

    def _count(self, m: Any, name: str, n: int) -> None:
        """Count the calls of a model, or of a part of one."""
        parameter, _, part = name.partition(".")
        model = m.models.get(parameter)
        own = name if model is None else model.name
        told = own if not part or model is None else drafting(own) if part == "drafting" else f"{own}.{part}"
        for _ in range(n):
            m.tally.call(told, model is m.main and not part)


def wants(machine: Any) -> tuple[frozenset[str], Needs]:
    """The features and sizes that a request needs. Raises NotSteppable for one that the driver has to run."""
    if machine.parent is not None or machine.until is not None or machine.externs or machine.recorder is not None:
        raise NotSteppable("it is a sub-run, is recorded, or calls functions of the caller")
    features = shaping.need(machine.request, machine.vocab_size)
    needs = needs_of(machine, features)
    room = len(machine.request.prompt) + machine.request.limit + needs.ahead
    if machine.window is not None and room > machine.window:
        raise NotSteppable(f"a tree may not fit into the context of {machine.window} tokens")
    return features, needs


def counted(job: Job, row: np.ndarray, most: int | None) -> np.ndarray:
    """int64[2, depth]: tests and acceptances so far; those since the last look deeper than `most` are not counted (None: all)."""
    depths = (len(row) - 5 - RECENT) // 2
    told = row[5 : 5 + 2 * depths].reshape(2, depths).copy()
    if most is not None:
        before = np.zeros_like(told) if job.tests is None else job.tests
        told[:, most + 1 :] = before[:, most + 1 :]
    job.tests = told
    return told


# -- CUDA graphs
class NothingRecorded(InternalError):
    """A captured step did nothing when it was replayed."""


_ONE = threading.Lock()
"""One capture at a time: those of a device share a stream."""


@lru_cache
def _side(index: int) -> tuple[torch.cuda.Stream, torch.cuda.MemPool]:
    """The stream on which a device's steps are captured, and the memory pool that its graphs share: they are replayed one after
    the other, and what lasts is in buffers of before the capture. The pool lives as long as the process: one that is known by its
    number alone ends with its last graph, and the next capture fails."""
    with torch.cuda.device(index):
        return torch.cuda.Stream(), torch.cuda.MemPool()


def captured(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A function that replays a step on a CUDA device. Other threads may use the device meanwhile. The first replay raises
    NothingRecorded where what the step does was not recorded: replays of it would never end."""
    done = torch.zeros(1, dtype=torch.int64, device=device)
    stream, pool = _side(done.get_device())
    graph = torch.cuda.CUDAGraph()
    with _ONE, torch.cuda.device(device):
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool.id, stream=stream, capture_error_mode="thread_local"):
            step()
            done += 1
    checked = False

    def replay() -> None:
        nonlocal checked
        before = 0 if checked else int(done)
        graph.replay()
        if not checked and int(done) != before + 1:
            raise NothingRecorded(f"a captured step recorded nothing: replaying it does nothing on {device}")
        checked = True

    return replay
