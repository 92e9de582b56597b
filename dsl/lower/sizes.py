"""Numbers without bound: what a program needs at once is bounded where it is written, or checked before it is built.

A size (iterations, elements, positions) may be at most `LARGEST`, a whole number has 64 bits. A constant beyond that is an
error of the program (E430); what is not known to stay below is checked while the program runs, at its line. What counts what is
there (a length, a depth) needs no check, and neither does a parameter with a range.
"""

from __future__ import annotations

from math import prod

from decgraph.dsl.diagnostics import failure
from decgraph.dsl.lower.labels import place
from decgraph.dsl.lower.state import Lowering
from decgraph.dsl.source import Source, Span
from decgraph.ir.ops.limits import LARGEST, NODES, WIDEST, spoken
from decgraph.ir.sizes import too_large
from decgraph.ir.values import Module, Value

TURNS = 10 * LARGEST
"""Iterations of a loop inside loops, with all iterations of those around it."""

EXPONENT = 1024
"""Beyond it a power of 2 is no float64."""

COUNTS = frozenset(("len", "path.get", "tree.get", "request", "level.get", "within", "canvas.get", "edit.get", "rank"))
"""Ops whose numbers count what is there."""


def size(lw: Lowering, v: Value, span: Span, what: str) -> Value:
    """A number of things that something is to have: v, or v checked."""
    if v.type.dims or v.type.elem != "int":
        return v
    exact = lw.constants.get(v)
    if exact is not None:
        if abs(exact) > LARGEST:
            lw.fail(span, f"{what} is {spoken(exact)}; it may be at most {LARGEST:,}", "take a smaller number", code="E430")
        return v
    upper = lw.upper(v)
    if (upper is not None and upper <= LARGEST) or small(lw, v):
        return v
    return lw.one("within", v, span=span, what=what, most=LARGEST)


def nested(lw: Lowering, n: Value, span: Span) -> Value:
    """The count of a loop inside loops: as it is where all iterations together are known to be few, else checked."""
    if not lw.counts or n.type.elem != "int":
        return n
    most = [most_iterations(lw, v) for v in (n, *lw.counts)]
    known = [max(1, m) for m in most if m is not None]
    exact = all(v in lw.constants for v in (n, *lw.counts))
    if exact and prod(known) > TURNS:
        lw.fail(
            span,
            f"this loop and those around it have {prod(known):,} iterations; at most {TURNS:,} are possible",
            "take smaller numbers, or say it over whole vectors",
            code="E430",
        )
    if len(known) == len(most) and prod(known) <= TURNS:
        return n
    total = n
    for v in lw.counts:
        total = lw.one("map", total, v, fn="mul", span=span)
    total = lw.one("within", total, span=span, what="the number of iterations of this loop and those around it", most=TURNS)
    return lw.one("map", n, total, fn="minimum", span=span)  # itself: a loop around it that runs has at least one iteration


def most_iterations(lw: Lowering, n: Value) -> int | None:
    """The most iterations of a loop of this count. A loop over what is there, whose size nobody wrote down, goes over cells,
    nodes or tokens of a text: it counts for one."""
    exact = lw.constants.get(n, lw.upper(n))
    op = lw.origin.get(n)
    if exact is not None or op is None:
        return exact
    if op.opcode == "len":
        of = op.operands[0].type
        return max(1, of.dims[0].bound or 1) if of.dims else 1
    if op.opcode == "map" and op.attrs["fn"] == "minimum":
        return min((m for m in (most_iterations(lw, v) for v in op.operands) if m is not None), default=None)
    return 1 if op.opcode in COUNTS and op.opcode != "within" else None


def small(lw: Lowering, v: Value, depth: int = 0) -> bool:
    """Whether a number is computed from constants, ranges and counts by sums and differences alone."""
    exact = lw.constants.get(v)
    if exact is not None:
        return abs(exact) <= LARGEST
    upper = lw.upper(v)
    if upper is not None:
        return upper <= LARGEST
    op = lw.origin.get(v)
    if op is None or depth > 20:
        return lw.module.signed.get(v, LARGEST + 1) <= LARGEST
    if op.opcode in COUNTS or (op.opcode == "reduce" and op.attrs["fn"] == "count") or op.opcode == "scan":
        return True
    if op.opcode == "map":
        fn = op.attrs["fn"]
        known = [small(lw, x, depth + 1) for x in op.operands]
        return any(known) if fn in ("minimum", "mod") else all(known) and fn in ("add", "sub", "maximum", "neg", "div", "floor")
    if op.opcode == "if":
        at = op.results.index(v)
        return all(small(lw, r.yields[at], depth + 1) for r in op.regions)
    return op.opcode == "as_int" and small(lw, op.operands[0], depth + 1)


def power(lw: Lowering, base: Value, exponent: Value, span: Span) -> Value:
    """The exponent of a power, checked where it may be so large that the power can be neither rounded nor written out."""
    if exponent.type.dims or exponent.type.elem != "int":
        return exponent
    b, n = lw.constants.get(base, 2), lw.constants.get(exponent)
    if n is not None and abs(b) > 1 and abs(n) * (abs(b).bit_length() - 1) > EXPONENT:
        lw.fail(
            span,
            f"the exponent of this power is {spoken(n)}: more than a number can hold",
            "take a smaller exponent",
            code="E430",
        )
    return (
        exponent
        if n is not None or small(lw, exponent)
        else lw.one("within", exponent, span=span, what="the exponent", most=EXPONENT)
    )


def whole(lw: Lowering, v: Value, span: Span) -> Value:
    """A product of whole numbers, which may outgrow 64 bits from iteration to iteration."""
    if v.type.dims or v.type.elem != "int":
        return v
    most = lw.upper(v)
    fits = all(small(lw, x) for x in lw.origin[v].operands) if most is None else most < WIDEST
    return v if fits else lw.one("within", v, span=span, what="this whole number", most=WIDEST)


def refuse_too_large(module: Module, source: Source) -> None:
    """Raise DecError at what makes a tree larger than a tree may be, whatever the parameters are."""
    for function in module.functions.values():
        for op in too_large(function):
            text, span, inside = place(op.loc, source, "grown here")
            advice = "fewer iterations (of a number without a bound: `min(k, 16)`), fewer guesses at a node, or prune t"
            raise failure(text, span, f"a tree gets more than {NODES:,} nodes here", advice, "E430", inside=inside)
