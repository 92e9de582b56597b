"""Coverage of a program: both sides of every condition, comparison and choice, and how often loops iterate. The checker says
`holds` only of programs that were covered entirely.

An outcome is a pair (id of an op, result class). `outcomes` lists those of an op. Watched are the ops of one function (its
rules and helpers are inlined in it) and of the functions that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from decgraph.backends.exact.choices import Arrived, Choices
from decgraph.ir.data.dist import Dist, Draw, Draws
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum
from decgraph.ir.values import Function, Module, Op, Region, Value

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGIC = frozenset({"and", "or"})
ASKED = frozenset(
    {
        "contains",
        "ended",
        "index.ask",
        "completes",
        "extern",
        "head.read",
        "hidden.similarity",
        "bernoulli",
        "request",
        "first_max",
    }
)
PICKS = frozenset({"minimum", "maximum", "relu", "clamp"})
NUMBERS = frozenset({"int", "real", "prob"})
SOME = 3  # values of a number that are told apart
Outcome = tuple[int, str]


def number(op: Op) -> bool:
    """Whether an op of the program itself computes one number, of which it is watched whether it varies: arithmetic, a table,
    rounding."""
    t = op.results[0].type if len(op.results) == 1 and op.loc.called is None else None
    return t is not None and not t.dims and t.elem in NUMBERS and op.opcode in ("map", "as_int", "lookup", "gather")


def outcomes(op: Op) -> tuple[str, ...]:
    """The outcomes of an op that are watched."""
    if op.opcode == "if":
        return ("true", "false")
    if op.opcode in ("for", "while"):
        return ("never", "once", "again")
    if op.opcode == "map" and op.attrs["fn"] in PICKS:
        return {"relu": ("above", "zero"), "clamp": ("low", "inside", "high")}.get(op.attrs["fn"], ("left", "right"))
    if op.opcode == "renorm":
        return ("cut", "whole")
    if op.opcode == "each":
        return ("ran",)
    if op.opcode in ("draw", "draw.many"):
        return ("open",)
    if op.opcode == "map" and op.attrs["fn"] in COMPARISONS | LOGIC and op.results[0].type.elem == "bool":
        return ("true", "false")
    if op.opcode in ASKED and op.results[0].type.elem == "bool":
        return ("true", "false")
    return ("varies",) if number(op) else ()


@dataclass
class CoveredRun:
    """The outcomes that were seen. `forced`: outcomes imposed on some ops, whatever they compute ("any": an adversary's
    choice); `used`: those of them that were met. values: some of those that numbers had. draft_errors: by line, the first
    error that ended a draft there."""

    watched: dict[int, Op]
    seen: set[Outcome] = field(default_factory=set)
    forced: dict[int, str] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    iterations: dict[int, int] = field(default_factory=dict)
    values: dict[int, set[str]] = field(default_factory=dict)
    draft_errors: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(module: Module, f: Function) -> CoveredRun:
        """Coverage of a function and of the functions that it runs."""
        watched: dict[int, Op] = {}
        todo, done = [f], {f.name}
        while todo:
            here = todo.pop()
            regions = [here.body, *(s.init for s in here.states), *(c.region for c in here.claims if c.region is not None)]
            for op in (o for r in regions[: 1 + len(here.states)] for o in r.walk()):
                if outcomes(op):
                    watched[id(op)] = op
                callee = op.attrs.get("callee") if op.opcode == "run" else None
                if callee is not None and callee not in done:
                    done.add(callee)
                    todo.append(module.functions[callee])
        return CoveredRun(watched).fresh()

    def fresh(self, forced: dict[int, str] | None = None) -> CoveredRun:
        """The same program, nothing seen yet."""
        values: dict[int, set[str]] = {i: set() for i, op in self.watched.items() if outcomes(op) == ("varies",)}
        return CoveredRun(self.watched, forced=dict(forced or {}), values=values)

    def decided(self, choices: Choices, op: Op, value: bool) -> bool:
        """A condition was decided."""
        if id(op) not in self.watched:
            return value
        force = self.forced.get(id(op))
        if force is not None:
            self.used.add(id(op))
            value = ask(choices, op) if force == "any" else force == "true"
        self.seen.add((id(op), "true" if value else "false"))
        return value

    def apply(
        self, choices: Choices, env: Mapping[Value, Datum], op: Op, run: Callable[[Op], Sequence[Datum]]
    ) -> Sequence[Datum]:
        """Run one op and record its outcome. env: the values of the operands."""
        if id(op) not in self.watched or op.opcode in ("if", "draw", "draw.many"):
            return run(op)
        if op.opcode in ("for", "while", "each"):
            body = op.regions[-1]
            before = self.iterations.get(id(body), 0)
            whole = True
            try:
                return run(op)
            except Arrived:  # how often it would have run an earlier run has shown
                whole = False
                raise
            finally:
                n = self.iterations.get(id(body), 0) - before
                if whole or n > 1:
                    found = "ran" if op.opcode == "each" else "never" if n == 0 else "once" if n == 1 else "again"
                    self.seen.add((id(op), found))
        out = run(op)
        known = self.values.get(id(op))
        if known is not None:  # a number
            if len(known) < SOME:  # an exact real is not compared: it counts as one that varies
                had = [str(out[0])] if isinstance(out[0], int | Fraction | np.integer) else ["a real", "another"]
                known.update(had)
                self.seen.update((id(op), f"= {x}") for x in had)
            return out
        force = self.forced.get(id(op))
        if force is not None:
            self.used.add(id(op))
            out = force_result(choices, env, op, out, force)
        for what in result_of(env, op, out):
            self.seen.add((id(op), what))
        if op.opcode == "bernoulli" and any(0 < p < 1 for p in _numbers(env[op.operands[0]])):
            self.seen.add((id(op), "varies"))
        return out

    def token_read(self, op: Op, row: np.ndarray) -> None:
        """The token of a draw was read: record whether another one was possible."""
        if id(op) in self.watched and (id(op), "open") not in self.seen:
            self.seen.add((id(op), "open" if sum(x > 0 for x in row) > 1 else "certain"))

    def entered(self, region: Region) -> None:
        self.iterations[id(region)] = self.iterations.get(id(region), 0) + 1


def ask(choices: Choices, op: Op) -> bool:
    """An adversary's answer to a condition."""
    where = f"condition, line {op.loc.line}" if op.loc.line else "condition"
    return choices.choose([0, 0], [False, True], where, "adversary")


