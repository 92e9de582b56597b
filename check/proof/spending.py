"""Derivations of claims about cost: that no request calls a model, or masks decided cells again, more often than is claimed.

What may still be spent, the credit, is followed through the program as a sum (ir/linear.py): at first what is claimed of a
request, or 0 where the claim is for each token; a call costs one, a `remask` at most as many as cells are chosen there. An
iteration of `while not done` gives what is claimed for a token, since one that commits none is the last: the run ends at the
next one's head in an error, and is counted to its last commit. The credit must not fall below 0, whatever is drawn.

A loop is paid for in one of two ways. Each iteration spends at most a sum that no iteration changes, times how often it runs at
most. Or by what it carries: of the guesses in `GUESSES` those are kept that hold before the loop and that an iteration keeps,
all assumed at its head (the largest set of them that is inductive). So a counter pays that falls, or rises, by what is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction

from decgraph.check.proof.invariants import DerivationStopped, Step, asks_done
from decgraph.check.proof.sizes import Sizes
from decgraph.ir.failing import Failing
from decgraph.ir.known_numbers import ONE, ZERO
from decgraph.ir.linear import Condition, Inequality, Linear, at_least, compared, negated, sum_of
from decgraph.ir.values import Claim, Constant, Function, Module, Op, Region, Value
from decgraph.ir.values import Condition as Setting

ASKING = ("model.eval", "model.evals", "model.read", "model.states", "head.read", "head.score")
"""Ops that call a model."""
ROUNDS = 60
"""Passes over a program, in each of which a guess falls."""

KEPT = "no iteration spends more than a committed token gives"
Guess = tuple[str, int]
GUESSES: dict[str, Callable[[Linear, Linear, Linear, Linear, Linear], Linear]] = {
    KEPT: lambda v, start, left, before, most: left - before,
    "is never negative": lambda v, start, left, before, most: v,
    "is never more than is claimed": lambda v, start, left, before, most: most - v,
    "falls by what is spent": lambda v, start, left, before, most: (left - before) - (v - start),
    "rises by what is spent": lambda v, start, left, before, most: (left - before) - (start - v),
}
"""What may be at least 0 at the head of a loop, of a carried number v: `start` and `before` are v and the credit before it."""


@dataclass
class Loop:
    """What is assumed of a loop: guesses by the place of the carried value, and what an iteration spends at most (None: not
    known)."""

    guesses: set[Guess]
    spends: Linear | None = None


@dataclass
class Spending:
    """One pass over a function, under a claim's condition."""

    module: Module
    claim: Claim
    setting: Setting
    given: Mapping[str, Constant]
    loops: dict[Op, Loop]
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.function: Function = self.module.entry
        self.consts: dict[Value, Constant] = {p.value: self.given[p.name] for p in self.function.params if p.name in self.given}
        self.sizes = Sizes(Failing(self.function, self.consts), self.consts, self.setting, lambda v: None)
        self.counts: dict[Value, Linear] = {}  # how many of a vector are true
        self.model = self.function.param(self.claim.models[0]).value if self.claim.models else None
        self.others = {p.value for p in self.function.params} - {self.model}
        new = [op for op in self.function.body.walk() if op.opcode in ("canvas.new", "canvas.extend")]
        self.canvases = bool(new)
        self.one_length = len(new) == 1 and new[0] in self.function.body.ops  # all vectors over its cells have one length
        self.fallen: list[tuple[Loop, Guess]] = []
        self.changed, self.failed = False, DerivationStopped(None, "")
        self.paid = self.left = self.most = ZERO
        self.spent: Linear | None = ZERO

    # -- what is spent
    def spends(self, op: Op) -> bool:
        """Whether an op itself calls the model, or masks cells again."""
        if self.model is None:
            return op.opcode == "canvas.put" and op.attrs["kind"] != "token"
        if op.opcode not in ASKING or op.attrs.get("part") == "heads" or op.attrs.get("drafts"):
            return False
        called = self.sizes.producers.get(op.operands[0])
        return op.operands[0] not in self.others and (called is None or called.opcode != "model.derive")

    def amount(self, op: Op) -> Linear:
        """How many cells are masked again, at most."""
        s, (_, where, *mask) = ("cells", op), op.operands
        mask = mask[-1:] if op.attrs.get("has_mask") else []
        n, made = self.sizes.symbol(s, 0), self.sizes.producers.get(where)
        self.sizes.know(s, at_least(self.sizes.length(where) if where.type.dims else ONE, n))
        if made is not None and made.opcode == "compact" and not mask:
            where, *mask = made.operands
            made = self.sizes.producers.get(where)
        every = made is not None and made.opcode == "canvas.get" and made.attrs["field"] == "all"
        for part in self._parts(mask[0]) if mask and every and self.one_length else ():
            if part in self.counts:
                self.sizes.know(s, at_least(self.counts[part], n))
            test = self.sizes.producers.get(part)
            if test is None or test.opcode != "map" or test.attrs["fn"] not in ("lt", "gt"):
                continue
            low, high = test.operands if test.attrs["fn"] == "lt" else reversed(test.operands)
            rank, most = self.sizes.producers.get(low), self.sizes.sum(high)
            if rank is not None and rank.opcode == "rank" and not high.type.dims and most is not None:
                self.sizes.assumed.append(("or", at_least(ZERO, n), Inequality(most + 1 - n, True)))
                if self.sizes.whole(most) and self.sizes.at_least(most):
                    self.sizes.know(s, at_least(most, n))
        return n

    def _parts(self, v: Value) -> Iterator[Value]:
        """Conditions that all hold where v does, over the cells of the canvas."""
        op = self.sizes.producers.get(v)
        if [dim.kind for dim in v.type.dims] == ["cells"]:
            yield v
        if op is not None and op.opcode == "map" and op.attrs["fn"] == "and" and v.type.dims:
            for part in op.operands:
                yield from self._parts(part)

    def affords(self, op: Op | None, left: Linear) -> None:
        """The credit is not below 0 here; the first place where that is not known is where the derivation stops."""
        if not self.sizes.at_least(left) and not str(self.failed):
            many = f"calls of {self.claim.models[0]}" if self.claim.models else "cells are masked again"
            self.failed = DerivationStopped(op, f"it is not known that no more {many} than are claimed")

    # -- the pass
    def run(self) -> None:
        """Raises DerivationStopped."""
        bound = sum_of(self.claim.bound, self.sizes.asked, self.sizes.product)
        if bound is None or not self.sizes.at_least(bound):
            raise DerivationStopped(None, "what is claimed is not known to be a number that is not negative")
        self.most = self.left = bound
        if self.claim.mode:
            self.left, self.paid = ZERO, bound
            if self.canvases:
                raise DerivationStopped(None, "an iteration that decides cells need not commit a token")
        for state in self.function.states:
            if any(map(self.spends, state.init.walk())):
                raise DerivationStopped(None, f"the state {state.name} begins with what is counted")
        self.region(self.function.body)
        self.affords(None, self.left)

    def region(self, region: Region) -> None:
        for op in region.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        if op.opcode == "if":
            return self.branch(op)
        if op.opcode in ("for", "while"):
            return self.loop(op)
        if any(self.spends(o) for r in op.regions for o in r.walk()):
            raise DerivationStopped(op, f"how often `{op.opcode}` spends what is counted is not followed")
        if op.opcode == "run" and self.model is not None:
            raise DerivationStopped(op, "calls of an algorithm that is run are not followed")
        if op.opcode == "const":
            self.consts[op.result] = op.attrs["value"]
        self.sizes.note(op, 0)
        if op.opcode == "reduce" and op.attrs["fn"] == "count" and (n := self.sizes.sum(op.result)) is not None:
            self.sizes.sums[op.result] = self.counts.setdefault(op.operands[0], n)
        if self.spends(op):
            amount = ONE if self.model is not None else self.amount(op)
            self.left, self.spent = self.left - amount, None if self.spent is None else self.spent + amount
            said = "masks cells again" if self.model is None else f"calls `{op.operands[0].name}` once"
            self.steps.append(Step(op.loc.line, said, "spent"))
            if not self.claim.mode:
                self.affords(op, self.left)
        elif op.opcode in ("commit", "return") and self.claim.mode:
            self.affords(op, self.left + (self.paid if op.opcode == "commit" else ZERO))

    def branch(self, op: Op) -> None:
        known, before, spent, outer = self.consts.get(op.operands[0]), self.left, self.spent, set(self.sizes.facts)
        if "draft" in op.attrs:  # an error may end it anywhere: no more is spent than by all of it
            mark, self.spent = len(self.sizes.assumed), ZERO
            self.region(op.regions[0])
            del self.sizes.assumed[mark:]
            most = self.known_outside(self.spent, outer)
            if most is None:
                raise DerivationStopped(op, "how much a draft spends that an error may end is not known")
            self.left, self.spent = before - most, None if spent is None else spent + most
            return None
        if isinstance(known, bool):
            region = op.regions[0 if known else 1]
            self.region(region)
            for v, y in zip(op.results, region.yields):
                self.sizes.same(v, y)
            return None
        holds, ends = self.sizes.condition(op.operands[0]), []
        for region, condition in zip(op.regions, (holds, negated(holds))):
            mark = len(self.sizes.assumed)
            self.sizes.assumed.append(condition)
            self.left, self.spent = before, ZERO
            self.region(region)
            ends.append((self.sizes.assumed[mark:], self.left, self.spent))
            del self.sizes.assumed[mark:]
        one, other = (left for _, left, _ in ends)
        a, b = (self.known_outside(most, outer) for *_, most in ends)
        self.left = one if one == other else self.sizes.symbol(("left", op))
        self.spent = None if spent is None or a is None or b is None else spent + (self.sizes.which("maximum", a, b) or a + b)
        ways: list[list[Condition]] = [[*learned, compared("eq", self.left, left)] for learned, left, _ in ends]
        for v, *yields in zip(op.results, *(r.yields for r in op.regions)):
            if v.type.elem == "bool" and not v.type.dims:
                self.sizes.chosen(v, holds, *yields)
            sums = [self.sizes.sum(y) for y in yields]
            if v.type.elem == "int" and not v.type.dims and None not in sums:
                joined = self.sizes.sums[v] = self.sizes.symbol(v)
                for way, x in zip(ways, sums):
                    way.append(compared("eq", joined, x or ZERO))
        if len(ways[0]) > 2 or one != other:
            either: list[Condition] = [("and", *way) for way in ways]
            self.sizes.assumed.append(("or", *either))
        return None

    def loop(self, op: Op) -> None:
        body, stops = op.regions[-1], bool(op.attrs.get("stops"))
        paying = bool(self.claim.mode) and asks_done(op) and op in self.function.body.ops and not stops
        paying = paying and not op.attrs.get("limited") and "fills" not in op.attrs
        carried = op.operands[2 if op.opcode == "for" else 1 if op.attrs.get("limited") else 0 :]
        whole = [n for n, v in enumerate(body.args[1:]) if v.type.elem == "int" and not v.type.dims and self.sizes.ints]
        starts = {n: x for n in whole if (x := self.sizes.sum(carried[n])) is not None}
        here = self.loops.setdefault(
            op, Loop({(KEPT, -1), *((guess, n) for guess in GUESSES if guess != KEPT for n in starts)})
        )
        before, spent, times = self.left, self.spent, self.times(op)
        total = None if times is None or here.spends is None else self.sizes.product(here.spends, times)
        starts[-1] = ZERO

        def guessed(left: Linear, numbers: Mapping[int, Linear]) -> Iterator[tuple[Guess, Linear]]:
            for g, n in here.guesses:
                if n in numbers:
                    yield (g, n), GUESSES[g](numbers[n], starts[n], left, before, self.most)

        self.keep(here, guessed(before, starts))
        mark, outer, (left, after) = len(self.sizes.assumed), set(self.sizes.facts), (("left", op, n) for n in "ha")
        self.left, self.spent = self.sizes.symbol(left), ZERO
        head = self.left
        for region in op.regions:
            for v, asked in zip(body.args[1:], region.args[1:]):
                self.sizes.carried(v)
                self.sizes.same(asked, v)
            self.sizes.counter(region.args[0], op)
        self.sizes.assumed += [Inequality(x) for _, x in guessed(head, self.sums(body.args[1:], starts))]
        if total is not None and here.spends is not None:  # there were fewer iterations than there may be
            self.sizes.assumed.append(at_least(head, before - total + here.spends))
        if len(op.regions) == 2:
            if any(map(self.spends, op.regions[0].walk())):
                raise DerivationStopped(op, "the condition of a loop spends what is counted")
            self.region(op.regions[0])
            self.sizes.assumed.append(self.sizes.condition(op.regions[0].yields[0]))
        self.region(body)
        self.left += self.paid if paying else ZERO
        ends = self.sums(body.yields[stops:], starts)
        self.fallen += [(here, (g, n)) for g, n in here.guesses if n not in ends]
        self.keep(here, guessed(self.left, ends))
        del self.sizes.assumed[mark:]
        most = self.known_outside(self.spent, outer)
        if most != here.spends:
            here.spends, self.changed = most, True
        self.left = self.sizes.symbol(after)
        self.spent = None if spent is None or total is None else spent + total
        if most == ZERO and not paying:
            self.left, self.spent = before, spent
        for v in op.results:
            self.sizes.carried(v)
        self.sizes.assumed += [Inequality(x) for _, x in guessed(self.left, self.sums(op.results, starts))]
        self.sizes.assumed += [at_least(self.left, before - total)] if total is not None else []
        if most != ZERO:
            names = [v.name for v in body.args[1:]]
            said = [KEPT if n < 0 else f"`{names[n]}` {guess}" for guess, n in sorted(here.guesses)]
            said = said or ["what an iteration spends is paid for as often as it may run"]
            self.steps.append(Step(op.loc.line, ", ".join(said), "credit"))

    def sums(self, values: Sequence[Value], places: Iterable[int]) -> dict[int, Linear]:
        """Those at these places that are sums; at -1 nothing is asked of any."""
        return {n: x for n in places if (x := ZERO if n < 0 else self.sizes.sum(values[n])) is not None}

    def keep(self, here: Loop, guesses: Iterable[tuple[Guess, Linear]]) -> None:
        """Guesses that do not hold here are none in the next pass."""
        self.fallen += [(here, name) for name, x in guesses if not self.sizes.at_least(x)]

    def times(self, op: Op) -> Linear | None:
        """How often a loop runs at most."""
        if op.opcode == "while" and not op.attrs.get("limited"):
            return None
        ends = [self.sizes.end(op.regions[-1].args[0], v) for v in op.operands[: 2 if op.opcode == "for" else 1]]
        low, high = (ZERO, *ends)[-2:]
        return None if low is None or high is None or not self.sizes.at_least(high, low) else high - low

    def known_outside(self, x: Linear | None, outer: AbstractSet[object]) -> Linear | None:
        """A bound of what is spent in a region that is made of what is known outside: it is true where the region ran. Where
        it did not, nothing is spent, so it must not be negative there."""
        for _ in range(8):
            inner = None if x is None else next((s for s in x.symbols if s not in outer), None)
            if x is None or inner is None:
                return x if x is not None and self.sizes.at_least(x) else None
            factor = dict(x.terms)[inner]
            bounds = [(a.sum, -dict(a.sum.terms).get(inner, 0)) for a in self.sizes.facts.get(inner, ())]
            above = [(total, f) for total, f in bounds if f > 0]
            total, f = min(above, key=lambda made: len(made[0].symbols - outer), default=(x, 0))
            x = x + total.times(Fraction(factor) / f) if factor > 0 and above else None
        return None


def spending(module: Module, claim: Claim, setting: Setting, given: Mapping[str, Constant]) -> list[Step]:
    """The steps of a derivation of a claim about cost, where a condition holds. given: what parameters are there. Raises
    DerivationStopped."""
    loops: dict[Op, Loop] = {}
    for _ in range(ROUNDS):
        found = Spending(module, claim, setting, given, loops)
        found.run()
        if found.changed:
            continue
        for loop, guess in found.fallen:
            loop.guesses.discard(guess)
        if not found.fallen and str(found.failed):
            raise found.failed
        if not found.fallen:
            return list(dict.fromkeys(found.steps))
    raise DerivationStopped(None, f"no invariant of a loop was found in {ROUNDS} rounds")
