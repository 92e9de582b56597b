"""The functions that every program can call, by name: those that ops declare (ir/table.py), and what is more than a plain op
call, below. Each is a few lines over the op table: no algorithm lives here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.access import tree_value
from decgraph.dsl.lower.sizes import size
from decgraph.dsl.lower.state import Lowering, show
from decgraph.ir.table import Surface, surface
from decgraph.ir.types import INT, Dim, Type
from decgraph.ir.values import Value

TABLE: dict[str, Callable[[Lowering, S.Call], Value]] = {}
METHODS = {
    "model": "models have .memory(n), .heads(n), .exit(l), .skip(layers), .skip(attention = .., mlp = ..), .speaking(m), "
    ".expert(rank), .upto(l), .parallel(n), .quantized(bits), .head(trunk), .embed(x)",
    "memory": "memories have .only(positions), .without(positions), .quantized(bits), .merged(positions, groups), "
    ".join(other), .scores(positions), and layers: m[l]",
    "canvas": "canvases have .extend(k)",
    "index": "indexes have .has(tokens), .matched(node), .after(tokens), .path(node, at_least =, at_most =, pick =)",
    "automaton": "automata have .start, .live, .allowed(s), .step(s, x), .state(ctx), .run(s, xs), .weights(s)",
}


def name_of(e: S.Call) -> str:
    """The name that is called."""
    return e.func.name if isinstance(e.func, S.Name) else "this"


WRITTEN = ("by", "descending", "replace", "over")
"""Options that are read as they are written, not as one value."""


def args(
    lw: Lowering, e: S.Call, low: int, high: int | None = None, kw: tuple[str, ...] = ()
) -> tuple[list[Value], dict[str, Value]]:
    """Lowered arguments, with their number and names checked."""
    high = low if high is None else high
    fname = name_of(e)
    if not low <= len(e.args) <= high:
        want = str(low) if low == high else f"{low} to {high}"
        lw.fail(e.span, f"{fname} takes {want} argument{'s' if want != '1' else ''}, got {len(e.args)}", code="E260")
    for k in e.kwargs:
        if k.name not in kw:
            lw.fail(
                k.name_span or k.span,
                f"{fname} has no option `{k.name}`",
                f"it has {', '.join(kw)}" if kw else "it has none",
                code="E260",
            )
    return [lw.expr(a) for a in e.args], {k.name: lw.expr(k.value) for k in e.kwargs if k.name not in WRITTEN}


def builtin(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Enters a function into TABLE under each name."""

    def register(f: Callable[..., Value]) -> Callable[..., Value]:
        for n in names:
            if n in surface():
                raise TypeError(f"{n}(...) is declared by op {surface()[n].opcode}")
            TABLE[n] = f
        return f

    return register


def _plain(form: Surface) -> Callable[[Lowering, S.Call], Value]:
    """A call of an op by the name that the op declares."""

    def call(lw: Lowering, e: S.Call) -> Value:
        most = len(form.parameters)
        a, _ = args(lw, e, most - form.optional, most)
        return lw.one(form.opcode, *a, span=e.span, **form.attrs)

    return call


TABLE.update((name, _plain(form)) for name, form in surface().items())


@builtin("len")
def length(lw: Lowering, e: S.Call) -> Value:
    """How many there are; of a span inside `unmask` those of the span, masked or not."""
    (x,), _ = args(lw, e, 1)
    return lw.one("len", lw.narrowed.get(x, x), span=e.span)


@builtin("any", "all", "count", "mean", "sum", "ratio")
def fold(lw: Lowering, e: S.Call) -> Value:
    """Folds of one dimension; `over =` names another than the last."""
    fn = name_of(e)
    (x,), _ = args(lw, e, 1, kw=("over",))
    if fn == "mean" and x.type.elem == "hidden":
        return lw.one("hidden.mean", x, span=e.span)
    over = next((k.value.value for k in e.kwargs if k.name == "over" and isinstance(k.value, S.String)), "")
    if lw.in_batch and not x.type.dims and fn in ("any", "all", "sum"):
        return lw.one("batch.fold", x, span=e.span, fn=fn)
    if fn == "ratio":
        n = lw.one("len", x, span=e.span)
        return lw.one("map", lw.one("reduce", x, span=e.span, fn="count"), n, span=e.span, fn="div")
    return lw.one("reduce", x, span=e.span, fn=fn, **({"over": over} if over else {}))


