"""Deciding a claim in one world: a model for every parameter, parameter values, and a request."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from decgraph.backends.exact.choices import Choices, Point, TooMany, runs
from decgraph.backends.exact.run import ExactMachine, Unlikely, World
from decgraph.check.laws import (
    AdversaryWins,
    Law,
    Program,
    Specification,
    Tally,
    continued_law,
    execute,
    total_variation,
    whole_law,
)
from decgraph.ir.data.dist import Dist, value_row
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params


@dataclass
class Case:
    """One world."""

    module: Module
    function: Function
    claim: Claim
    models: dict[str, Any]
    params: dict[str, Any]
    request: Request
    steps: int = 1
    length: int = 3
    engine: type[ExactMachine] = ExactMachine
    externs: dict[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    limit: int = 700

    def program(self) -> Program:
        return Program(self.module, self.function.name, self.models, self.params, self.engine, self.externs)

    def spec(self) -> Program:
        """The specification with its arguments: our models and parameters by the claim's names, its defaults else."""
        f = self.module.functions[self.claim.spec]
        models: dict[str, Any] = {}
        params: dict[str, Any] = {}
        for name, (kind, value) in self.claim.args:
            got = value if kind == "const" else self.models.get(value, self.params.get(value))
            if f.param(name).value.type.elem == "model":
                models[name] = got
            else:
                params[name] = got
        return Program(self.module, f.name, models, check_params(f, params), ExactMachine, self.externs)


@dataclass
class Failure:
    """Why a claim does not hold: the case, the two laws (or token strings), and the decisions that lead there."""

    case: Case
    kind: str
    ours: Law
    theirs: Law
    distance: Fraction
    points: list[Point]
    words: str = ""


def memoryless(f: Function) -> bool:
    """Whether a specification is a function of the context: one `while not done` that carries nothing, and no state."""
    whiles = [op for op in f.body.ops if op.opcode == "while"]
    return not f.states and len(whiles) == 1 and whiles[0].attrs.get("bound") == "done" and not whiles[0].results \
        and not any(op.opcode in ("canvas.new", "commit") for op in f.body.ops)


def stepwise(f: Function) -> bool:
    """Whether an algorithm can be left after a step: its `while not done` is at the top."""
    return any(op.opcode == "while" and op.attrs.get("bound") == "done" for op in f.body.ops)


def decide(case: Case, tally: Tally) -> Failure | None:
    """None where the claim holds in this world. Raises TooMany or Unlikely where that cannot be said.

    A lossless claim is decided for the world's request and, since that has few tokens, for the same request at temperature 0
    and `DEEP` tokens, which is a single run for most algorithms.
    """
    if case.claim.kind != "refines":
        return every_token(case, tally)
    if case.claim.mode == "greedy":
        case = replace(case, request=replace(case.request, temperature=0))
    tokens = case.claim.mode in ("tokens", "greedy")
    failure = in_tokens(case, tally) if tokens else in_distribution(case, tally)
    return failure if failure is not None else deep(case, tally)


def deep(case: Case, tally: Tally) -> Failure | None:
    """The part of `decide` at temperature 0. Nothing is said of drafts that are random there too."""
    if case.claim.kind != "refines" or case.request.greedy or masked(case.function):
        return None
    limit = DEEP if case.request.limit > 1 else case.request.limit
    far = replace(case, request=replace(case.request, temperature=0, limit=limit), limit=min(case.limit, 60))
    try:
        return in_tokens(far, tally)
    except (TooMany, Unlikely):
        return None


DEEP = 9


def masked(f: Function) -> bool:
    """Whether the first model of an algorithm fills canvases."""
    return next((p.value.type.of[0] for p in f.params if p.value.type.elem == "model"), "") == "masked"


def in_distribution(case: Case, tally: Tally) -> Failure | None:
    """One step (or a few) and then the specification, against the specification alone."""
    spec_f = case.module.functions[case.claim.spec]
    a, b = case.program(), case.spec()
    try:
        if memoryless(spec_f) and stepwise(case.function):
            spec = Specification(b, case.request, case.limit, tally)
            theirs: Law = {}
            spec.extend((), case.length, theirs, Fraction(1))
            ours = continued_law(a, spec, case.request, case.steps, case.length, case.limit, tally)
        else:
            theirs = whole_law(b, case.request, case.limit, tally)
            ours = whole_law(a, case.request, case.limit, tally)
    except AdversaryWins as wins:
        one, other = wins.laws[0], next(law for law in wins.laws if law != wins.laws[0])
        return Failure(case, "adversary", one, other, total_variation(one, other), [wins.point],
                       f"the answer to {wins.point.label} changes the law")
    if ours == theirs:
        return None
    return Failure(case, "law", ours, theirs, total_variation(ours, theirs), [])


def in_tokens(case: Case, tally: Tally) -> Failure | None:
    """With the same noise, the same tokens: for everything that the noise can be."""
    a, b = case.program(), case.spec()
    world = World(coupled=True)

    def both(choices: Choices) -> tuple[Any, Any]:
        world.restart(choices)
        ours = execute(a.machine(case.request, world)).committed_tokens()
        theirs = execute(b.machine(case.request, world)).committed_tokens()
        return ours, theirs

    for choices, (ours, theirs) in runs(both, case.limit):
        tally.runs += 1
        if ours != theirs:
            return Failure(case, "tokens", {ours: Fraction(1)}, {theirs: Fraction(1)}, Fraction(1), choices.points)
    return None


def every_token(case: Case, tally: Tally) -> Failure | None:
    """`ensures` and `keeps support`: of every token that is committed, at its context."""
    a = case.program()
    world = World(coupled=True)

    def one(choices: Choices) -> Any:
        world.restart(choices)
        m = execute(a.machine(case.request, world))
        tokens = m.committed_tokens()
        for i, x in enumerate(tokens):
            if not token_holds(case, m, tuple(case.request.prompt) + tokens[:i], x):
                return tokens[: i + 1]
        return None

    for choices, bad in runs(one, case.limit):
        tally.runs += 1
        if bad is not None:
            return Failure(case, "token", {bad: Fraction(1)}, {}, Fraction(1), choices.points,
                           f"token {bad[-1]} was committed after {list(bad[:-1])}, against: {case.claim.text}")
    return None


def token_holds(case: Case, m: ExactMachine, path: tuple[int, ...], x: int) -> bool:
    """Whether the claim holds of one token at its context."""
    if case.claim.kind == "keeps_support":
        for name in case.claim.models:
            scores = partial(m.score_path, case.models[name], path, None)
            if m.model_row(case.models[name], scores, path, None, None).face("raw")[x] > 0:
                return True
        return False
    model = next(v for v in case.models.values() if v.kind == "causal")
    row = m.model_row(model, partial(m.score_path, model, path, None), path, None, None)
    assert case.claim.region is not None
    p = Dist(np.array(value_row(row.face("shaped")), dtype=object).reshape(()))
    return bool(m.num.truth(m.region(case.claim.region, (p, x))[0]))
