"""What is known of numbers, conditions and vectors in a program on a canvas (schedules.py): rules of ops that decide no cell.
Those that choose among cells stand in cells.py. An op without a rule gives None: nothing is known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from decgraph.check.proof.canvas_values import (
    NONE,
    AnyOpen,
    Best,
    Between,
    Blocks,
    CanvasRows,
    CanvasValue,
    CellDraws,
    CellEdit,
    Cells,
    Counts,
    Formula,
    K,
    MaskedOf,
    Open,
    Places,
    Ranked,
    Rule,
    Score,
    Vector,
    Walks,
    number,
)
from decgraph.ir.known_numbers import ONE, ZERO, element, hidden, slope, varies
from decgraph.ir.linear import Condition, Inequality, Linear, contradiction, negated
from decgraph.ir.values import Op


def size(w: Walks, x: CanvasValue) -> Linear | None:
    """How many elements a value has, along its first dimension."""
    match x:
        case Vector() | Places():
            return x.size
        case Cells():
            return x.high - x.low
        case CanvasRows() | CellDraws():
            return w.length if x.at is None else size(w, x.at)
        case Blocks():
            return w.length if x.step == ONE else ONE if w.known.at_least(x.step - w.length) else None
        case Counts():
            return w.known.extreme("maximum", ONE, w.known.truncated(x.steps))
    return None


def unknown(w: Walks) -> Formula:
    """A condition of which nothing is known; of a vector it may be another one for each entry."""
    return Formula(Inequality(w.known.fresh()))


def settled(condition: Condition) -> bool | Formula:
    """A condition as a constant, if it is the same whatever the unknown ones in it are."""
    for answer, it in ((True, condition), (False, negated(condition))):
        if contradiction([negated(it)], lambda s: True, lambda s: ()):
            return answer
    return Formula(condition)


def differ(x: CanvasValue) -> bool:
    """Whether the entries of a vector may differ."""
    return varies(x) if isinstance(x, Linear) else not isinstance(x, bool)


# -- one _entry
def _entry(w: Walks, fn: str, xs: list[CanvasValue]) -> CanvasValue:
    """An elementwise function of numbers and conditions; None where nothing is known of the result."""
    if fn in ("and", "or", "not"):
        parts = [x if isinstance(x, bool) else x.condition if isinstance(x, Formula) else unknown(w).condition for x in xs]
        return settled(negated(parts[0]) if fn == "not" else (fn, *parts))
    if fn == "select":
        cond, a, b = xs
        return (a if cond else b) if isinstance(cond, bool) else a if isinstance(a, Linear) and a == b else None
    if fn in COMPARED:
        return _compared(w, fn, *xs)
    if fn in ("mul", "weigh") and ONE in xs and any(isinstance(x, Score) for x in xs):
        return next(x for x in xs if isinstance(x, Score))
    xs = [number(x) for x in xs]
    if fn in ("mul", "weigh") and ZERO in xs:
        return ZERO
    sums = [x for x in xs if isinstance(x, Linear)]
    return w.known.applied(fn, sums) if len(sums) == len(xs) else None


COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")


def _compared(w: Walks, fn: str, a: CanvasValue, b: CanvasValue) -> CanvasValue:
    """A comparison of numbers; which places are below a number are the best so many."""
    if fn in ("gt", "le"):
        fn, a, b = {"gt": "lt", "le": "ge"}[fn], b, a
    if fn == "lt" and isinstance(a, Ranked) and isinstance(b, Linear) and not varies(b) and w.known.whole(b):
        return True if w.known.compared(a.number, b) is False else Best(a.score, b)
    a, b = number(a), number(b)
    if not isinstance(a, Linear) or not isinstance(b, Linear):
        return unknown(w)
    if fn in ("lt", "ge"):
        found = w.known.compared(a, b)
        return unknown(w) if found is None else found if fn == "ge" else not found
    if a == b or w.known.above(a - b) or w.known.above(b - a):
        return (a == b) == (fn == "eq")
    rest = b - (a - K) if fn == "eq" and slope(a) == 1 else None  # k + r == b
    if rest is not None and not varies(rest) and w.known.whole(rest):
        return Between(rest, rest + ONE)
    return unknown(w)


# -- vectors
def _mapped(w: Walks, op: Op, *xs: CanvasValue) -> CanvasValue:
    fn, dims = op.attrs["fn"], len(op.result.type.dims)
    if not dims:
        return _entry(w, fn, list(xs))
    wide = [x for x, v in zip(xs, op.operands, strict=True) if len(v.type.dims) + (v.type.elem == "dist") == dims]
    sizes = {size(w, x) for x in wide}
    length = sizes.pop() if len(sizes) == 1 else None
    if dims > 1:
        return Vector(length)
    items = [as_vector(w, x).item if v.type.dims else x for x, v in zip(xs, op.operands, strict=True)]
    if length is None and len(wide) > 1:  # one of them may be read at every place
        items = [None if isinstance(x, Between) or isinstance(x, Linear) and slope(x) else x for x in items]
    return Vector(length, _entry(w, fn, items))


def as_vector(w: Walks, x: CanvasValue) -> Vector:
    """A value as a vector of numbers."""
    if isinstance(x, Vector):
        return x
    return Vector(size(w, x), x.low + K if isinstance(x, Cells) and x.ordered else None)


def _reduced(w: Walks, op: Op, x: CanvasValue) -> CanvasValue:
    fn, dims = op.attrs["fn"], op.operands[0].type.dims
    if op.result.type.dims or not isinstance(x, Vector) or len(dims) != 1 or op.operands[0].type.elem in ("dist", "list"):
        rows = op.result.type.dims and dims[0].kind != "vocab" and not op.attrs.get("over")
        return Vector(size(w, x)) if rows else scalar(w, op)
    n, item = x.size, x.item
    if fn in ("any", "all"):
        if isinstance(item, Open) and fn == "any":
            return AnyOpen(item)
        if isinstance(item, MaskedOf) and fn == "any":
            every = w.masked_at(item.canvas, Cells(ZERO, w.length))
            return AnyOpen(every) if isinstance(every, Open) else unknown(w)
        if n == ONE and isinstance(item, bool | Formula):
            return item
        if n is not None and w.known.at_least(n, 1):
            if isinstance(item, bool):
                return item
            if isinstance(item, Between) and fn == "any":
                return _some(w, item, n)
        return unknown(w)
    if fn == "count" and n is not None:
        if isinstance(item, bool):
            return n if item else ZERO
        return w.known.fresh(0)
    if fn in ("max", "min") and n is not None and w.known.at_least(n, 1) and isinstance(item, Linear):
        if not hidden(item):
            return element(item, n - ONE if (slope(item) > 0) == (fn == "max") else ZERO)
    return scalar(w, op)


def _some(w: Walks, cond: Between, n: Linear) -> CanvasValue:
    low, high = w.known.which("maximum", cond.low, ZERO), w.known.which("minimum", cond.high, n)
    found = w.known.compared(high, low + ONE) if low is not None and high is not None else None
    return unknown(w) if found is None else found


def scalar(w: Walks, op: Op) -> CanvasValue:
    """A result of which nothing is known but its kind."""
    t = op.result.type
    return None if t.dims or t.elem not in ("bool", "int") else unknown(w) if t.elem == "bool" else w.known.fresh()


def _constant(w: Walks, op: Op) -> CanvasValue:
    value = op.attrs["value"]
    if value is None:
        return NONE
    if isinstance(value, bool) or isinstance(value, list | tuple) and not value:
        return value if isinstance(value, bool) else ()
    return Linear.of(Fraction(value)) if isinstance(value, int | float | Fraction) else None


def _faced(w: Walks, op: Op, x: CanvasValue) -> CanvasValue:
    return replace(x, face=op.attrs["face"]) if isinstance(x, CanvasRows) else Vector(size(w, x))


def _counted(w: Walks, op: Op, x: CanvasValue, *_: CanvasValue) -> CanvasValue:
    if (n := size(w, x)) is not None:
        return n
    if isinstance(x, Blocks):
        n = w.known.symbol(("blocks", x.step), 1)
        w.blocks[n] = x.step
        return n
    return w.known.fresh(0)


def _like(w: Walks, op: Op, x: CanvasValue, *_: CanvasValue) -> CanvasValue:
    """Row by row: as many as there are of the first operand."""
    return Vector(size(w, x)) if op.result.type.dims and op.operands[0].type.dims else scalar(w, op)


RULES: dict[str, Rule] = {
    "const": _constant,
    "map": _mapped,
    "reduce": _reduced,
    "face": _faced,
    "len": _counted,
    "within": lambda w, op, x, *_: x,
    "edit": lambda w, op, at, token: CellEdit(at, token),
    "edit.get": lambda w, op, e: (e.at if op.attrs["field"] == "position" else e.token) if isinstance(e, CellEdit) else None,
    "scan": lambda w, op, x: w.known.fresh(0) if op.attrs["fn"] == "leading" and not op.result.type.dims else None,
    "info": _like,
    "draw.get": _like,
    "draw.point": _like,
}


def vector(w: Walks, op: Op, xs: list[CanvasValue]) -> CanvasValue:
    """What is known of the results of an op that decides no cell."""
    rule = RULES.get(op.opcode)
    if rule is not None and len(op.results) == 1:
        return rule(w, op, *xs)
    return scalar(w, op) if len(op.results) == 1 else None
