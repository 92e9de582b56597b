"""Declarations: types of parameters and states, canvases, derived models, noise."""

from __future__ import annotations

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.lower.sizes import size
from decgraph.dsl.lower.state import Lowering, show
from decgraph.ir.settings import ARITHMETIC
from decgraph.ir.types import ANY, BOOL, INT, PROB, REAL, SET, TEXT, TOPOLOGY, Dim, Type, listing
from decgraph.ir.values import Constant

MODEL_KINDS = ("causal", "masked", "features", "layers", "head", "set_block_lm")
GIVEN = ("prob", "float", "int", "bool", "dist")
"""What a `head(target) -> type` can give."""
SCALARS = {"int": INT, "float": REAL, "prob": PROB, "bool": BOOL, "text": TEXT, "topology": TOPOLOGY, "set": SET}
KNOWN = (*SCALARS, *MODEL_KINDS, "token", "dist", "draws", "tree", "list", "automaton", "suffixes", "ngrams", "lru", "node")


def dims_of(lw: Lowering, t: S.TypeExpr | S.Index) -> tuple[Dim, ...]:
    """The dimensions of a written type; the bounds are those of its parameters."""
    out = []
    for d in t.dims if isinstance(t, S.TypeExpr) else t.subs:
        if isinstance(d, S.Name) and d.name == "vocab" and "vocab" not in lw.env:
            out.append(Dim("vocab", lw.vocab))
            continue
        inner = d.bound if isinstance(d, S.UpTo) else d
        out.append(Dim("k", "", bound_of(lw, inner)))
    return tuple(out)


def at_most(t: Type, written: S.TypeExpr | S.Index) -> Type:
    """The type of a parameter, or of a list's entries: of `token[<= n]` a value may be shorter, of `token[n]` not."""
    found = written.dims if isinstance(written, S.TypeExpr) else written.subs
    if not any(isinstance(d, S.UpTo) for d in found):
        return t
    dims = zip(t.dims, found, strict=True)
    return t.with_dims(tuple(Dim(d.kind, "upto", d.bound) if isinstance(w, S.UpTo) else d for d, w in dims))


def bound_of(lw: Lowering, e: S.Expr) -> int | None:
    """The largest value of an arithmetic expression over parameters, from their ranges; None where it is not known."""
    if isinstance(e, S.Number):
        return int(e.value)
    if isinstance(e, S.Name):
        v = lw.env.get(e.name)
        return lw.module.bounds.get(v) if v is not None else None
    if isinstance(e, S.Call) and isinstance(e.func, S.Name) and e.func.name == "min":
        return min((b for b in (bound_of(lw, a) for a in e.args) if b is not None), default=None)
    if isinstance(e, S.Binary) and e.op in "+-*":
        a, b = bound_of(lw, e.left), bound_of(lw, e.right)
        if a is None or b is None:
            return None
        return a + b if e.op == "+" else a * b if e.op == "*" else a
    return None


def model_type(lw: Lowering, t: S.TypeExpr, name: str) -> Type:
    """The type of a model parameter: kind, vocabulary, family and what its positions see."""
    kind = "masked" if t.name == "set_block_lm" else t.name
    vocab = lw.vocab
    if t.dims:
        d = t.dims[0]
        vocab = d.name if isinstance(d, S.Name) else str(getattr(d, "text", "V"))
    visibility = "causal" if kind in ("causal", "features", "layers") else "full"
    caps = []
    for w in t.with_:
        if isinstance(w, S.Name):
            caps.append(w.name)
        elif isinstance(w, S.Call) and isinstance(w.func, S.Name):
            caps.append(w.func.name)
            if w.func.name == "block_causal":
                visibility = "block"
    if t.name == "set_block_lm":
        visibility = "context_causal"
    family = name
    if kind in ("features", "layers", "head") and t.args:
        a = t.args[0]
        if not isinstance(a, S.Name) or a.name not in lw.env:
            lw.fail(t.span, f"{kind}(...) names the model whose states are read", f"{kind}(target)", code="E370")
        base = lw.env[a.name].type.of
        # What reads the states of a head on features is that head's own: its name tells it from what reads their target.
        family = a.name if kind == "head" and base[0] == "features" else str(base[2])
    if kind == "head":
        gives = t.returns.name if t.returns is not None else ""
        if not t.args or gives not in GIVEN or t.returns is not None and t.returns.dims:
            lw.fail(
                t.span,
                "a head names the model that it reads, and what it gives",
                f"judge: head(target) -> prob, or -> {', '.join(GIVEN[1:])}",
                code="E370",
            )
        return Type("model", (kind, vocab, family, "dist" if gives == "dist" else SCALARS[gives].elem))
    if "heads" in caps:
        visibility = "causal+heads"
    return Type("model", (kind, vocab, family, visibility))


