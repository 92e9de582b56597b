"""Requests in flight on the device: which program and lane each gets, and what the host makes of what it is shown.

The host feeds every token to the request's stop machine: stop strings, conditions of the caller's, listeners. What a lane
computes past the end that the host finds is dropped. Keys and values of all programs of a model are bounded by a budget: where
a program has no page left, the requests that came last are evicted, and where a request waits for too long, those of other
programs. They are computed again when their turn comes.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from decgraph.backends.torch.schedule import Ended
from decgraph.backends.triton import shaping
from decgraph.backends.triton.capture import NothingRecorded
from decgraph.backends.triton.pages import PAGE
from decgraph.backends.triton.program import LaneJob, Look, Needs, Program, Programs, home, key_of, needs_of, note, programs_of
from decgraph.backends.triton.run import DeviceRun
from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.drafting import drafting
from decgraph.runtime.faults import fault
from decgraph.runtime.trace import Committed, Figure

_LOG = logging.getLogger("decgraph")
KEPT = 2
"""Programs without a request that are kept with a model, each with its lanes' keys and values."""
PATIENCE = 64
"""Rounds for which a request waits for the memory of another program before that program's lanes are evicted."""
WIDE = 8192
"""Tokens that a lane's table has a place for though its requests are shorter, where the models' context is as long: the table
costs little, and a request that is longer needs another program."""
LOST = "a case came up that only the driver handles"
Left = Callable[[int, DeviceRun, str], None]


class TooLarge(NotSteppable):
    """There is no memory for a request, which says nothing of others."""


