"""Controllers by an adversary: what decides how much is drafted returns what it likes, and the distribution may not depend on
it.

A controller is a condition (`if`, `break if`, `while` of a drafting loop) that reads probabilities, entropies, states or
coins. What it really computes does not matter to a lossless algorithm, so both answers are tried wherever it is asked; the
tokens it reads are read first, so that the adversary knows them too. A claim that survives holds for every
controller, trained or not; dropping a token because it is unsure does not survive, stopping after it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from decgraph.backends.exact.run import ExactMachine
from decgraph.ir.machine import Datum
from decgraph.ir.values import Function, Op, Region, Value

ASKS = (
    "model.eval",
    "model.attention",
    "head.read",
    "hidden.similarity",
    "bernoulli",
    "beta",
    "state.read",
    "extern",
    "entropy",
)
STRUCTURE = ("tree", "canvas", "node", "context", "path", "model")


@lru_cache(maxsize=256)
def controllers(f: Function) -> frozenset[int]:
    """Where a function's controllers decide, by id: `if` ops, and bodies of loops that say whether to stop."""
    made: dict[Value, Op] = {}
    found: set[int] = set()
    for op in f.body.walk():
        for v in op.results:
            made[v] = op
    for op, inside in _drafting(f.body):
        if op.opcode == "if" and inside and _asks(op.operands[0], made, set()):
            found.add(id(op))
        if op.opcode == "for" and op.attrs.get("stops") and _asks(op.regions[0].yields[0], made, set()):
            found.add(id(op.regions[0]))
        if op.opcode == "while" and op.attrs.get("limited") and _asks(op.regions[0].yields[0], made, set()):
            found.add(id(op.regions[0]))
    return frozenset(found)


def _drafting(region: Region) -> list[tuple[Op, bool]]:
    """Ops and whether they stand inside a bounded loop; those of rules are left out."""
    out: list[tuple[Op, bool]] = []

    def look(r: Region, inside: bool) -> None:
        for op in r.ops:
            out.append((op, inside))
            if op.opcode == "tree.walk":
                continue
            loop = op.opcode == "for" or (op.opcode == "while" and op.attrs.get("bound") != "done")
            for inner in op.regions:
                look(inner, inside or loop)

    look(region, False)
    return out


def _asks(v: Value, made: dict[Value, Op], seen: set[Value]) -> bool:
    if v in seen or v not in made:
        return False
    seen.add(v)
    op = made[v]
    if op.opcode in ASKS:
        return True
    if v.type.elem in STRUCTURE:
        return False
    if op.opcode in ("if", "len"):  # flags of `break`: what they say was decided elsewhere; sizes are guards
        return False
    return any(_asks(o, made, seen) for o in op.operands)


@lru_cache(maxsize=64)
def adversarial(engine: type[ExactMachine]) -> type[ExactMachine]:
    """A machine whose controllers are an adversary's."""

    class Adversarial(engine):  # type: ignore[valid-type, misc]
        def answer(self, really: Datum, line: int) -> bool:
            bool(self.num.truth(really))  # what it reads counts as read
            where = f", line {line}" if line else ""
            return bool(self.world.choices.choose([Fraction(0), Fraction(0)], [False, True], f"controller{where}", "adversary"))

        def decide(self, op: Op, cond: Datum) -> bool:
            if id(op) not in controllers(self.function):
                return bool(super().decide(op, cond))
            return self.answer(cond, op.loc.line)

        def region(self, region: Region, args: Sequence[Datum]) -> list[Datum]:
            out: list[Datum] = super().region(region, args)
            if id(region) in controllers(self.function):
                out[0] = self.answer(out[0], region.ops[-1].loc.line)
            return out

    return Adversarial
