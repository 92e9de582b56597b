"""What is known of numbers: constants, ranges, and values that are another value, such as x * 1, x + 0 and `where(c, x, x)`.

Claims with a condition set parameters to constants (`when scale == 1`); the rest follows by folding. 0 times anything is 0 in
the language, also of a logarithm of 0 (ir/data/numbers.py), so that 1 * x - 0 * y is x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from decgraph.ir.linear import Linear
from decgraph.ir.values import Constant, Op, Value

INF = float("inf")
Number = int | float | Fraction
Range = tuple[Number, Number]
FOLDED: dict[str, Callable[..., Number]] = {"clamp": lambda x, low, high: min(max(x, low), high), "floor": math.floor}
"""Functions that are not followed as sums (terms.py)."""
FOLDS = ("map", "len", "list", "gather", "within", "as_int", "tile")
"""Ops that `constant` knows."""


def number(x: object) -> Number | None:
    """A constant as a finite number; None for conditions and for what is none."""
    return x if isinstance(x, int | float | Fraction) and not isinstance(x, bool) and -INF < x < INF else None


def constant(op: Op, consts: Mapping[Value, Constant]) -> Constant:
    """The value that an op makes where it is known, of a row: that of each entry; else None."""
    known = [consts.get(v) for v in op.operands]
    if op.opcode == "len":
        return len(known[0]) if isinstance(known[0], list | tuple) else None
    if op.opcode == "list":
        return tuple(known) if None not in known else None
    if op.opcode == "gather":  # of equal values, whatever the index
        values = known[0] if isinstance(known[0], list | tuple) else ()
        return values[0] if values and all(x == values[0] for x in values) else None
    if op.opcode == "tile":
        return 0 if op.attrs["kind"] == "zeros" else None
    if op.opcode in ("within", "as_int"):
        x = number(known[0])
        return x if op.opcode == "within" or x is None else math.trunc(x)
    fn = op.attrs["fn"]
    if fn in ("log", "exp") and number(known[0]) == (1 if fn == "log" else 0):
        return 0 if fn == "log" else 1
    numbers = [x for v in known if (x := number(v)) is not None]
    if fn in FOLDED and len(numbers) == len(known):
        return FOLDED[fn](*numbers)
    if fn == "and" and False in [x for x in known if isinstance(x, bool)]:
        return False
    if fn == "or" and True in [x for x in known if isinstance(x, bool)]:
        return True
    if fn == "select" and known[1] is not None and known[1] == known[2]:
        return known[1]
    if fn == "weigh" and any(number(x) == 0 for x in known):
        return 0
    if fn == "mul":  # neither operand can be infinite (dsl/lower/expr.py), or it would be `weigh`
        return 0 if any(number(x) == 0 for x in known) else None
    return 1 if fn == "pow" and number(known[0]) == 1 else None


def same(op: Op, consts: Mapping[Value, Constant], sums: Mapping[Value, Linear]) -> Value | None:
    """The operand that a `map` op gives back unchanged, if there is one. sums: what numbers are (check/proof/sizes.py)."""
    fn, xs = op.attrs["fn"], op.operands
    if fn in ("relu", "abs") and xs[0] in sums and sums.get(op.result) == sums[xs[0]]:
        return xs[0]
    known = [number(consts.get(v)) for v in xs]
    if fn == "select" and isinstance(consts.get(xs[0]), bool):
        return xs[1 if consts[xs[0]] else 2]
    if fn in ("mul", "weigh"):
        return xs[1] if known[0] == 1 else xs[0] if known[1] == 1 else None
    if fn in ("add", "mix"):
        return xs[1] if known[0] == 0 else xs[0] if known[1] == 0 else None
    if fn in ("sub", "contrast"):
        return xs[0] if known[1] == 0 else None
    if fn in ("div", "pow"):
        return xs[0] if known[1] == 1 else None
    return None
