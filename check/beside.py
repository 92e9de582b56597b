"""Requests that are not alone: a second request of a session with the seed and id of the first, and two sequences side by side.

The request before runs in the same world, so that noise which both read is one choice. Of two sequences the one that is judged
runs in the caller's thread, the other in a thread of its own, and one of them moves at a time. Where a step begins, where those
that met at a fold go on, and (`lines`) before each access to a state that both have, an order says who moves next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.ir.data.dist import Draws
from decgraph.ir.machine import Datum, Vector
from decgraph.ir.values import Op

Order = tuple[int, ...]
"""Who moves at each choice, 0: the sequence that is judged. Where an order is over, whoever moved last goes on."""
STEPS, LINES, BACK = 4, 6, 4
"""All orders of so many choices at steps and folds (all merges of two steps and two). Between lines: up to LINES moves of the
one that is judged, up to as many of the other, and then all of the first one's; or up to BACK moves of the other, of the one
that is judged, and of the other again."""
LONGEST = 40
"""Choices after an order is over by which orders are told apart."""


def orders(lines: bool, used: list[int]) -> Iterator[Order]:
    """The orders of two sequences. used: gets how many choices each run made; orders that do not differ in so many are one."""
    some: Iterator[Order] = product((0, 1), repeat=STEPS)
    if lines:
        once = ((0,) * mine + (1,) * other + (0,) for mine in range(LINES + 1) for other in range(1, LINES + 1))
        twice = ((1,) * a + (0,) * b + (1,) * c + (0,) for a, b, c in product(range(1, BACK + 1), repeat=3))
        some = chain(once, twice)
    done: set[Order] = set()
    for order in some:
        moved = order + order[-1:] * LONGEST
        if any(moved[:n] in done for n in range(1, len(moved))):
            continue
        used.clear()
        yield order
        done.add(moved[: max(used, default=len(moved))])


def owned(world: World, since: int, whose: str) -> None:
    """Say whose the choices of a world are that were made since there were so many."""
    points = world.choices.points
    points[since:] = [replace(point, label=f"{whose} {point.label}") for point in points[since:]]


class Over(BaseException):
    """Raised in a sequence that nobody waits for any more. No Exception: machines turn these into errors of the program."""


@dataclass
class Turns:
    """Two sequences in one order."""

    order: Order
    lines: bool
    used: list[int]
    other: ExactMachine
    taken: int = 0
    active: int = 0
    alive: set[int] = field(default_factory=lambda: {0, 1})
    waits: dict[int, tuple[str, Any, Callable[[list[Any]], Sequence[Any]]]] = field(default_factory=dict)
    told: dict[int, Any] = field(default_factory=dict)
    go: tuple[threading.Semaphore, ...] = field(default_factory=lambda: (threading.Semaphore(0), threading.Semaphore(0)))
    error: BaseException | None = None
    ran: CoveredRun | None = None
    since: int = 0  # choices of the world before the other sequence moved

    def run(self, judged: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """Run the sequence that is judged to its end, and of the other what comes before. Raises what either of them does."""
        world = self.other.world
        self.ran, thread = world.ran, threading.Thread(target=self._run_other, daemon=True)
        thread.start()
        try:
            return judged()
        finally:
            self.used.append(self.taken)
            self.alive.discard(0)
            self.go[1].release()
            thread.join()
            world.ran = self.ran

    def _run_other(self) -> None:
        self.go[1].acquire()
        try:
            if 0 in self.alive:
                self.other.run()
                self.alive.discard(1)
                self._next()
        except Over:
            return
        except BaseException as error:  # of the world, or of the program: raised in the caller's thread
            self.error = error
        if 0 in self.alive:
            self._give(0)

    def choose(self, me: int) -> None:
        """The sequence is where the other one may come first."""
        to = self._next()
        if to != me:
            self._give(to)
            self.go[me].acquire()
            if self.error is not None:
                raise self.error
            if 0 not in self.alive:
                raise Over

    def meet(self, me: int, place: str, mine: Any, of_all: Callable[[list[Any]], Sequence[Any]]) -> Any:
        """The sequence waits at a fold over the batch."""
        self.waits[me] = (place, mine, of_all)
        self.choose(me)
        return self.told.pop(me)

    def _next(self) -> int:
        """Who goes on; where both wait, those that came to one place go on together (backends/reference/together.py)."""
        if not self.alive - self.waits.keys():
            place, _, of_all = self.waits[min(self.waits)]
            here = [n for n in sorted(self.waits) if self.waits[n][0] == place]
            self.told |= zip(here, of_all([self.waits[n][1] for n in here]), strict=True)
            for n in here:
                del self.waits[n]
        able = self.alive - self.waits.keys()
        if len(able) < 2:
            return min(able)
        self.taken += 1
        return self.order[self.taken - 1] if self.taken <= len(self.order) else self.active

    def _give(self, to: int) -> None:
        world = self.other.world
        if to:
            self.since = len(world.choices.points)
        else:
            owned(world, self.since, "the other sequence's")
        self.active, world.ran = to, None if to else self.ran  # what the other one does is not compared
        self.go[to].release()


class Beside(ExactMachine):
    """A sequence beside another one."""

    turns: Turns | None = None
    me = 0
    unseen = False  # whether the other one cannot come between: a line is under way

    def batch_fold(self, op: Op, x: Datum) -> Datum:
        return ReferenceMachine.batch_fold(self, op, x)

    def batch_top(self, op: Op, x: Vector | Draws, k: Datum, by: Sequence[Datum]) -> Datum:
        return ReferenceMachine.batch_top(self, op, x, k, by)

    def beside(self, other: Beside, order: Order, lines: bool, used: list[int]) -> None:
        """Run beside another sequence, which has begun after this one."""
        turns = Turns(order, lines, used, other)
        for n, m in enumerate((self, other)):
            m.turns, m.me, m.meeting = turns, n, lambda *args, n=n: turns.meet(n, *args)

    def run(self) -> tuple[int, ...]:
        if self.turns is None or self.me:
            return super().run()
        return self.turns.run(super().run)

    def while_iteration(self, op: Op, i: int, values: tuple[Datum, ...] = ()) -> None:
        super().while_iteration(op, i, values)
        if self.turns is not None and op.attrs.get("bound") == "done" and (i or not self.me):
            self.turns.choose(self.me)

    def touch(self) -> None:
        """Before what both sequences have is read or written."""
        whole = self.whole
        if whole.turns is not None and whole.turns.lines and not self.unseen:
            whole.turns.choose(whole.me)

    def _state(self, name: str) -> tuple[dict[Any, Any], Any]:
        found = super()._state(name)
        if found[0] is self.shared:
            self.touch()
        return found

    def start_states(self, values: Sequence[Datum]) -> None:
        self.unseen = True
        super().start_states(values)
        self.unseen = False

    def learn_committed(self, tokens: Sequence[int]) -> None:
        self.unseen = True  # an index of the session's texts learns them with the commit
        super().learn_committed(tokens)
        self.unseen = False
