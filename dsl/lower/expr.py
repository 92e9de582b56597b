"""Expressions to IR values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.lower import access, calls
from decgraph.dsl.lower.flow import region
from decgraph.dsl.lower.sizes import power, size, whole
from decgraph.dsl.lower.state import Lowering, show
from decgraph.dsl.source import Span
from decgraph.ir.ops.common import is_text, numeric
from decgraph.ir.types import ANY, INT, NONE, REAL, Type
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


COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def number(lw: Lowering, e: S.Number) -> Value:
    """A literal: an int where it is written as one, else an exact real."""
    v = e.value
    if isinstance(v, Fraction) and v.denominator == 1 and "." not in e.text and "e" not in e.text.lower():
        v = int(v)
    return lw.const(v, INT if isinstance(v, int) else REAL)


def name(lw: Lowering, e: S.Name) -> Value:
    """What a name stands for here: a variable, a state or a word of the language."""
    n = e.name
    if n in lw.env:
        return lw.env[n]
    if n in lw.states:
        return access.read_state(lw, n, e.span)
    special = SPECIAL.get(n)
    if special is not None:
        return special(lw, e)
    if n in lw.gone:
        lw.fail(e.span, f"`{n}` has no value here", lw.gone[n], code="E230")
    item = lw.items.get(n)
    if item is not None:
        lw.fail(e.span, f"`{n}` is a {type(item).__name__.lower()}, not a value", f"call it: {n}(...)", code="E231")
    known = [k for k in [*lw.env, *lw.states, *SPECIAL, *lw.items] if not k.startswith("%") and "." not in k]
    lw.fail(
        e.span,
        f"nothing is called `{n}` here",
        MEANT.get(n) or did_you_mean(n, known, "assign it first, or make it a parameter"),
        code="E230",
    )


MEANT = {
    "context": "ctx is the committed context",
    "vocab_size": "vocab.size is how many tokens there are",
    "True": "yes is true",
    "False": "no is false",
    "None": "none is no value",
}
"""Names of other languages and papers, by what they are here."""


def _root(lw: Lowering, e: S.Name) -> Value:
    tree = (lw.drafting or lw.trees or [""])[-1]
    if tree not in lw.env:
        lw.fail(
            e.span,
            "`root` is the root of a tree, and no tree is being drafted here",
            "say ctx for the committed context",
            code="E260",
        )
    return lw.one("tree.nodes", lw.env[tree], span=e.span, which="root", name="root")


SPECIAL: dict[str, Callable[[Lowering, S.Name], Value]] = {
    "ctx": lambda lw, e: lw.one("context", span=e.span, name="ctx"),
    "done": lambda lw, e: lw.one("done", span=e.span),
    "root": _root,
    "none": lambda lw, e: lw.const(None, NONE),
    "yes": lambda lw, e: lw.const(True),
    "true": lambda lw, e: lw.const(True),
    "no": lambda lw, e: lw.const(False),
    "false": lambda lw, e: lw.const(False),
    "inf": lambda lw, e: lw.const("inf", REAL),
    "greedy": lambda lw, e: lw.one("request", span=e.span, field="greedy"),
    "room": lambda lw, e: lw.one("request", span=e.span, field="room"),
    "prompt": lambda lw, e: lw.one("request", span=e.span, field="prompt", vocab=lw.vocab),
    "eos": lambda lw, e: lw.one("request", span=e.span, field="eos", vocab=lw.vocab),
    "pad": lambda lw, e: lw.one("request", span=e.span, field="pad", vocab=lw.vocab),
    "mask_": lambda lw, e: lw.one("request", span=e.span, field="mask", vocab=lw.vocab),
    "vocab": lambda lw, e: lw.const("vocab", Type("text")),
    "empty": lambda lw, e: lw.one("tree.new", span=e.span, tree="%empty", vocab=lw.vocab),
}


def expr(lw: Lowering, e: S.Node) -> Value:
    """The value of an expression."""
    old, lw.span = lw.span, (e.span or lw.span)
    try:
        return TABLE[type(e)](lw, e)
    except KeyError as missing:
        if missing.args and missing.args[0] is type(e):
            lw.fail(e.span, f"this cannot be used as a value ({type(e).__name__})", code="E231")
        raise
    finally:
        lw.span = old


def unary(lw: Lowering, e: S.Unary) -> Value:
    """`-x` or `not x`."""
    if e.op == "-" and isinstance(e.operand, S.Name) and e.operand.name == "inf" and "inf" not in lw.env:
        return lw.const("-inf", REAL)
    v = lw.expr(e.operand)
    no_states(lw, e.span, v)
    opcode = "hidden.map" if v.type.elem in ("hidden", "embedding") else "map"
    out = lw.one(opcode, v, span=e.span, fn="neg" if e.op == "-" else "not")
    if e.op == "-" and v in lw.finite:
        lw.finite[out] = -lw.finite[v]
    return out


def whole_text(lw: Lowering, v: Value, e: S.Binary) -> Value:
    """In `noisy ++ ctx` the context stands for its tokens."""
    if v.type.elem == "node" and v.type.of[0] == "ctx" and not v.type.dims:
        return lw.one("ctx.get", v, span=e.span, field="path", vocab=lw.vocab)
    return v


def binary(lw: Lowering, e: S.Binary) -> Value:
    """Arithmetic, `++`, and sums and differences of sets of positions and nodes."""
    a, b = lw.expr(e.left), lw.expr(e.right)
    if e.op == "++":
        a, b = (whole_text(lw, v, e) for v in (a, b))
        return lw.one("concat", a, b, span=e.span)
    if a.type.elem == "position" and b.type.elem == "position" and e.op in ("+", "-") and a.type.dims:
        return lw.one("positions", a, b, span=e.span, kind="union" if e.op == "+" else "minus")
    if "node" in (a.type.elem, b.type.elem) and e.op == "-":
        keep = lw.one("map", membership(lw, a, b, e), span=e.span, fn="not")
        return lw.one("compact", a, keep, span=e.span)
    no_states(lw, e.span, a, b)
    if "embedding" in (a.type.elem, b.type.elem):
        return lw.one("hidden.map", a, b, span=e.span, fn=BINARY[e.op])
    texts = [is_text(v.type) and v.type.elem != "int" or v.type.elem == "node" and v.type.of[0] == "ctx" for v in (a, b)]
    if e.op == "+" and (all(texts) or "list" in (a.type.elem, b.type.elem) or "text" in (a.type.elem, b.type.elem)):
        hint = "texts and vectors are joined with ++: a ++ b" if "text" not in (a.type.elem, b.type.elem) else ""
        lw.fail(e.span, f"+ adds numbers, got {show(a.type)} and {show(b.type)}", hint)
    a, b = plain_int(lw, a), plain_int(lw, b)
    if e.op == "^":
        b = power(lw, a, b, e.span)
    out = arithmetic(lw, e.op, a, b, e.span)
    return whole(lw, out, e.span) if e.op == "*" else out


def no_states(lw: Lowering, span: Span, *values: Value) -> None:
    """Refuses arithmetic on hidden states: in a check a state is what it was computed from, not a vector."""
    for v in values:
        if v.type.elem == "hidden":
            hint = "similarity(h, g), mean(h), or a head that reads it: router(h)"
            lw.fail(span, "hidden states are compared, averaged and read by heads; they have no other arithmetic", hint)


def plain_int(lw: Lowering, v: Value) -> Value:
    """A single position as the number it is."""
    if v.type.elem == "position" and not v.type.dims:
        return lw.one("as_int", v)
    return v


def compare(lw: Lowering, e: S.Compare) -> Value:
    """A comparison, entry by entry, or membership."""
    a, b = compared(lw, e.left), compared(lw, e.right)
    if e.op in ("in", "not in"):
        v = membership(lw, a, b, e)
        return lw.one("map", v, span=e.span, fn="not") if e.op == "not in" else v
    if a.type.elem != b.type.elem and "position" in (a.type.elem, b.type.elem):
        a, b = plain_int(lw, a), plain_int(lw, b)
    return lw.one("map", a, b, span=e.span, fn=COMPARE[e.op])


def compared(lw: Lowering, e: S.Expr) -> Value:
    """A side of a comparison. `eos` may stand there in a request without an end token, which no token equals."""
    if isinstance(e, S.Name) and e.name == "eos" and "eos" not in (*lw.env, *lw.states):
        return lw.one("request", span=e.span, field="eos_or_none", vocab=lw.vocab)
    if isinstance(e, S.ListExpr):
        return lw.one("list", *[compared(lw, i) for i in e.items], span=e.span)
    return lw.expr(e)


def membership(lw: Lowering, a: Value, b: Value, e: S.Node) -> Value:
    """Whether the entries of one value are among those of another."""
    return lw.one("contains", a, b, span=e.span)


# What may have no value, or costs much: the second half of `a and b` computes it only where it is needed.
GUARDED = frozenset((
    "gather", "lookup", "arg", "reduce", "model.eval", "model.read", "model.memory", "model.attention", "extern", "run",
    "text_of", "index.ask", "automaton", "slice",
))  # fmt: skip


def boolop(lw: Lowering, e: S.BoolOp) -> Value:
    """`a and b`: of single conditions, b is evaluated only where a leaves it open."""
    out = lw.expr(e.values[0])
    for part in e.values[1:]:
        inner = lw.region([], part)
        v = inner.yields[0]
        single = out.type.elem == v.type.elem == "bool" and not out.type.dims and not v.type.dims
        if single and any(op.opcode in GUARDED for op in inner.walk()):
            lw.b.open()
            constant = lw.b.close([lw.const(e.op == "or")])
            regions = (constant, inner) if e.op == "or" else (inner, constant)
            out = lw.emit("if", out, regions=regions, span=e.span)[0]
        else:
            lw.b.splice(inner)
            out = lw.one("map", out, v, span=e.span, fn=e.op)
    return out


def ifexp(lw: Lowering, e: S.IfExp) -> Value:
    """`a if cond else b`: only the chosen side is computed."""
    cond = lw.expr(e.cond)
    regions = tuple(lw.region([], way) for way in (e.then, e.orelse))
    if any(r.yields[0].type.is_token for r in regions):
        regions = tuple(replace(r, yields=(lw.token(r.yields[0]),)) for r in regions)
    return lw.emit("if", cond, regions=regions, span=e.span)[0]


def where(lw: Lowering, e: S.Where) -> Value:
    """The entries of a vector at which a condition holds."""
    v = lw.expr(e.value)
    c = lw.expr(e.cond)
    return lw.one("compact", v, c, span=e.span)


def listexpr(lw: Lowering, e: S.ListExpr) -> Value:
    """`[a, b, c]`."""
    return lw.one("list", *[lw.expr(i) for i in e.items], span=e.span)


def comprehension(lw: Lowering, e: S.Comprehension) -> Value:
    """`[element for x in xs if cond]`."""
    xs = iterable(lw, e.iter)
    item = element_type(lw, xs, e.iter)
    i, x = Value(INT, "i"), Value(item, e.names[0].name)

    def fill(_: list[Value]) -> list[Value]:
        lw.counters.append(i)
        lw.env[e.names[0].name] = x
        out = [lw.expr(e.element)]
        if e.cond is not None:
            out.append(lw.expr(e.cond))
            if out[1].type.elem != "bool" or out[1].type.dims:
                lw.fail(e.cond.span, f"a condition must be one bool, got {show(out[1].type)}", "say any(...) or all(...)")
        return out

    r, _ = region(lw, [i, x], [], [], fill)
    return lw.emit("each", xs, regions=(r,), span=e.span, filtered=e.cond is not None)[0]


def iterable(lw: Lowering, e: S.Expr) -> Value:
    """What a `for` runs over: a vector, a list, a topology, or lo..hi as numbers."""
    if isinstance(e, S.Range):
        lo, hi = (size(lw, lw.expr(x), x.span, "an end of the range") for x in (e.lo, e.hi))
        return lw.one("tile", lo, hi, span=e.span, kind="iota")
    return lw.expr(e)


def element_type(lw: Lowering, xs: Value, e: S.Expr) -> Type:
    """The type of one element of what a `for` runs over."""
    t = xs.type
    if t.elem == "list":
        if t.of[0] == ANY:
            return Type("any")
        assert isinstance(t.of[0], Type)
        return t.of[0]
    if t.elem == "topology":
        return Type("level")
    if not t.dims:
        lw.fail(
            e.span,
            f"`for ... in` needs a vector or a list, got {show(t)}",
            "for a number of iterations say `repeat n:`" if t.is_number else "",
            code="E210",
        )
    return t.drop()


TABLE: dict[type, Callable[..., Value]] = {
    S.Name: name,
    S.Number: number,
    S.String: lambda lw, e: lw.const(e.value),
    S.ListExpr: listexpr,
    S.Comprehension: comprehension,
    S.Call: calls.call,
    S.Index: access.index,
    S.Attr: access.attr,
    S.Unary: unary,
    S.Binary: binary,
    S.Compare: compare,
    S.BoolOp: boolop,
    S.IfExp: ifexp,
    S.Where: where,
    S.Run: calls.run,
    S.Range: iterable,
}
