"""Exact laws of two requests of one session, one after the other or side by side, with one seed: for `python -m lab fuzz_proofs
--beside`.

The requests have one seed and one id, and here noise is not numbered by request: it is what another engine may do, and what the
prover does not lean on (docs/decisions/0016-noise-and-memory.md). Functions of the caller's remember what they were told,
also by a request before. Sequences that run side by side take turns wherever one touches what they share; every order of so
many turns is gone through.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import Any

from decgraph.backends.exact.choices import AdversaryWins, Choices, TooMany
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import AnyFunction, World
from decgraph.check.case import Case
from decgraph.check.claims import Failure
from decgraph.check.distributions import (
    Distribution,
    OutOfTime,
    RunTally,
    Specification,
    distribution_of,
    execute,
    total_variation,
)
from decgraph.ir.ops.host import folded
from decgraph.ir.values import Function, Module

TURNS = 5
"""Turns of two sequences of which every order is tried; then they take turns."""


def shares(module: Module) -> bool:
    """Whether something outlives a request of a module, or is shared by sequences."""
    functions: list[Function] = list(module.functions.values())
    ops = {op.opcode for f in functions for op in f.body.walk()}
    return any(s.scope != "sequence" for f in functions for s in f.states) or bool(ops & {"extern", "batch.fold", "batch.top"})


class Unnumbered(ExactMachine):
    """A machine whose noise goes by the seed and the request's id alone."""

    others = ()  # a batch of one

    def _number(self) -> int:
        return self.request.request_id


class Recall:
    """A function that remembers: it answers by what it was told so many calls after the one of the request before that is like
    this one, and by what it was told last where there is none such."""

    def __init__(self, answers: Sequence[Any], later: int) -> None:
        self.answers, self.later = answers, later
        self.before: list[int] = []
        self.now: list[int] = []

    def next_request(self) -> None:
        self.before, self.now = self.now, []

    def __call__(self, *args: object) -> Any:
        self.now.append(sum(map(_number_of, args)))
        at = len(self.now) - 1 + self.later
        told = self.before[at] if at < len(self.before) else 0
        return self.answers[told % len(self.answers)]


def _number_of(x: object) -> int:
    """A number that tells of a value: the last one of a vector or a text."""
    if isinstance(x, str):
        return ord(x[-1]) if x else 0
    if hasattr(x, "__len__"):
        return _number_of(x[-1]) if len(x) else 0  # type: ignore[index]
    try:
        return int(x)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return 0


@dataclass
class Turns:
    """Two sequences in one order: whoever has the turn runs until it touches what both share."""

    order: tuple[int, ...]
    taken: int = 0
    active: int = 0
    alive: set[int] = field(default_factory=lambda: {0, 1})
    waits: dict[int, tuple[str, object, Callable[[list[Any]], list[Any]]]] = field(default_factory=dict)
    told: dict[int, Any] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    ended: list[BaseException] = field(default_factory=list)

    def next(self) -> None:
        """Give the turn to a sequence that can go on; where all wait for one another, those that came to one place do."""
        able = sorted(self.alive - self.waits.keys())
        if not able and self.waits:
            first = sorted(self.waits)[self.choice(len(self.waits))]
            site = self.waits[first][0]
            those = [n for n in sorted(self.waits) if self.waits[n][0] == site]
            found = self.waits[first][2]([self.waits[n][1] for n in those])
            for n, value in zip(those, found, strict=True):
                self.told[n] = value
                del self.waits[n]
            able = sorted(self.alive - self.waits.keys())
        if able:
            self.active = able[self.choice(len(able))]
        self.changed.notify_all()

    def choice(self, among: int) -> int:
        """The next of the order, where there is a choice."""
        if among < 2:
            return 0
        self.taken += 1
        return self.order[self.taken - 1] if self.taken <= len(self.order) else self.taken % 2

    def touch(self, me: int) -> None:
        """Before something shared is touched: the other sequence may come first."""
        with self.changed:
            self.next()
            self.wait(me)

    def meet(self, me: int, site: str, mine: object, of_all: Callable[[list[Any]], list[Any]]) -> Any:
        with self.changed:
            self.waits[me] = (site, mine, of_all)
            self.next()
            self.wait(me)
            return self.told.pop(me)

    def wait(self, me: int) -> None:
        self.changed.wait_for(lambda: self.ended or self.active == me and me not in self.waits)
        if self.ended:
            raise Over

    def end(self, me: int) -> None:
        with self.changed:
            self.alive.discard(me)
            self.next()


class Over(BaseException):
    """The other sequence ended in an exception."""


