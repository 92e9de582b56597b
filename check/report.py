"""Checking an algorithm: many worlds, a verdict, and a counterexample that can be read."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.run import ExactMachine, Unlikely
from decgraph.check.adversary import adversarial, controllers
from decgraph.check.claims import Case, Failure, decide
from decgraph.check.counterexample import Counterexample, explain, smaller
from decgraph.check.laws import Tally
from decgraph.check.mutant import Kill, plant
from decgraph.check.mutants import MUTANTS
from decgraph.check.planting import Planting
from decgraph.check.worlds import least, models_for, narrow, params_for, request_for, sized
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Function, Module

Progress = Callable[[str, int, int], None]


@dataclass
class Report:
    """What a check found.

    verdict: `proved`: in every world that was decided (`models` of them, at least half of those tried) each claim holds
    exactly, over all that chance and adversaries can do there: rationals, no sampling, no tolerance. `refuted`: there is a
    world in which one does not, and `counterexample` is it. `undecided`: too few worlds were small enough to enumerate.
    `none`: nothing is claimed. A proof speaks of the worlds that were decided: small vocabularies, small parameters, tables
    that were drawn; that such worlds do show mistakes is what the planted mutants are for (`killed` of `planted`).

    controllers: for a proved algorithm whose drafting is steered by probabilities, entropies, coins or states: "any" if the
    claims hold however those conditions answer, "own" if they need theirs (a convergence test does), "undecided", or nothing.
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
    mutants: list[Kill] = field(default_factory=list)
    controllers: str = ""

    @property
    def survivors(self) -> list[Kill]:
        """Mutants that no world showed."""
        return [m for m in self.mutants if not m.killed]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {"name": self.name, "verdict": self.verdict, "claims": self.claims, "models": self.models, "runs": self.runs,
                "seconds": round(self.seconds, 3), "mutants": {"planted": self.planted, "killed": self.killed,
                                                              "list": [m.to_json() for m in self.mutants]},
                "counterexample": self.counterexample.to_json() if self.counterexample else None, "notes": self.notes,
                "controllers": self.controllers}


def cases(module: Module, claim: Claim, *, vocab: int, models: int, params: Mapping[str, Any] | None, length: int = 3,
          engine: type[ExactMachine] = ExactMachine, first: int = 0) -> list[Case]:
    """The worlds of one claim: half of them plain requests, the others with stop tokens, truncation, bans and penalties."""
    f = module.entry
    given = frozenset(params or {})
    out = []
    for i in range(first, first + models):
        size, span = sized(f, vocab, i)
        deep = i % 4 == 3
        if deep and f.states and i % 8 == 3:
            size = min(size, 2)
        greedy = bool(span) and i % 3 == 2
        limit = span if span else length + 2 if claim.mode == "distribution" else length
        case = Case(module, f, claim, models_for(f, size, i, free=i % 3 == 1 and remembers(f)), params_for(f, i, params, span),
                    request_for(size, i, limit, greedy=greedy), length=length, engine=engine, given=given)
        if f.states and i % 2 and not span:     # a state is as it started in the first step
            case = replace(narrow(case) if deep else least(case), steps=2, length=length,
                           request=replace(case.request, limit=max(2, case.request.limit)))
        out.append(case)
    return out


def remembers(f: Function) -> bool:
    """Whether an algorithm speaks of memories, layers or derived models: free models tell all of them apart."""
    return any(op.opcode.startswith("memory") or op.opcode in ("model.memory", "model.derive", "model.layers")
               or "given" in op.attrs.get("with", ()) for op in f.body.walk())


def attempt(case: Case, tally: Tally, sizes: Sequence[int] = (0, 1, 2)) -> tuple[Failure | None, str, int]:
    """Decide a world, or a smaller one of the same sort where it is too large: what was found, why nothing was decided (or
    nothing), and which of the sizes it was."""
    why = ""
    for size in sizes:
        small = (case, least(case), replace(least(case), length=1, steps=1))[size]
        try:
            return decide(small, tally), "", size
        except (TooMany, Unlikely) as error:
            why = str(error)
        except DecError as error:     # parameters that were made smaller need not go together
            if size == 0:
                raise
            why = str(error)
    return None, why, 2


def survey(worlds: Sequence[Case], tally: Tally, report: Report, said: str, progress: Progress | None) -> Failure | None:
    """Decide worlds until one fails. Where three were too large, the others start smaller."""
    large = lost = 0
    for i, case in enumerate(worlds):
        if progress is not None:
            progress(said, i, len(worlds))
        failure, why, size = attempt(case, tally, (0, 1, 2) if large < 3 else (1, 2))
        large += size > 0
        if why:
            report.notes.append(f"world {i} was not decided: {why}")
            lost += 1
            if lost == i + 1 == 2:
                report.notes.append("the others are no smaller and were not tried")
                return None
            continue
        report.models += 1
        if failure is not None:
            return failure
    return None


def check_module(module: Module, *, vocab: int = 3, models: int = 20, params: Mapping[str, Any] | None = None, length: int = 3,
                 progress: Progress | None = None, engine: type[ExactMachine] = ExactMachine, planting: Planting | None = None,
                 mutants: bool = False, adversary: bool = True) -> Report:
    """Decide every claim of a module's entry in `models` worlds over `vocab` tokens."""
    f = module.entry
    started, tally = time.perf_counter(), Tally()
    report = Report(f.name, "proved" if f.claims else "none", [c.text for c in f.claims], 0, 0, 0.0)
    tried = 0
    for claim in f.claims:
        worlds = cases(module, claim, vocab=vocab, models=models, params=params, length=length, engine=engine)
        tried += len(worlds)
        failure = survey(worlds, tally, report, claim.text, progress)
        if failure is not None:
            report.verdict, report.counterexample = "refuted", explain(smaller(failure))
            break
    if report.verdict == "proved" and 2 * report.models < tried:
        report.verdict = "undecided"
    if report.verdict == "proved" and adversary and controllers(f):
        report.controllers = against_controllers(module, tally, vocab=vocab, models=max(2, models // 5), params=params,
                                                 engine=engine)
    if report.verdict == "proved" and mutants:
        def every(m: Module, e: type[ExactMachine], turn: int) -> list[Case]:
            return [c for claim in m.entry.claims for c in cases(
                m, claim, vocab=vocab, models=models, params=params, length=length, engine=e, first=turn * models)]

        report.mutants = plant(module, planting, MUTANTS, every, progress)
        report.planted, report.killed = len(report.mutants), sum(m.killed for m in report.mutants)
    report.runs, report.seconds = tally.runs, time.perf_counter() - started
    return report


def against_controllers(module: Module, tally: Tally, **options: Any) -> str:
    """"any" where each claim holds however controllers answer, "own" where it needs theirs, "undecided"."""
    found = Report("", "", [], 0, 0, 0.0)
    engine = adversarial(options.pop("engine"))
    for claim in module.entry.claims:
        worlds = [narrow(c) for c in cases(module, claim, engine=engine, **options)]
        try:
            if survey(worlds, tally, found, claim.text, None) is not None:
                return "own"
        except DecError:      # another answer leads where the program cannot go on
            return "own"
    return "any" if found.models and not found.notes else "undecided"
