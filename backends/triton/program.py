"""Programs of steps in flight: lanes that requests join and leave between two steps.

A program is one algorithm with its models and parameters, for B lanes. A request gets a free lane, its prompt is computed in
chunks while the other lanes go on, and then it takes part in every step until it ends. Its keys and values are in pages, which
the lane gets as its text grows (pages.py). After each step the host is shown the lanes: on a CUDA device by a copy into pinned
memory that nothing waits for until the next step has been launched, so that the host reads one step while the device computes
another. Which requests get which lanes is decided in lanes.py.
"""

from __future__ import annotations

import os
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
from decgraph.backends.triton.models.interface import CHUNK, Chunk, DeviceModel, ModelPart
from decgraph.backends.triton.pages import PAGE, Pages
from decgraph.backends.triton.replay import Replayed, recorded
from decgraph.backends.triton.run import DeviceRun
from decgraph.backends.triton.state import Frame, Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import flattened, is_static
from decgraph.ir.memo import memo_of
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of
from decgraph.runtime.placement import placement_of

MOST_CELLS = 2**15
"""Tokens that a text and its canvas, which every call computes whole, may come to."""
RECENT = 64
"""Tokens of a lane that the host is shown after each step; where more are new, it reads the lane."""
SETTLED = 16
"""Iterations within which what a step leaves uncomputed must stay the same."""


@dataclass(frozen=True)
class Needs:
    """What a program needs behind a text: slots for the nodes of a step, of which `drafts` have positions behind it; and the
    bytes of keys and values of one slot. paged: whether lanes share a pool of pages; wide: whether nothing has the size of the
    longest text, so that a lane may be far longer than a request."""

    ahead: int
    bytes: int
    drafts: int
    paged: bool
    wide: bool


