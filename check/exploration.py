"""Deciding worlds one after the other, and keeping account of them: what was decided, shrunk and lost, and what ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.coverage import CoveredRun, Outcome
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Unlikely
from decgraph.check.case import Case, WorldPlan
from decgraph.check.claims import Failure, decide
from decgraph.check.constants import facts, masked
from decgraph.check.distributions import OutOfTime, RunTally
from decgraph.check.faults import internal
from decgraph.check.initial_states import OTHER, SEEN, NoValue
from decgraph.check.worlds import least, world
from decgraph.errors import ConstraintError, ContextFullError, DecError
from decgraph.ir.intervals import End
from decgraph.ir.values import Claim, Module
from decgraph.runtime.arguments import Externs, ParamValue
from decgraph.runtime.parameters import shown


def of_tokens(case: Case) -> bool:
    """Whether a claim is about each committed token of a causal program: all of a text is followed, and two tokens of it may
    be all that can be."""
    return case.claim.kind != "refines" and not masked(case.function)


def reduced(case: Case, size: int) -> Case:
    """A world of the same sort: as it is (0), or with less to enumerate."""
    if size == 0:
        return case
    if not of_tokens(case):
        return least(case) if size == 1 else replace(least(case), length=1, steps=case.steps and 1)
    small = least(case, size == 2)
    return replace(small, request=replace(small.request, max_tokens=min(small.request.max_tokens, 1 if size == 3 else 2)))


IN_VAIN = 2  # a size of world that was too large this often is not tried any more


@dataclass
class DecidedSettings:
    """The settings of the decided worlds."""

    params: dict[str, set[str]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    vocabularies: Counter[int] = field(default_factory=Counter)
    contexts: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    probes: int = 0  # worlds of real sizes in which a few runs refuted nothing

    def add(self, case: Case) -> None:
        """One more decided world."""
        for name, value in case.params.items():
            self.params.setdefault(name, set()).add(shown(value))
        plan = case.plan
        if plan is None:
            return
        self.kinds[plan.label] += 1
        self.vocabularies[plan.vocab] += 1
        self.contexts[plan.prompt + len(case.start.committed)] += 1
        self.requests[f"temperature {plan.temperature}"] += 1
        self.requests.update(plan.features)

    def words(self) -> list[str]:
        """A summary in a few lines."""
        out = []
        if self.params:
            out.append("parameters " + "; ".join(f"{k} {_some(v)}" for k, v in sorted(self.params.items())))
        if self.contexts:
            out.append(f"contexts of {_span(self.contexts)} tokens, vocabularies of {_span(self.vocabularies)}")
        if self.requests:
            out.append("requests with " + ", ".join(sorted(self.requests)))
        if self.kinds:
            out.append("worlds " + ", ".join(f"{k} {n}" for k, n in self.kinds.items()))
        if self.probes:
            out.append(f"a few runs each at {self.probes} real sizes, which prove nothing")
        return out

    def bounds(self) -> str:
        """How far the worlds went, in a line."""
        out = []
        if self.contexts:
            out.append(f"contexts up to {max(self.contexts)}, vocabularies up to {max(self.vocabularies)}")
        return ", ".join([*out, *(f"{name} {_some(values, 4)}" for name, values in sorted(self.params.items()))])

    def to_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "params": {k: sorted(v) for k, v in sorted(self.params.items())},
            "requests": dict(self.requests),
            "vocabularies": {str(k): n for k, n in sorted(self.vocabularies.items())},
            "contexts": {str(k): n for k, n in sorted(self.contexts.items())},
            "kinds": dict(self.kinds),
            "probes": self.probes,
        }


def _some(values: set[str], most: int = 12) -> str:
    if max(map(len, values), default=0) > 12:  # automata and vectors are described by an example
        most = 2

    def key(v: str) -> tuple[int, float, str]:
        try:
            n, _, d = v.partition("/")
            return (0, float(n) / float(d or 1), v)
        except ValueError:
            return (1, 0.0, v)

    ordered = sorted(values, key=key)
    return " ".join(ordered[:most]) + (f" and {len(ordered) - most} more" if len(ordered) > most else "")


def _span(counts: Counter[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Options:
    """What worlds are made of: how many tokens, how many of the first kind, and what is given for them. compare:
    whether what is derived is compared in all its worlds, however long that takes."""

    vocab: int
    models: int
    params: Mapping[str, ParamValue]
    engine: type[ExactMachine]
    externs: Externs | None
    compare: bool = False


@dataclass
class Exploration:
    """The worlds of one claim. ran: what of the program ran in decided worlds (None: not needed). from_any: the first
    failure from carried values of any kind, which says little until runs reach such values; from_functions: the first from an
    adversary's choices in the place of a function or of a batch. arbitrary: worlds decided from such. shown: in how many
    worlds each outcome was seen; shown_by: in which first. faults: errors of decgraph itself. vain:
    how often each of the smaller sizes of a world was too large. errors: those of the program itself in worlds as they were
    planned. numbers: those that sequences had at folds over a batch."""

    module: Module
    claim: Claim
    tally: RunTally
    ran: CoveredRun | None
    seen: DecidedSettings
    params: Mapping[str, ParamValue] | None = None
    engine: type[ExactMachine] = ExactMachine
    externs: Externs | None = None
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    tried: int = 0
    decided: int = 0
    shrunk: int = 0
    lost: int = 0
    arbitrary: int = 0
    from_any: Failure | None = None
    from_functions: Failure | None = None
    shown: Counter[Outcome] = field(default_factory=Counter)
    shown_by: dict[Outcome, WorldPlan] = field(default_factory=dict)
    no_value: str = ""
    seen_draws: bool = False
    other_memory: bool = False
    erred: bool = False
    failure: Failure | None = None
    large: int = 0
    errors: list[str] = field(default_factory=list)
    vain: Counter[int] = field(default_factory=Counter)
    numbers: dict[int, set[End]] = field(default_factory=dict)

    @property
    def inductive(self) -> bool:
        """Whether the claim was decided from carried values of any kind, where anything is carried: a program of which no such
        world could be decided rests on its real starts, like one that such a world refutes."""
        if self.claim.bound:
            return True
        known = facts(self.module, self.module.entry)
        carried = known.stepwise and (known.states or known.carries)
        unlike = self.seen_draws or self.other_memory or bool(self.no_value)
        return self.from_any is None and not unlike and (not carried or self.arbitrary > 0)

    def make(self, plan: WorldPlan) -> Case | None:
        """The world of a plan, or None where it cannot be built."""
        try:
            return world(self.module, self.claim, plan, fixed=self.params, engine=self.engine, externs=self.externs)
        except DecError as error:
            self.note(plan, str(error))
            return None

    def note(self, plan: WorldPlan, why: str) -> None:
        first = why.splitlines()[0].removeprefix("error: ") if why else ""
        said = f"world {self.tried} ({plan.label}) was not decided: {first}"
        if said not in self.notes:  # a world may be tried again, with other settings
            self.notes.append(said)

    def fault(self, case: Case, what: str) -> None:
        """Take note of an error of ours."""
        label = case.plan.label
        if what and not any(what in known for known in self.faults):
            self.faults.append(f"in world {self.tried} ({label}): {what}")

    def run(
        self, plans: Sequence[WorldPlan], progress: Callable[[str, int, int], None] | None = None, part: slice = slice(None)
    ) -> Failure | None:
        """Decide worlds, a part of `plans`, until one fails."""
        for i in range(*part.indices(len(plans))):
            plan = plans[i]
            if progress is not None:
                progress(self.claim.text, i, len(plans))
            failure = self.one(plan)
            if failure is not None:
                return failure
            if self.lost == self.tried == 6 and self.large >= 6:
                self.reasons.append(f"the first {self.lost} worlds could not be decided and the others were not tried")
                return None
        return None

    def one(self, plan: WorldPlan) -> Failure | None:
        """Decide one world; its failure, unless that is one from carried values of any kind, which is kept aside."""
        case = self.make(plan)
        if case is None:
            return None
        plan = case.plan
        if plan.arbitrary is None:
            self.tried += 1
        sizes = (
            tuple(n for n in ((0, 1, 2, 3) if plan.seed % 2 else (0, 1, 3, 2)) if self.vain[n] < IN_VAIN or n == 3)
            if of_tokens(case)
            else (0,)
            if plan.label == "parameter"
            else (0, 2)
            if plan.label != "base"
            else (0, 1, 2)
            if self.large < 3
            else (1, 2)
        )
        failure, why, size = self.attempt(case, sizes)
        if plan.arbitrary is not None:
            if failure is not None:
                self.from_any = self.from_any or failure
            elif not why:
                self.arbitrary += 1
            self.seen_draws = self.seen_draws or SEEN in case.flags
            self.other_memory = self.other_memory or OTHER in case.flags
            return None
        self.large += size > 0 and plan.label == "base"
        if why:
            self.note(plan, why)
            self.lost += 1
            return None
        self.decided += 1
        self.shrunk += size > 0
        if failure is not None and failure.kind == "adversary":  # its choices may depend on more than a function's arguments
            self.from_functions = self.from_functions or failure
            return None
        if failure is not None:
            self.failure = failure
        return failure

    def attempt(self, case: Case, sizes: Sequence[int] = (0, 1, 2)) -> tuple[Failure | None, str, int]:
        """Decide a world, or a smaller one of the same sort where it is too large: what was found, why nothing was decided (or
        nothing), and which of the sizes it was."""
        why = ""
        self.erred = False
        for size in sizes:
            known = {where: frozenset(had) for where, had in self.numbers.items()}
            small = replace(reduced(case, size), folds=(known, self.numbers))
            if self.ran is not None:
                small = replace(small, ran=self.ran.fresh(self.ran.forced))
            try:
                failure = decide(small, self.tally)
            except (TooMany, Unlikely, NotSeparated) as error:
                why = str(error)
                self.vain[size] += 1
                continue
            except NoValue as error:
                self.no_value = str(error)
                return None, f"no arbitrary value of {error}", size
            except (DecError, OutOfTime) as error:  # smaller parameters need not go together
                if isinstance(error, OutOfTime):
                    raise
                self.erred = True
                if ours := internal(error, self.externs):
                    self.fault(small, ours)
                    return None, str(error), size
                why = why or str(error)
                if size == 0:
                    if not isinstance(error, ConstraintError | ContextFullError):  # else the request cannot be met
                        self.errors.append(str(error).splitlines()[0].removeprefix("error: "))
                    break
                continue
            except Exception as error:  # an error of decgraph: the world is not decided, and the report says so
                self.fault(small, internal(error, self.externs))
                return None, f"{type(error).__name__}: {error}", size
            if failure is None:
                if self.ran is not None and small.ran is not None:
                    self.ran.seen |= small.ran.seen
                    self.ran.used |= small.ran.used
                    self.shown.update(small.ran.seen)
                    if not small.ran.forced:
                        self.ran.draft_errors = {**small.ran.draft_errors, **self.ran.draft_errors}
                    if size == 0:
                        for key in small.ran.seen:
                            self.shown_by.setdefault(key, small.plan)
                self.seen.add(small)
            return failure, "", size
        return None, why, 2


__all__ = ["Exploration", "DecidedSettings"]
