"""Checking an algorithm: many worlds, what of the program ran in them, a verdict, and a counterexample that can be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from decgraph.backends.exact.coverage import CoveredRun, Outcome
from decgraph.backends.exact.run import ExactMachine
from decgraph.check.adversary import adversarial, controllers
from decgraph.check.case import Case
from decgraph.check.claims import Failure
from decgraph.check.constants import facts
from decgraph.check.counterexample import Counterexample, explain, smaller
from decgraph.check.coverage import Missing, missing, pinned
from decgraph.check.distributions import OutOfTime, RunTally
from decgraph.check.exploration import DecidedSettings, Exploration, Options
from decgraph.check.faults import internal
from decgraph.check.mutant import ROUNDS, WANTED, Kill, plant
from decgraph.check.mutants import MUTANTS
from decgraph.check.plans import QUICK, first_plans, further_plans
from decgraph.check.planting import Planting
from decgraph.check.probes import probed
from decgraph.check.reachable_states import from_reached_states
from decgraph.check.settings import Group, groups, restricted
from decgraph.check.unseen_outcomes import harmless, searched
from decgraph.check.verdicts import FOR_ALL, NORMALISED, Proof, proof_of
from decgraph.check.worlds import narrow, world
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Module
from decgraph.ir.walk import functions_of
from decgraph.runtime.arguments import Externs, ParamValue

Progress = Callable[[str, int, int], None]
CROSS_CHECK, CROSS_RUNS = 12, 200
"""Worlds in which a claim with a derivation is compared, and runs of each: they show errors of programs, and ours."""
DRAFTS_END = "in some worlds an error ends a draft (the tokens stay right, the drafts are missing)"
NOT_SOUGHT = "none was looked for"


def _shapes_logarithms(module: Module) -> bool:
    """Whether a program may give logarithms of unshaped probabilities to `warp`."""
    ops = [op for f in functions_of(module) for op in f.body.walk()]
    raw = {op.result for op in ops if op.opcode == "face" and op.attrs["face"] == "raw"}
    logs = any(op.attrs.get("fn") == "log" and op.operands[0] in raw for op in ops)
    return logs and any(op.opcode == "warp" for op in ops)


@dataclass
class Report:
    """What a check found.

    verdict: `proved`: each claim has a derivation (`proofs`), which is for every vocabulary, model, context and request, and
    no world contradicts it; it says of runs that end with tokens which tokens these are, and not that no run ends in an error.
    `holds`: some claim has no derivation, and in every world that was decided (`models` of them, at least half of those tried)
    each holds exactly, over all that chance and adversaries can do there (rationals, no sampling, no tolerance), everything in
    the program ran in them, both ways, and every mutant was found. A claim with a condition (`when delta == 0`) is decided for
    the values that satisfy it: only what can run there had to, and mutants that change nothing there (`outside`) are not among
    those planted. `refuted`: there is a world in which a claim does not
    hold, and `counterexample` is it. `undecided`: neither; `reasons` says why, with lines. `none`: nothing is claimed.

    proofs: for each claim its derivation, or where it stopped and why. challenged: whether mutants were to be planted.
    text: of the program, where it is known. refuted: the place of the claim that `counterexample` is of. erred: places of
    claims with a derivation of which a world ended in an error.

    shrunk: worlds that were decided only with smaller parameters and lengths. states: "any" where steps were
    decided from carried values of any kind, "reached" where only from those that runs reach, "" where nothing is carried.
    missing: what no decided world has shown. tried: of what the worlds consisted. seen, harmless: outcomes for `--coverage`.

    controllers: for an algorithm whose claims hold in worlds and whose drafting is steered by probabilities, entropies, coins
    or states: "any" if the claims are true whatever those conditions return, "own" if they need their own (a convergence test
    does), "undecided", or nothing.

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
    tried: DecidedSettings = field(default_factory=DecidedSettings, repr=False)
    ran: CoveredRun | None = field(default=None, repr=False)
    harmless: set[Outcome] = field(default_factory=set, repr=False)
    interrupted: bool = False
    faults: list[str] = field(default_factory=list)
    module: Module | None = field(default=None, repr=False)
    groups: list[Group] = field(default_factory=list, repr=False)
    proofs: list[Proof] = field(default_factory=list, repr=False)
    text: str = field(default="", repr=False)
    challenged: bool = False
    refuted: int | None = field(default=None, repr=False)
    erred: set[int] = field(default_factory=set, repr=False)

    def verdict_of(self, place: int) -> str:
        """The verdict on one claim, by its place."""
        if place == self.refuted:
            return "refuted"
        if any(place in group.indices for group in self.groups if group.skipped):
            return "none"
        if self.proofs[place].found:
            return "undecided" if place in self.erred or self.faults else "proved"
        return "holds" if self.verdict == "holds" else "undecided"

    @property
    def derived(self) -> bool:
        """Whether each claim that says anything has a derivation."""
        skipped = {place for group in self.groups if group.skipped for place in group.indices}
        said = [proof for place, proof in enumerate(self.proofs) if place not in skipped]
        return bool(said) and all(proof.found for proof in said)

    def reach(self) -> str:
        """How far the verdict goes, in a line."""
        if self.verdict == "proved":
            premise = NORMALISED if self.module is not None and _shapes_logarithms(self.module) else ""
            return FOR_ALL + premise + ("" if all(p.ends for p in self.proofs) else "; errors: not derived")
        bounds = self.tried.bounds()
        return f"in {self.models} world{'s' * (self.models != 1)}{': ' if bounds else ''}{bounds}"

    def stopped(self) -> list[str]:
        """Where and why the claims without a derivation have none."""
        many = len(self.claims) > 1
        return [f"`{p.claim}`: {p.stopped()}" if many else p.stopped() for p in self.proofs if not p.found]

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

    def to_json(self) -> dict[str, object]:
        """Plain data for `--json`."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "reach": self.reach() if self.verdict in ("proved", "holds") else "",
            "claims": [proof.to_json(self.verdict_of(place)) for place, proof in enumerate(self.proofs)],
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
    derive: bool = True,
) -> Report:
    """Decide every claim of a module's entry: in `models` small worlds over `vocab` tokens and in those that the program asks
    for. Past `seconds`, and when it is interrupted, the report says what is known by then. derive: look for derivations
    first; a claim that has one is compared in a few worlds only."""
    f = module.entry
    started = time.perf_counter()
    tally = RunTally(until=None if seconds is None else started + seconds)
    ran = CoveredRun.of(module, f)
    report = Report(f.name, "none", [c.text for c in f.claims], 0, 0, 0.0, ran=ran, module=module)
    derive = derive and engine is ExactMachine  # of another machine than the language's a derivation says nothing
    report.proofs = [proof_of(module, c, report.faults) if derive else Proof(c.text, why=NOT_SOUGHT) for c in f.claims]
    options = Options(vocab, models, params or {}, engine, externs)
    try:
        if f.claims:
            report.groups = groups(module, ran, params or {})
            decide_claims(module, report, tally, progress, options)
        if report.verdict == "holds" and adversary and controllers(f):
            plain = report.groups[0]  # what is claimed without a condition, if anything
            if not plain.skipped:
                fewer = replace(options, models=max(2, models // 5))
                report.controllers = against_controllers(restricted(module, plain), tally, report.faults, fewer)
        if report.verdict == "holds" and mutants:
            report.challenged = True
            for group in report.groups:
                if not group.skipped and not derived(report, group):
                    plant_all(module, group, report, planting, tally, progress, options)
    except OutOfTime:
        over = f"the {seconds:g} seconds that it was given are over"
        sure = report.derived and not report.reasons
        report.verdict = "proved" if sure else "undecided"
        (report.notes if sure else report.reasons).append(over)
    except KeyboardInterrupt:
        report.verdict, report.interrupted = "undecided", True
        report.reasons.append("interrupted")
    except Exception as error:  # outside of a world's run: one program's fault is that program's line of `check --all`
        if isinstance(error, DecError) and not internal(error, externs):
            raise
        report.verdict = "undecided"
        report.faults.append(internal(error, externs) or f"{type(error).__name__}: {error}")
    if report.faults and report.verdict in ("proved", "holds"):
        report.verdict = "undecided"
    report.reasons[:0] = [f"a fault of decgraph itself, please report it: {what}" for what in report.faults]
    report.runs, report.seconds = tally.runs, time.perf_counter() - started
    return report


def derived(report: Report, group: Group) -> bool:
    """Whether each claim of a group has a derivation."""
    return all(report.proofs[place].found for place in group.indices)


def decide_claims(module: Module, report: Report, tally: RunTally, progress: Progress | None, options: Options) -> None:
    """Decide the claims one after the other, and put what was found into the report."""
    lost = tried = 0
    here = [group for group in report.groups if not group.skipped]
    pairs = [(group, place, claim) for group in here for place, claim in zip(group.indices, group.claims)]
    report.notes += [group.skipped for group in report.groups if group.skipped]
    if not pairs:
        report.verdict, report.reasons = "undecided", [*report.notes]
        return
    for n, (group, place, claim) in enumerate(pairs):
        proof = report.proofs[place]
        given = (options.params, options.engine, options.externs)
        explored = Exploration(module, claim, tally, group.ran, report.tried, *given, report.notes, faults=report.faults)
        try:
            if proof.found:
                few = first_plans(module, claim, options.vocab, min(options.models, CROSS_CHECK))
                few = [replace(plan, runs=min(plan.runs, CROSS_RUNS)) for plan in few]
                failure = explored.run(few, progress)
            else:
                failure = searched_worlds(explored, group, report, options, progress)
        finally:  # a check that is out of time says what it has decided
            report.models += explored.decided
            report.shrunk += explored.shrunk
        if failure is not None:
            report.verdict, report.counterexample, report.refuted = "refuted", explain(smaller(failure)), place
            held, later = ([f"`{c.text}`" for _, _, c in part] for part in (pairs[:n], pairs[n + 1 :]))
            report.reasons = [f"{' and '.join(held)} held in every world before that"] if held else []
            report.reasons += [f"{' and '.join(later)} was not looked at yet"] if later else []
            if proof.found:
                report.faults.append(f"the derivation of `{claim.text}` and a world disagree")
            return
        if not proof.found:
            lost, tried = lost + explored.lost, tried + explored.tried
            report.reasons += explored.reasons
        elif explored.errors:
            report.erred.add(place)
            report.reasons.append(f"the tokens are derived, but a run ended in an error: {explored.errors[0]}")
    ended = {at: error for group in here for at, error in group.ran.draft_errors.items()}
    report.notes += [f"{DRAFTS_END}: {error}" for error in ended.values()]
    report.reasons += not_shown(module, report, tally, options)
    if 2 * lost > tried:
        why = next((n.split(": ", 1)[1] for n in report.notes), "")
        report.reasons.append(f"{lost} of {tried} worlds could not be decided" + (f": {why}" if why else ""))
    report.verdict = "undecided" if report.reasons else "proved" if report.derived else "holds"


def searched_worlds(
    explored: Exploration, group: Group, report: Report, options: Options, progress: Progress | None
) -> Failure | None:
    """All worlds of a claim without a derivation: the first that refutes it."""
    module, claim, vocab = explored.module, explored.claim, options.vocab
    models = options.models
    plans = [
        *first_plans(module, claim, vocab, models),
        *further_plans(module, claim, vocab, models, options.params),
    ]
    failure = explored.run(plans, progress, slice(models)) or probed(explored, models)
    failure = failure or explored.run(plans, progress, slice(models, None))
    if failure is None and not explored.reasons and not explored.inductive:
        failure, reason = from_reached_states(explored, vocab)
        report.states = "reached"
        if failure is None and reason:
            report.reasons.append(reason)
    elif explored.arbitrary and not report.states:
        report.states = "any"
    if failure is None and explored.from_functions is not None:
        report.reasons.append(f"{explored.from_functions.words}, and no function was found that does so by its arguments alone")
    if failure is None:
        searched(explored, group.function, vocab, progress)
        failure = explored.failure
    return failure


def not_shown(module: Module, report: Report, tally: RunTally, options: Options) -> list[str]:
    """What a claim without a derivation rests on and no world has shown."""
    groups_of_worlds = [group for group in report.groups if not group.skipped and not derived(report, group)]
    for here in groups_of_worlds:
        no_matter = harmless(module, here.function, here.ran, tally, options)
        left = missing(pinned(here.function, options.params), here.ran, module.path, no_matter)
        report.harmless |= no_matter
        report.missing += left
        report.not_seen += [f"{m}{f', when {here.when}' if here.when else ''}" for m in left]
    out = list(dict.fromkeys(report.not_seen))
    unheld, uncut = facts(module, module.entry).unheld, facts(module, module.entry).uncut
    if unheld and groups_of_worlds:
        largest = max(report.tried.vocabularies, default=0)
        out.append(f"vocabularies of up to {largest} tokens were tried, and the program names {unheld[0]} beside token ids")
    if uncut and groups_of_worlds:
        tried_up_to = max(report.tried.contexts, default=0)
        out.append(f"contexts of up to {tried_up_to} tokens were tried, and the program cuts at {uncut[0]}")
    return out


def plant_all(
    module: Module,
    group: Group,
    report: Report,
    planting: Planting | None,
    tally: RunTally,
    progress: Progress | None,
    options: Options,
) -> None:
    """Plant every bug that applies to a group of claims; the verdict stands only if each is found. At a setting those are left
    out that change nothing there (check/equivalent_mutants.py)."""
    module = restricted(module, group)

    models, params, externs = options.models, options.params, options.externs

    def every(m: Module, e: type[ExactMachine], part: int) -> list[Case]:
        out: list[Case] = []
        m = restricted(m, group)
        for claim in m.entry.claims:
            plans = first_plans(m, claim, options.vocab, models, part * models)
            if part == 1 or (part == 2 and models < QUICK):  # those of a quick look, then all of them
                plans = further_plans(m, claim, options.vocab, models if part == 1 else QUICK, params)
            for plan in plans:
                try:
                    out.append(world(m, claim, plan, given=params, engine=e, externs=externs))
                except DecError:
                    continue
        return out

    def without(case: Case) -> Case:
        sound = world(module, case.claim, case.plan, given=params, engine=options.engine, externs=externs)
        return replace(sound, params=case.params, length=case.length, request=case.request)

    # Where worlds are few there are more rounds: only what is not found takes them.
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


def against_controllers(module: Module, tally: RunTally, faults: list[str], options: Options) -> str:
    """ "any" where each claim is true whatever controllers return, "own" where it needs their own results, "undecided"."""
    decided, open_ = 0, False
    for claim in module.entry.claims:
        given = (options.params, adversarial(options.engine), options.externs)
        explored = Exploration(module, claim, tally, None, DecidedSettings(), *given, faults=faults)
        for plan in first_plans(module, claim, options.vocab, options.models):
            case = explored.make(plan)
            if case is None:
                continue
            failure, why, _ = explored.attempt(narrow(case))
            if failure is not None or explored.erred:  # another choice may lead where the program cannot go on
                return "own"
            open_ = open_ or bool(why)
            decided += not why
    return "any" if decided and not open_ else "undecided"
