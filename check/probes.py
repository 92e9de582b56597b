"""Runs at real sizes: long prompts and texts, large vocabularies, canvases and sessions, parameters at their defaults and
anywhere between their ends. They refute, and prove nothing.

What can be enumerated is small, and a program may turn wrong beyond it. A single run is enough to refute where the rows are
certain: the specification has one text then, and models other than the first are certain of other tokens here and there, so
that whatever comes of their rows alone is a text of probability 0. Where one row of a text is open, a few runs bound the
probability of the text that they commit from below, exactly; a text of which that is more than its specification gives it
refutes the claim. Nothing is estimated, so there are no false alarms, and every probe has a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Enough, Unlikely
from decgraph.check.case import Case, WorldPlan
from decgraph.check.claims import Failure, decide
from decgraph.check.constants import Facts, facts
from decgraph.check.exploration import Exploration
from decgraph.check.initial_states import NoValue
from decgraph.check.table_models import Style
from decgraph.check.worlds import FEATURES, PROBE, automaton_for
from decgraph.errors import DecError
from decgraph.ir.data.topology import Topology
from decgraph.ir.data.tree import Tree
from decgraph.ir.machine import Datum
from decgraph.ir.values import Claim, Function, Op, Param
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.reals.limits import SPENT

OPS = 12_000  # ops that all probes of a claim may take, per base world that was asked for
RUN_OPS = 34_000  # ops of one run; a run that is cut off there is compared as far as it came
RUN_REALS, GIVEN_UP = 400_000, 50_000  # ops on reals that a run may take, and the ops it is charged where it takes more
SHORT = 220  # number of small probes
EARLY = 80  # small probes tried before the large ones, which take longer
MANY = 1000  # with a vocabulary of this size parameters stay small: its runs take long
ALWAYS = 10**9  # a bound that no text reaches: every row is certain
LONG, TEXT, SESSION, MIDDLE = 2100, 520, 60, 20
ELEMENT = 12  # this many elements of a row cost as much as one op


class Counting(ExactMachine):
    """A machine that stops where a run has taken too many ops, and gives up where all probes of a claim have. most: ops of a
    run (None: a specification must come to its end)."""

    budget: list[int]
    canvas_cells = 0
    most: int | None = RUN_OPS

    def start_run(self) -> None:
        super().start_run()
        self.taken, self.reals_until = 0, SPENT[0] + RUN_REALS

    def apply(self, op: Op) -> Sequence[Datum]:
        rows = bool(op.results) and op.results[0].type.elem in ("dist", "scores")
        cost = 1 + ((self.vocab_size + len(self.tokens) // 16) // ELEMENT + self.canvas_cells if rows else 0)
        cost += sum(len(t.nodes) // (2 * ELEMENT) for t in map(self.env.get, op.operands) if isinstance(t, Tree))
        self.taken += cost
        self.budget[0] -= cost
        if SPENT[0] > self.reals_until:  # one op on them may take any time, so few such runs are tried
            self.budget[0] -= GIVEN_UP
            raise TooMany("more arithmetic of reals than a probe may take")
        if self.budget[0] < 0:
            raise TooMany("more ops than probes may take")
        if self.most is not None and self.taken > self.most:
            raise Enough
        return super().apply(op)


def between(p: Param, r: random.Random, vocab: int) -> ParamValue:
    """A value of a parameter from anywhere in its range, small ones more often; None for a type of which there is none."""
    t = p.value.type
    if t.elem == "int" and not t.dims:
        low = int(p.low) if p.low is not None else 0
        high = int(p.high) if p.high is not None else max(low, 300)
        return r.choice((r.randint(low, high), r.randint(low, min(high, low + 8)), r.randint(low, min(high, low + 40))))
    if t.elem in ("prob", "real") and not t.dims:
        least, most = (Fraction(str(x)) if x is not None else Fraction(d) for x, d in ((p.low, 0), (p.high, 1)))
        return least + (most - least) * Fraction(r.randint(0, 40), 40)
    if t.elem == "bool":
        return r.random() < 0.5
    if t.elem == "topology":
        return Topology.of(r.choice(("2x1", "3x2", "2x2x1", "4", "1x1x1x1x1")))
    if t.elem == "automaton":
        return automaton_for(vocab, r.randrange(99), r.randint(3, 9))
    return None


def values(f: Function, known: Facts, r: random.Random, n: int, vocab: int) -> dict[str, ParamValue]:
    """The parameters of probe n: their defaults, one of them or all of them from anywhere."""
    own = [p for p in f.params if p.value.type.elem != "model" and not (known.masked and p.name in (known.length, known.block))]
    changed = [()] if not own else [(), (r.choice(own),), tuple(own), tuple(own)]
    out: dict[str, ParamValue] = {}
    for p in own:
        value: ParamValue = p.default if p.has_default and p.value.type.elem in ("int", "prob", "real", "bool") else None
        if p in changed[n % len(changed)] or value is None:
            value = between(p, r, vocab)
        if vocab > MANY and isinstance(value, int) and not isinstance(value, bool):
            value = max(int(p.low or 0), min(value, 2))
        if value is not None:
            out[p.name] = Fraction(str(value)) if isinstance(value, float) else value
    return out


def plans(f: Function, known: Facts, claim: Claim) -> Iterator[WorldPlan]:
    """All probes, small ones first."""
    if known.masked:
        yield from (opened(plan, claim, n) for n, plan in enumerate(canvases(f, known)))
        return
    yield from (small(f, known, claim, n) for n in range(EARLY))
    for n, plan in enumerate(large(known, wide(f))):
        r = random.Random(f"large probe {n}")
        params = values(f, known, r, n // 9 if plan.prompt != MIDDLE else 3, plan.vocab)
        if claim.kind != "refines":
            plan = replace(plan, style=drawn(plan.style, n // 9))
        longest = max([0, *(v for v in params.values() if isinstance(v, int) and v < 4 * LONG)])
        prompt = max(plan.prompt, longest + 8) if plan.prompt >= LONG else plan.prompt
        if any(s.type.elem == "index" for s in f.states):  # learning every ending of a long text takes long
            prompt, plan = min(prompt, 400), replace(plan, limit=min(plan.limit, 120))
        session = max(plan.session, min(longest + 2, 4 * SESSION)) if plan.session else 0
        yield opened(
            replace(plan, seed=20_000 + n, prompt=prompt, session=session, params=tuple(params.items())), claim, n // 9
        )
    yield from (small(f, known, claim, n) for n in range(EARLY, SHORT))


def small(f: Function, known: Facts, claim: Claim, n: int) -> WorldPlan:
    """A short text after a prompt of up to forty tokens, certain but for at most one place."""
    r = random.Random(f"probe {n}")
    vocab = r.choice((2, 3, 4, 5, 8, 12))
    prompt, limit = r.choice((r.randint(1, 6), r.randint(1, 40))), r.choice((1, 1, 2, 4, 12, 24))
    seed = 10_000 + n
    features: tuple[str, ...] = ()
    sure = Style("plain", shared=seed, point_until=ALWAYS, strays=r.choice((1, 2, 4, 12)))
    style = sure
    if n % 2:  # all rows are certain but one
        features = (r.choice(FEATURES),) if n % 3 else ()
        sort = r.choice(("plain", "zeros", "peaked", "tails", "ties"))
        style = at(prompt + r.randrange(limit), replace(sure, sort=sort, strays=r.choice((0, 0, 2, 4))))
        style = replace(style, power=2 if "repetition_penalty" in features else 1)
        if n % 8 == 3 and known.numbers:
            style = replace(style, sort="exactly", near=amid(known.numbers))
    elif n % 4 == 2:
        style, features = replace(sure, soft=True), ("top_k 1",)
    if claim.kind != "refines":
        style = drawn(style, n)
    plan = WorldPlan(
        PROBE,
        seed,
        vocab,
        style,
        free=known.memory and n % 4 != 3,
        prompt=prompt,
        features=features,
        limit=limit,
        steps=None,
        repeat=n % 7 == 6,
        session=r.choice((0, 1, 2, 4, 6, 9)) if known.session else 0,
        params=tuple(values(f, known, r, n, vocab).items()),
    )
    return opened(plan, claim, n)


def amid(numbers: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Masses in the middle between the numbers that a program names."""
    named = sorted({Fraction(0), Fraction(1), *(x for x in numbers if 0 < x < 1)})
    return tuple((a + b) / 2 for a, b in zip(named, named[1:], strict=False))


