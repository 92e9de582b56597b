"""The judge: a program's committed tokens against what its claims say, over every outcome of whole runs in small worlds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from oracle import language as L
from oracle.carried import carried
from oracle.choices import Choices, Output, TooMany, every
from oracle.interpret import Left, Machine
from oracle.specification import ensured, next_token, specified, supported
from oracle.values import Stuck, frozen, thawed
from oracle.worlds import World, ended, world

STEPS = 60
NONSENSE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration)  # programs without a meaning


@dataclass(frozen=True)
class Verdict:
    """`refuted` with the world and what is wrong there; `holds` in all of `worlds` worlds; `unknown` if none was decided."""

    verdict: str
    worlds: int
    why: str = ""
    world: World | None = None
    left_out: Counter[str] = field(default_factory=Counter)  # why worlds were not decided, and how many

    @property
    def fails(self) -> bool:
        """Whether runs of it stop with an error in some world: such a program has no meaning that could be proved."""
        fair = ("TooMany", "Stuck: the constraints", "Stuck: three rows", "Stuck: a root")
        return any(not why.startswith(fair) for why in self.left_out)


class Budget:
    """How many runs may be made, and until when."""

    def __init__(self, runs: int, until: float) -> None:
        self.left, self.until = runs, until

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0 or (self.left % 64 == 0 and time.process_time() > self.until):
            raise TooMany


def parts(program: L.Program) -> tuple[tuple[Any, ...], L.While | None, tuple[Any, ...]]:
    """What stands before the loop of an algorithm, the loop, and what stands after it."""
    for i, s in enumerate(program.body):
        if isinstance(s, L.While) and s.test == L.Un("not", L.Name("done")):
            return program.body[:i], s, program.body[i + 1 :]
    return program.body, None, ()


class Runs:
    """All runs of a program in a world, a step at a time; runs that stand at the same point are one.

    A point: (texts of finished requests, number of the request, new tokens, carried values, states, noise read, phase)."""

    def __init__(self, program: L.Program, w: World, laws: bool, budget: Budget) -> None:
        self.program, self.world, self.laws, self.budget = program, w, laws, budget
        self.before, self.loop, self.after = parts(program)
        self.names = carried(self.loop.body) if self.loop is not None else frozenset()

    def start(self) -> tuple[Any, ...]:
        return ((), 0, (), (), (), (), "begin")

    def machine(self, point: tuple[Any, ...], choices: Choices) -> Machine:
        """The machine that stands at a point."""
        _, number, new, env, states, noise, phase = point
        request = self.world.requests[number]
        m = Machine(self.program, self.world, request, choices, Output({k: list(v) for k, v in noise}, self.laws))
        m.new = new
        if phase == "begin":
            m.start_states({k: thawed(v) for k, v in states})
        else:
            m.states = {k: thawed(v) for k, v in states}
            m.env = {k: thawed(v) for k, v in env}
        return m

    def step(self, point: tuple[Any, ...], choices: Choices) -> tuple[Any, ...]:
        """One turn of the loop (or what stands before it) from a point: the point where it ends."""
        m = self.machine(point, choices)
        phase = "loop"
        try:
            if point[6] == "begin":
                m.run(self.before)
                if self.loop is None:
                    phase = "end"
            else:
                assert self.loop is not None
                m.inside, m.turn = True, len(point[2])
                m.run(self.loop.body)
        except Left:
            phase = "end"
            if point[6] != "begin":
                m.run(self.after)
        if phase == "loop" and m.done:
            phase = "end"
            m.run(self.after)
        return self.point(m, point, phase)

    def point(self, m: Machine, old: tuple[Any, ...], phase: str) -> tuple[Any, ...]:
        history, number = old[0], old[1]
        states = tuple(sorted((k, frozen(v)) for k, v in m.states.items()))
        if phase == "end":
            if number + 1 == len(self.world.requests):
                return ((*history, m.new), number, (), (), (), (), "end")
            scopes = {s.name: s.scope for s in self.program.states}
            return ((*history, m.new), number + 1, (), (), tuple(s for s in states if scopes[s[0]] == "session"), (), "begin")
        env = tuple(sorted((k, frozen(v)) for k, v in m.env.items() if k in self.names))
        kept = tuple(sorted(((k, tuple(v)) for k, v in m.output.seen.items() if _open(k, len(m.context))), key=repr))
        return (history, number, m.new, env, states, kept, phase)

    def turns(self, point: tuple[Any, ...]) -> Iterator[tuple[Fraction, tuple[Any, ...]]]:
        yield from every(lambda c: self.step(point, c), self.budget.spend)


def _open(place: Any, length: int) -> bool:
    """Whether the noise at a place may be read again."""
    if isinstance(place, tuple) and place[0] == "using":
        return bool(place[1][2] == "before")
    return not isinstance(place, int) or place >= length


def law(program: L.Program, w: World, budget: Budget) -> dict[tuple[Any, ...], Fraction]:
    """The law of the texts of a session."""
    runs = Runs(program, w, True, budget)
    now: dict[Any, Fraction] = {runs.start(): Fraction(1)}
    out: dict[tuple[Any, ...], Fraction] = {}
    for _ in range(STEPS):
        then: dict[Any, Fraction] = {}
        for point, p in now.items():
            for q, after in runs.turns(point):
                if after[6] == "end":
                    out[after[0]] = out.get(after[0], Fraction(0)) + p * q
                else:
                    then[after] = then.get(after, Fraction(0)) + p * q
        now = then
        if not now:
            return out
    raise Stuck("the run does not end")


def tokens_differ(program: L.Program, w: World, budget: Budget, spec: Any) -> str:
    """Where the tokens can differ from the specification's under the same noise, or nothing."""
    runs = Runs(program, w, False, budget)
    now, seen = {runs.start()}, set()
    for _ in range(STEPS):
        then = set()
        for point in now:
            for after, wrong in checked(runs, point, w, spec, program):
                if wrong:
                    return wrong
                if after[6] != "end" and after not in seen:
                    then.add(after)
        seen |= then
        now = then
        if not now:
            return ""
    raise Stuck("the run does not end")