@builtin("max", "min")
def extreme(lw: Lowering, e: S.Call) -> Value:
    """The largest entry of a vector, or the larger of two numbers."""
    fn = name_of(e)
    if len(e.args) == 1:
        (x,), _ = args(lw, e, 1)
        if lw.in_batch and not x.type.dims:
            return lw.one("batch.fold", x, span=e.span, fn=fn)
        return lw.one("reduce", x, span=e.span, fn=fn)
    a, _ = args(lw, e, 2, 8)
    out = a[0]
    for b in a[1:]:
        out = lw.one("map", out, b, span=e.span, fn="maximum" if fn == "max" else "minimum")
    return out


def _keys(lw: Lowering, e: S.Call) -> list[Value]:
    by = e.kwarg("by")
    if by is None:
        return []
    items = by.items if isinstance(by, S.ListExpr) else (by,)
    return [lw.expr(b) for b in items]


@builtin("argmax", "argmin")
def arg(lw: Lowering, e: S.Call) -> Value:
    """The best token of a distribution, or of candidates the one with the best `by`."""
    fn = name_of(e)[3:]
    if len(e.args) != 1:
        args(lw, e, 1, kw=("by",))
    x = lw.expr(e.args[0])
    for k in e.kwargs:
        if k.name != "by":
            lw.fail(k.span, f"arg{fn} has no option `{k.name}`", "it has by = key", code="E260")
    keys = [at_candidates(lw, x, k, e) for k in _keys(lw, e)]
    return lw.emit("arg", x, *keys, span=e.span, fn=fn)[0]


def at_candidates(lw: Lowering, x: Value, key: Value, e: S.Call) -> Value:
    """A key over a whole tree or canvas, read at candidates that are part of it."""
    if x.type.elem in ("node", "position") and x.type.dims and key.type.dims and key.type.dims[0].kind in ("nodes", "cells"):
        if x.type.dims[0].kind != "nodes":
            return lw.one("gather", key, x, span=e.span)
    return key


def static(v: Value, lw: Lowering) -> int | None:
    """The upper bound of a number, where it is known: a constant, or a parameter's range."""
    return lw.upper(v)


@builtin("topk")
def topk(lw: Lowering, e: S.Call) -> Value:
    (q, k), _ = args(lw, e, 2)
    if q.type.elem == "node" or q.type.elem == "draw":
        lw.fail(
            e.span,
            f"topk takes a distribution, got {show(q.type)}",
            "choose among nodes with top(nodes, k, by = key)",
            code="E210",
        )
    return lw.one("topk", q, k, span=e.span, bound=static(k, lw))


@builtin("top")
def top(lw: Lowering, e: S.Call) -> Value:
    """The k best candidates by a key; of a condition over positions, the k best positions where it holds."""
    (x, k), _ = args(lw, e, 2, kw=("by",))
    keys = [at_candidates(lw, x, key, e) for key in _keys(lw, e)]
    if x.type.elem == "bool" and x.type.dims and x.type.dims[0].kind in ("cells", "part"):
        x2 = lw.one("take_first", x, lw.one("len", x, span=e.span), span=e.span)
        keys = [lw.one("gather", key, x2, span=e.span) if key.type.dims else key for key in keys]
        x = x2
    race = any(o == "race" for o in (getattr(kx, "name", "") for kx in [e.kwarg("by")] if isinstance(kx, S.Attr)))
    attrs: dict[str, Any] = {"bound": static(k, lw)}
    if race:
        attrs["by_race"] = True
    if len(x.type.dims) > 1:
        attrs["flatten"] = True
    if lw.in_batch:
        return lw.emit("batch.top", x, k, *keys, span=e.span)[0]
    return lw.emit("select.top", x, k, *keys, span=e.span, **attrs)[0]


@builtin("first")
def first(lw: Lowering, e: S.Call) -> Value:
    """The first k of a vector (or the single first one)."""
    a, _ = args(lw, e, 1, 2)
    k = a[1] if len(a) > 1 else lw.const(1)
    return lw.one("take_first", a[0], k, span=e.span, bound=static(k, lw))


@builtin("sort")
def sort(lw: Lowering, e: S.Call) -> Value:
    (x,), kw = args(lw, e, 1, kw=("by", "descending"))
    keys = [at_candidates(lw, x, k, e) for k in _keys(lw, e)]
    d = e.kwarg("descending")
    down = isinstance(d, S.Name) and d.name in ("yes", "true")
    return lw.emit("sort", x, *keys, span=e.span, descending=down)[0]