class Steps:
    """Requests in flight on the device, of any programs. To be used by one thread.

    ended(number, machine, error): called as each ends. left(number, machine, why): called for one that the driver has to run,
    from its beginning. width: the most lanes of a program. chunk: tokens of prompts that a round computes in each program.
    more: whether requests come at any time, so that a new program has all lanes at once; else as many as requests wait.
    """

    def __init__(
        self, ended: Ended[DeviceRun], left: Left, *, width: int = 8, chunk: int | None = None, more: bool = False
    ) -> None:
        self.ended, self.left, self.width, self.chunk, self.more = ended, left, width, chunk, more
        self.waiting: deque[LaneJob] = deque()
        self.running: list[Program] = []

    def __len__(self) -> int:
        return len(self.waiting) + sum(map(len, self.running))

    def join(self, number: int, machine: DeviceRun) -> None:
        """Take up a request. Raises NotSteppable for one that the driver has to run."""
        self.waiting.append(LaneJob(number, machine, *wants(machine)))

    def jobs(self) -> list[LaneJob]:
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

    def _drop(self, job: LaneJob) -> None:
        if job.program is not None:
            job.program.leave(job)
        else:
            self.waiting.remove(job)

    def advance(self) -> bool:
        """One round: lanes for those that wait, and a step of every program. Whether any request is left."""
        self._place()
        for program in list(self.running):
            try:
                self._grow(program)
                for job, look in program.advance(self.chunk):
                    self._hear(program, job, look)
            except NothingRecorded:  # the driver would do as little, for ever
                raise
            except Exception as error:  # of the compiler, the driver, the memory of the device: eager mode may work
                for job in self._ended(program):
                    self.left(job.number, job.machine, self._why(job, error))
        self._settle()
        return len(self) > 0

    def _ended(self, program: Program) -> list[LaneJob]:
        """Take all requests out of a program that failed, and forget it."""
        jobs = [j for j in program.jobs if j is not None]
        for job in jobs:
            program.leave(job)
            programs_of(job.machine.target).programs.pop(id(program), None)
        program.shown.clear()
        return jobs

    def _why(self, job: LaneJob, error: Exception) -> str:
        """Why the driver runs a request that could not go on here."""
        if isinstance(error, NotSteppable) and not isinstance(error, TooLarge):
            note(job.machine, job.features, error)  # of the next one it is known
        if isinstance(error, NotSteppable):
            return str(error)
        why = f"{type(error).__name__}: {error}"
        _LOG.warning("%s failed in graph mode and goes on in eager mode: %s", job.machine.function.name, why)
        return why

    # -- lanes
    def _place(self) -> None:
        """Give lanes to those that wait, in their order."""
        busy = {job.sharing for p in self.running for job in p.jobs if job is not None} - {None}
        for job in list(self.waiting):
            if job.sharing in busy:
                continue
            try:
                program = self._program(job)
                while program is not None and not program.admit(job):
                    program = program if self._gives_way(job, program) else None
            except Exception as error:  # NotSteppable, or no memory
                self.waiting.remove(job)
                self.left(job.number, job.machine, self._why(job, error))
                continue
            if program is None:
                job.waited += 1
                continue
            self.waiting.remove(job)
            job.waited = 0
            busy |= {job.sharing} - {None}
            if program not in self.running:
                self.running.append(program)

    def _program(self, job: LaneJob) -> Program | None:
        """A program with a free lane for a request; None where it has to wait. Raises NotSteppable where no memory is left."""
        store, key = programs_of(job.machine.target), key_of(job.machine)
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
        batch, capacity, device = self._places(job), self._capacity(job), home(job.machine.models)
        for program in idle:  # the new one serves what they did
            self._free(store, program)
        while True:
            slots = job.size + PAGE if job.needs.paged else batch * (capacity + PAGE)
            wanted = job.needs.bytes * (slots + job.needs.ahead)
            if store.fits(wanted, wanted, device):
                break
            if batch > 1 and not store.programs and not job.needs.paged:
                batch //= 2
            elif not self._gives_way(job):
                return None
        made = Program(job, features, batch, capacity)
        store.programs[id(made)] = made
        return made

    def _gives_way(self, job: LaneJob, mine: Program | None = None) -> bool:
        """Whether memory was freed for a request, in its own program or for a new one: other programs without requests go, and
        when it has waited for long those of others are evicted. Raises TooLarge where there is nothing to wait for."""
        store = programs_of(job.machine.target)
        others = [p for p in store.programs.values() if p is not mine]
        idle = next((p for p in others if not len(p)), None)
        if idle is not None:
            self._free(store, idle)
            return True
        if not any(map(len, store.programs.values())):
            size = job.needs.bytes * (job.size + job.needs.ahead)
            raise TooLarge(f"a text of {job.size} tokens needs {size / 2**20:,.0f} MiB of keys and values")
        evicted = [j for p in others if p.evictable for j in p.jobs if j is not None] if job.waited >= PATIENCE else []
        self._evict(evicted)
        return bool(evicted)

    def _grow(self, program: Program) -> None:
        """Pages for what the lanes of a program may write in the next round. Where there are none, the requests that came last
        give theirs up."""
        for job in sorted((j for j in program.jobs if j is not None), key=lambda j: program.used[j.lane]):
            while job.program is program and not program.grow(job):
                if not self._gives_way(job, program):
                    self._evict([max((j for j in program.jobs if j is not None), key=lambda j: program.used[j.lane])])

    def _evict(self, jobs: Sequence[LaneJob]) -> None:
        """Requests leave their lanes, once the host has heard all that those have computed, and wait for others."""
        for program in {id(job.program): job.program for job in jobs if job.program is not None}.values():
            for job, look in list(program.looks()):
                self._hear(program, job, look)
            for job in jobs:
                if job.program is program:
                    program.evict(job)
                    self.waiting.append(job)

    def _places(self, job: LaneJob) -> int:
        """Lanes of a new program: as many as there are requests, up to the width."""
        if job.sharing is not None:
            return 1
        if self.more:
            return self.width
        alike = sum(key_of(j.machine) == key_of(job.machine) for j in self.waiting)
        return min(self.width, 1 << max(0, alike - 1).bit_length())

    def _capacity(self, job: LaneJob) -> int:
        """Tokens of a lane of a new program. Of a canvas as few as there are: every call computes all slots."""
        most = max(j.size for j in self.waiting if j.machine.main is job.machine.target)
        if job.machine.target.kind == "masked":
            size = -(-most // 8) * 8
        else:
            size = 1 << max(6, (most - 1).bit_length())
        if job.machine.window is None:
            return size
        if job.needs.paged and job.needs.wide:
            size = max(size, WIDE)
        return max(job.size, min(size, int(job.machine.window) + 1))

    def _free(self, store: Programs, program: Program) -> None:
        store.programs.pop(id(program), None)
        if program in self.running:
            self.running.remove(program)

    def _settle(self) -> None:
        """Programs without requests stop; the last of them are kept."""
        for program in [p for p in self.running if not len(p)]:
            program.shown.clear()
            self.running.remove(program)
            store = next((programs_of(m) for m in program.about[1].values() if id(program) in programs_of(m).programs), None)
            idle = [p for p in store.programs.values() if not len(p)] if store is not None else []
            for old in idle[: max(0, len(idle) - KEPT)]:
                store.programs.pop(id(old))  # type: ignore[union-attr]

    # -- what the host hears
    def _hear(self, program: Program, job: LaneJob, look: Look) -> None:
        """What a look says of a request: its new tokens, and whether it has ended."""
        m, done = job.machine, look.done
        idle = program.commits and look.iterations > job.iterations  # an iteration that commits nothing is the driver's error
        new = program.new_tokens(job, look)
        if look.lost or (idle and not (done or new)):
            program.leave(job)
            self.left(job.number, m, LOST)
            return
        try:
            cut = self._feed(m, new)
        except Exception as error:  # a function of the caller's, or the listener
            program.leave(job)
            self.ended(job.number, m, fault(error, request=m.title))
            return
        tests = counted(job, look, len(new) - cut if cut or done else None)
        if done or m.done():
            self._finish(program, job, look, tests)

    def _feed(self, m: DeviceRun, new: Sequence[int]) -> int:
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

    def _finish(self, program: Program, job: LaneJob, look: Look, tests: np.ndarray) -> None:
        """A request has ended: its statistics, states and log-probabilities."""
        m, (tested, accepted) = job.machine, tests
        m.tally.drafted += look.drafted
        m.tally.unmasked += look.unmasked
        m.tally.remasked += look.remasked
        for depth in np.flatnonzero(tested).tolist():
            m.tally.tested[depth] = int(tested[depth])
            if accepted[depth]:
                m.tally.accepted[depth] = int(accepted[depth])
        tokens = {op.attrs["name"] for op in m.function.body.walk() if op.opcode == "note" and op.attrs.get("token")}
        for name, figures in program.step.counts.notes.items():
            count, last, total, low, high = figures[job.lane].tolist()
            if count:
                m.tally.notes[name] = Figure(int(count), last, total, low, high, name in tokens)
        calls = Counter(program.once) + Counter(look.calls)
        calls.update({name: n * look.iterations for name, n in program.each.items()})
        for name, n in calls.items():
            self._count(m, name, n)
        problem: Exception | None = None
        try:
            for state in m.function.states:
                value = program.step.states.get(state.name)
                if state.scope != "sequence" and isinstance(value, Tensor):
                    kept = value[job.lane].long() if state.type.elem == "token" else value[job.lane]
                    m.shared[(m.function.name, state.name)] = kept.cpu().numpy().copy()  # the lane is another request's next
            program.leave(job)
            m.finish()
            m.read_logprobs()
        except Exception as error:
            problem = fault(error, request=m.title)
        m.release()
        self.ended(job.number, m, problem)

    def _count(self, m: DeviceRun, name: str, n: int) -> None:
        """Count the calls of a model, or of a part of one."""
        parameter, _, part = name.partition(".")
        model = m.models.get(parameter)
        own = name if model is None else model.name
        called = own if not part or model is None else drafting(own) if part == "drafting" else f"{own}.{part}"
        for _ in range(n):
            m.tally.call(called, model is m.main and not part)


def wants(machine: DeviceRun) -> tuple[frozenset[str], Needs]:
    """The features and sizes that a request needs. Raises NotSteppable for one that the driver has to run."""
    if machine.parent is not None or machine.until is not None or machine.externs or machine.recorder is not None:
        raise NotSteppable("it is a sub-run, is recorded, or calls functions of the caller")
    features = shaping.need(machine.request)
    room = len(machine.request.prompt) + machine.request.max_tokens
    whole = machine.window is None or room <= machine.window
    needs = needs_of(machine, features) if whole else None
    if needs is None or (machine.window is not None and room + needs.drafts > machine.window):
        raise NotSteppable(f"a tree may not fit into the context of {machine.window} tokens")
    return features, needs


def counted(job: LaneJob, look: Look, most: int | None) -> np.ndarray:
    """int64[2, depth]: tests and acceptances so far, but for those since the last look below the depth `most` (None: all)."""
    tests = look.tests.copy()
    if most is not None:
        before = np.zeros_like(tests) if job.tests is None else job.tests
        tests[:, most + 1 :] = before[:, most + 1 :]
    job.tests = tests
    return tests