def opened(plan: WorldPlan, claim: Claim, n: int) -> WorldPlan:
    """The same world with rows that are open everywhere, every second time where tokens are compared: what reads the wrong
    noise shows in open rows alone, and of them one run is enough there."""
    if claim.mode != "tokens" or n % 2 == 0 or plan.features == ("top_k 1",):
        return plan
    return replace(plan, style=Style("plain", power=plan.style.power, shared=plan.style.shared))


def drawn(style: Style, n: int) -> Style:
    """A style for claims about single tokens, of which every one that has mass is looked at: open rows, some without mass for
    some tokens and some with next to none."""
    sort = ("zeros", "near", "mixed", "zeros", "tails")[n % 5]
    return Style(sort, shared=style.shared, near=(Fraction(1, 10 ** (3 * (1 + n % 4))),) if sort == "near" else ())


ARITHMETIC = frozenset({"add", "sub", "mul", "div", "mod", "floor"})


def wide(f: Function) -> bool:
    """Whether a program counts the vocabulary or computes with ids: then the largest vocabularies are tried, too."""
    return any(
        op.opcode in ("vocab_size", "renorm", "topk", "select.top", "scatter", "as_int")
        or (op.opcode == "map" and op.attrs["fn"] in ARITHMETIC and any(v.type.elem in ("token", "draw") for v in op.operands))
        for op in f.body.walk()
        if op.loc.called is None  # the rules of stdlib/ do so too, but alike for every vocabulary
    )


