"""Which worlds a program is checked in: small ones of every sort, and those that straddle what the program itself names.

What the worlds are there for stands in their labels:

- base: small models, contexts and parameters of every style, half of the requests plain;
- resumed: a step begins after one to three committed tokens; carried: with carried values of any kind; session: in a later
  request;
- setting: values of the parameters that a claim's condition reads, from one end to the other;
- parameter: the default, both ends, and the neighbours of the constants that a parameter meets, where most rows are certain;
- context, vocabulary: as long and as large as the program's constants are; numbers: masses beside its numbers;
- deep: texts that are certain up to a late token and open from there on, run to their end;
- request: everything that a request can ask for; window: a context window that ends the text;
- canvas: one to eight cells, up to three blocks and more, greedy and sampled; layers: free models for whatever remembers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from decgraph.check.constants import facts
from decgraph.check.plans.base import base
from decgraph.check.plans.canvases import canvases
from decgraph.check.plans.chance import chance_plan
from decgraph.check.plans.lengths import beside, deep, remembering, straddling
from decgraph.check.plans.parameters import at_settings, parameters, places, switches, values_of
from decgraph.check.plans.requests import requested
from decgraph.check.plans.states import started
from decgraph.check.settings import speaks_of
from decgraph.check.worlds import WorldPlan
from decgraph.ir.values import Claim, Module
from decgraph.runtime.arguments import ParamValue

RUNS = {"parameter": 200, "deep": 300, "searched": 300}  # most runs in worlds of which there are many, or which are long
FEWER_RUNS = 350  # ... of canvases, in a quick look
QUICK = 10  # fewer worlds of the first kind than this, and of the others there are fewer too


def first_plans(module: Module, claim: Claim, vocab: int, models: int, first: int = 0) -> list[WorldPlan]:
    """The `models` worlds of the first kind."""
    f = module.entry
    return [base(f, facts(module, f), claim, i, vocab) for i in range(first, first + models)]


def further_plans(module: Module, claim: Claim, vocab: int, models: int, given: Mapping[str, ParamValue]) -> list[WorldPlan]:
    """All the others, in the order in which they are decided."""
    f = module.entry
    known = facts(module, f)
    rounds = 1 if models < 40 else models // 20
    out = [
        *started(f, known, claim, vocab, rounds),
        *parameters(f, known, claim, vocab, given),
        *places(f, known, claim, given),
        *straddling(known, claim, vocab),
        *beside(known, claim, vocab),
        *deep(known, claim, vocab),
        *requested(known, claim, vocab),
        *canvases(f, known, claim, vocab),
        *remembering(known, claim, vocab),
        *(chance_plan(module, claim, vocab, 700 + n) for n in range(16 * rounds)),
    ]
    if models < QUICK:  # a quick look: some of each sort
        seen: Counter[str] = Counter()
        step, out, every = -(-QUICK // models), [], out
        for plan in every:
            of = step + 1 if plan.label == "canvas" else step  # there are many of these
            turn = seen[plan.label] // of if plan.label == "canvas" else 0  # every second one has the same models and rows
            if seen[plan.label] % of == turn % of:
                out.append(plan)
            seen[plan.label] += 1
    fitted = []
    out += switches(f, known, given)
    if claim.setting:
        out = [plan for plan in out if plan.label != "parameter" or speaks_of(f, claim, dict(plan.params))]
        out += at_settings(f, known, claim, vocab, given)
    for plan in out:
        if claim.kind != "refines" and plan.committed:
            plan = replace(plan, limit=min(plan.limit, plan.committed + 3))
        if claim.for_greedy and plan.temperature != 0:
            plan = replace(plan, temperature=0)
        if claim.mode in ("tokens", "greedy") and plan.label in ("resumed", "base"):
            plan = replace(plan, length=3)
        most = RUNS.get(plan.label, plan.runs)
        if plan.label == "canvas" and models < QUICK:
            most = FEWER_RUNS
        fitted.append(replace(plan, runs=min(plan.runs, most)))
    return fitted


__all__ = ["chance_plan", "first_plans", "further_plans", "values_of"]
