"""Attributes, indexing and state: `t.leaves`, `p.raw`, `c.masked[b]`, `next[x]`."""

from __future__ import annotations

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.state import Lowering, show
from decgraph.dsl.printer import expression
from decgraph.dsl.source import Span
from decgraph.ir.table import surface
from decgraph.ir.values import Value

TREE_SETS = {"nodes": "all", "drafted": "drafted", "leaves": "leaves", "new": "new", "frontier": "frontier"}
TREE_COLUMNS = ("token", "parent", "depth", "logprob", "prob", "law", "masked", "decided", "point", "draw")


def read_state(lw: Lowering, name: str, span: Span) -> Value:
    """The value of a state; of a carried tree, the tree to go on with."""
    info = lw.states[name]
    v = lw.one("state.read", span=span, type=info.type, state=name)
    if info.type.elem == "tree":
        v = lw.one("tree.continue", v, span=span, tree=name)
    return v


def _tree_attr(lw: Lowering, e: S.Attr, t: Value) -> Value:
    n = e.name
    tree = str(t.type.of[0])
    if n in TREE_SETS:
        return lw.one("tree.nodes", t, span=e.span, which=TREE_SETS[n], name=n)
    if n == "accepted":
        key = _tree_key(lw, e.value, tree)
        if key not in lw.env:
            lw.fail(
                e.span,
                f"`{tree}.accepted` is known after `verify {tree} by ... against ...`",
                "verify the tree first",
                code="E240",
            )
        return lw.env[key]
    if n in ("size", "height"):
        return lw.one("tree.size", t, span=e.span, what=n)
    if n == "children":
        return t
    if n in TREE_COLUMNS:
        return lw.one("tree.get", t, span=e.span, column=n, name=n)
    want = lw.columns.get((tree, n))
    if want is None:
        cols = sorted(c for (name, c) in lw.columns if name == tree)
        lw.fail(
            e.span,
            f"tree `{tree}` has no column `{n}`",
            f"it has {', '.join((*TREE_SETS, *TREE_COLUMNS[:6], 'size', 'height', 'accepted', *cols))}; "
            f"set one with `grow x with {n} = value`",
            code="E240",
        )
    return lw.one("tree.get", t, span=e.span, column=n, type=want, name=n)


def _tree_key(lw: Lowering, e: S.Expr, tree: str) -> str:
    return (e.name if isinstance(e, S.Name) else tree) + ".accepted"


def attr(lw: Lowering, e: S.Attr) -> Value:
    """`value.name`."""
    inner = e.value
    if isinstance(inner, S.Attr) and inner.name == "law" and e.name == "point":
        owner = lw.expr(inner.value)
        if owner.type.elem == "tree":
            return lw.one("tree.get", owner, span=e.span, column="point")
        return lw.one("draw.get", owner, span=e.span, field="point")
    if isinstance(inner, S.Name) and inner.name == "vocab" and "vocab" not in lw.env and e.name == "size":
        return lw.one("vocab_size", span=e.span)
    if isinstance(inner, S.Name) and inner.name == "ctx" and "ctx" not in lw.env:
        if e.name == "parent":
            return lw.one("context", span=e.span, parent=True, name="ctx_parent")
        if e.name in ("token", "path", "length"):
            return lw.one("ctx.get", lw.expr(inner), span=e.span, field=e.name, vocab=lw.vocab)
    v = lw.expr(inner)
    t = v.type
    if t.elem == "tree":
        return _tree_attr(lw, e, v)
    out = _field(lw, e, v)
    if out is not None:
        return out
    lw.fail(e.span, f"{show(t)} has no `.{e.name}`", called(e, v) or KNOWN.get(t.elem, ""), code="E240")


CALLED = frozenset(("any", "all", "argmax", "argmin", "count", "len", "max", "mean", "min", "sort", "sum", "topk"))
"""Functions beside those that ops declare that are written as fields elsewhere."""


def called(e: S.Attr, v: Value) -> str:
    """What to try where a function is written as a field or a method of its argument; "" where there is no such function."""
    if e.name not in CALLED and e.name not in surface():
        return ""
    raw = ".raw" if v.type.elem == "dist" and e.name not in ("argmax", "argmin") else ""
    return f"`{e.name}` is a function: {e.name}({expression(e.value)}{raw})"


# What a value has: its names, the op that reads them, and the op's attribute that says which. `vocab`: the op is told it too.
FIELDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "draw": ("draw.get", "field", ("token", "law", "prob", "race", "point")),
    "canvas": ("canvas.get", "field", ("masked", "decided", "token", "draws", "all", "length")),
    "path": ("path.get", "field", ("depth", "token", "length", "prob", "path", "emitted")),
    "level": ("level.get", "field", ("parent", "rank", "index", "width")),
    "topology": ("level.get", "field", ("width",)),
    "automaton": ("automaton", "what", ("start", "states", "live")),
    "edit": ("edit.get", "field", ("position", "token")),
}
KNOWN = {
    "dist": "a distribution has .raw and .logits",
    "draw": "a draw has .token, .law, .prob and .race",
    "canvas": "a canvas has .masked, .decided, .token, .draws and .all",
    "path": "a path has .depth, .token, .length, .prob",
    "model": "a model has .memory(n), .heads(n), .exit(l), .skip(attention = .., mlp = ..), .speaking(m) and .vocab",
    "level": "a level has .parent, .rank, .index",
    "node": "a node has .token and .parent through its tree: t.token[n]",
    "position": "a span has .start, .stop and .index",
}