def large(known: Facts, wide: bool) -> Iterator[WorldPlan]:
    """Probes that are large in one way each, at the defaults of parameters and with other values."""
    for again in range(3):
        sure = Style("plain", shared=20_000 + again, point_until=ALWAYS, strays=(2, 1, 4)[again])
        plan = WorldPlan(PROBE, style=sure, steps=None)
        yield replace(plan, prompt=LONG, limit=6)
        yield replace(plan, prompt=3, limit=(TEXT, TEXT, 150)[again], style=replace(sure, strays=(3, 1, 12)[again]))
        for n in range(3):  # what some accepted drafts, a truncation and a parameter do together
            style = replace(sure, soft=True, strays=(6, 2, 10)[n])
            yield replace(plan, prompt=MIDDLE, limit=40, style=style, features=("top_k 1",))
        yield replace(plan, prompt=LONG, limit=2, style=at(LONG, sure, support=3), vocab=4)
        yield replace(plan, prompt=5, limit=1, vocab=512, style=at(5, sure))
        yield replace(plan, prompt=300 + 450 * again, limit=6, vocab=3 + 17 * again, repeat=again == 1)
        if known.session or known.layers or known.memory:
            yield replace(plan, prompt=3, limit=3, session=SESSION if known.session else 0, deep=True, free=known.memory)
        if wide and again == 0:
            yield replace(plan, prompt=40, limit=4, vocab=600)
            yield replace(plan, prompt=5, limit=1, vocab=2048, style=at(5, sure))
            yield replace(plan, prompt=LONG, limit=2, vocab=5000)
            yield replace(plan, prompt=3, limit=2, vocab=32_000)
            yield replace(plan, prompt=3, limit=1, vocab=32_000, style=at(3, sure, support=3))


def at(place: int, style: Style, support: int = 0) -> Style:
    """A style whose rows are open at one place."""
    return replace(style, point_until=place, point_from=place + 1, support=support)


