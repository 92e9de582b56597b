"""Checking an algorithm: many worlds, what of the program ran in them, a verdict, and a counterexample that can be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.backends.exact.coverage import Ran
from decgraph.backends.exact.run import ExactMachine
from decgraph.check.adversary import adversarial, controllers
from decgraph.check.claims import Case
from decgraph.check.constants import facts
from decgraph.check.counterexample import Counterexample, explain, smaller
from decgraph.check.coverage import Missing, missing, pinned
from decgraph.check.distributions import OutOfTime, Tally
from decgraph.check.forced import harmless, searched
from decgraph.check.mutant import ROUNDS, WANTED, Kill, plant
from decgraph.check.mutants import MUTANTS
from decgraph.check.outside import dead
from decgraph.check.plans import QUICK, first_plans, further_plans
from decgraph.check.planting import Planting
from decgraph.check.reached import from_reached_states
from decgraph.check.sampling import at_own_sizes
from decgraph.check.settings import Group, groups, restricted
from decgraph.check.survey import Survey, Tried
from decgraph.check.worlds import narrow, world
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Module
from decgraph.runtime.arguments import Externs, ParamValue

Progress = Callable[[str, int, int], None]


@dataclass
class Report:
    """What a check found.

    verdict: `proved`: in every world that was decided (`models` of them, at least half of those tried) each claim holds
    exactly, over all that chance and adversaries can do there (rationals, no sampling, no tolerance), everything in the
    program ran in them, both ways, and every mutant was found. A claim with a condition (`when delta == 0`) is proved for the
    values that satisfy it: only what can run there had to, and mutants that change nothing there (`outside`) are not among
    those planted. `refuted`: there is a world in which a claim does not
    hold, and `counterexample` is it. `undecided`: neither; `reasons` says why, with lines. `none`: nothing is claimed.

    shrunk: worlds that were decided only with smaller parameters and lengths. states: "any" where steps were
    decided from carried values of any kind, "reached" where only from those that runs reach, "" where nothing is carried.
    dead: what cannot run at the setting of a claim.
    missing: what no decided world has shown. tried: of what the worlds consisted. seen, harmless: outcomes for `--coverage`.

    controllers: for a proved algorithm whose drafting is steered by probabilities, entropies, coins or states: "any" if the
    claims are true whatever those conditions return, "own" if they need their own (a convergence test does), "undecided", or
    nothing.

    faults: errors of decgraph itself that ended a world, with the place in its code: the verdict is `undecided` then.
    """

    name: str
    verdict: str
    claims: list[str]
    models: int
    runs: int
    seconds: float
    planted: int = 0
    killed: int = 0
    counterexample: Counterexample | None = None
    notes: list[str] = field(default_factory=list)
    mutants: list[Kill] = field(default_factory=list, repr=False)
    controllers: str = ""
    reasons: list[str] = field(default_factory=list)
    shrunk: int = 0
    states: str = ""
    missing: list[Missing] = field(default_factory=list, repr=False)
    not_seen: list[str] = field(default_factory=list, repr=False)
    tried: Tried = field(default_factory=Tried, repr=False)
    ran: Ran | None = field(default=None, repr=False)
    harmless: set[Any] = field(default_factory=set, repr=False)
    interrupted: bool = False
    faults: list[str] = field(default_factory=list)
    module: Module | None = field(default=None, repr=False)
    dead: list[str] = field(default_factory=list, repr=False)
    groups: list[Group] = field(default_factory=list, repr=False)

    @property
    def survivors(self) -> list[Kill]:
        """Mutants that no world showed."""
        return [m for m in self.mutants if not m.killed and not m.outside]

    @property
    def outside(self) -> list[Kill]:
        """Mutants that change nothing at the setting of the claim that they were planted for."""
        return [m for m in self.mutants if m.outside]

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "claims": self.claims,
            "models": self.models,
            "shrunk": self.shrunk,
            "runs": self.runs,
            "seconds": round(self.seconds, 3),
            "mutants": {
                "planted": self.planted,
                "killed": self.killed,
                "outside": len(self.outside),
                "list": [m.to_json() for m in self.mutants],
            },
            "counterexample": self.counterexample.to_json() if self.counterexample else None,
            "reasons": self.reasons,
            "notes": self.notes,
            "controllers": self.controllers,
            "states": self.states,
            "tried": self.tried.to_json(),
            "not_seen": self.not_seen,
            "outside": self.dead,
            "interrupted": self.interrupted,
            "faults": self.faults,
        }


def cases(
    module: Module,
    claim: Claim,
    *,
    vocab: int,
    models: int,
    params: Mapping[str, ParamValue] | None,
    length: int = 3,
    engine: type[ExactMachine] = ExactMachine,
    first: int = 0,
    externs: Externs | None = None,
) -> list[Case]:
    """The first worlds of one claim: small ones of every style, half of them plain requests."""
    return [
        world(module, claim, plan, given=params, engine=engine, externs=externs)
        for plan in first_plans(module, claim, vocab, models, first)
    ]


def check_module(
    module: Module,
    *,
    vocab: int = 3,
    models: int = 20,
    params: Mapping[str, ParamValue] | None = None,
    progress: Progress | None = None,
    engine: type[ExactMachine] = ExactMachine,
    planting: Planting | None = None,
    mutants: bool = False,
    adversary: bool = True,
    externs: Externs | None = None,
    seconds: float | None = None,
) -> Report:
    """Decide every claim of a module's entry: in `models` small worlds over `vocab` tokens and in those that the program asks
    for. Past `seconds`, and when it is interrupted, the report says what is known by then."""
    f = module.entry
    started = time.perf_counter()
    tally = Tally(until=None if seconds is None else started + seconds)
    ran = Ran.of(module, f)
    report = Report(f.name, "none", [c.text for c in f.claims], 0, 0, 0.0, ran=ran, module=module)
    options: dict[str, Any] = {"vocab": vocab, "models": models, "params": params, "engine": engine, "externs": externs}
    try:
        if f.claims:
            report.groups = groups(module, ran, params or {})
            decide_claims(module, report, tally, progress, options)
        if report.verdict == "proved" and adversary and controllers(f):
            plain = report.groups[0]  # what is claimed without a condition, if anything
            if not plain.skipped:
                fewer = {**options, "models": max(2, models // 5)}
                report.controllers = against_controllers(restricted(module, plain), tally, report.faults, **fewer)
        if report.verdict == "proved" and mutants:
            for group in report.groups:
                if not group.skipped:
                    plant_all(module, group, report, planting, tally, progress, options)
    except OutOfTime:
        report.verdict = "undecided"
        report.reasons.append(f"the {seconds:g} seconds that it was given are over")
    except KeyboardInterrupt:
        report.verdict, report.interrupted = "undecided", True
        report.reasons.append("interrupted")
    if report.faults and report.verdict == "proved":
        report.verdict = "undecided"
    report.reasons[:0] = [f"a fault of decgraph itself, please report it: {what}" for what in report.faults]
    report.runs, report.seconds = tally.runs, time.perf_counter() - started
    return report


def decide_claims(module: Module, report: Report, tally: Tally, progress: Progress | None, options: dict[str, Any]) -> None:
    """Decide the claims one after the other, and put what was found into the report."""
    lost = tried = 0
    states = ""
    pairs = [(group, claim) for group in report.groups if not group.skipped for claim in group.claims]
    report.notes += [group.skipped for group in report.groups if group.skipped]
    if not pairs:
        report.verdict, report.reasons = "undecided", [*report.notes]
        return
    for n, (group, claim) in enumerate(pairs):
        survey = Survey(
            module,
            claim,
            tally,
            group.ran,
            report.tried,
            params=options["params"],
            engine=options["engine"],
            externs=options["externs"],
            notes=report.notes,
            faults=report.faults,
        )
        plans = [
            *first_plans(module, claim, options["vocab"], options["models"]),
            *further_plans(module, claim, options["vocab"], options["models"], options["params"] or {}),
        ]
        try:
            failure = survey.run(plans, progress)
            if failure is None and not survey.reasons and not survey.inductive:
                failure, reason = from_reached_states(survey, options["vocab"])
                states = "reached"
                if failure is None and reason:
                    report.reasons.append(reason)
            elif survey.arbitrary and not states:
                states = "any"
            if failure is None and survey.from_functions is not None:
                report.reasons.append(
                    f"{survey.from_functions.words}, and no function was found that does so by its arguments alone"
                )
            if failure is None:
                tally.check_time()
                failure = at_own_sizes(survey, options["vocab"])
            if failure is None:
                searched(survey, group.function, options["vocab"], progress)
                failure = survey.failure
        finally:  # a check that is out of time says what it has decided
            report.models += survey.decided
            report.shrunk += survey.shrunk
        lost, tried = lost + survey.lost, tried + survey.tried
        if failure is not None:
            report.verdict, report.counterexample = "refuted", explain(smaller(failure))
            held, later = ([f"`{c.text}`" for _, c in part] for part in (pairs[:n], pairs[n + 1 :]))
            report.reasons = [f"{' and '.join(held)} held in every world before that"] if held else []
            report.reasons += [f"{' and '.join(later)} was not looked at yet"] if later else []
            return
        report.reasons += survey.reasons
    report.verdict, report.states = "proved", states
    for here in (group for group in report.groups if not group.skipped):
        no_matter = harmless(module, here.function, here.ran, tally, options)
        left = missing(pinned(here.function, options["params"]), here.ran, module.path, no_matter)
        if here.when and left:
            outside = dead(module, here.claims[0], left, here.ran, options, tally)
            report.dead += [f"{m}, when {here.when}" for m in left if m.key in outside]
            left = [m for m in left if m.key not in outside]
        report.harmless |= no_matter
        report.missing += left
        report.not_seen += [f"{m}{f', when {here.when}' if here.when else ''}" for m in left]
    report.reasons += list(dict.fromkeys(report.not_seen))
    unheld, uncut = facts(module, module.entry).unheld, facts(module, module.entry).uncut
    if unheld:
        largest = max(report.tried.vocabularies, default=0)
        report.reasons.append(
            f"vocabularies of up to {largest} tokens were tried, and the program names {unheld[0]} beside token ids"
        )
    if uncut:
        tried_up_to = max(report.tried.contexts, default=0)
        report.reasons.append(f"contexts of up to {tried_up_to} tokens were tried, and the program cuts at {uncut[0]}")
    if 2 * lost > tried:
        why = next((n.split(": ", 1)[1] for n in report.notes), "")
        report.reasons.append(f"{lost} of {tried} worlds could not be decided" + (f": {why}" if why else ""))
    if report.reasons:
        report.verdict = "undecided"


def plant_all(
    module: Module,
    group: Group,
    report: Report,
    planting: Planting | None,
    tally: Tally,
    progress: Progress | None,
    options: dict[str, Any],
) -> None:
    """Plant every bug that applies to a group of claims; the verdict stands only if each is found. At a setting those are left
    out that change nothing there (check/outside.py)."""
    module = restricted(module, group)

    def every(m: Module, e: type[ExactMachine], part: int) -> list[Case]:
        out: list[Case] = []
        m = restricted(m, group)
        for claim in m.entry.claims:
            plans = first_plans(m, claim, options["vocab"], options["models"], part * options["models"])
            if part == 1 or (part == 2 and options["models"] < QUICK):  # those of a quick look, then all of them
                many = options["models"] if part == 1 else QUICK
                plans = further_plans(m, claim, options["vocab"], many, options["params"] or {})
            for plan in plans:
                try:
                    out.append(world(m, claim, plan, given=options["params"], engine=e, externs=options["externs"]))
                except DecError:
                    continue
        return out

    def without(case: Case) -> Case:
        assert case.plan is not None
        sound = world(
            module, case.claim, case.plan, given=options["params"], engine=options["engine"], externs=options["externs"]
        )
        return replace(sound, params=case.params, length=case.length, request=case.request)

    models = options["models"]  # where they are few there are more rounds: only what is not found takes them
    rounds = ROUNDS + max(0, -(-(WANTED - 2 * models) // models))
    kills = plant(module, planting, MUTANTS, every, without, progress, tally, setting=bool(group.when), rounds=rounds)
    report.mutants += kills
    inside = [kill for kill in kills if not kill.outside]
    report.planted, report.killed = report.planted + len(inside), report.killed + sum(m.killed for m in inside)
    where = f", when {group.when}" if group.when else ""
    for kill in inside:
        if not kill.killed:
            report.reasons.append(f"the mutant `{kill.name}` was not found{where}: {kill.why}")
    if report.survivors:
        report.verdict = "undecided"


def against_controllers(module: Module, tally: Tally, faults: list[str], **options: Any) -> str:
    """ "any" where each claim is true whatever controllers return, "own" where it needs their own results, "undecided"."""
    engine = adversarial(options["engine"])
    decided, open_ = 0, False
    for claim in module.entry.claims:
        survey = Survey(
            module,
            claim,
            tally,
            None,
            Tried(),
            params=options["params"],
            engine=engine,
            externs=options["externs"],
            faults=faults,
        )
        for plan in first_plans(module, claim, options["vocab"], options["models"]):
            case = survey.make(plan)
            if case is None:
                continue
            failure, why, _ = survey.attempt(narrow(case))
            if failure is not None or survey.erred:  # another choice may lead where the program cannot go on
                return "own"
            open_ = open_ or bool(why)
            decided += not why
    return "any" if decided and not open_ else "undecided"