class Beside(Unnumbered):
    """A sequence beside another one."""

    turns: Turns
    me = 0

    def _shared(self, name: str) -> bool:
        return any(s.name == name and s.scope != "sequence" for s in self.function.states)

    def read_state(self, name: str) -> Any:
        if self._shared(name) and hasattr(self, "turns"):
            self.turns.touch(self.me)
        return super().read_state(name)

    def write_state(self, name: str, value: Any) -> None:
        if self._shared(name) and hasattr(self, "turns"):
            self.turns.touch(self.me)
        super().write_state(name, value)

    def batch_fold(self, op: Any, x: Any) -> Any:
        if not hasattr(self, "turns"):
            return super().batch_fold(op, x)
        return self.turns.meet(self.me, f"{op.loc.line}:{op.loc.column}", x, lambda all_: folded(op.attrs["fn"], all_))

    def extern_once(self, name: str, f: Any, args: Any, returns: Any) -> Any:
        if hasattr(self, "turns"):
            self.turns.touch(self.me)
        return super().extern_once(name, f, args, returns)


def beside(machines: Sequence[Beside], order: tuple[int, ...]) -> None:
    """Run two machines in turns."""
    turns = Turns(order)

    def run(n: int) -> None:
        try:
            with turns.changed:
                turns.wait(n)
            execute(machines[n])
            turns.end(n)
        except Over:
            pass
        except BaseException as error:  # of the world, or of the program: the run's
            with turns.changed:
                turns.ended.append(error)
                turns.changed.notify_all()

    for n, m in enumerate(machines):
        m.turns, m.me = turns, n
    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if turns.ended:
        raise turns.ended[0]


def ways(case: Case) -> Iterator[tuple[str, Callable[[World, dict[str, Any]], Callable[[], list[ExactMachine]]]]]:
    """The ways in which two requests share something: what each is called, and what runs them, with the machines whose text is
    to be the specification's."""

    def machine(engine: type[ExactMachine], world: World, externs: dict[str, Any], prompt: tuple[int, ...]) -> ExactMachine:
        request = replace(case.request, prompt=prompt)
        return replace(case.program(), engine=engine, externs=externs, ran=None).machine(request, world)

    def after(first: tuple[int, ...]) -> Any:
        def run(world: World, externs: dict[str, Any]) -> Callable[[], list[ExactMachine]]:
            def both() -> list[ExactMachine]:
                shared: dict[tuple[str, str], object] = {}
                for prompt in (first, case.request.prompt):
                    m = machine(Unnumbered, world, externs, prompt)
                    m.shared = shared
                    execute(m)
                    for f in externs.values():
                        if isinstance(f, Recall):
                            f.next_request()
                return [m]

            return both

        return run

    yield "a request after another", after(case.request.prompt)
    if not any(op.opcode in ("draw.race", "draw.many") for op in case.function.body.walk()):  # whose noise is read of one row
        yield "a request after one with another prompt", after(case.request.prompt[:1])
    for order in product((0, 1), repeat=TURNS):

        def run(world: World, externs: dict[str, Any], order: tuple[int, ...] = order) -> Callable[[], list[ExactMachine]]:
            def both() -> list[ExactMachine]:
                made = [machine(Beside, world, externs, case.request.prompt) for _ in range(2)]
                made[1].shared = made[0].shared
                beside(made, order)  # type: ignore[arg-type]
                return made

            return both

        yield f"side by side in the order {''.join(map(str, order))}", run


def remembering(case: Case, later: int) -> dict[str, Any]:
    """The functions of a case: those that an adversary answers for remember."""
    return {name: Recall(list(f.answers), later) if isinstance(f, AnyFunction) else f for name, f in case.externs.items()}


def beside_fails(case: Case, tally: RunTally, rng: random.Random, orders: int = 6) -> tuple[Failure | None, int]:
    """A way in which a request that is not alone commits what the claim does not allow, and how many ways were decided."""
    found = list(ways(case))
    alone = len(found) - 2**TURNS
    some = found[:alone] + rng.sample(found[alone:], min(orders, 2**TURNS))
    decided = 0
    for what, way in some:
        for later in (0, 1) if case.externs else (0,):
            for one in range(1 if what.startswith("a") else 2):
                try:
                    failure = _decided(case, tally, way, later, one, what)
                except (TooMany, AdversaryWins):  # heads that an adversary answers for may decide which drafts there are
                    continue
                except OutOfTime:
                    return None, decided
                if failure is not None:
                    return failure, decided
                decided += 1
    return None, decided


def _decided(case: Case, tally: RunTally, way: Any, later: int, one: int, what: str) -> Failure | None:
    tokens = case.claim.kind == "refines" and case.claim.mode in ("tokens", "greedy")
    world, spec_program = World(coupled=tokens), replace(case.spec(), engine=Unnumbered)

    def program(choices: Choices) -> dict[Any, Fraction]:
        world.restart(choices)
        m = way(world, remembering(case, later))()[one]
        ours = m.committed_tokens()
        if not tokens:
            return {(ours, True): Fraction(1)}
        theirs = execute(spec_program.machine(case.request, world)).committed_tokens()
        return {(ours, theirs): Fraction(1)}

    law = distribution_of(program, case.limit, tally)
    if tokens:
        bad = next((key for key in law if key[0] != key[1] and law[key] > 0), None)
        return (
            None
            if bad is None
            else Failure(case, "tokens", {(bad[0], True): law[bad]}, {(bad[1], True): law[bad]}, law[bad], [], what)
        )
    spec = Specification(replace(case.spec(), engine=Unnumbered), case.request, case.limit, tally)
    wanted: Distribution = {text: spec.share(text[0]) for text in law}
    if law == wanted:
        return None
    return Failure(case, "distribution", law, wanted, total_variation(law, wanted), [], what)


