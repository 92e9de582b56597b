"""Which function an operator is: plain arithmetic, or that of scores, where logarithms of 0 stand for tokens that cannot come.

Products in which 0 may meet an infinity are `weigh`, sums and differences of rows that may hold -inf are `mix` and `contrast`
(ir/data/numbers.py). All else is `mul`, `add` and `sub`: what is computed from whole numbers, probabilities, constants and
parameters alone is finite.
"""

from __future__ import annotations

from decgraph.dsl.lower.state import Lowering
from decgraph.dsl.source import Span
from decgraph.ir.ops.common import numeric
from decgraph.ir.values import Value

BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "^": "pow"}
KEEPS = frozenset({"add", "sub", "mul", "neg", "abs", "relu", "minimum", "maximum", "clamp", "select"})
"""Functions that make no infinity of finite numbers."""


def arithmetic(lw: Lowering, op: str, a: Value, b: Value, span: Span) -> Value:
    """`a op b` of numbers."""
    fn, finite = BINARY[op], [is_finite(lw, v) for v in (a, b)]
    if fn == "mul" and not all(finite) and not any(lw.finite.get(v) for v in (a, b)):
        fn = "weigh"
    rows = all(bool(d) and d[-1].kind == "vocab" for d in (numeric(v.type).dims for v in (a, b)))
    if fn == "sub" and rows and not finite[1]:
        fn = "contrast"
    if fn == "add" and rows and not any(finite):
        fn = "mix"
    out = lw.one("map", a, b, span=span, fn=fn)
    if fn in KEEPS and all(finite):
        lw.finite[out] = 0.0
    return out


def is_finite(lw: Lowering, v: Value) -> bool:
    """Whether a number is finite by its type, or by what it is computed from."""
    return numeric(v.type).elem != "real" or v in lw.finite