def type_of(lw: Lowering, t: S.TypeExpr, name: str) -> Type:
    """The IR type that a written type stands for."""
    n = t.name
    if n in SCALARS:
        return SCALARS[n].with_dims(dims_of(lw, t))
    if n in MODEL_KINDS:
        return model_type(lw, t, name)
    if n == "token":
        return Type("token", (lw.vocab,), dims_of(lw, t))
    if n in ("draws", "draw"):
        return Type("draw", (lw.vocab,), dims_of(lw, t))
    if n == "dist":
        return Type("dist", (lw.vocab, "shaped"), dims_of(lw, t))
    if n == "tree":
        return Type("tree", (name, "any", lw.vocab))
    if n == "list":
        inner: Type = ANY
        if t.dims and isinstance(t.dims[0], S.Index):
            sub = t.dims[0]
            base = sub.value.name if isinstance(sub.value, S.Name) else "any"
            inner = at_most(type_of(lw, S.TypeExpr(base), name).with_dims(dims_of(lw, sub)), sub)
        elif t.dims and isinstance(t.dims[0], S.Name):
            inner = type_of(lw, S.TypeExpr(t.dims[0].name), name)
        return listing(inner)
    if n in ("suffixes", "ngrams"):
        return Type("index", (n, lw.vocab))
    if n == "lru":
        return Type("index", ("lru", lw.vocab))
    if n == "automaton":
        return Type("automaton", (lw.vocab,))
    if n.endswith(".state"):
        return Type("astate")
    if n == "node":
        return Type("node", ("ctx",))
    if n == "nodes" or n == "positions" or n == "span":
        return Type("position", (name,), (Dim("part", name),))
    lw.fail(
        t.span,
        f"there is no type `{n}`",
        did_you_mean(n, KNOWN, f"types are {', '.join(KNOWN)}"),
        code="E230",
    )


WORDS = {"yes": True, "true": True, "no": False, "false": False, "none": None, "inf": "inf"}
"""Constants that are words."""


def literal(lw: Lowering, e: S.Expr, what: str) -> Constant:
    """The plain value of a constant expression (numbers, text, yes/no, sums of these)."""
    if isinstance(e, S.Number):
        return e.value
    if isinstance(e, S.String):
        return e.value
    if isinstance(e, S.Name) and e.name in WORDS:
        return WORDS[e.name]
    if isinstance(e, S.Unary) and e.op == "-":
        v = literal(lw, e.operand, what)
        return "-inf" if v == "inf" else ARITHMETIC["-"](0, v)
    if isinstance(e, S.Binary):
        a, b = literal(lw, e.left, what), literal(lw, e.right, what)
        try:
            return ARITHMETIC[e.op](a, b)
        except (KeyError, TypeError, ZeroDivisionError):
            pass
    if isinstance(e, S.ListExpr):
        return tuple(literal(lw, i, what) for i in e.items)
    lw.fail(e.span, f"{what} must be a constant", "a number, a text, yes or no", code="E370")


def canvas_decl(lw: Lowering, s: S.Canvas) -> None:
    """`canvas c: length growing to n`."""
    n = lw.expr(s.length)
    if not n.type.is_number or n.type.dims:
        lw.fail(s.length.span, f"a canvas needs a length, got {show(n.type)}", code="E210")
    n = size(lw, n, s.length.span, "the length of the canvas")
    extra = []
    if s.grow_to is not None:
        most = lw.expr(s.grow_to)
        if not most.type.is_number or most.type.dims:
            lw.fail(s.grow_to.span, f"a canvas grows to a length, got {show(most.type)}", code="E210")
        extra = [size(lw, most, s.grow_to.span, "the length of the canvas")]
    lw.env[s.name] = lw.emit("canvas.new", n, *extra, span=s.span, names=(s.name,), canvas=s.name, vocab=lw.vocab)[0]


def model_decl(lw: Lowering, s: S.ModelDecl) -> None:
    """`model small = target.head(adapter(target.upto(l)))`."""
    v = lw.expr(s.value)
    if v.type.elem != "model":
        lw.fail(s.value.span, f"`model {s.name} =` needs a model, got {show(v.type)}", code="E210")
    object.__setattr__(v, "name", s.name)
    lw.env[s.name] = v


def noise_decl(lw: Lowering, s: S.NoiseDecl) -> None:
    """`noise g[positions, vocab]: race`: one noise that several draws share."""
    if s.kind != "race":
        lw.fail(s.span, f"there is no noise of kind `{s.kind}`", "noise g[positions, vocab]: race", code="E308")
    lw.env[s.name] = lw.noise("race", s.span)
