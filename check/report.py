"""Checking an algorithm: many worlds, a verdict, and a counterexample that can be read."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
from decgraph.ir.values import Claim, Module

Progress = Callable[[str, int, int], None]


@dataclass
class Report:
    """What a check found.

    verdict: `proved`: in every world that was decided (`models` of them, at least half of those tried) each claim holds
    exactly, over all that chance and adversaries can do there: rationals, no sampling, no tolerance. `refuted`: there is a
    world in which one does not, and `counterexample` is it. `undecided`: too few worlds were small enough to enumerate.
    `none`: nothing is claimed. A proof speaks of the worlds that were decided: small vocabularies, small parameters, tables
    that were drawn; that such worlds do show mistakes is what the planted mutants are for (`killed` of `planted`).
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

    @property
    def survivors(self) -> list[Kill]:
        """Mutants that no world showed."""
        return [m for m in self.mutants if not m.killed]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {"name": self.name, "verdict": self.verdict, "claims": self.claims, "models": self.models, "runs": self.runs,
                "seconds": round(self.seconds, 3), "mutants": {"planted": self.planted, "killed": self.killed,
                                                              "list": [m.to_json() for m in self.mutants]},
                "counterexample": self.counterexample.to_json() if self.counterexample else None, "notes": self.notes}


def cases(module: Module, claim: Claim, *, vocab: int, models: int, params: Mapping[str, Any] | None, length: int = 3,
          engine: type[ExactMachine] = ExactMachine, first: int = 0) -> list[Case]:
    """The worlds of one claim: half of them plain requests, the others with stop tokens, truncation, bans and penalties."""
    f = module.entry
    given = frozenset(params or {})
    out = []
    for i in range(first, first + models):
        size, span = sized(f, vocab, i)
        made = params_for(f, i, params, span)
        limit = span if span else length + 2 if claim.mode == "distribution" else length
        case = Case(module, f, claim, models_for(f, size, i), made, request_for(size, i, limit, greedy=bool(span) and i % 3 == 2),
                    length=length, engine=engine, given=given)
        # A state is as it started in the first step: every other world looks at two.
        out.append(replace(least(case), steps=2) if f.states and i % 2 else case)
    return out


def attempt(case: Case, tally: Tally) -> tuple[Failure | None, str]:
    """Decide a world, or a smaller one of the same sort where it is too large. The second is why nothing was decided."""
    why = ""
    for small in (case, least(case), replace(least(case), length=1, steps=1)):
        try:
            return decide(small, tally), ""
        except (TooMany, Unlikely) as error:
            why = str(error)
    return None, why


def check_module(module: Module, *, vocab: int = 3, models: int = 20, params: Mapping[str, Any] | None = None, length: int = 3,
                 progress: Progress | None = None, engine: type[ExactMachine] = ExactMachine, planting: Planting | None = None,
                 mutants: bool = False, adversary: bool = True) -> Report:
    """Decide every claim of a module's entry in `models` worlds over `vocab` tokens."""
    f = module.entry
    started, tally = time.perf_counter(), Tally()
    report = Report(f.name, "proved" if f.claims else "none", [c.text for c in f.claims], 0, 0, 0.0)
    tried = 0
    passes = [("", engine)]
    if adversary and controllers(f):
        passes.append((" against every controller", adversarial(engine)))
    for claim in f.claims:
        for words, machine in passes:
            worlds = cases(module, claim, vocab=vocab, models=models if not words else max(1, models // 4), params=params,
                           length=length, engine=machine)
            if words:
                worlds = [narrow(c) for c in worlds]
            tried += len(worlds)
            for i, case in enumerate(worlds):
                if progress is not None:
                    progress(claim.text + words, i, len(worlds))
                failure, why = attempt(case, tally)
                if why:
                    report.notes.append(f"world {i}{words}: not decided, {why}")
                    continue
                report.models += 1
                if failure is not None:
                    report.verdict = "refuted"
                    report.counterexample = explain(smaller(failure, tally))
                    break
            if report.verdict == "refuted":
                break
        if report.verdict == "refuted":
            break
    if report.verdict == "proved" and 2 * report.models < tried:
        report.verdict = "undecided"
    if report.verdict == "proved" and mutants:
        every = lambda m, e: [c for claim in m.entry.claims for c in cases(  # noqa: E731
            m, claim, vocab=vocab, models=models, params=params, length=length, engine=e)]
        report.mutants = plant(module, planting, MUTANTS, every, progress)
        report.planted, report.killed = len(report.mutants), sum(m.killed for m in report.mutants)
    report.runs, report.seconds = tally.runs, time.perf_counter() - started
    return report