@builtin("range_")
def range_(lw: Lowering, e: S.Call) -> Value:
    a, _ = args(lw, e, 1, 2)
    a = [size(lw, x, e.span, "an end of range_") for x in a]
    return lw.one("tile", *a, span=e.span, kind="iota", bound=static(a[-1], lw))


@builtin("zeros")
def zeros(lw: Lowering, e: S.Call) -> Value:
    """Zeros over sizes; `vocab` is a size, a span stands for its positions."""
    dims, sizes = [], []
    for a in e.args:
        if isinstance(a, S.Name) and a.name == "vocab" and "vocab" not in lw.env:
            dims.append(Dim("vocab", lw.vocab))
            continue
        v = lw.expr(a)
        if v.type.dims:
            dims.append(v.type.dims[0])
            sizes.append(lw.one("len", v, span=e.span))
        else:
            v = size(lw, v, a.span, "a size of zeros")
            dims.append(Dim("k", "", static(v, lw)))
            sizes.append(v)
    return lw.emit("tile", *sizes, span=e.span, kind="zeros", dims=tuple(dims))[0]


@builtin("tile", "repeat_")
def tile(lw: Lowering, e: S.Call) -> Value:
    (x, n), _ = args(lw, e, 2)
    n = size(lw, n, e.span, f"the length of {name_of(e)}")
    return lw.one("tile", x, n, span=e.span, kind="tile", bound=static(n, lw))


@builtin("spread")
def spread(lw: Lowering, e: S.Call) -> Value:
    """n positions over k steps."""
    (n, k), _ = args(lw, e, 2)
    return lw.one("schedule", n, size(lw, k, e.span, "the number of steps"), span=e.span)


@builtin("sample")
def sample(lw: Lowering, e: S.Call) -> Value:
    """k draws from a distribution: `replace = no` for draws without replacement."""
    (q, k), kw = args(lw, e, 2, kw=("replace",))
    r = e.kwarg("replace")
    k = size(lw, k, e.span, "the number of samples")
    replace = not (isinstance(r, S.Name) and r.name in ("no", "false"))
    return lw.one("draw.many", q, k, lw.noise("race", e.span), span=e.span, replace=replace, bound=static(k, lw))


@builtin("shuffle")
def shuffle(lw: Lowering, e: S.Call) -> Value:
    """A vector in random order, every order equally likely: places drawn without replacement from equal weights."""
    (x,), _ = args(lw, e, 1)
    n = lw.one("len", x, span=e.span)
    ones = lw.one("tile", lw.const(1), n, span=e.span, kind="tile", dim="vocab", of="places")
    places = lw.one("normalize", ones, span=e.span)
    order = lw.one("draw.many", places, n, lw.noise("race", e.span), span=e.span, replace=False)
    return lw.one("gather", x, lw.one("as_int", order, span=e.span), span=e.span)


@builtin("race")
def race(lw: Lowering, e: S.Call) -> Value:
    """Every token with its race key, for stochastic beams: `under =` the parent's key."""
    (q,), kw = args(lw, e, 1, kw=("under",))
    extra = [kw["under"]] if "under" in kw else []
    return lw.emit("draw.race", q, lw.noise("race", e.span), *extra, span=e.span, has_under=bool(extra))[0]


@builtin("bernoulli")
def bernoulli(lw: Lowering, e: S.Call) -> Value:
    (p,), _ = args(lw, e, 1)
    return lw.one("bernoulli", p, lw.noise("unit", e.span), span=e.span)


@builtin("uniform")
def uniform(lw: Lowering, e: S.Call) -> Value:
    """The uniform distribution over the vocabulary."""
    return lw.one(
        "normalize",
        lw.one(
            "map", lw.one("tile", span=e.span, kind="zeros", dims=(Dim("vocab", lw.vocab),)), lw.const(1), span=e.span, fn="add"
        ),
        span=e.span,
    )


@builtin("warp", "adjust")
def warp(lw: Lowering, e: S.Call) -> Value:
    """The request's shaping, applied to scores at a place; `adjust` stops before temperature and truncation."""
    (s,), kw = args(lw, e, 1, kw=("at",))
    at = kw.get("at")
    extra: list[Value] = []
    if at is not None:
        extra = [at]
        if at.type.elem == "node" and at.type.of[0] != "ctx":
            extra.append(tree_value(lw, at, e.span))
    return lw.emit(name_of(e), s, *extra, span=e.span)[0]


__all__ = ["INT", "METHODS", "TABLE", "Dim", "Type", "args"]


# -- trees, canvases, stores and texts