# -- edits that give a program something shared
TOP = "extern zz_ask(int) -> int on host\nextern zz_read(text) -> bool on host\n"
STATES = {
    "number": "state zz: int per {scope} = 0",
    "table": "state zz: int[vocab] per {scope} = 0",
    "text": "state zz: suffixes(2) per {scope}",
    "list": "state zz: list[token[<= 2], <= 4] per {scope} = []",
}
READS = {
    "number": ("zz == 0", "zz > 0", "zz + yy == 1", "yy == 0"),
    "table": ("zz[ctx.token] == 0", "zz[ctx.token] + yy == 0"),
    "text": ("zz.has([0])", "zz.matched(ctx) > 0", "max(zz(ctx)) > 0.5"),
    "list": ("len(zz) == 0", "len(zz) > yy"),
    "function": ("zz_ask(0) == 0", "zz_read(text_of(ctx))", "yy == 0", "zz_ask(ctx.length) == 1"),
    "batch": ("yy == 0", "yy > 0"),
}
TELLS = {
    "number": ("zz = {n}", "zz = zz + {n}", "yy = zz", "zz = yy"),
    "table": ("zz[ctx.token] = {n}", "yy = zz[ctx.token]"),
    "text": ("zz.learn([{t}, {t}])", "yy = zz.matched(ctx)"),
    "list": ("zz = [[{t}]]", "zz = []", "yy = len(zz)"),
    "function": ("yy = zz_ask({n})", "told_ = zz_ask({n})"),
    "batch": ("across batch:\n    yy = max({n})", "across batch:\n    yy = sum({n})"),
}


def with_memory(rng: random.Random, text: str) -> str:
    """A program that is also told something shared, and lets it decide something. It need not be a program any more."""
    kind = rng.choice(list(READS))
    lines = text.rstrip().splitlines()
    start = max(n for n, line in enumerate(lines) if line.startswith("algorithm "))
    claims = [n for n in range(start, len(lines)) if re.match(r"    (refines|keeps|ensures) ", lines[n])]
    loop = next((n for n in range(start, len(lines)) if lines[n].strip() == "while not done:"), None)
    if not claims or loop is None:
        return text
    drawn = re.findall(r"\b(\w+) ~ ", "\n".join(lines[loop:]))
    numbers = ["ctx.length", "int(ctx.token)", "1", *(f"int({x})" for x in drawn), *(["t.size"] if "draft t:" in text else [])]
    numbers += ["t.accepted.depth", "t.accepted.length"] if "verify t" in text else []
    body = lines[loop + 1 :]
    for _ in range(rng.choice((1, 1, 2))):
        told = rng.choice(TELLS[kind]).format(
            n=rng.choice(numbers), t=rng.choice(["ctx.token", *(f"{x}.token" for x in drawn)])
        )
        at = rng.randrange(len(body) + 1)
        indent = _indent(body[min(at, len(body) - 1)])
        body[at:at] = [" " * indent + line for line in told.splitlines()]
    for _ in range(rng.choice((1, 1, 2))):
        read = rng.choice(READS[kind])
        at = rng.randrange(len(body))
        if rng.random() < 0.3 and (draws := [n for n, line in enumerate(body) if re.match(r"\s*\w+ ~ ", line)]):
            at = rng.choice(draws)
            name, _, row = body[at].strip().partition(" ~ ")
            pad = " " * _indent(body[at])
            body[at : at + 1] = [
                f"{pad}{name}1 ~ {row}",
                f"{pad}{name}2 ~ {row}",
                f"{pad}{name} = {name}1 if {read} else {name}2",
            ]
        else:
            deep = _indent(body[at])
            end = next((n for n in range(at + 1, len(body)) if body[n].strip() and _indent(body[n]) <= deep), len(body))
            other = [" " * deep + "else:", *("    " + line for line in body[at:end])] if "commit" in body[at] else []
            body[at:end] = [" " * deep + f"if {read}:", *("    " + line for line in body[at:end]), *other]
    scope = rng.choice(("session", "session", "batch"))
    own = [STATES[kind].format(scope=scope)] if kind in STATES else []
    head = [*lines[: claims[-1] + 1], *("    " + line for line in [*own, "state yy: int = 0"])]
    made = "\n".join([*head, *lines[claims[-1] + 1 : loop + 1], *body]) + "\n"
    return (TOP if kind == "function" else "") + made


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def shared_scope(rng: random.Random, text: str) -> str:
    """A program one of whose states outlives the request."""
    places = list(re.finditer(r"^(    state \w+: [^=\n]*?)( per \w+)?( =.*)?$", text, re.MULTILINE))
    if not places:
        return text
    place = rng.choice(places)
    scope = rng.choice((" per session", " per batch"))
    return text[: place.start()] + place.group(1).rstrip() + scope + (place.group(3) or "") + text[place.end() :]


__all__ = ["beside_fails", "shared_scope", "shares", "with_memory"]
