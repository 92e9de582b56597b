"""What no world has shown: looked for among worlds of every sort, and where none is found, forced.

A branch that never ran may hide anything. First many worlds are sampled, a few runs each, for one that comes to it, and that
world is decided. What is still missing is forced: the condition is answered by an adversary, the comparison is given the
other outcome, whatever it computes. If that changes what the program does in some world, and the claims hold in all of them, it
does not matter that no world came to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from decgraph.backends.exact.coverage import CoveredRun, Outcome
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.world import Unlikely, World
from decgraph.check.case import Case, WorldPlan, begun
from decgraph.check.chances import ByChance
from decgraph.check.coverage import demanded, missing, pinned
from decgraph.check.distributions import RunTally, execute
from decgraph.check.effects import effects
from decgraph.check.exploration import DecidedSettings, Exploration, Options
from decgraph.check.faults import internal
from decgraph.check.initial_states import NoValue
from decgraph.check.plans import chance_plan, first_plans, further_plans
from decgraph.check.worlds import narrow
from decgraph.errors import DecError
from decgraph.ir.values import Function, Module

SEARCHED = 120  # worlds sampled at most
IN_VAIN = 50  # the search ends after this many worlds that showed nothing
SAMPLES = 3  # runs sampled in each world
OFTEN = 3  # worlds that should show each outcome: in a single one it may make no difference
AGAIN = 12  # the same, where a world that shows the outcome can be varied by drawing its tables again
VARIED = 60  # worlds made by drawing tables again, at most
LARGE = 3  # the search ends after this many worlds that were too large to decide
STUCK = 6  # an outcome is given up after this many worlds in which the forced program cannot go on
ROUNDS = 3  # rounds in which forcing one outcome may lead to another unseen one


def searched(explored: Exploration, f: Function, vocab: int, progress: Callable[[str, int, int], None] | None) -> None:
    """Decide worlds that show what is missing, as far as sampling finds them."""
    assert explored.ran is not None
    wanted = [(id(op), kind) for op, kind in demanded(pinned(f, explored.params), explored.ran)]
    open_ = {key for key in wanted if explored.shown[key] < OFTEN}
    last = 0
    for seed in range(SEARCHED):
        if not open_ or explored.failure is not None or seed - last > IN_VAIN:
            break
        if progress is not None:
            progress("looking for what no world has shown", seed, SEARCHED)
        plan = chance_plan(explored.module, explored.claim, vocab, seed)
        if open_ & sampled(explored, plan):
            explored.one(plan)
            last = seed
            open_ = {key for key in wanted if explored.shown[key] < OFTEN}

    varied(explored, wanted)


def varied(explored: Exploration, wanted: Sequence[Outcome]) -> None:
    """Decide worlds that have shown an outcome that few have, with other tables: what is wrong there need not show in the
    first of them."""
    left = VARIED
    for key in wanted:
        # A draw that was certain wherever it was read: the same worlds, with fewer rows that are certain.
        certain = key[1] == "open" and explored.shown[key] == 0
        plan = explored.shown_by.get((key[0], "certain") if certain else key)
        lost = explored.lost
        for n in range(AGAIN if plan is not None else 0):
            if left == 0 or explored.failure is not None or explored.shown[key] >= AGAIN or explored.lost - lost >= LARGE:
                break
            assert plan is not None
            style = replace(plan.style, sort=plan.style.sort if n % 3 == 2 else "plain")
            if certain:
                style = replace(
                    style,
                    shared=style.shared + n // 3,
                    rare=(0, 2, 4)[n % 3] if style.rare else 0,
                    point_until=max(0, style.point_until - 1 - n % 3),
                )
            explored.one(replace(plan, label="searched", style=style, tables=n + 1))
            left -= 1


def sampled(explored: Exploration, plan: WorldPlan) -> set[Outcome]:
    """What a few runs in a world come to."""
    assert explored.ran is not None
    case = explored.make(plan)
    if case is None:
        return set()
    ran = explored.ran.fresh()
    try:
        case = begun(case)
        prepare = case.setup()
        for seed in range(SAMPLES):
            world = World(coupled=True, ran=ran)
            world.restart(ByChance(seed))
            m = case.program().machine(case.request, world, None).resume(case.start.committed)
            prepare(m)
            execute(m)
    except (Unlikely, NotSeparated, NoValue):
        pass
    except Exception as error:
        explored.fault(case, internal(error, explored.externs))
        if not isinstance(error, DecError):  # a world that the program cannot be run in shows nothing
            return set()
    return ran.seen


def harmless(module: Module, f: Function, ran: CoveredRun, tally: RunTally, options: Options) -> set[Outcome]:
    """Of what is missing, the outcomes with which the claims hold when they are forced."""
    out: set[Outcome] = set()
    refused: set[Outcome] = set()
    asked = pinned(f, options.params)
    for _ in range(ROUNDS):
        open_ = [m for m in missing(asked, ran, module.path, out) if m.forceable and m.key not in refused]
        if not open_:
            break
        for m in open_:
            if m.key in out:
                continue
            shown = holds_when_forced(module, f, ran, m.key, tally, options)
            if shown is None:
                refused.add(m.key)
            else:
                out |= shown | {m.key}
    return out


def holds_when_forced(
    module: Module, f: Function, ran: CoveredRun, key: Outcome, tally: RunTally, options: Options
) -> set[Outcome] | None:
    """The outcomes that were met with one op forced, where every claim holds with it; None where one does not, or nothing
    shows."""
    shown: set[Outcome] = set()
    told = ran.fresh({key[0]: key[1]})
    moved = False  # it must make a difference somewhere, else that the claim holds says nothing
    for claim in f.claims:
        forced = CoveredRun(ran.watched, forced={key[0]: "any" if key[1] in ("true", "false") and claim.mode != "" else key[1]})
        explored = Exploration(
            module,
            claim,
            tally,
            forced,
            DecidedSettings(),
            params=options.params,
            engine=options.engine,
            externs=options.externs,
        )
        plans = first_plans(module, claim, options.vocab, 6)
        plans += [
            p
            for p in further_plans(module, claim, options.vocab, 20, options.params)
            if p.label in ("resumed", "deep", "carried", "canvas", "layers")
        ][:10]
        decided = erred = large = 0
        for plan in plans:
            case = explored.make(replace(plan, runs=1500))
            if case is None:
                continue
            if (erred == STUCK or large == LARGE) and not decided:
                return None
            forced.used.clear()
            before = len(forced.seen)
            failure, why, _ = explored.attempt(case if claim.mode != "distribution" else narrow(case))
            # An error where it is forced is one that no world has shown: a guard may keep the program from it, or not.
            if failure is not None or (explored.erred and not ends_by_itself(case, explored)):
                return None
            moved = moved or effects(case, 0, told, noise=False) != effects(case, 0, noise=False)
            decided += not why and key[0] in forced.used and len(forced.seen) >= before
            erred += explored.erred
            large += bool(why) and not explored.erred
        if not decided:
            return None
        shown |= forced.seen
    return shown if moved else None


def ends_by_itself(case: Case, explored: Exploration) -> bool:
    """Whether the program ends in an error in this world also where nothing is forced."""
    free = replace(explored, ran=None, erred=False, errors=[], faults=[])
    free.attempt(case, (0,))
    return free.erred


__all__ = ["harmless", "searched"]
