"""What a value is made of, read off the ops: which draws are grown and where, from which tree, from which distribution.

The label check (ir/labels.py) asks here what labels do not tell: that two values are the same draw, that one sibling was drawn
after another, that a draw is older than the loop that grows it, and that probabilities do not sum to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from decgraph.ir.values import Op, Value

if TYPE_CHECKING:
    from decgraph.ir.labels import Checker

Form = frozenset[tuple[Value | None, Fraction]]
"""A number as a sum: of values with their factors, and of a constant (None)."""
Element = tuple[Value, Form | None]
"""Draws: all that a value holds (None), or the one of a number."""
Place = tuple[object, ...]

ZERO: Form = frozenset()
ONE: Form = frozenset({(None, Fraction(1))})
DISTRIBUTION_OF = {"draw": 0, "draw.many": 0, "draw.race": 0, "draw.stated": 1}


def add(a: Form, b: Form, factor: Fraction = Fraction(1)) -> Form:
    """a + factor * b."""
    out = dict(a)
    for v, n in b:
        out[v] = out.get(v, Fraction(0)) + factor * n
    return frozenset((v, n) for v, n in out.items() if n)


def constant(a: Form) -> Fraction | None:
    """The number that a form is, or None where it depends on a value."""
    return None if any(v is not None for v, _ in a) else sum((n for _, n in a), Fraction(0))


def made_of(c: Checker, v: Value) -> tuple[Value, ...]:
    """The values that a value is one of, where it is a result of branches or of a loop; else the operands of its op."""
    if v in c.carried:
        return c.carried[v]
    op = c.made.get(v)
    if op is None:
        return ()
    if op.opcode in ("if", "segment", "for", "while", "each"):
        back = op.results.index(v) - len(op.results) if op.opcode != "each" else 0
        ends = tuple(r.yields[back] for r in (op.regions if op.opcode == "if" else op.regions[-1:]))
        return (*ends, op.operands[back]) if op.opcode in ("for", "while") else ends
    return op.operands


def sources(c: Checker, v: Value, elem: str, stop: frozenset[Value] = frozenset()) -> Iterator[Value]:
    """The values of a type that a value was made of in the end, each once: of a tree the new ones it was grown from. `stop`:
    where not to go on."""
    seen, ahead = {v}, [v]
    while ahead:
        v = ahead.pop()
        op = c.made.get(v)
        before = () if v in stop or (op is not None and op.opcode in DISTRIBUTION_OF) else made_of(c, v)
        before = tuple(x for x in before if x.type.elem in (elem, "list"))
        if not before:
            yield v
        ahead += [x for x in before if x not in seen]
        seen.update(before)


def number(c: Checker, v: Value) -> Form:
    """A number as a form, as far as sums, differences and constant factors show it."""
    op = c.made.get(v)
    if op is not None and op.opcode == "const" and isinstance(op.attrs["value"], int | Fraction):
        return add(ZERO, ONE, Fraction(op.attrs["value"]))
    if op is not None and op.opcode == "map" and op.attrs["fn"] in ("add", "sub", "mul", "neg") and not v.type.dims:
        parts = [number(c, x) for x in op.operands]
        if op.attrs["fn"] != "mul":
            return add(parts[0] if len(parts) > 1 else ZERO, parts[-1], Fraction(1 if op.attrs["fn"] == "add" else -1))
        for factor, form in (parts, parts[::-1]):
            if (n := constant(factor)) is not None:
                return add(ZERO, form, n)
    return frozenset({(v, Fraction(1))})


def elements(c: Checker, v: Value) -> list[Element]:
    """The draws that a value holds, in order, as far as indices show which they are."""
    op = c.made.get(v)
    if op is not None and op.opcode in ("list", "concat", "within"):
        return [e for x in op.operands for e in elements(c, x)]
    if op is not None and op.opcode == "gather" and len(op.operands) == 2 and len(op.operands[0].type.dims) == 1:
        whole, index = elements(c, op.operands[0]), op.operands[1]
        made = c.made.get(index)
        listed = made.operands if made is not None and made.opcode == "list" else (index,) if not index.type.dims else ()
        if listed and len(whole) == 1 and whole[0][1] is None:
            return [(whole[0][0], number(c, i)) for i in listed]
    return [(v, None)]


def apart(a: Form | None, b: Form | None) -> Fraction | None:
    """How far one of several draws stands behind another: 0 for the same one, None where it does not show."""
    return Fraction(0) if a is None or b is None else constant(add(a, b, Fraction(-1)))


def draws(c: Checker, v: Value) -> list[Op]:
    """The ops that drew what a value holds."""
    made = [c.made.get(x) for x in sources(c, v, "draw")]
    return [op for op in made if op is not None and op.opcode in DISTRIBUTION_OF]


def in_order(c: Checker, v: Value) -> bool:
    """Whether a draw may have been drawn without replacement: after those before it, from what they leave."""
    return any(op.opcode == "draw.race" or op.attrs.get("replace") is False for op in draws(c, v))


def kept(c: Checker, grow: Op, base: Value, pick: Form | None, loop: Op) -> str:
    """Whether draws that grow in a loop stay the same from one iteration to the next: "error", "warning" where some iterations
    may set the state that they are read from, or ""."""
    read = c.made.get(base)
    if read is None or read.opcode != "state.read" or loop not in c.loops[base]:
        return "" if loop in c.loops.get(base, ()) or varies(c, pick, loop) else "error"
    regions = [*loop.regions, *(r for part in loop.regions for o in part.walk() for r in o.regions)]
    sets = [(o, r) for r in regions for o in r.ops if o.opcode == "state.write" and o.attrs["state"] == read.attrs["state"]]
    held = [{c.made.get(v) for v, part in elements(c, o.operands[0]) if part is None} for o, _ in sets]
    if all(any(o is not None and o.opcode == "state.read" and o.attrs == read.attrs for o in made) for made in held):
        return "error"  # never set, or only to more than it holds
    return "" if any(grow in r.walk() for _, r in sets) else "warning"


def place(c: Checker, v: Value) -> Place:
    """Where a node is: the same for two values that name one node of a tree, as far as ops show it."""
    op = c.made.get(v)
    if op is not None and op.opcode == "context":
        return ("root",)
    if op is not None and op.opcode == "tree.nodes" and len(op.operands) == 1:
        tree, which = op.operands[0], op.attrs["which"]
        made = c.made.get(tree)
        alone = made is not None and made.opcode == "tree.new" and which in ("leaves", "frontier")
        return ("root",) if which == "root" or alone else ("all", tree.type.of[0]) if which == "all" else (which, tree)
    if op is not None and op.opcode == "gather" and len(op.operands) == 2 and not op.operands[1].type.dims:
        within, index = place(c, op.operands[0]), number(c, op.operands[1])
        return ("root",) if within == ("root",) or within[0] == "all" and not index else (*within, index)
    return (v,)


def drawn_at(c: Checker, v: Value) -> Place:
    """Where draws are grown if no place is named: where their distribution was evaluated."""
    op = c.made.get(v)
    made = c.made.get(op.operands[0]) if op is not None and op.opcode in DISTRIBUTION_OF else None
    evaluated = made is not None and made.opcode == "model.eval" and made.operands[1].type.elem == "node"
    return place(c, made.operands[1]) if made is not None and evaluated else ("drawn", v)


def varies(c: Checker, what: object, loop: Op) -> bool:
    """Whether an element, a form or a place is another one in another iteration of a loop."""
    if isinstance(what, Value):
        op = c.made.get(what)
        same = op is not None and (op.opcode == "const" or op.opcode == "tree.nodes" and op.attrs["which"] == "root")
        return loop in c.loops.get(what, ()) and not same
    return isinstance(what, tuple | frozenset) and any(varies(c, x, loop) for x in what)


def mass(c: Checker, v: Value, seen: frozenset[Value] = frozenset()) -> Form | None:
    """What the probabilities of a distribution sum to: 0 of scores, which are none; None where it does not show."""
    op = c.made.get(v)
    code = op.opcode if op is not None else ""
    if op is not None and code == "face":
        return ZERO if op.attrs["face"] == "logits" else mass(c, op.operands[0], seen)
    if op is not None and code in ("gather", "slice", "compact", "take_first"):
        return mass(c, op.operands[0], seen)
    if code in ("normalize", "softmax", "warp", "renorm"):
        return ONE
    if op is not None and code == "map" and op.attrs["fn"] in ("add", "sub", "mul", "weigh", "div"):
        return _mass_of_map(c, op, seen)
    if v in c.carried or code in ("if", "for", "while", "segment"):
        ways = [mass(c, x, seen | {v}) for x in made_of(c, v) if x not in seen]
        wrong = [w for w in ways if w is not None and constant(w) not in (None, 1)]
        return wrong[0] if wrong else ONE if all(w == ONE for w in ways) else None
    return ONE if v.type.elem == "dist" else None


def _mass_of_map(c: Checker, op: Op, seen: frozenset[Value]) -> Form | None:
    """What a sum, a difference or a multiple of distributions sums to."""
    fn, (a, b) = op.attrs["fn"], op.operands
    rows = [x.type.elem == "dist" or any(d.kind == "vocab" for d in x.type.dims) for x in (a, b)]
    if all(rows):
        parts = [mass(c, x, seen) for x in (a, b)]
        sign = Fraction(1 if fn == "add" else -1)
        return None if None in parts or fn not in ("add", "sub") else add(parts[0] or ZERO, parts[1] or ZERO, sign)
    row, by = (a, number(c, b)) if rows[0] else (b, number(c, a))
    whole, factor = mass(c, row, seen), constant(by)
    if whole is None or fn in ("add", "sub") or fn == "div" and not (rows[0] and factor):
        return None
    if factor is not None:
        return add(ZERO, whole, 1 / factor if fn == "div" else factor)
    n = constant(whole)
    return None if n is None else add(ZERO, by, n)
