"""Programs of steps in flight: lanes that requests join and leave between two steps.

A program is one algorithm with its models, parameters and sizes, for B lanes. A request gets a free lane, its prompt is
computed in chunks while the other lanes go on, and then it takes part in every step until it ends. After each step the host is
shown the lanes: on a CUDA device by a copy into pinned memory that nothing waits for until the next step has been launched, so
that the host reads one step while the device computes another. Which requests get which lanes is decided in lanes.py.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.bodies import Bodies
from decgraph.backends.triton.cache import Cache
from decgraph.backends.triton.models.device import step_model
from decgraph.backends.triton.models.interface import CHUNK, DeviceModel, ModelPart
from decgraph.backends.triton.replay import Replayed, recorded
from decgraph.backends.triton.run import DeviceRun
from decgraph.backends.triton.state import Frame, Slots, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import is_static
from decgraph.ir.memo import memo_of
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of
from decgraph.runtime.placement import placement_of

LEAST = 16
"""Tokens below which two texts that begin alike are not worth a copy."""
MOST_CELLS = 2**15
"""Tokens that a text and its canvas, which every call computes whole, may come to."""
GROWTH = 512
"""Tokens behind a text for which a lane has room at first; a request whose text comes to more goes on in a larger lane."""
RECENT = 64
"""Tokens of a lane that the host is shown after each step; where more are new, it reads the lane."""
SETTLED = 16
"""Iterations within which what a step leaves uncomputed must stay the same."""


@dataclass(frozen=True)
class Needs:
    """What a program needs behind a text: slots for the nodes of a step, of which `drafts` have positions behind it; and the
    bytes of keys and values of one slot."""

    ahead: int
    bytes: int
    drafts: int


@dataclass
class Programs:
    """What is kept with a main model. needs: by program, or why it has no step. budget: bytes of all programs, None: free."""

    programs: OrderedDict[int, Program] = field(default_factory=OrderedDict)
    needs: OrderedDict[Hashable, tuple[object, Needs | NotSteppable]] = field(default_factory=OrderedDict)
    budget: int | None = None

    def limit(self, budget: int) -> None:
        """Bound the bytes of all programs; those that no request uses are freed until they fit."""
        self.budget = budget
        for program in [p for p in self.programs.values() if not len(p)]:
            if sum(p.bytes for p in self.programs.values()) > budget:
                self.programs.pop(id(program))


def programs_of(model: Model) -> Programs:
    """The programs of a main model."""
    return memo_of(model).once("steps", Programs)


def home(models: Mapping[str, Model]) -> torch.device:
    """The device of the models' weights; of models without any, CUDA where it is there."""
    for model in models.values():
        if (found := placement_of(model)) is not None:
            return torch.device(found.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def key_of(m: DeviceRun) -> Hashable:
    """What requests that share a program have in common."""
    models = tuple(sorted((name, id(model)) for name, model in m.models.items()))
    return id(m.module), m.function.name, models, tuple(sorted((name, str(v)) for name, v in m.params.items()))


def needs_of(m: DeviceRun, features: frozenset[str]) -> Needs:
    """What a machine's program needs; found with one lane of few slots, once. Raises NotSteppable."""
    if m.main is None:
        raise NotSteppable("no model is called")
    known, key = programs_of(m.main).needs, _needs_key(m, features)
    if key not in known:
        try:
            needs: Needs | NotSteppable = _measured(m, features, key[-1])
        except NotSteppable as error:
            needs = error
        note(m, features, needs)
    out = known[key][1]
    if isinstance(out, NotSteppable):
        raise out
    return out


def _needs_key(m: DeviceRun, features: frozenset[str]) -> tuple[Hashable, frozenset[str], int]:
    """The program and its features; of a canvas the size too: it is computed whole, and some find out about it only there."""
    room = len(m.request.prompt) + int(m.request.max_tokens) if m.target.kind == "masked" else 0
    return key_of(m), features, room


def note(m: DeviceRun, features: frozenset[str], needs: Needs | NotSteppable) -> None:
    """Keep what a program needs, or why it has no step, so that it is not found out again."""
    known = programs_of(m.target).needs
    known[_needs_key(m, features)] = ((m.module, m.models), needs)  # so that their ids stay theirs
    while len(known) > 64:
        known.popitem(last=False)


def _measured(m: DeviceRun, features: frozenset[str], room: int) -> Needs:
    if room > MOST_CELLS:
        raise NotSteppable(f"a canvas that may come to {room} cells")
    slots = max(64, room + 2)
    step = built(m, Frame(1, slots - 2, home(m.models), features), slots)
    settle(step)
    size = sum(t.nbytes for cache in step.caches.values() for t, *_ in cache.model.buffers)
    size += slots * 2 * step.tokens.element_size()  # the text, and what else there is a number of for each token
    behind = [c.peak + c.behind for c in chains(step)]
    return Needs(max(behind, default=0) + 2, -(-size // slots), max(behind, default=-2) + 2)


def chains(step: Step) -> list[Cache]:
    """The slots of causal models, which compute the last tokens of a text with a step's first call."""
    return [c for c in step.caches.values() if isinstance(c, Cache)]


@torch.no_grad()
def built(m: DeviceRun, frame: Frame, slots: int) -> Step:
    """The step of a machine's program, with models of so many slots a lane. Raises NotSteppable."""
    made: dict[str, ModelPart] = {}
    order = sorted(m.models.items(), key=lambda item: (item[1] is not m.main, item[1].kind in ("features", "head")))
    for name, model in order:
        if model.kind == "layers":
            made[name] = ModelPart(model)
            continue
        causal = [d for d in made.values() if isinstance(d, DeviceModel) and d.kind == "causal"]
        whole = original_of(model)
        of = whole.target_or_self()
        target = next(
            (d for d in causal if of is not whole and original_of(d.model) is original_of(of)), next(iter(causal), None)
        )
        made[name] = step_model(model, frame.batch, slots, frame.device, target=target)
    return Step(m.module, m.function.name, {name: cast(DeviceModel, made[name]) for name in m.models}, m.params, frame)


@torch.no_grad()
def settle(step: Step) -> tuple[bool, dict[str, int]]:
    """Run iterations in which no lane takes part, until what they leave uncomputed stays the same: every later one is like the
    last. Derived models are made there. Whether the host runs loops in them, and the calls of every iteration. Raises
    NotSteppable."""
    times: dict[Op | None, int] = {}

    def reads(flag: Tensor) -> int:
        """One iteration of every loop that the host runs."""
        times[step.place] = times.get(step.place, 0) + 1
        return times[step.place] % 2 if step.place is not None and step.place.opcode == "while" else 1

    step.reads, step.measuring = reads, True  # type: ignore[method-assign]
    try:
        nobody = torch.zeros(step.frame.batch, dtype=torch.bool, device=step.device)
        step.start_states(range(step.frame.batch))
        known = -1
        while known < len(step.caches):  # a model that is made on the way has not heard of what was committed before
            known = len(step.caches)
            for cache in chains(step):
                cache.behind = cache.least
            step.prologue(nobody)
            steady(step)
        each = dict(step.counts.calls) if step.loop is not None else {}
    finally:
        del step.reads
        step.measuring = False
    return bool(times), each


def steady(step: Step) -> None:
    """Iterations until each is like the last. Raises NotSteppable where they never are."""
    behind = {id(c): c.behind for c in chains(step)}
    for _ in range(SETTLED if step.loop is not None else 0):
        step.body()
        now = {id(c): max(c.behind, behind.get(id(c), 1)) for c in chains(step)}
        for cache in chains(step):
            cache.behind = now[id(cache)]
        if now == behind:
            return
        behind = now
    if step.loop is not None:
        raise NotSteppable("a model is not called in every iteration, and what it has not computed grows", step.loop)


@dataclass(eq=False)
class LaneJob:
    """A request in flight. filled: tokens of its lane whose keys and values are computed. seen, iterations: tokens of its text,
    with the prompt, and iterations of its loop that the host knows of. rows: what an evicted lane's buffers had. tests: the
    statistics at the last look."""

    number: int
    machine: DeviceRun
    features: frozenset[str]
    needs: Needs
    program: Program | None = None
    lane: int = -1
    filled: int = 0
    begun: bool = False
    seen: int = 0
    iterations: int = 0
    waited: int = 0
    rows: list[Tensor] | None = None
    tests: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Tokens that its text may come to."""
        return len(self.machine.request.prompt) + int(self.machine.request.max_tokens)

    @property
    def room(self) -> int:
        """Tokens that a lane for it has room for: of a long text as many more as there are, and `GROWTH` at least. A canvas is
        computed whole."""
        now = len(self.machine.request.prompt) + self.machine.committed()
        return self.size if self.machine.target.kind == "masked" else min(self.size, now + max(GROWTH, now))

    @property
    def sharing(self) -> int | None:
        """What tells requests that write the same states of a session: one runs after the other."""
        shares = any(state.scope != "sequence" for state in self.machine.function.states)
        return id(self.machine.shared) if shares else None


class Program:
    """B lanes of one program. loops: whether the host runs loops in its steps. hosted: whether it has a part in them at all."""

    def __init__(self, job: LaneJob, features: frozenset[str], batch: int, capacity: int) -> None:
        m = job.machine
        self.key, self.features, self.capacity, self.about = key_of(m), features, capacity, (m.module, m.models)
        device = home(m.models)
        self.step = built(m, Frame(batch, capacity, device, features), capacity + job.needs.ahead)
        self.loops, self.each = settle(self.step)
        reads = any(c.model.hosted for c in self.step.caches.values())
        self.hosted = self.loops or reads  # tables of whole paths are read on the host: no graph has them
        if self.hosted and not reads and device.type == "cuda":
            self.step.bodies = Bodies(self.step, recorded)
        self.behind = {id(c): c.behind for c in chains(self.step)}
        self.once: dict[str, int] = {}
        self.jobs: list[LaneJob | None] = [None] * batch
        self.texts: list[list[int]] = [[] for _ in range(batch)]
        """What the slots of lanes hold, as far as they are computed."""
        self.used = [0] * batch
        self.admitted = 0
        self.commits = not any(op.opcode.startswith("canvas.") for op in m.function.body.walk())
        self.opens = any(op.opcode == "commit" for op in self.step.before)
        self.shown: deque[tuple[list[LaneJob], Callable[[], np.ndarray]]] = deque()
        lasts = any(state.scope != "sequence" for state in m.function.states)
        self.unread = int(device.type == "cuda" and not lasts)
        """Looks that the host need not have read when the next step begins. None where an iteration past an end that the host
        finds would show: in states that outlive the request."""
        self.replay: Callable[[], None] | None = None
        self.records = self.step.device.type == "cuda" and not self.hosted
        """Whether the step is recorded as a graph."""
        self.bytes = job.needs.bytes * batch * (capacity + job.needs.ahead)
        self.models = sorted((c for c in self.step.caches.values() if c.model.kind != "masked"), key=lambda c: c.features)
        self.slack = 1 + max(self.behind.values(), default=0)

    def __len__(self) -> int:
        """Lanes with a request."""
        return sum(job is not None for job in self.jobs)

    # -- requests
    @torch.no_grad()
    def admit(self, job: LaneJob, others: Sequence[Program] = ()) -> None:
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
                mine.model.copy_prefix(theirs.model, best, lane, known)
        job.program, job.lane, job.seen, job.tests = self, lane, len(tokens), None
        job.filled, job.begun, job.iterations = known, False, 0
        m.reused = job.filled if job.rows is None else m.reused
        self.jobs[lane], self.texts[lane] = job, tokens[: job.filled]
        self.admitted += 1
        self.used[lane] = self.admitted
        step.admit(lane, m.request, m.noise_id)
        new = tokens[len(m.request.prompt) :]
        if new:
            step.tokens[lane, len(m.request.prompt) : len(tokens)] = torch.tensor(new, device=step.device)
            step.length[lane] = len(tokens)
        step.done[lane] = True  # until its text is computed

    def known(self, lane: int, tokens: Sequence[int]) -> int:
        """How many of a text's first tokens a lane has keys and values of; the last one is computed in any case."""
        return min(alike(self.texts[lane], tokens), len(tokens) - 1) if self.models else 0

    def counterparts(self, other: Program) -> list[Slots]:
        """This program's slots of the models that another one has, as far as there are any."""
        mine = {id(c.model.model): c for c in self.models}
        return [mine[id(c.model.model)] for c in other.models if id(c.model.model) in mine]

    def serves(self, other: Program) -> bool:
        """Whether lanes of this program can be copied into lanes of another."""
        there = self.counterparts(other)
        return len(there) == len(other.models) and all(
            len(a.model.buffers) == len(b.model.buffers) for a, b in zip(there, other.models, strict=True)
        )

    @torch.no_grad()
    def fill(self, chunk: int | None) -> list[LaneJob]:
        """Compute at most `chunk` tokens of texts (None: all), in the order of the requests. Those that are complete begin;
        they are returned."""
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
        return ready

    def begin(self, jobs: Sequence[LaneJob]) -> None:
        """The texts of requests are computed: their lanes take part in the steps from now on."""
        step, fresh = self.step, [job for job in jobs if job.rows is None]
        mask = torch.zeros(step.frame.batch, dtype=torch.bool, device=step.device)
        for job in jobs:
            step.done[job.lane], job.begun = False, True
            mask[job.lane] = job.rows is None
            for buffer, row in zip(self.lasting(), job.rows or (), strict=job.rows is not None):
                buffer[job.lane].copy_(row)
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
        """The tensors that a lane's steps hand on, beside its text, settings, keys and values. [B, ...] each."""
        s, c = self.step, self.step.counts
        values = [s.iteration, *c.buffers()]
        for value in (*s.states.values(), *s.carried):
            values += [value] if isinstance(value, Tensor) else []
        return [v for v in values if len(v) == s.frame.batch]

    @property
    def evictable(self) -> bool:
        """Whether all that a lane hands on is in tensors by lane."""
        return all(isinstance(v, Tensor) or is_static(v) for v in (*self.step.states.values(), *self.step.carried))

    def outgrown(self, job: LaneJob) -> bool:
        """Whether the next steps of a request might not fit into its lane. One more may be under way."""
        return self.capacity < min(job.size, job.seen + 3 * self.step.committed_most + 1)

    def evict(self, job: LaneJob) -> None:
        """Take a request out of its lane, to go on in another one, of another program perhaps."""
        if job.begun:
            job.rows = [buffer[job.lane].clone() for buffer in self.lasting()]
        self.leave(job)

    def leave(self, job: LaneJob) -> None:
        """Free a request's lane; its slots stay for texts that begin alike."""
        m = job.machine
        if job.begun:
            text = [*m.request.prompt, *m.committed_tokens()]
            self.texts[job.lane] = text[: max(0, min(job.seen, len(text)) - self.slack)]
        self.step.done[job.lane] = True
        self.jobs[job.lane] = job.program = None

    # -- steps
    @torch.no_grad()
    def advance(self, chunk: int | None) -> Iterator[tuple[LaneJob, Look]]:
        """One round: a chunk of prompts, a step, and a look at an earlier one (at the same, on a CPU). Yields each request with
        what the host was shown of its lane."""
        begun = self.fill(chunk)
        jobs = [job for job in self.jobs if job is not None and job.begun]
        if jobs:
            if self.step.loop is not None:
                if begun and self.opens:  # what is committed before the loop is no iteration's
                    self.shown.append((begun, self.show()))
                self.run()
            self.shown.append((jobs, self.show()))
        yield from self.looks(self.unread if jobs else 0)

    def looks(self, unread: int = 0) -> Iterator[tuple[LaneJob, Look]]:
        """What the host was shown and has not read, but for the last `unread` looks."""
        while len(self.shown) > unread:
            shown, read = self.shown.popleft()
            rows = read()
            for job in shown:
                if job.program is self and self.jobs[job.lane] is job:  # it has not left since
                    yield job, Look.of(rows[job.lane], tuple(self.step.counts.often))

    def run(self) -> None:
        """One step of all lanes."""
        if not self.records:
            self.body()
        elif self.replay is None:  # the run that is recorded is this step
            self.replay = Replayed(self.body, self.step, self.step.device)
        else:
            self.replay()

    def body(self) -> None:
        """One step of all lanes, by its operations."""
        self._behind()
        self.step.body()

    def show(self) -> Callable[[], np.ndarray]:
        """A copy of what the host looks at, begun now: a function that waits for it and gives int64[B, ...] (`Look`)."""
        s, c = self.step, self.step.counts
        at = (s.length[:, None] - RECENT + torch.arange(RECENT, device=s.device)).clamp(min=0)
        some = [s.length, s.done.long(), s.lost.long(), s.iteration, c.drafted, c.unmasked, c.remasked, *c.often.values()]
        shown = torch.cat([torch.stack(some, 1), c.tested, c.accepted, s.tokens.gather(1, at)], 1)
        if s.device.type != "cuda":
            return lambda: shown.numpy()
        pinned = torch.empty(shown.shape, dtype=shown.dtype, pin_memory=True)
        pinned.copy_(shown, non_blocking=True)
        event = torch.cuda.Event()
        event.record()

        def read() -> np.ndarray:
            event.synchronize()
            return pinned.numpy()

        return read

    def new_tokens(self, job: LaneJob, look: Look) -> list[int]:
        """The tokens that a look shows and the host has not had."""
        fresh = look.length - job.seen
        job.seen, job.iterations = look.length, look.iterations
        if fresh > RECENT:
            return list(self.step.tokens[job.lane, look.length - fresh : look.length].tolist())
        return list(look.recent[RECENT - fresh :].tolist())


@dataclass(frozen=True)
class Look:
    """What the host is shown of a lane. calls: of models that not every iteration makes. tests: int64[2, depth], how often
    drafts at a depth were tested, and accepted. recent: the last tokens."""

    length: int
    done: int
    lost: int
    iterations: int
    drafted: int
    unmasked: int
    remasked: int
    calls: dict[str, int]
    tests: np.ndarray
    recent: np.ndarray

    @staticmethod
    def of(row: np.ndarray, names: Sequence[str]) -> Look:
        """From a row int64[n] of `Program.show`."""
        first, last = 7 + len(names), len(row) - RECENT
        calls = {name: int(n) for name, n in zip(names, row[7:first], strict=True)}
        length, done, lost, iterations, drafted, unmasked, remasked = row[:7].tolist()
        tests, recent = row[first:last].reshape(2, -1), row[last:]
        return Look(length, done, lost, iterations, drafted, unmasked, remasked, calls, tests, recent)


def alike(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    most = min(len(mine), len(theirs))
    a, b = np.array(mine[:most]), np.array(theirs[:most])
    different = np.flatnonzero(a != b)
    return int(different[0]) if len(different) else most