def force_result(choices: Choices, env: Mapping[Value, Datum], op: Op, out: Sequence[Datum], force: str) -> Sequence[Datum]:
    """The result of a comparison, or of a choice between two numbers, as it would have been with another outcome."""
    if outcomes(op) == ("true", "false"):
        truth = ask(choices, op) if force == "any" else force == "true"
        old = np.asarray(out[0])
        return (np.full(old.shape, truth, dtype=bool) if old.shape else truth,)
    if force in ("left", "right"):
        operand = env[op.operands[0 if force == "left" else 1]]
        old = np.asarray(out[0], dtype=object)
        return (np.broadcast_to(np.asarray(operand, dtype=object), old.shape).copy() if old.shape else operand,)
    return out


def result_of(env: Mapping[Value, Datum], op: Op, out: Sequence[Datum]) -> set[str]:
    """What an op came to."""
    kinds = outcomes(op)
    if kinds == ("true", "false"):
        values = np.ravel(np.asarray(out[0]))
        return {"true" if bool(v) else "false" for v in values}
    if op.opcode == "renorm":
        before, after = _numbers(env[op.operands[0]]), _numbers(out[0])
        return {"cut" if any(x > 0 and y == 0 for x, y in zip(before, after, strict=True)) else "whole"}
    fn = op.attrs["fn"]
    operands = [_numbers(env[v]) for v in op.operands]
    width = max(len(v) for v in operands)
    columns = [v * width if len(v) == 1 else v for v in operands]
    if any(len(c) != width for c in columns):
        return set(kinds)  # operands that line up by dimensions of their own: not told apart
    found: set[str] = set()
    for row in zip(*columns, strict=True):
        if fn == "relu":
            found.add("above" if row[0] > 0 else "zero")
        elif fn == "clamp":
            found.add("low" if row[0] < row[1] else "high" if row[0] > row[2] else "inside")
        elif row[0] != row[1]:
            found.add("left" if (row[0] < row[1]) == (fn == "minimum") else "right")
    return found


def _numbers(x: Datum) -> list[Number]:
    if isinstance(x, Draw):  # which have been read by now
        return [x.token]
    found = [d.token for d in x.flat()] if isinstance(x, Draws) else x.vector() if isinstance(x, Dist) else x
    return list(np.ravel(np.asarray(found, dtype=object)))


def user_condition(v: Value, producers: dict[Value, Op]) -> bool:
    """Whether a condition is the author's, and not one that lowering made: of `accept`, `break` and `emit` (names with a %), or
    of a draft that an error may end."""
    if v.name.startswith("%"):
        return False
    op = producers.get(v)
    if op is None:
        return True
    if op.opcode in ("const", "unfailing"):
        return False
    if op.opcode == "map" and op.attrs["fn"] in ("and", "or", "not"):
        return any(user_condition(o, producers) for o in op.operands)
    return True


__all__ = ["Outcome", "CoveredRun", "outcomes", "user_condition"]
