"""Checking an algorithm: many worlds, what of the program ran in them, a verdict, and a counterexample that can be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from decgraph.backends.exact.coverage import CoveredRun, Outcome
from decgraph.backends.exact.run import ExactMachine
from decgraph.check.case import Case
from decgraph.check.claims import Failure
from decgraph.check.constants import facts
from decgraph.check.counterexample import Counterexample, explain, smaller
from decgraph.check.coverage import Missing, missing, pinned
from decgraph.check.distributions import ComparedEnough, OutOfTime, RunTally
from decgraph.check.exploration import DecidedSettings, Exploration, Options
from decgraph.check.faults import internal
from decgraph.check.plans import first_plans, further_plans, shared_plans
from decgraph.check.probes import probed
from decgraph.check.reachable_states import from_reached_states
from decgraph.check.settings import Group, groups
from decgraph.check.unseen_outcomes import harmless, searched
from decgraph.check.verdicts import FOR_ALL, SUFFICES, Premise, Proof, proof_of
from decgraph.check.worlds import world
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Module, Region
from decgraph.ir.walk import map_bodies, rebuild
from decgraph.runtime.arguments import Externs, ParamValue

Progress = Callable[[str, int, int], None]
CROSS_CHECK, CROSS_RUNS = 12, 200
"""Worlds in which a claim with a derivation is compared, and runs of each: they show errors of programs, and ours."""
COMPARED = 0.5
"""Seconds of processor time for that, of all claims of a program together, where it is not asked to be whole."""
DRAFTS_END = "in some worlds an error ends a draft (the tokens stay right, the drafts are missing)"
NOT_SOUGHT = "none was looked for"


@dataclass
class Report:
    """What a check found.

    verdict: `proved`: each claim has a derivation (`proofs`), which is for every vocabulary, model, context and request, and
    no world contradicts it; it says of runs that end with tokens which tokens these are, and not that no run ends in an error.
    `holds`: some claim has no derivation, and in every world that was decided (`models` of them, at least half of those tried)
    each holds exactly, over all that chance and adversaries can do there (rationals, no sampling, no tolerance), and everything
    in the program ran in them, both ways. A claim with a condition (`when delta == 0`) is decided for the values that satisfy
    it: only what can run there had to. `refuted`: there is a world in which a claim does not hold, and `counterexample` is it.
    `undecided`: neither; `reasons` says why, with lines. `none`: nothing is claimed.

    proofs: for each claim its derivation, or where it stopped and why. text: of the program, where it is known. refuted: the
    place of the claim that `counterexample` is of. erred: places of claims with a derivation of which a world ended in an
    error.

    shrunk: worlds that were decided only with smaller parameters and lengths. states: "any" where steps were
    decided from carried values of any kind, "reached" where only from those that runs reach, "" where nothing is carried.
    missing: what no decided world has shown. tried: of what the worlds consisted. seen, harmless: outcomes for `--coverage`.

    faults: errors of decgraph itself that ended a world, with the place in its code: the verdict is `undecided` then.
    """

    name: str
    verdict: str
    claims: list[str]
    models: int
    runs: int
    seconds: float
    counterexample: Counterexample | None = None
    notes: list[str] = field(default_factory=list)
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
    refuted: int | None = field(default=None, repr=False)
    erred: set[int] = field(default_factory=set, repr=False)

    def verdict_of(self, place: int) -> str:
        """The verdict on one claim, by its place."""
        if place == self.refuted:
            return "refuted"
        if any(place in group.indices for group in self.groups if group.skipped):
            return "none"
        if self.proofs[place].derived:
            return "undecided" if place in self.erred or self.faults else "proved"
        return "holds" if self.verdict == "holds" else "undecided"

    @property
    def derived(self) -> bool:
        """Whether each claim that says anything has a derivation."""
        skipped = {place for group in self.groups if group.skipped for place in group.indices}
        said = [proof for place, proof in enumerate(self.proofs) if place not in skipped]
        return bool(said) and all(proof.derived for proof in said)

    @property
    def premises(self) -> list[Premise]:
        """What the claims that are proved take for granted of models and requests."""
        proved = [proof for place, proof in enumerate(self.proofs) if self.verdict_of(place) == "proved"]
        return list(dict.fromkeys(premise for proof in proved for premise in proof.premises))

    def suffices(self, least: str) -> bool:
        """Whether every claim is as good as that, whatever the model and the request: nothing with a premise is proved so."""
        return self.verdict in SUFFICES[least] and not (least == "proved" and self.premises)

    def counted(self) -> str:
        """How many worlds and runs, and seconds."""
        shrunk = f" ({self.shrunk} of them with smaller parameters or lengths)" if self.shrunk else ""
        worlds = f"{self.models} world{'s' * (self.models != 1)}{shrunk}"
        return f"{worlds}, {self.runs:,} run{'s' * (self.runs != 1)}, {self.seconds:.1f} s"

    def reach(self) -> str:
        """How far the verdict goes, in a line."""
        if self.verdict == "proved":
            return "; ".join([FOR_ALL, *(premise.says for premise in self.premises)])
        bounds = self.tried.bounds()
        return f"in {self.models} world{'s' * (self.models != 1)}{': ' if bounds else ''}{bounds}"

    def stopped(self) -> list[str]:
        """Where and why the claims without a derivation have none."""
        many = len(self.claims) > 1
        return [f"`{p.claim}`: {p.stopped()}" if many else p.stopped() for p in self.proofs if not p.derived]

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
            "premises": [asdict(premise) for premise in self.premises],
            "models": self.models,
            "shrunk": self.shrunk,
            "runs": self.runs,
            "seconds": round(self.seconds, 3),
            "counterexample": self.counterexample.to_json() if self.counterexample else None,
            "reasons": self.reasons,
            "notes": self.notes,
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
        world(module, claim, plan, fixed=params, engine=engine, externs=externs)
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
    externs: Externs | None = None,
    seconds: float | None = None,
    derive: bool = True,
    compare: bool = False,
    derived_first: Callable[[Report], None] | None = None,
) -> Report:
    """Decide every claim of a module's entry: in `models` small worlds over `vocab` tokens and in those that the program asks
    for. Past `seconds` of processor time, and when it is interrupted, the report says what is known by then. derive: look for
    derivations first; a claim that has one is compared in a few worlds only, for half a second or with `compare` in all of
    them. derived_first: called with the report so far where all is derived, before anything is compared."""
    module = map_bodies(module, without_notes)
    f = module.entry
    started = time.perf_counter()
    tally = RunTally(until=None if seconds is None else time.process_time() + seconds)
    ran = CoveredRun.of(module, f)
    report = Report(f.name, "none", [c.text for c in f.claims], 0, 0, 0.0, ran=ran, module=module)
    derive = derive and engine is ExactMachine  # of another machine than the language's a derivation says nothing
    report.proofs = [proof_of(module, c, report.faults) if derive else Proof(c.text, why=NOT_SOUGHT) for c in f.claims]
    options = Options(vocab, models, params or {}, engine, externs, compare)
    try:
        if f.claims:
            report.groups = groups(module, ran, params or {})
            if derived_first is not None and report.derived and not report.faults:
                derived_first(replace(report, verdict="proved"))
            decide_claims(module, report, tally, progress, options)
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


def without_notes(body: Region) -> Region:
    """What a check looks at: nothing reads a note. What it is computed from stays, since that may end in an error."""
    return rebuild(body, lambda op: ((), ()) if op.opcode == "note" else None)


def derived(report: Report, group: Group) -> bool:
    """Whether each claim of a group has a derivation."""
    return all(report.proofs[place].derived for place in group.indices)


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
            if proof.derived:
                if not options.compare:
                    tally.compared = time.process_time() + COMPARED / sum(report.proofs[at].derived for _, at, _ in pairs)
                few = shared_plans(module, claim, options.vocab)[:2]
                few += first_plans(module, claim, options.vocab, min(options.models, CROSS_CHECK) - len(few))
                few = [replace(plan, runs=min(plan.runs, CROSS_RUNS)) for plan in few]
                failure = explored.run(few, progress)
            else:
                failure = searched_worlds(explored, group, report, options, progress)
        except ComparedEnough:
            failure = None
        finally:  # a check that is out of time says what it has decided
            tally.compared = None
            report.models += explored.decided
            report.shrunk += explored.shrunk
        if failure is not None:
            report.verdict, report.counterexample, report.refuted = "refuted", explain(smaller(failure)), place
            held, later = ([f"`{c.text}`" for _, _, c in part] for part in (pairs[:n], pairs[n + 1 :]))
            report.reasons = [f"{' and '.join(held)} held in every world before that"] if held else []
            report.reasons += [f"{' and '.join(later)} was not looked at yet"] if later else []
            if proof.derived:
                report.faults.append(f"the derivation of `{claim.text}` and a world disagree")
            return
        if not proof.derived:
            lost, tried = lost + explored.lost, tried + explored.tried
            report.reasons += explored.reasons
        elif explored.errors:
            report.erred.add(place)
            report.reasons.append(f"there is a derivation, but a run ended in an error: {explored.errors[0]}")
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
        *shared_plans(module, claim, vocab),
        *first_plans(module, claim, vocab, models),
        *further_plans(module, claim, vocab, models, options.params),
    ]
    if claim.kind == "keeps_support":  # first where some tokens have no mass
        plans.sort(key=lambda plan: plan.label not in ("base", "parameter") or plan.style.sort != "zeros")
    first = len(shared_plans(module, claim, vocab)) + models
    failure = explored.run(plans, progress, slice(first)) or probed(explored, models)
    failure = failure or explored.run(plans, progress, slice(first, None))
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
    known, kinds = facts(module, module.entry), report.tried.kinds
    unheld, uncut = known.unheld, known.uncut
    if groups_of_worlds and known.session and not kinds["second"]:
        out.append("no second request of a session with the seed of the first was compared")
    if groups_of_worlds and (known.session or known.batch) and not kinds["beside"]:
        out.append("no two sequences side by side were compared")
    if unheld and groups_of_worlds:
        largest = max(report.tried.vocabularies, default=0)
        out.append(f"vocabularies of up to {largest} tokens were tried, and the program names {unheld[0]} beside token ids")
    if uncut and groups_of_worlds:
        tried_up_to = max(report.tried.contexts, default=0)
        out.append(f"contexts of up to {tried_up_to} tokens were tried, and the program cuts at {uncut[0]}")
    return out