def canvases(f: Function, known: Facts) -> Iterator[WorldPlan]:
    """Canvases of up to 64 cells whose rows are certain: which cells are decided together shows in the tokens."""
    declared = {p.name: p.default for p in f.params if p.has_default}
    for n in range(SHORT // 2):
        r = random.Random(f"canvas probe {n}")
        cells = 64 if n in (8, 30) else r.randint(3, 20)
        usual = declared.get(known.block, cells)
        block = usual if n in (8, 30) and isinstance(usual, int) else r.randint(1, cells)
        params = values(f, known, r, n, 3)
        if known.block:
            params[known.block] = min(block, cells)
        free = known.memory and n % 2 == 0 and cells < 64
        yield WorldPlan(
            PROBE,
            30_000 + n,
            r.choice((2, 3, 5)),
            Style("plain", shared=30_000 + n, point_until=ALWAYS, rare=ALWAYS if free else 0),
            free=free,
            prompt=1 + n % 3,
            limit=cells,
            span=cells,
            steps=None,
            params=tuple(params.items()),
        )


def probed(explored: Exploration, models: int) -> Failure | None:
    """The first probe that refutes a claim; what cannot be run says nothing."""
    f = explored.module.entry
    left = [OPS * models]
    for plan in plans(f, facts(explored.module, f), explored.claim):
        explored.tally.check_time()
        if left[0] < 0:
            break
        failure = again(explored, plan, left)
        if failure is not None:
            return smallest(explored, failure)
        explored.seen.probes += 1
    return None


def tried(case: Case, explored: Exploration) -> Failure | None:
    """What a probe refutes. Of what is certain in every respect one run decides it: what runs there has been seen."""
    before = explored.tally.runs
    ran = None if explored.ran is None else explored.ran.fresh()
    try:
        failure = decide(replace(case, ran=ran), explored.tally)
    except (TooMany, Unlikely, NotSeparated, NoValue, DecError, RecursionError):  # a chain of draws is too deep
        return None
    if failure is None and ran is not None and explored.ran is not None and explored.tally.runs == before + 1:
        explored.ran.seen |= ran.seen
    return failure


def smallest(explored: Exploration, failure: Failure) -> Failure:
    """The same in a smaller world, as far as bisecting finds one: fewer requests, a plain one, a shorter text and prompt, fewer
    tokens."""
    left = [OPS * 10]
    length = facts(explored.module, explored.module.entry).length
    pinned = tuple((k, v) for k, v in failure.case.params.items() if k != length)
    if failure.case.plan.features:
        failure = again(explored, replace(failure.case.plan, features=(), params=pinned), left) or failure
    sizes = [("session", 0), ("limit", 1), ("prompt", 1), ("vocab", 2)]
    for name, low in sorted(sizes, key=lambda size: getattr(failure.case.plan, size[0]), reverse=True):
        plan = failure.case.plan
        high = getattr(plan, name)
        while low < high - high // 16:  # bisecting further gains little
            middle = (low + high) // 2
            found = again(explored, replace(resized(plan, name, middle), params=pinned), left)
            low, high = (low, middle) if found is not None else (middle + 1, high)
            failure = found or failure
    return failure


def resized(plan: WorldPlan, name: str, value: int) -> WorldPlan:
    """A plan with another size: a canvas has as many cells as tokens are asked for, and a row stays open at its place of the
    text when the prompt is shorter."""
    style, span = plan.style, value if plan.span and name == "limit" else plan.span
    if name == "prompt" and 0 < style.point_until < ALWAYS:
        moved = value - plan.prompt
        style = replace(style, point_until=style.point_until + moved, point_from=style.point_from + moved)
    return replace(plan, style=style, span=span, **{name: value})  # type: ignore[arg-type]  # the names of whole numbers


def again(explored: Exploration, plan: WorldPlan, remaining: list[int]) -> Failure | None:
    """What a probe refutes; its case is on the engine of the check again."""
    case = explored.make(plan)
    if case is None:
        return None
    counted = {"budget": remaining, "canvas_cells": plan.span}
    ours = type("Counted", (Counting, case.engine), counted)
    theirs = type("Counted", (Counting, case.spec_engine), {**counted, "most": None})
    failure = tried(replace(case, engine=ours, spec_engine=theirs), explored)
    return (
        None
        if failure is None
        else replace(failure, case=replace(failure.case, engine=case.engine, spec_engine=case.spec_engine))
    )


__all__ = ["probed"]