@builtin("down", "up")
def fold_tree(lw: Lowering, e: S.Call) -> Value:
    """down(t, column, op) folds along paths from the root, up(t, column, op) over subtrees."""
    if len(e.args) != 3 or not isinstance(e.args[2], S.Name) or e.args[2].name not in ("all", "any", "sum", "max", "min"):
        lw.fail(e.span, "down and up take a tree, a column and one of all, any, sum, max, min", "down(t, ok, all)", code="E260")
    t, v = lw.expr(e.args[0]), lw.expr(e.args[1])
    return lw.one("tree." + name_of(e), t, v, span=e.span, fn=e.args[2].name)


@builtin("chain")
def chain(lw: Lowering, e: S.Call) -> Value:
    lw.fail(e.span, "chain(...) is what `grow` grows", "say grow chain(x), or grow chain(x) at n", code="E260")


def best(lw: Lowering, e: S.Call) -> tuple[Value, ...]:
    """The k best of rows times vocabulary: their rows, tokens and scores."""
    (scores, k), _ = args(lw, e, 2)
    return lw.emit("pairs.top", scores, k, span=e.span, bound=static(k, lw))


def relax(lw: Lowering, e: S.Call) -> tuple[Value, ...]:
    """One step of the best path through an automaton: scores, states they come from, tokens."""
    a, _ = args(lw, e, 3)
    return lw.emit("relax", *a, span=e.span)


SEVERAL: dict[str, tuple[Callable[[Lowering, S.Call], tuple[Value, ...]], str]] = {
    "best": (best, "rows, tokens, scores = best(s, k)"),
    "relax": (relax, "w, back, token = relax(g, w, s)"),
}


@builtin(*SEVERAL)
def several(lw: Lowering, e: S.Call) -> Value:
    name = name_of(e)
    lw.fail(e.span, f"{name}(...) gives three values", SEVERAL[name][1], code="E260")


@builtin("best_first")
def best_first(lw: Lowering, e: S.Call) -> Value:
    lw.fail(e.span, "best_first(...) is what `grow` grows", "grow best_first(index.after(m), size = n, above = p)", code="E260")


@builtin("soft")
def soft(lw: Lowering, e: S.Call) -> Value:
    """An embedding as an edge: a node that has no token."""
    (h,), _ = args(lw, e, 1)
    if h.type.elem != "embedding" or h.type.dims:
        lw.fail(e.span, f"soft takes one embedding, got {show(h.type)}", "soft(target.embed(weights))", code="E210")
    return h


@builtin("counts")
def counts(lw: Lowering, e: S.Call) -> Value:
    """How often each token of the vocabulary is among tokens."""
    (x,), _ = args(lw, e, 1)
    zero = lw.emit("tile", span=e.span, kind="zeros", dims=(Dim("vocab", x.type.vocab or lw.vocab),))[0]
    return lw.one("scatter", zero, lw.const(1), x, span=e.span, mode="sum")


@builtin("edit")
def edit(lw: Lowering, e: S.Call) -> Value:
    if len(e.args) == 2 and isinstance(e.args[1], S.Name) and e.args[1].name == "mask_":
        lw.fail(
            e.span,
            "an edit decides a cell, and the mask is no token that a cell is decided with",
            "mask it again and call the model: remask c[[i]] where yes, then p = model(c)",
        )
    (i, x), _ = args(lw, e, 2)
    c = str(i.type.of[0]) if i.type.of else "c"
    return lw.one("edit", i, x, span=e.span, canvas=c)


@builtin("ended")
def ended(lw: Lowering, e: S.Call) -> Value:
    (n,), _ = args(lw, e, 1)
    return lw.one("ended", *_with_tree(lw, n, e), span=e.span)


def _with_tree(lw: Lowering, n: Value, e: S.Call) -> list[Value]:
    if n.type.elem == "node" and n.type.of[0] != "ctx":
        return [n, tree_value(lw, n, e.span)]
    return [n]


@builtin("text_of")
def text_of(lw: Lowering, e: S.Call) -> Value:
    (n,), _ = args(lw, e, 1)
    return lw.one("text_of", *_with_tree(lw, n, e), span=e.span)


