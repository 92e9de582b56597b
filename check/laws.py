"""Laws of programs: distributions over what they commit, with exact rational probabilities."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from decgraph.backends.exact.choices import Choices, Point, runs
from decgraph.backends.exact.run import Enough, ExactMachine, World, exact_machine
from decgraph.backends.reference.machine import Stop
from decgraph.ir.values import Module

Tokens = tuple[int, ...]
Law = dict[Any, Fraction]


@dataclass(frozen=True)
class Program:
    """A function of a module with everything it needs: models and parameters by name. `engine` builds the machine (the
    mutants of the machine hand over theirs)."""

    module: Module
    function: str
    models: Mapping[str, Any]
    params: Mapping[str, Any]
    engine: type[ExactMachine] = ExactMachine
    externs: Mapping[str, Any] | None = None

    def machine(self, request: Any, world: World, steps: int | None = None) -> ExactMachine:
        """A machine ready to run it."""
        m = self.engine(self.module, self.function, self.models, self.params, request, externs=dict(self.externs or {}))
        return m.on(world, steps)


class AdversaryWins(Exception):
    """Two answers to the same question lead to different laws."""

    def __init__(self, point: Point, laws: list[Law]) -> None:
        super().__init__(point.label)
        self.point, self.laws = point, laws


@dataclass
class Tally:
    """How much was run."""

    runs: int = 0


def execute(m: ExactMachine) -> ExactMachine:
    """Run a machine to its end, or to the step it was told to stop at."""
    try:
        m.run_function()
    except (Enough, Stop):
        pass
    return m


def law_of(program: Callable[[Choices], Law], limit: int, tally: Tally) -> Law:
    """The law of a program whose runs return laws (of what is still open at their end). At an adversary's choice every
    answer must give the same law; raises AdversaryWins where they do not, TooMany beyond `limit` runs."""
    leaves: list[tuple[list[Point], Law]] = []
    for choices, law in runs(program, limit):
        tally.runs += 1
        leaves.append((choices.points, law))
    return combine(leaves, 0)


def combine(leaves: Sequence[tuple[list[Point], Law]], depth: int) -> Law:
    """The law of the runs that share their first `depth` choices."""
    if len(leaves) == 1 and len(leaves[0][0]) == depth:
        return leaves[0][1]
    point = leaves[0][0][depth]
    groups: dict[int, list[tuple[list[Point], Law]]] = {}
    for leaf in leaves:
        groups.setdefault(leaf[0][depth].taken, []).append(leaf)
    laws = {taken: combine(group, depth + 1) for taken, group in groups.items()}
    if point.kind == "adversary":
        first = laws[min(laws)]
        if any(law != first for law in laws.values()):
            raise AdversaryWins(point, list(laws.values()))
        return first
    out: Law = {}
    for taken, law in laws.items():
        for key, w in law.items():
            out[key] = out.get(key, Fraction(0)) + point.weights[taken] * w
    return out


def total_variation(a: Law, b: Law) -> Fraction:
    """Half the sum of absolute differences."""
    return sum((abs(a.get(k, Fraction(0)) - b.get(k, Fraction(0))) for k in {*a, *b}), Fraction(0)) / 2


class Specification:
    """A specification that is a function of the context: its law one token at a time, remembered by context."""

    def __init__(self, program: Program, request: Any, limit: int, tally: Tally) -> None:
        self.program, self.request, self.limit, self.tally = program, request, limit, tally
        self.memo: dict[Tokens, Law | None] = {}
        self.world = World(coupled=False)

    def next(self, done: Tokens) -> Law | None:
        """The law of the next token after `done`; None where the run has ended."""
        if done not in self.memo:
            def one(choices: Choices) -> Law:
                self.world.restart(choices)
                m = self.program.machine(self.request, self.world).resume(done)
                if m.done():
                    return {None: Fraction(1)}
                m.until = lambda m: m.committed() > len(done)
                execute(m)
                new = m.committed_tokens()[len(done):]
                return {new[0] if new else None: Fraction(1)}
            law = law_of(one, self.limit, self.tally)
            self.memo[done] = None if law == {None: Fraction(1)} else law
        return self.memo[done]

    def extend(self, done: Tokens, length: int, out: Law, weight: Fraction) -> None:
        """Add to `out` the law of the first `length` tokens of a run that has committed `done`."""
        if len(done) >= length:
            key = done[:length]
            out[key] = out.get(key, Fraction(0)) + weight
            return
        law = self.next(done)
        if law is None:
            out[done] = out.get(done, Fraction(0)) + weight
            return
        for token, w in law.items():
            self.extend((*done, token), length, out, weight * w)


def continued_law(a: Program, spec: Specification, request: Any, steps: int, length: int, limit: int, tally: Tally) -> Law:
    """The law of the first `length` tokens of: `steps` steps of a program, then the specification."""
    world = World(coupled=False)

    def program(choices: Choices) -> Law:
        world.restart(choices)
        m = execute(a.machine(request, world, steps))
        out: Law = {}
        tokens = m.committed_tokens()
        if m.done() and len(tokens) < length:
            out[tokens] = Fraction(1)
        else:
            spec.extend(tokens, length, out, Fraction(1))
        return out

    return law_of(program, limit, tally)


def whole_law(a: Program, request: Any, limit: int, tally: Tally) -> Law:
    """The law of everything a program commits."""
    world = World(coupled=False)

    def program(choices: Choices) -> Law:
        world.restart(choices)
        return {execute(a.machine(request, world)).committed_tokens(): Fraction(1)}

    return law_of(program, limit, tally)


__all__ = ["AdversaryWins", "Law", "Program", "Specification", "Tally", "combine", "continued_law", "exact_machine", "execute",
           "law_of", "total_variation", "whole_law"]
