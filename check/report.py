"""Checking an algorithm: many worlds, a verdict, and a counterexample that can be read."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.run import ExactMachine, Unlikely
from decgraph.check.claims import Case, Failure, decide
from decgraph.check.counterexample import Counterexample, explain, smaller
from decgraph.check.laws import Tally
from decgraph.check.worlds import models_for, params_for, request_for
from decgraph.ir.values import Claim, Module


@dataclass
class Report:
    """What a check found. verdict: proved, refuted, undecided (too large to enumerate), or none (nothing is claimed)."""

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
    mutants: list[Any] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {"name": self.name, "verdict": self.verdict, "claims": self.claims, "models": self.models, "runs": self.runs,
                "seconds": round(self.seconds, 3), "mutants": {"planted": self.planted, "killed": self.killed,
                                                              "list": [m.to_json() for m in self.mutants]},
                "counterexample": self.counterexample.to_json() if self.counterexample else None, "notes": self.notes}


def cases(module: Module, claim: Claim, *, vocab: int, models: int, params: Mapping[str, Any] | None, length: int,
          engine: type[ExactMachine] = ExactMachine, first: int = 0) -> list[Case]:
    """The worlds of one claim, small and plain ones first."""
    f = module.entry
    masked = any(p.value.type.elem == "model" and p.value.type.of[0] == "masked" for p in f.params)
    out = []
    for i in range(first, first + models):
        case = Case(module, f, claim, models_for(f, vocab, i), params_for(f, i, params),
                    request_for(vocab, i, 6 if masked else length + 2 if claim.mode == "distribution" else length),
                    length=length, engine=engine)
        if f.states:
            case = replace(case, steps=2)
        out.append(case)
    return out


def check_module(module: Module, *, vocab: int = 3, models: int = 20, params: Mapping[str, Any] | None = None, length: int = 3,
                 progress: Callable[[str, int, int], None] | None = None, engine: type[ExactMachine] = ExactMachine) -> Report:
    """Decide every claim of a module's entry in `models` worlds over `vocab` tokens."""
    f = module.entry
    started, tally, notes = time.perf_counter(), Tally(), []
    report = Report(f.name, "proved" if f.claims else "none", [c.text for c in f.claims], 0, 0, 0.0, notes=notes)
    for claim in f.claims:
        for i, case in enumerate(cases(module, claim, vocab=vocab, models=models, params=params, length=length, engine=engine)):
            if progress is not None:
                progress(claim.text, i, models)
            try:
                failure: Failure | None = decide(case, tally)
            except (TooMany, Unlikely) as why:
                failure = retry(case, tally, params)
                if failure is None and case.limit:
                    notes.append(f"world {i}: {why}; checked with smaller parameters")
            report.models += 1
            if failure is not None:
                report.verdict = "refuted"
                report.counterexample = explain(smaller(failure, tally))
                break
        if report.verdict == "refuted":
            break
    report.runs, report.seconds = tally.runs, time.perf_counter() - started
    return report


def retry(case: Case, tally: Tally, params: Mapping[str, Any] | None) -> Failure | None:
    """A world that is too large, again with the smallest parameters and fewer tokens."""
    small = dict(case.params)
    for p in case.function.params:
        if p.value.type.elem == "int" and p.name not in (params or {}):
            small[p.name] = max(1, int(p.low) if p.low is not None else 1)
    return decide(replace(case, params=small, length=2, steps=1, request=replace(case.request, limit=min(3, case.request.limit))),
                  tally)
