"""What a value is made of, read off the ops: which draws are grown and where, from which tree, from which distribution.

The label check (ir/labels.py) asks here what labels do not tell: that two values are the same draw, that one sibling was drawn
after another, that a draw is older than the loop that grows it, and that probabilities do not sum to 1.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from decgraph.ir.linear import Exact, Linear
from decgraph.ir.values import Op, Value

Element = tuple[Value, Linear | None]
"""Draws: all that a value holds (None), or the one of a number."""
Place = tuple[object, ...]

ZERO, ONE = Linear(), Linear.of(1)
DISTRIBUTION_OF = {"draw": 0, "draw.many": 0, "draw.race": 0, "draw.stated": 1}


class Walked(Protocol):
    """A function that was walked: the op that made a value, the loops around it, and what a loop carries from an argument of
    its region (before it, from iteration to iteration)."""

    producers: dict[Value, Op]
    loops: dict[Value, tuple[Op, ...]]
    carried: dict[Value, tuple[Value, ...]]


def made_of(c: Walked, v: Value) -> tuple[Value, ...]:
    """The values that a value is one of, where branches or a loop yield it; else the operands of its op."""
    op = c.producers.get(v)
    if op is None or op.opcode not in ("if", "segment", "for", "while", "each"):
        return c.carried.get(v, op.operands if op is not None else ())
    back = op.results.index(v) - len(op.results) if op.opcode != "each" else 0
    first = (op.operands[back],) if op.opcode in ("for", "while") else ()
    return (*first, *(r.yields[back] for r in (op.regions if op.opcode == "if" else op.regions[-1:])))


def history(c: Walked, v: Value, elem: str, stop: frozenset[Value] = frozenset()) -> dict[Value, bool]:
    """The values of a type that a value was made of, back to `stop`, and whether it is made of no further ones."""
    seen, ahead = dict[Value, bool](), [v]
    while ahead:
        v = ahead.pop()
        op = c.producers.get(v)
        ends = v in stop or op is not None and op.opcode in DISTRIBUTION_OF
        before = [] if ends else [x for x in made_of(c, v) if x.type.elem in (elem, "list")]
        seen[v] = not before
        ahead += [x for x in before if x not in seen]
    return seen


def sources(c: Walked, v: Value, elem: str, stop: frozenset[Value] = frozenset()) -> set[Value]:
    """The first of them: of a tree the new ones that it was grown from, of draws what was drawn."""
    return {x for x, first in history(c, v, elem, stop).items() if first}


def inside(op: Op) -> set[Value]:
    """The values that are made in the regions of an op."""
    return {v for r in op.regions for o in r.walk() for v in o.results}


def number(c: Walked, v: Value) -> Linear:
    """A number as a sum, as far as sums, differences and constant factors show it."""
    op = c.producers.get(v)
    fn = "" if op is None or op.opcode != "map" or v.type.dims else op.attrs["fn"]
    if op is not None and op.opcode == "const" and isinstance(op.attrs["value"], int | Fraction):
        return Linear.of(op.attrs["value"])
    if op is not None and fn in ("add", "sub", "mul"):
        a, b = (number(c, x) for x in op.operands)
        found = a.multiplied(b) if fn == "mul" else a + b if fn == "add" else a - b
        return Linear.of(v) if found is None else found
    return Linear.of(v)


def elements(c: Walked, v: Value) -> list[Element]:
    """The draws that a value holds, in order, as far as indices show which they are."""
    op = c.producers.get(v)
    if op is not None and op.opcode in ("list", "concat", "within"):
        return [e for x in op.operands for e in elements(c, x)]
    if op is not None and op.opcode == "gather" and len(op.operands) == 2 and len(op.operands[0].type.dims) == 1:
        whole, index = elements(c, op.operands[0]), op.operands[1]
        made = c.producers.get(index)
        listed = made.operands if made is not None and made.opcode == "list" else (index,) if not index.type.dims else ()
        if listed and len(whole) == 1 and whole[0][1] is None:
            return [(whole[0][0], number(c, i)) for i in listed]
    return [(v, None)]


def apart(a: Linear | None, b: Linear | None) -> Exact | None:
    """How far one of several draws stands behind another: 0 for the same one, None where it does not show."""
    return 0 if a is None or b is None else (a - b).number


def draws(c: Walked, v: Value) -> list[Op]:
    """The ops that drew what a value holds."""
    made = [c.producers.get(x) for x in sources(c, v, "draw")]
    return [op for op in made if op is not None and op.opcode in DISTRIBUTION_OF]


def in_order(c: Walked, v: Value) -> bool:
    """Whether a draw may have been drawn without replacement: after those before it, from what they leave."""
    return any(op.opcode == "draw.race" or op.attrs.get("replace") is False for op in draws(c, v))


def invariant_draws(c: Walked, grow: Op, base: Value, pick: Linear | None, loop: Op) -> str:
    """Whether draws that grow in a loop stay the same from one iteration to the next: "error", "warning" where some iterations
    may set the state that they are read from, or ""."""
    read = c.producers.get(base)
    if read is None or read.opcode != "state.read" or loop not in c.loops[base]:
        return "" if loop in c.loops.get(base, ()) or varies(c, pick, loop) or loop.attrs.get("lanes") else "error"
    regions = [*loop.regions, *(r for part in loop.regions for o in part.walk() for r in o.regions)]
    sets = [(o, r) for r in regions for o in r.ops if o.opcode == "state.write" and o.attrs["state"] == read.attrs["state"]]
    held = [{c.producers.get(v) for v, part in elements(c, o.operands[0]) if part is None} for o, _ in sets]
    if all(any(o is not None and o.opcode == "state.read" and o.attrs == read.attrs for o in made) for made in held):
        return "error"  # never set, or only to more than it holds
    return "" if any(grow in r.walk() for _, r in sets) else "warning"


def place(c: Walked, v: Value) -> Place:
    """Where a node is, or where draws are grown if no place is named: the same for values that are seen to name one node."""
    op = c.producers.get(v)
    code = op.opcode if op is not None else ""
    if op is not None and code in DISTRIBUTION_OF:
        made = c.producers.get(op.operands[0])
        evaluated = made is not None and made.opcode == "model.eval" and made.operands[1].type.elem == "node"
        return place(c, made.operands[1]) if made is not None and evaluated else (v,)
    if op is not None and code == "tree.nodes" and len(op.operands) == 1:
        tree, which = op.operands[0], op.attrs["which"]
        made = c.producers.get(tree)
        alone = made is not None and made.opcode == "tree.new" and which in ("leaves", "frontier")
        return ("root",) if which == "root" or alone else ("all", tree.type.of[0]) if which == "all" else (which, tree)
    if op is not None and code == "gather" and len(op.operands) == 2 and not op.operands[1].type.dims:
        within, index = place(c, op.operands[0]), number(c, op.operands[1])
        return ("root",) if within == ("root",) or within[0] == "all" and index == ZERO else (*within, index)
    return ("root",) if code == "context" else (v,)


def varies(c: Walked, what: object, loop: Op) -> bool:
    """Whether an element, a number or a place may be another one in another iteration of a loop."""
    if isinstance(what, Value):
        return loop in c.loops.get(what, ())
    parts = what.symbols if isinstance(what, Linear) else what if isinstance(what, tuple) else ()
    return any(varies(c, x, loop) for x in parts)


def mass(c: Walked, v: Value, seen: frozenset[Value] = frozenset()) -> Linear | None:
    """What the probabilities of a distribution sum to: 0 of scores, which are none; None where it does not show."""
    op = c.producers.get(v)
    code = op.opcode if op is not None else ""
    if code in ("normalize", "softmax", "warp", "renorm"):
        return ONE
    if op is not None and code in ("face", "gather", "slice", "compact", "take_first"):
        return ZERO if op.attrs.get("face") == "logits" else mass(c, op.operands[0], seen)
    if op is not None and code == "map" and len(op.operands) == 2:
        fn, rows = op.attrs["fn"], [x.type.elem == "dist" or any(d.kind == "vocab" for d in x.type.dims) for x in op.operands]
        a, b = (mass(c, x, seen) if row else number(c, x) for x, row in zip(op.operands, rows, strict=True))
        if a is None or b is None:
            return None
        if fn in ("add", "mix", "sub") and all(rows):
            return a - b if fn == "sub" else a + b
        if fn in ("mul", "weigh") and not all(rows):
            return a.multiplied(b)
        return a.times(1 / Fraction(b.number)) if fn == "div" and not rows[1] and b.number else None
    if v in c.carried or code in ("if", "for", "while", "segment"):
        ways = [mass(c, x, seen | {v}) for x in made_of(c, v) if x not in seen]
        wrong = [w for w in ways if w is not None and w.number not in (None, 1)]
        return wrong[0] if wrong else ONE if all(w == ONE for w in ways) else None
    return ONE if v.type.elem == "dist" else None