@builtin("retokenize")
def retokenize(lw: Lowering, e: S.Call) -> Value:
    """retokenize(tokens, model): the model's tokens with the same text."""
    (tokens, to), _ = args(lw, e, 2)
    whole = tokens.type.elem == "node" and tokens.type.of[0] == "ctx"
    if whole:
        tokens = lw.one("ctx.get", tokens, span=e.span, field="path", vocab=lw.vocab)
    vocab = tokens.type.vocab or lw.vocab
    models = (v for v in lw.env.values() if v.type.elem == "model" and v.type.of[0] in ("causal", "masked"))
    source = next((v for v in models if v.type.vocab == vocab), None)
    if source is None:
        lw.fail(
            e.span,
            f"retokenize reads tokens of `{vocab}`, and no model here has that vocabulary",
            "a helper takes the model whose tokens they are as a parameter too",
            code="E230",
        )
    attrs: dict[str, Any] = {"whole": True} if whole else {}
    return lw.one("retokenize", tokens, source, to, span=e.span, **attrs)


@builtin("completes")
def completes(lw: Lowering, e: S.Call) -> Value:
    """Whether the path so far (in `until`), or a path that is named, holds the text."""
    a, _ = args(lw, e, 1, 2)
    if len(a) == 1 and not lw.path_scope:
        lw.fail(
            e.span,
            "completes(...) without a path is a condition of `run ... until`",
            'elsewhere name the path: s = run ..., then completes("text", s)',
            code="E260",
        )
    return lw.one("completes", a[1] if len(a) == 2 else lw.path_scope[-1], a[0], span=e.span)


@builtin("blocks")
def blocks(lw: Lowering, e: S.Call) -> Value:
    (c, k), _ = args(lw, e, 2)
    return lw.one("positions", c, k, span=e.span, kind="blocks", bound=static(k, lw))


@builtin("from_")
def from_(lw: Lowering, e: S.Call) -> Value:
    a, _ = args(lw, e, 1, 2)
    c = a[0] if len(a) == 2 else canvas_near(lw, e)
    return lw.one("positions", c, a[-1], span=e.span, kind="from")


@builtin("before")
def before(lw: Lowering, e: S.Call) -> Value:
    a, _ = args(lw, e, 1, 2)
    c = a[0] if len(a) == 2 else canvas_near(lw, e)
    return lw.one("positions", c, a[-1], span=e.span, kind="before")


def canvas_near(lw: Lowering, e: S.Call) -> Value:
    """The canvas declared last; an error at the call where there is none."""
    found = [v for v in lw.env.values() if v.type.elem == "canvas"]
    if not found:
        lw.fail(e.span, "there is no canvas here to take positions of", "declare one: canvas c: length", code="E260")
    return found[-1]


@builtin("settled")
def settled(lw: Lowering, e: S.Call) -> Value:
    """In a policy: the positions that were decided n calls ago."""
    n = int(e.args[1].value) if len(e.args) == 2 and isinstance(e.args[1], S.Number) else 0
    if not 1 <= n <= len(lw.history):
        lw.fail(
            e.span,
            "settled(c, n) stands in a cache policy, with n a number from 1 to 8",
            "recompute all - settled(c, 2)",
            code="E260",
        )
    return lw.history[n - 1]


@builtin("last")
def last(lw: Lowering, e: S.Call) -> Value:
    (x,), _ = args(lw, e, 1)
    return lw.one("gather", x, lw.const(-1), span=e.span)


@builtin("beta")
def beta(lw: Lowering, e: S.Call) -> Value:
    lw.fail(e.span, "beta(a, b) is drawn from", "say theta ~ beta(a, b)", code="E260")


@builtin("suffixes", "ngrams")
def new_index(lw: Lowering, e: S.Call) -> Value:
    a, _ = args(lw, e, 0, 2)
    return lw.one("index.new", *a, span=e.span, kind=name_of(e), vocab=lw.vocab)


@builtin("cycle")
def cycle(lw: Lowering, e: S.Call) -> Value:
    """The first n of a vector that is repeated without end."""
    (x, n), _ = args(lw, e, 2)
    n = size(lw, n, e.span, "the length of cycle")
    i = lw.one("tile", n, span=e.span, kind="iota", bound=static(n, lw))
    return lw.one("gather", x, lw.one("map", i, lw.one("len", x, span=e.span), span=e.span, fn="mod"), span=e.span)


@builtin("onehot")
def onehot(lw: Lowering, e: S.Call) -> Value:
    (x,), _ = args(lw, e, 1)
    d = lw.one("draw.point", x, span=e.span)
    return lw.one("draw.get", d, span=e.span, field="law")


@builtin("only")
def only(lw: Lowering, e: S.Call) -> Value:
    """The one token that a condition over the vocabulary allows."""
    (x,), _ = args(lw, e, 1)
    return lw.one("arg", lw.one("map", x, lw.const(1), lw.const(0), span=e.span, fn="select"), span=e.span, fn="max")
