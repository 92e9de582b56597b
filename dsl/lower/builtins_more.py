"""Functions over trees, canvases, stores and texts; importing this fills the table of `builtins.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.access import tree_value
from decgraph.dsl.lower.builtins import args, builtin, name_of, static
from decgraph.dsl.lower.sizes import size
from decgraph.dsl.lower.state import Lowering
from decgraph.dsl.lower.wording import show
from decgraph.ir.types import Dim
from decgraph.ir.values import Value


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
