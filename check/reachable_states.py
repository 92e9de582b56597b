"""Where a claim fails from carried values of any kind: does it fail from those that runs reach?

Whole texts are enumerated from the real start. Where none fails, the values that runs reach must be few, so that they were all
followed: long texts are sampled, and no new value may come up late in them. Else the claim stays undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.states import Signer, Unknown, carried_on
from decgraph.backends.exact.world import Unlikely, World
from decgraph.check.case import WorldPlan, begun, earlier_requests
from decgraph.check.chances import ByChance
from decgraph.check.claims import Failure
from decgraph.check.distributions import execute
from decgraph.check.exploration import Exploration
from decgraph.check.initial_states import left_seen
from decgraph.check.table_models import Style
from decgraph.errors import DecError
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op

LATE = 10  # a value first seen after this many steps may not have been followed
TEXT = 40  # tokens of each sampled text
REQUESTS, EARLY = 12, 3  # requests of a sampled session; a value first seen after the early ones may not have been followed


def from_reached_states(explored: Exploration, vocab: int) -> tuple[Failure | None, str]:
    """(a failure from a state that a run reaches, or why that cannot be said; nothing where the claim holds in all of them)."""
    sorts = ("plain", "zeros", "mixed", "plain", "peaked", "plain")
    for n, sort in enumerate(sorts):
        plan = WorldPlan(
            "reached",
            8000 + n,
            2 if n % 3 else vocab,
            Style(sort, shared=8000 + n),
            prompt=1 + n % 3,
            steps=None,
            limit=(4, 5, 4)[n % 3] if n % 3 else 3,
            length=5,
            tight=True,
            runs=4000,
        )
        failure = explored.one(plan)
        if failure is not None:
            return failure, ""
    late = values_that_come_late(explored, vocab) or values_of_late_requests(explored, vocab)
    if not late:
        return None, ""
    why = (
        "it is not true for every value that a step may carry on"
        if explored.from_any is not None
        else "a step may carry draws on that were read"
        if explored.seen_draws
        else "a step may carry a memory on that is not a model's memory of the text"
        if explored.other_memory
        else f"no arbitrary value is generated of {explored.no_value}"
        if explored.no_value
        else "no step from carried values of any kind could be decided"
    )
    return None, f"{why}, and those that runs reach are too many to follow ({late})"


def values_that_come_late(explored: Exploration, vocab: int) -> str:
    """In words, what a long text carries that its first steps did not; nothing where all values come up early."""
    followed = 0
    for n in range(6):
        plan = WorldPlan(
            "sampled",
            8100 + n,
            2 if n % 2 else vocab,
            Style("plain", shared=n, rare=3 * (n % 3)),
            prompt=2,
            limit=TEXT,
            steps=None,
            tight=n % 2 == 0,
        )
        case = explored.make(plan)
        if case is None:
            continue
        notes: dict[Hashable, int] = {}
        engine = type("Noting", (explored.engine,), {"while_iteration": _noting(explored.engine, notes)})
        case = begun(replace(case, engine=engine))
        world = World(coupled=True)
        world.restart(ByChance(n))
        try:
            execute(case.program().machine(case.request, world))
        except (DecError, Unlikely, NotSeparated):
            continue
        except Unknown as error:
            return f"a value of type {error}"
        followed += 1
        late = [step for step in notes.values() if step > LATE]
        if late:
            return f"a new one in step {late[0]}"
    return "" if followed else "no long text could be followed"


def values_of_late_requests(explored: Exploration, vocab: int) -> str:
    """In words, what a late request of a session finds that no early one did; nothing where there is no state of sessions, and
    where all values come up early."""
    if all(s.scope == "sequence" for s in explored.module.entry.states):
        return ""
    for n in range(2):
        plan = WorldPlan("sampled", 8200 + n, vocab, Style("plain", shared=n), prompt=2, limit=4, steps=None, session=1)
        case = explored.make(plan)
        if case is None:
            continue
        found: set[Hashable] = set()
        for earlier in range(REQUESTS):
            try:
                left = earlier_requests(replace(case, start=replace(case.start, session=earlier)))
                value = Signer({}).of({str(k): v for k, v in left.items()})
            except (DecError, Unlikely, NotSeparated):
                break
            except Unknown as error:
                return f"a value of type {error} in a session"
            if earlier >= EARLY and value not in found:
                return f"a new one in request {earlier + 1} of a session"
            found.add(value)
    return ""


def _noting(engine: type[ExactMachine], notes: dict[Hashable, int]) -> Callable[..., None]:
    def while_iteration(self: ExactMachine, op: Op, i: int, values: tuple[Datum, ...] = ()) -> None:
        if op.attrs.get("bound") == "done" and self.parent is None:
            kept = carried_on(self.function, op, values)
            if left_seen([*kept, *self.sequence_states.values()]):
                raise Unknown("draws that were read")
            signer = Signer(self.world.races, self.committed_context())
            parts = kept, self.sequence_states, {str(k): v for k, v in self.shared.items()}
            notes.setdefault(tuple(map(signer.of, parts)), i)
        engine.while_iteration(self, op, i, values)

    return while_iteration


__all__ = ["from_reached_states"]