@dataclass
class Programs:
    """What is kept with a main model. needs: by program, or why it has no step. budget: bytes of all programs, None: free."""

    programs: OrderedDict[int, Program] = field(default_factory=OrderedDict)
    needs: OrderedDict[Hashable, tuple[object, Needs | NotSteppable]] = field(default_factory=OrderedDict)
    budget: int | None = None

    def fits(self, more: int, new: int, device: torch.device) -> bool:
        """Whether programs may come to so many more bytes, for which `new` bytes are allocated."""
        if self.budget is not None:
            return more + sum(p.bytes for p in self.programs.values()) <= self.budget
        on_cuda = device.type == "cuda"
        free = torch.cuda.mem_get_info(device)[0] if on_cuda else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return new <= (0.8 if on_cuda else 0.25) * free

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
    slots, device = max(64, room + 2), home(m.models)
    pages = Pages(1, slots, device)
    step = built(m, Frame(1, slots - 2, device, features), pages)
    settle(step)
    models = [c.model for c in step.caches.values()]
    size = -(-pages.page_bytes // PAGE)
    behind = [max(c.peak + c.behind, c.model.reach) for c in chains(step)]
    paged = all(model.paged and model.kind != "masked" for model in models)
    return Needs(max(behind, default=0) + 2, size, max(behind, default=-2) + 2, paged, not step.sized)


def chains(step: Step) -> list[Cache]:
    """The slots of causal models, which compute the last tokens of a text with a step's first call."""
    return [c for c in step.caches.values() if isinstance(c, Cache)]


@torch.no_grad()
def built(m: DeviceRun, frame: Frame, pages: Pages) -> Step:
    """The step of a machine's program, with models over pages. Raises NotSteppable."""
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
        made[name] = step_model(model, pages, target=target)
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
    def tokens(self) -> list[int]:
        """Its prompt and what is committed behind it."""
        return [*self.machine.request.prompt, *self.machine.committed_tokens()]

    @property
    def length(self) -> int:
        """How many of these there are."""
        return len(self.machine.request.prompt) + self.machine.committed()

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
        self.ahead, self.store = job.needs.ahead, programs_of(m.target)
        self.pages = Pages(batch, capacity + self.ahead, device, pooled=job.needs.paged)
        self.step = built(m, Frame(batch, capacity, device, features), self.pages)
        self.loops, self.each = settle(self.step)
        reads = any(c.model.hosted for c in self.step.caches.values())
        self.hosted = self.loops or reads  # tables of whole paths are read on the host: no graph has them
        if self.hosted and not reads and device.type == "cuda":
            self.step.bodies = Bodies(self.step, recorded)
        self.behind = {id(c): c.behind for c in chains(self.step)}
        self.once: dict[str, int] = {}
        self.jobs: list[LaneJob | None] = [None] * batch
        self.used = [0] * batch
        self.admitted = 0
        self.commits = not any(op.opcode.startswith("canvas.") for op in m.function.body.walk())
        self.opens = any(op.opcode == "commit" for op in self.step.before)
        self.shown: deque[tuple[list[LaneJob], Callable[[], np.ndarray]]] = deque()
        lasts = any(state.scope != "sequence" for state in m.function.states)
        self.unread = int(device.type == "cuda" and not lasts)
        """Looks that the host need not have read when the next step begins. None where an iteration past an end that the host
        finds would show: in states that outlive the request."""
        self.replays: dict[bool, Callable[[], None]] = {}
        """Recorded steps, without and with a chunk of a prompt."""
        self.records = self.step.device.type == "cuda" and not self.hosted
        """Whether the step is recorded as a graph."""
        self.models = sorted((c for c in self.step.caches.values() if c.model.kind != "masked"), key=lambda c: c.features)
        self.slack = 1 + max(self.behind.values(), default=0) + self.pages.behind
        """Tokens at the end of a text whose slots a step may write again."""
        self.chunk: Chunk | None = None
        self.first = batch * -(-(job.size + self.ahead) // PAGE)

    def __len__(self) -> int:
        """Lanes with a request."""
        return sum(job is not None for job in self.jobs)

    @property
    def bytes(self) -> int:
        """Bytes of keys and values."""
        return self.pages.page_bytes * self.pages.count

    # -- requests
    @torch.no_grad()
    def admit(self, job: LaneJob) -> bool:
        """Give a free lane to a request, and the pages that its text needs, of which it shares those that others have; whether
        there are as many."""
        m, step, tokens, pages = job.machine, self.step, job.tokens, self.pages
        free = [lane for lane, there in enumerate(self.jobs) if there is None]
        lane = max(free, key=lambda n: (0 if pages.pooled else len(pages.begins(n, tokens, self.settled(job))), -self.used[n]))
        job.lane, job.seen, job.begun, job.iterations, job.tests = lane, len(tokens), False, 0, None
        self.share(job)
        if not self.extend(lane, self.needed(job) if self.evictable else job.size + self.ahead):
            pages.release(lane)
            return False
        job.program = self
        self.jobs[lane] = job
        self.admitted += 1
        self.used[lane] = self.admitted
        for cache in self.step.caches.values():
            cache.model.begin(lane)
        step.admit(lane, m.request, m.noise_id)
        new = tokens[len(m.request.prompt) :]
        if new:
            step.tokens[lane, len(m.request.prompt) : len(tokens)] = torch.tensor(new, device=step.device)
            step.length[lane] = len(tokens)
        step.done[lane] = True  # until its text is computed
        return True

    def extend(self, lane: int, slots: int) -> bool:
        """Give a lane pages for so many slots; whether there are as many. The pool grows by what is missing, or by an eighth,
        so that there are hardly more slots than tokens. Where graphs have its address, which are recorded again then, it
        begins with pages for as many requests as there are lanes, and doubles."""
        missing, pages = self.pages.missing(lane, slots), self.pages
        if missing:
            recorded = self.records or self.step.bodies is not None
            generous = max(missing, self.first, pages.count) if recorded else max(missing, pages.count // 8)
            for more in (generous, missing):
                if self.store.fits(more * pages.page_bytes, (pages.count + more) * pages.page_bytes, self.step.device):
                    pages.grow(more)
                    self.moved()
                    break
            else:
                return False
        pages.take(lane, slots)
        return True

    def moved(self) -> None:
        """Nothing that was recorded is right any more: the pools have other addresses."""
        self.replays.clear()
        if isinstance(self.step.bodies, Bodies):
            self.step.bodies = Bodies(self.step, self.step.bodies.record)

    def settled(self, job: LaneJob) -> int:
        """Tokens at the beginning of a request's text whose slots no step writes."""
        return job.length - self.slack if self.models else 0

    def share(self, job: LaneJob) -> None:
        """Let a request that has computed nothing begin behind what is known of its text."""
        job.filled = self.pages.share(job.lane, job.tokens, self.settled(job))
        if job.rows is None:
            job.machine.reused = job.filled

    def needed(self, job: LaneJob) -> int:
        """Slots that a request's lane may use by the end of the next round: the ops before the loop may commit tokens, and a
        step, and those whose looks the host has not read."""
        most = (len(self.shown) + 2) * self.step.committed_most
        return min(job.seen + most, job.size) + self.ahead

    def grow(self, job: LaneJob) -> bool:
        """Give a request's lane pages for the next round; whether there are as many."""
        self._note(job)
        return self.extend(job.lane, self.needed(job))

    def _note(self, job: LaneJob) -> None:
        """Others may share what is computed of a request's text."""
        there = (min(job.seen, job.length) if job.begun else job.filled) - self.slack
        if there // PAGE > len(self.pages.ends[job.lane]):
            self.pages.note(job.lane, job.tokens, there)

    @torch.no_grad()
    def fill(self, chunk: int | None) -> list[LaneJob]:
        """Compute at most `chunk` tokens of texts (None: all), in the order of the requests. Those that are complete begin;
        they are returned."""
        left, ready = chunk if chunk is not None else 1 << 60, []
        for job in sorted((j for j in self.jobs if j is not None and not j.begun), key=lambda j: self.used[j.lane]):
            while left > 0 and (n := min(self.left_of(job), left, CHUNK)) > 0:
                self._computed(job, n, [cache.model for cache in self.models])
                left -= n
            if job.filled >= job.length - 1:
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
            self._behind()
            step.prologue(mask)
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
        flattened([s.env[v] for v in s.outside], values)
        return [v for v in values if len(v) == s.frame.batch and v is not s.tokens]

    @property
    def evictable(self) -> bool:
        """Whether all that a lane hands on is in tensors by lane."""
        return all(isinstance(v, Tensor) or is_static(v) for v in (*self.step.states.values(), *self.step.carried))

    def evict(self, job: LaneJob) -> None:
        """Take a request out of its lane, to go on later, in another program perhaps."""
        if job.begun:
            job.rows = [buffer[job.lane].clone() for buffer in self.lasting()]
        self.leave(job)

    def leave(self, job: LaneJob) -> None:
        """Free a request's lane; its pages stay for texts that begin alike, until they are needed."""
        self._note(job)
        self.pages.release(job.lane)
        self.step.done[job.lane] = True
        self.jobs[job.lane] = job.program = None

    # -- steps
    @torch.no_grad()
    def advance(self, chunk: int | None) -> Iterator[tuple[LaneJob, Look]]:
        """One round: a chunk of prompts, a step, and a look at an earlier one (at the same, on a CPU). Yields each request with
        what the host was shown of its lane."""
        prompted = self.next_prompt() if chunk is not None else None
        begun = self.fill(chunk if prompted is None else 0)
        jobs = [job for job in self.jobs if job is not None and job.begun]
        if jobs:
            if self.step.loop is not None:
                if begun and self.opens:  # what is committed before the loop is no iteration's
                    self.shown.append((begun, self.show()))
                if prompted is None or chunk is None:
                    self.run()
                else:
                    self.run_with_chunk(prompted, chunk)
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

    def next_prompt(self) -> LaneJob | None:
        """A request of whose prompt the next step can compute a part beside what it does for the others; None where there is no
        step, or no model can."""
        jobs = sorted((job for job in self.jobs if job is not None), key=lambda job: self.used[job.lane])
        if (
            self.hosted
            or self.step.loop is None
            or not any(j.begun for j in jobs)
            or not any(c.model.takes_chunks for c in self.models)
        ):
            return None
        return next((job for job in jobs if not job.begun and self.left_of(job) > 0), None)

    def left_of(self, job: LaneJob) -> int:
        """How many tokens of a prompt are to be computed. The last one is the first step's."""
        if job.filled == self.pages.shared[job.lane]:
            self.share(job)  # what those before it have computed since
        return job.length - 1 - job.filled

    def run_with_chunk(self, job: LaneJob, chunk: int) -> None:
        """One step of all lanes, with the next tokens of a request's prompt, at most `chunk`. Heads, which read their target's
        states of them, compute them after it."""
        tokens, device = job.tokens, self.step.device
        if self.chunk is None:
            self.chunk = Chunk(
                *(torch.zeros(shape, dtype=torch.int64, device=device) for shape in ((1, chunk), (1, chunk), (1,)))
            )
        size = self.chunk.tokens.shape[1]
        n = min(self.left_of(job), size)
        numbers = torch.zeros((2, 1, size), dtype=torch.int64, pin_memory=device.type == "cuda")
        numbers[0, 0, :n] = torch.tensor(tokens[job.filled : job.filled + n])
        numbers[1, 0] = torch.cat([torch.arange(job.filled, job.filled + n), torch.full((size - n,), self.pages.capacity - 1)])
        self.chunk.tokens.copy_(numbers[0], non_blocking=True)
        self.chunk.at.copy_(numbers[1], non_blocking=True)
        self.chunk.lane.fill_(job.lane)
        self.step.chunk = self.chunk
        try:
            self.run()
        finally:
            self.step.chunk = None
        self._computed(job, n, [c.model for c in self.models if id(c.model) not in self.step.chunked])

    def _computed(self, job: LaneJob, n: int, models: Sequence[DeviceModel]) -> None:
        """The next n tokens of a request's text are computed, now by these models too."""
        tokens = job.tokens
        for model in models:
            model.fill(job.lane, tokens, job.filled, n)
        job.filled += n
        self._note(job)

    def run(self) -> None:
        """One step of all lanes."""
        with_chunk = self.step.chunk is not None
        if not self.records:
            self.body()
        elif with_chunk not in self.replays:  # the run that is recorded is this step
            self.replays[with_chunk] = Replayed(self.body, self.step, self.step.device)
        else:
            self.replays[with_chunk]()

    def body(self) -> None:
        """One step of all lanes, by its operations."""
        self._behind()
        if self.step.chunk is not None:
            self.step.chunked.clear()
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
