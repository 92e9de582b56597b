"""Claims and derivations: which model a claim is about, in which mode, and whether the specification is what it is called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from decgraph.check.proof.derive import Derivation, derive
from decgraph.check.proof.invariants import DerivationStopped, Step
from decgraph.check.proof.schedules import scheduled
from decgraph.check.proof.spending import spending
from decgraph.ir.facts import Certainty
from decgraph.ir.settings import Condition, conjuncts
from decgraph.ir.values import Claim, Constant, Function, Module


@dataclass(frozen=True)
class Open:
    """No derivation was found: the line at which it stopped (0: nowhere in particular), and why."""

    line: int
    why: str


def prove(module: Module, claim: Claim) -> Derivation | Open:
    """A derivation of a claim of a module's entry, or where and why there is none."""
    function = module.entry
    if claim.bound:
        return _of_cost(module, claim)
    modes: list[Certainty] = ["own", "drawn"]
    if claim.kind == "refines":
        if claim.spec != "autoregressive":
            return _of_canvases(module, claim)
        if (why := _no_sampler(module, claim)) is not None:
            return Open(claim.loc.line, why)
        model = _model_of(function, claim)
        if claim.mode in ("tokens", "greedy") or claim.for_greedy:
            modes = ["own"]
    elif claim.kind == "keeps_support":
        model = " or ".join(claim.models)
        modes = ["inside"]
    else:
        return Open(claim.loc.line, "no derivation for claims of this kind yet")
    if model is None:
        return Open(claim.loc.line, "it names no model of this algorithm")
    found = []
    for condition in alternatives(claim.setting):
        made = _derived(module, function, model, modes, claim.for_greedy, condition)
        if isinstance(made, Open):
            return made
        found.append(made)
    first, *others = found
    plain = all(c[0] == "==" or c[0] in ("param", "not") for c in conjuncts(claim.setting))
    premises = tuple(dict.fromkeys(p for made in found for p in made.premises))
    return replace(first, others=tuple(others), premises=premises, when="" if plain else claim.when)


def _derived(
    module: Module, function: Function, model: str, modes: list[Certainty], greedy: bool, condition: Condition
) -> Derivation | Open:
    """A derivation in the first mode that has one, where a condition holds: without a premise if there is one."""
    stopped, given = Open(0, ""), equalities(condition)
    premises: tuple[str, ...] = ()
    asked: list[bool] = []

    def normalised() -> bool:
        asked.append(True)
        return bool(premises)

    for premises in ((), ("log-probabilities",)):
        for mode in modes:
            try:
                found = derive(
                    module, function, model, mode, greedy=greedy, settings=given, condition=condition, normalised=normalised
                )
            except DerivationStopped as why:
                stopped = Open(why.line, why.why)
                continue
            if not found.errors:
                return replace(found, premises=premises)
            line, what = found.errors[0]
            stopped = Open(line, f"{what}, which would end the run in an error")
            break
        if not asked:
            break
    return stopped


def _of_canvases(module: Module, claim: Claim) -> Derivation | Open:
    """A claim about another specification: one that decides the cells of a canvas in the same order."""
    try:
        steps = scheduled(module, claim)
    except DerivationStopped as stopped:
        return Open(stopped.line or claim.loc.line, stopped.why)
    text = claim.text.partition(" in ")[0].partition(" when ")[0].removeprefix("refines ")
    mode: Literal["same", "scheduled"] = "same" if claim.mode == "tokens" else "scheduled"
    premises = ("no-errors",)
    return Derivation(module.main, text, mode, claim.for_greedy, (), {}, tuple(steps), claim.when, premises=premises)


def _of_cost(module: Module, claim: Claim) -> Derivation | Open:
    """A claim about how often a model is called, or how many cells are masked again."""
    steps: list[Step] = []
    try:
        for condition in alternatives(claim.setting):
            steps += spending(module, claim, condition, equalities(condition))
    except DerivationStopped as stopped:
        return Open(stopped.line or claim.loc.line, stopped.why)
    text = claim.text.partition(" when ")[0]
    return Derivation(module.main, text, "spends", claim.for_greedy, (), {}, tuple(steps), claim.when)


def _model_of(function: Function, claim: Claim) -> str | None:
    """The parameter that stands for the specification's model."""
    for kind, name in dict(claim.args).values():
        if kind == "param" and function.param(str(name)).value.type.elem == "model":
            return str(name)
    return None


def _no_sampler(module: Module, claim: Claim) -> str | None:
    """Why the specification is not the sampler of one model: it is what its text says, not what it is called."""
    spec = module.functions.get(claim.spec)
    models = [p.name for p in spec.params if p.value.type.elem == "model"] if spec is not None else []
    if spec is None or spec.states or len(models) != 1 or set(dict(claim.args)) != set(models):
        return f"{claim.spec} is not known to be the sampler of one model"
    try:
        derive(module, spec, models[0], "own")
    except DerivationStopped as stopped:
        return f"the specification {claim.spec} (line {stopped.line}): {stopped.why}"
    return None


def alternatives(condition: Condition) -> list[Condition]:
    """Conditions of which one holds where this one does: the parts of an `or`, also of one inside an `and`."""
    match condition:
        case ("or", *parts):
            return [c for part in parts for c in alternatives(part)]
        case ("and", *parts):
            return [("and", *chosen) for chosen in product(*map(alternatives, parts))]
    return [condition]


def equalities(condition: Condition) -> dict[str, Constant]:
    """The values of parameters that a condition asks for: {"a": 1, "c": False} of `a == 1 and b >= 2 and not c`. What else it
    asks for is left out: what is derived without it holds with it."""
    match condition:
        case ("and", *parts):
            return {name: value for part in parts for name, value in equalities(part).items()}
        case ("==", ("param", name), ("const", value)) | ("==", ("const", value), ("param", name)):
            return {name: value}
        case ("not", ("param", name)):
            return {name: False}
        case ("param", name):
            return {name: True}
    return {}