def checked(runs: Runs, point: Any, w: World, spec: Any, program: L.Program) -> Iterator[tuple[Any, str]]:
    """The points after a point, each with what the specification has against the tokens committed on the way."""

    def one(c: Choices) -> tuple[Any, str]:
        made: list[Machine] = []
        keep = runs.point

        def catch(m: Machine, old: Any, phase: str) -> Any:
            made.append(m)
            return keep(m, old, phase)

        runs.point = catch  # type: ignore[method-assign]
        try:
            after = runs.step(point, c)
        finally:
            del runs.point
        m = made[0]
        for i in range(len(point[2]), len(m.new)):
            wanted = next_token(w, spec, m.request, m.new[:i], m.output, c)
            if wanted != m.new[i]:
                return after, f"after {m.request.prompt + m.new[:i]} came {m.new[i]}, the specification has {wanted}"
        if after[6] in ("end", "begin") and not m.done:
            return after, f"it ended after {m.new}"
        return after, ""

    for _, found in every(one, runs.budget.spend):
        yield found


def decided(program: L.Program, w: World, claim: Any, budget: Budget) -> str:
    """What is wrong with a claim in a world, or nothing."""
    if isinstance(claim, L.Refines):
        masked = claim.spec.func.id == "static_masked"
        if claim.greedy:
            w.requests = tuple(replace(r, temperature=Fraction(0), max_tokens=max(r.max_tokens, 7)) for r in w.requests)
        if not masked and (claim.greedy or claim.mode == "tokens"):
            return tokens_differ(program, w, budget, claim.spec)
        if masked and claim.mode == "tokens":
            return canvases_differ(program, w, budget, claim.spec)
        ours, theirs = law(program, w, budget), specified(w, claim.spec, budget.spend)
        if ours == theirs:
            return ""
        off = sum(abs(ours.get(k, Fraction(0)) - theirs.get(k, Fraction(0))) for k in {*ours, *theirs}) / 2
        return f"total variation {float(off):.4g}"
    good = supported if isinstance(claim, L.Keeps) else ensured
    for texts in law(program, w, budget):
        for request, new in zip(w.requests, texts, strict=True):
            for i, x in enumerate(new):
                if not good(w, claim, program, request, new[:i], x):
                    return f"{x} was committed after {request.prompt + new[:i]}"
    return ""


def canvases_differ(program: L.Program, w: World, budget: Budget, spec: Any) -> str:
    """The same for a canvas: the specification runs on the noise that the program read."""
    from oracle.specification import static

    runs = Runs(program, w, False, budget)

    def one(c: Choices) -> str:
        m = runs.machine(runs.start(), c)
        m.run(program.body)
        wanted = static(w, spec, m.request, m.output, c)
        return "" if wanted == m.new else f"{m.new}, the specification has {wanted}"

    return next((wrong for _, wrong in every(one, budget.spend) if wrong), "")


def judge(
    program: L.Program,
    *,
    seconds: float = 1.0,
    first: int = 0,
    worlds: int = 10**6,
    make: Callable[[L.Program, int, bool], World] = world,
) -> Verdict:
    """Look at worlds until one refutes a claim, or the time is over. A world may take a quarter of it."""
    until, tried, left_out = time.process_time() + seconds, 0, Counter[str]()
    masked = any(p.type.startswith("masked") for p in program.params)
    for seed in range(first, first + worlds):
        if time.process_time() > until:
            break
        for claim in program.claims:
            try:
                w = make(program, seed, masked)
                wrong = decided(program, w, claim, Budget(20000, min(until, time.process_time() + seconds / 8)))
            except (TooMany, Stuck, *NONSENSE) as error:
                left_out[f"{type(error).__name__}: {error}"] += 1
                continue
            tried += 1
            if wrong:
                return Verdict("refuted", tried, wrong, w, left_out)
    return Verdict("holds" if tried else "unknown", tried, left_out=left_out)


__all__ = ["Verdict", "ended", "judge", "law"]
