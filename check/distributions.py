"""Distributions of programs: distributions over what they commit, with exact rational probabilities."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from decgraph.backends.exact.choices import AdversaryWins, Arrived, Choices, Point, combine, runs
from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Enough, World
from decgraph.backends.run import Stop
from decgraph.ir.intervals import End
from decgraph.ir.ranges import narrowed
from decgraph.ir.values import Module
from decgraph.runtime.arguments import Externs, ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.text import Detokenizer

Tokens = tuple[int, ...]
Distribution = dict[tuple[Tokens, bool], Fraction]
"""Probabilities by what is committed, and whether the text ends there."""
TokenDistribution = dict[int | None, Fraction]
"""Probabilities of the next token; None: the text ends."""
Folds = tuple[Mapping[int, frozenset[End]], dict[int, set[End]]] | None
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class CheckedProgram:
    """A function of a module with everything it needs: models and parameters by name. `engine` builds the machine (the
    mutants of the machine hand over theirs). `ran` takes note of what runs; `merge`: runs in equal states are followed once;
    `folds`: the numbers that sequences had at folds over a batch in earlier worlds, and where to note those of this one."""

    module: Module
    function: str
    models: Mapping[str, Model]
    params: Mapping[str, ParamValue]
    engine: type[ExactMachine] = ExactMachine
    externs: Externs | None = None
    detokenizer: Detokenizer | None = None
    ran: CoveredRun | None = None
    merge: bool = True
    folds: Folds = None

    def machine(self, request: Request, world: World, steps: int | None = None) -> ExactMachine:
        """A machine ready to run it."""
        m = self.engine(
            self.module,
            self.function,
            self.models,
            self.params,
            request,
            externs=dict(self.externs or {}),
            detokenizer=self.detokenizer,
        )
        before, m.noted = self.folds or ({}, None)
        m.folded = narrowed(self.module.functions[self.function], before)
        return m.on(world, steps)


class OutOfTime(Exception):
    """Raised when the time of a check is over."""


class ComparedEnough(OutOfTime):
    """Raised when the time for comparing what is derived is over."""


@dataclass
class RunTally:
    """How much was run. until: the processor time (of time.process_time) at which to give up, or None: a busy machine decides
    as much as an idle one. compared: the same for a part, the comparison of a claim that is derived."""

    runs: int = 0
    until: float | None = None
    compared: float | None = None

    def count(self) -> None:
        """Counts one more run. Raises OutOfTime."""
        self.runs += 1
        self.check_time()

    def check_time(self) -> None:
        """Raises OutOfTime."""
        now = time.process_time()
        if self.until is not None and now > self.until:
            raise OutOfTime
        if self.compared is not None and now > self.compared:
            raise ComparedEnough


Setup = Callable[[ExactMachine], None]


def execute(m: ExactMachine) -> ExactMachine:
    """Run a machine to its end, or to the step it was told to stop at."""
    run_steps(m)
    return m


def run_steps(m: ExactMachine) -> bool:
    """Run a machine; whether it came to its end (and was not stopped after the steps that it was given)."""
    try:
        m.run()
    except (Enough, Stop):
        return False
    return True


def distribution_of(
    program: Callable[[Choices], dict[K, Fraction]], limit: int, tally: RunTally, *, merge: bool = False
) -> dict[K, Fraction]:
    """The distribution of a program whose runs return distributions (of what is still open at their end). At an adversary's
    choice every option must lead to the same distribution; raises AdversaryWins where they do not, TooMany beyond `limit` runs.
    merge: runs that come to equal states are followed once."""
    leaves: list[tuple[list[Point], dict[K, Fraction] | Arrived]] = []
    for choices, distribution in runs(program, limit, merge=merge):
        tally.count()
        leaves.append((choices.points, distribution))
    return combine(leaves)


def total_variation(a: Distribution, b: Distribution) -> Fraction:
    """Half the sum of absolute differences."""
    return sum((abs(a.get(k, Fraction(0)) - b.get(k, Fraction(0))) for k in {*a, *b}), Fraction(0)) / 2


UNKNOWN: TokenDistribution = {}


class PreferredChoices(Choices):
    """Choices of one value wherever it is among the options, and of the first one elsewhere."""

    def __init__(self, value: object) -> None:
        super().__init__(())
        self.value = value

    def choose(self, weights: Sequence[Fraction | int], values: Sequence[T], label: str, kind: str = "chance") -> T:
        live = [v for w, v in zip(weights, values, strict=True) if w > 0 or kind == "adversary"]
        self.prefix = (*self.prefix[: len(self.points)], next((i for i, v in enumerate(live) if v == self.value), 0))
        return super().choose(weights, values, label, kind)


class Specification:
    """A specification that is a function of the context: its distribution one token at a time, remembered by context.

    Distributions are of (tokens, whether the text ends there): a program that stops earlier than its specification has another
    distribution.
    """

    def __init__(self, program: CheckedProgram, request: Request, limit: int, tally: RunTally) -> None:
        self.program, self.request, self.limit, self.tally = program, request, limit, tally
        self.memo: dict[Tokens, TokenDistribution | None] = {}
        self.world = World(coupled=False)

    def next(self, done: Tokens) -> TokenDistribution | None:
        """The distribution of the next token after `done`; None where the run has ended."""
        if done not in self.memo:

            def one(choices: Choices) -> TokenDistribution:
                self.world.restart(choices)
                m = self.program.machine(self.request, self.world).resume(done)
                if m.done():
                    return {None: Fraction(1)}
                m.until = lambda m: m.committed() > len(done)
                execute(m)
                new = m.committed_tokens()[len(done) :]
                return {new[0] if new else None: Fraction(1)}

            distribution = distribution_of(one, self.limit, self.tally)
            self.memo[done] = None if distribution == {None: Fraction(1)} else distribution
        return self.memo[done]

    def over(self, done: Tokens) -> bool:
        """Whether the text ends after `done`."""
        return self.program.machine(self.request, self.world).resume(done).done()

    def share(self, text: Tokens, whole: bool = True) -> Fraction:
        """The probability of a whole text, or of its beginning."""
        out = Fraction(1)
        for n in range(len(text) + whole):
            x = text[n] if n < len(text) else None
            row = self.memo[text[:n]] if text[:n] in self.memo else self.only(text[:n], x)
            row = self.next(text[:n]) if row is UNKNOWN else row
            out *= int(x is None) if row is None else row.get(x, Fraction(0))
            if not out:
                break
        return out

    def only(self, done: Tokens, x: int | None) -> TokenDistribution | None:
        """As `next`, with the probability of one token alone, where the specification is `autoregressive`, which makes one
        choice for a token: a large vocabulary need not be gone through. UNKNOWN for other specifications."""
        if self.program.function != "autoregressive":
            return UNKNOWN
        choices = PreferredChoices(x)
        self.world.restart(choices)
        m = self.program.machine(self.request, self.world).resume(done)
        if m.done():
            return None
        m.until = lambda m: m.committed() > len(done)
        new = execute(m).committed_tokens()[len(done) :]
        return {x: choices.weight()} if new == (x,) and len(choices.points) < 2 else {} if x not in new else UNKNOWN

    def extend(self, done: Tokens, length: int, out: Distribution, weight: Fraction) -> None:
        """Add to `out` the distribution of the first `length` tokens of a run that has committed `done`."""
        if len(done) >= length:
            key = (done[:length], len(done) == length and self.over(done))
            out[key] = out.get(key, Fraction(0)) + weight
            return
        distribution = self.next(done)
        if distribution is None:
            out[done, True] = out.get((done, True), Fraction(0)) + weight
            return
        for token, w in distribution.items():
            if token is None:
                out[done, True] = out.get((done, True), Fraction(0)) + weight * w
            else:
                self.extend((*done, token), length, out, weight * w)


def continued_distribution(
    a: CheckedProgram,
    spec: Specification,
    request: Request,
    steps: int | None,
    length: int,
    limit: int,
    tally: RunTally,
    setup: Setup | None = None,
    committed: Tokens = (),
) -> Distribution:
    """The distribution of the first `length` tokens of: `committed`, `steps` steps of a program, then the specification. A text
    that the program ends is not extended. steps: None runs the program to its end. `setup` prepares the machine."""
    world = World(coupled=False, ran=a.ran)
    world.enough = length

    def program(choices: Choices) -> Distribution:
        world.restart(choices)
        m = a.machine(request, world, steps).resume(committed)
        if setup is not None:
            setup(m)
        whole = run_steps(m)
        out: Distribution = {}
        tokens = m.committed_tokens()
        if whole and (len(tokens) < length or not m.done()):
            out[tokens[:length], len(tokens) <= length] = Fraction(1)
        elif whole:
            out[tokens[:length], len(tokens) == length] = Fraction(1)
        else:
            spec.extend(tokens, length, out, Fraction(1))
        return out

    return distribution_of(program, limit, tally, merge=a.merge)


def whole_distribution(
    a: CheckedProgram, request: Request, limit: int, tally: RunTally, setup: Setup | None = None
) -> Distribution:
    """The distribution of everything a program commits, as (tokens, True)."""
    world = World(coupled=False, ran=a.ran)

    def program(choices: Choices) -> Distribution:
        world.restart(choices)
        m = a.machine(request, world)
        if setup is not None:
            setup(m)
        return {(execute(m).committed_tokens(), True): Fraction(1)}

    return distribution_of(program, limit, tally, merge=a.merge)


__all__ = [
    "AdversaryWins",
    "Distribution",
    "ComparedEnough",
    "OutOfTime",
    "CheckedProgram",
    "Setup",
    "Specification",
    "RunTally",
    "continued_distribution",
    "execute",
    "distribution_of",
    "run_steps",
    "total_variation",
    "whole_distribution",
]