def _field(lw: Lowering, e: S.Attr, v: Value) -> Value | None:
    """`value.name` of what is no tree; None where it has nothing of that name."""
    elem, n = v.type.elem, e.name
    if elem in FIELDS and n in FIELDS[elem][2]:
        opcode, attribute, _ = FIELDS[elem]
        more = {"vocab": lw.vocab} if elem == "edit" else {}
        out = lw.one(opcode, v, span=e.span, name=n if elem in ("canvas", "level") else "", **{attribute: n}, **more)
        return lw.one("gather", out, lw.opened[id(e)], span=e.span) if id(e) in lw.opened else out
    match elem, n:
        case "dist", "raw" | "logits":
            return lw.one("face", v, span=e.span, face=n, name=v.name + "_" + n if v.name else n)
        case "token", "token":
            return v
        case "model", "vocab":
            return lw.const("vocab:" + v.type.vocab)
        case "model", "layers":
            return lw.one("model.layers", v, span=e.span)
        case "position", "start" | "stop" if lw.narrowed.get(v, v).type.dims:
            return lw.one("positions", lw.narrowed.get(v, v), span=e.span, kind=n)
        case "position", "index":
            return lw.one("block_index", lw.narrowed.get(v, v), span=e.span)
        case "position", "calls":
            return lw.env.get("%here")
        case "node", "token" | "path" | "length" if v.type.of[0] == "ctx":
            return lw.one("ctx.get", v, span=e.span, field=n, vocab=lw.vocab)
        case "node", _ if v.type.of[0] != "ctx" and str(v.type.of[0]) in lw.env and n in TREE_COLUMNS:
            column = lw.one("tree.get", lw.env[str(v.type.of[0])], span=e.span, column=n)
            return lw.one("gather", column, v, span=e.span)
    return None


def index(lw: Lowering, e: S.Index) -> Value:
    """`value[subs]`."""
    inner = e.value
    if isinstance(inner, S.Attr) and inner.name in ("children", "path"):
        owner = lw.expr(inner.value)
        if owner.type.elem == "tree":
            return lw.one("tree.nodes", owner, lw.expr(e.subs[0]), span=e.span, which=inner.name)
    v = lw.expr(inner)
    return index_value(lw, v, e.subs, e.span)


def index_value(lw: Lowering, v: Value, subs: tuple[S.Expr, ...], span: Span) -> Value:
    """A value at subscripts: a lookup of a token, a slice, or rows gathered."""
    t = v.type
    if len(subs) == 1 and isinstance(subs[0], S.Slice):
        ends = [lw.expr(x) for x in (subs[0].lo, subs[0].hi) if x is not None]
        return lw.one("slice", v, *ends, span=span, has_lo=subs[0].lo is not None, has_hi=subs[0].hi is not None)
    if any(isinstance(s, S.Slice) for s in subs):
        lw.fail(span, "a slice stands alone in an index", "slice one dimension at a time: v[i][a:b]", code="E210")
    ix = [lw.token(lw.expr(s)) for s in subs]
    if t.elem == "index":
        return lw.one("index.ask", v, *ix, span=span, what="get", named=())
    if t.elem == "memory" and len(ix) == 1:
        return lw.one("memory.layer", v, ix[0], span=span)
    if t.elem in ("node",) and not t.dims:
        hint = "its last token is `ctx.token`, its last n are `ctx.last(n)`: of another node the same"
        lw.fail(span, "a single node cannot be indexed", hint, code="E210")
    if len(ix) == 1 and ix[0].type.elem == "bool":
        cells = t.dims and t.dims[0].kind == "cells"  # as in `for i in c.masked: c[i] = x[i]`
        advice = "; cells are decided all at once: unmask c where c.masked with x" if cells else ""
        lw.fail(span, "an index is a place, not a condition", f"select with `v where condition`{advice}", code="E210")
    if len(ix) == 1 and ix[0].type.elem == "path":
        ix = [lw.one("path.get", ix[0], span=span, field="node", tree=t.dims[0].of if t.dims else "t")]
    if v in lw.unplaced and t.dims and t.dims[0].kind == "part" and ix[0].type.elem in ("position", "node"):
        place = ix[0].type.elem
        lw.fail(
            span,
            f"a {place} cannot look into distributions that are computed from numbers: these do not know which {place}s "
            "they are of",
            "index what they are computed from: normalize(p[left].raw ^ 2); or count: q[k] is that of b[k]",
            code="E382",
        )
    if t.elem in ("dist", "scores"):
        if ix[0].type.is_token or (ix[0].type.elem == "int" and len(t.dims) == 0):
            return lw.one("lookup", v, ix[0], span=span)
        out = lw.one("gather", v, *ix[: len(t.dims)], span=span)
        return out
    if (
        t.dims
        and t.dims[-1].kind == "vocab"
        and len(ix) == 1
        and ix[0].type.is_token
        and (len(t.dims) == 1 or t.dims[0].kind != "vocab")
    ):
        return lw.one("lookup", v, ix[0], span=span)
    return lw.one("gather", v, *ix, span=span)


def tree_value(lw: Lowering, node: Value, span: Span) -> Value:
    """The tree that a node belongs to, as it is now."""
    name = str(node.type.of[0])
    for key in (name, *lw.env):
        v = lw.env.get(key)
        if v is not None and v.type.elem == "tree" and v.type.of[0] == name:
            return v
    if name in lw.states:
        return lw.expr(S.Name(name, span=span))
    lw.fail(span, f"this node belongs to tree `{name}`, which is not in reach here", code="E230")
