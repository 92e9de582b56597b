"""Calls of models: at a context, a tree, a canvas or other tokens; their memories and attention; heads and hidden states."""

from __future__ import annotations

from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.access import tree_value
from decgraph.dsl.lower.state import Lowering
from decgraph.ir.ops.common import is_text
from decgraph.ir.values import Value


def model_call(lw: Lowering, model: Value, e: S.Call, part: str = "") -> Value:
    """`target(ctx)`, `target(t)`, `head(ns, given = m)`, `model(c, at = b)`."""
    if model.type.of[0] in ("layers", "adapter"):
        if len(e.args) != 1 or e.kwargs:
            lw.fail(e.span, "an adapter is applied to a trunk of layers", "adapter(target.upto(l))", code="E231")
        return lw.one("model.derive", model, lw.expr(e.args[0]), span=e.span, how="adapter")
    if len(e.args) != 1:
        lw.fail(
            e.span,
            f"a model is evaluated at one place, got {len(e.args)}",
            "target(ctx), target(t), target(t.leaves), model(c)",
            code="E260",
        )
    place, tree = place_of(lw, model, e.args[0])
    same_vocabulary(lw, model, place, e)
    if model.type.of[0] == "trunk":
        return states_call(lw, model, place, tree, e)
    if model.type.of[0] == "causal" and is_text(place.type):
        return second_context(lw, model, place, e, part)
    if model.type.of[0] == "head":
        return head_call(lw, model, place, tree, e)
    extra: dict[str, Value] = {}
    if tree is not None:
        extra["tree"] = tree
    for k in e.kwargs:
        if k.name not in ("at", "given", "allow", "after"):
            lw.fail(k.span, f"a model call takes at =, given =, allow = and after =, not {k.name} =", code="E260")
        extra[k.name] = lw.expr(k.value)
    names = [n for n in ("tree", "at", "given", "allow", "after") if n in extra]
    attrs: dict[str, Any] = {"with": tuple(names)}
    if part:
        attrs["part"] = part
    kept = "after" not in extra  # a policy's memory is of the request's own context
    if kept and model.type.of[0] == "masked" and place.type.elem in ("canvas", "tree") and model.name in lw.policies:
        from decgraph.dsl.lower.policies import governed_call

        return governed_call(lw, model, place, extra, e)
    return lw.emit("model.eval", model, place, *[extra[n] for n in names], span=e.span, **attrs)[0]


def same_vocabulary(lw: Lowering, model: Value, place: Value, e: S.Call) -> None:
    """Refuses a model at tokens of another vocabulary than its own."""
    text = place.type.elem in ("path", "token", "draw")
    theirs = str(place.type.vocab) if text else lw.vocab
    if place.type.elem != "int" and model.type.vocab != theirs:
        lw.fail(
            e.span,
            f"`{model.name or 'the model'}` reads tokens of `{model.type.vocab}`, and these are of `{theirs}`",
            "model small = drafter.speaking(target) reads the target's; retokenize(tokens, drafter) makes them the drafter's",
            code="E240",
        )


def second_context(lw: Lowering, model: Value, tokens: Value, e: S.Call, part: str = "", each: bool = False) -> Value:
    """`target(other ++ ctx)`, `target.each(tokens)`: a model on other tokens than the request's."""
    if part:
        lw.fail(e.span, "heads are read at the request's context", "target.heads(ctx.parent)", code="E260")
    given = [lw.expr(k.value) for k in e.kwargs if k.name == "given" and not each]
    for k in e.kwargs:
        if k.name == "given" and not each:
            continue
        hint = "put tokens to 0 in the distribution that they make" if k.name == "allow" else "target(tokens, given = m)"
        lw.fail(k.span, f"a call on tokens takes no {k.name} =", hint, code="E260")
    attrs: dict[str, Any] = ({"each": True} if each else {}) | ({"given": True} if given else {})
    return lw.one("model.read", model, tokens, *given, span=e.span, **attrs)


def place_of(lw: Lowering, model: Value, e: S.Expr) -> tuple[Value, Value | None]:
    """Where a model is evaluated: (place, tree of its nodes)."""
    v = lw.token(lw.expr(e))
    if v.type.elem == "node" and v.type.of[0] != "ctx":
        return v, tree_value(lw, v, e.span)
    return v, None


def skipped(lw: Lowering, model: Value, e: S.Call) -> Value:
    """`target.skip(attention = [1], mlp = [2])`: a model without those halves of its layers."""
    for k in e.kwargs:
        if k.name not in ("attention", "mlp"):
            lw.fail(
                k.span,
                f"skip takes attention = and mlp =, not {k.name} =",
                "target.skip(attention = [1, 3], mlp = [2])",
                code="E260",
            )
    if e.args:
        lw.fail(
            e.span,
            "skip takes whole layers, or attention = and mlp =, not both",
            "a layer named in both is skipped as a whole",
            code="E260",
        )
    names = tuple(k.name for k in e.kwargs)
    return lw.one("model.derive", model, *[lw.expr(k.value) for k in e.kwargs], span=e.span, how="skip", named=names)


TAKES = {"memory": ("at", "given", "queries"), "attention": ("given", "last")}
"""By method: its keyword arguments."""


def memory_call(lw: Lowering, model: Value, e: S.Call, name: str) -> Value:
    """`model.memory(place)` or `model.attention(place)`."""
    if len(e.args) != 1:
        of = "memory is of one place: a context, a node, tokens or a canvas"
        read = "attention is read at one place: a context, a node or tokens"
        lw.fail(e.span, of if name == "memory" else read, f"target.{name}(ctx.parent)", code="E260")
    place, tree = place_of(lw, model, e.args[0])
    extra: dict[str, Value] = {} if tree is None else {"tree": tree}
    more: dict[str, Any] = {}
    for k in e.kwargs:
        if k.name not in TAKES[name]:
            takes = ", ".join(f"{n} =" for n in TAKES[name][:-1]) + f" and {TAKES[name][-1]} ="
            wanted = "target.attention(ctx) is how much attention each position gets" if k.name == "attention" else ""
            lw.fail(k.span, f"{name} takes {takes}, not {k.name} =", wanted, code="E260")
        if k.name != "queries":
            extra[k.name] = lw.expr(k.value)
        elif not isinstance(k.value, S.Name) or k.value.name not in ("yes", "no", "true", "false"):
            lw.fail(k.value.span, "queries = takes yes or no", "model.memory(c, queries = yes)", code="E260")
        elif k.value.name in ("yes", "true"):
            more["queries"] = True
    names = tuple(x for x in ("tree", "at", "given", "last") if x in extra)
    more["with" if name == "memory" else "named"] = names
    return lw.one(f"model.{name}", model, place, *[extra[x] for x in names], span=e.span, **more)


def merged(lw: Lowering, memory: Value, e: S.Call) -> Value:
    """`m.merged(positions, groups)`; memory: the value that it is called on, a memory of a model (no size)."""
    if len(e.args) != 2 or e.kwargs:
        lw.fail(e.span, "merged takes positions and their groups", "m.merged(i, int(i / 2))", code="E260")
    return lw.one("memory.merged", memory, *[lw.expr(a) for a in e.args], span=e.span)


def head_call(lw: Lowering, head: Value, place: Value, tree: Value | None, e: S.Call) -> Value:
    """A head with one value: `judge(t.leaves)`, `router(h, layer = l)`, `sure(h, token = x)`."""
    for k in e.kwargs:
        if k.name not in ("layer", "token") or place.type.elem != "hidden":
            lw.fail(
                k.span,
                "a head with one value takes a place, and of hidden states layer = and token =, and nothing else",
                "judge(t.leaves), router(target.upto(l)(ctx), layer = l)",
                code="E260",
            )
    read = lw.env.get(str(head.type.of[2]))
    if place.type.elem != "hidden" and read is not None and read.type.elem == "model" and read.type.of[0] == "features":
        lw.fail(
            e.span,
            f"`{head.name}` reads the states of `{read.name}`, which are made of its target's",
            f"{head.name}({read.name}.states(t.leaves, given = target.memory(ctx.parent)))",
            code="E260",
        )
    extra = {n: lw.expr(k.value) for n in ("layer", "token") for k in e.kwargs if k.name == n}
    attrs: dict[str, Any] = {"named": tuple(extra)} if extra else {}
    if head.type.of[3] == "dist":
        return lw.one("head.score", head, place, *extra.values(), span=e.span, **attrs)
    return lw.one("head.read", head, place, *extra.values(), *([] if tree is None else [tree]), span=e.span, **attrs)


def with_norm(lw: Lowering, model: Value, of: Value, e: S.Call, what: str) -> Value:
    """`target.head(target.upto(2), norm = no)`, `target.upto(2, norm = yes)`."""
    (k,) = e.kwargs[:1]
    if k.name != "norm" or len(e.kwargs) > 1 or not isinstance(k.value, S.Name) or k.value.name not in ("yes", "no"):
        takes = "a trunk" if what == "head" else "a number of layers"
        hint = "target.head(target.upto(2), norm = no), target.upto(2, norm = yes)"
        lw.fail(k.span, f"{what} takes {takes} and norm = yes or no", hint, code="E260")
    how = {("head", "no"): "bare", ("upto", "yes"): "normed"}.get((what, k.value.name), what)
    return lw.one("model.derive", model, of, span=e.span, how=how)


def states_call(lw: Lowering, trunk: Value, place: Value, tree: Value | None, e: S.Call, *, each: bool = False) -> Value:
    """`target.upto(2)(ctx)`, `small.upto(2)(t.leaves, given = m)`, `target.upto(2).each(tokens)`."""
    extra: dict[str, Value] = {} if tree is None else {"tree": tree}
    text = is_text(place.type)
    if each and not text:
        lw.fail(e.span, ".each takes the tokens of a second context", "target.upto(2).each(tokens)", code="E260")
    for k in e.kwargs:
        if k.name != ("at" if place.type.elem == "canvas" else "given") or text or each:
            lw.fail(k.span, f"states of {'other tokens' if text or each else 'a trunk'} take no {k.name} =", code="E260")
        extra[k.name] = lw.expr(k.value)
    attrs: dict[str, Any] = {"named": tuple(extra)} if extra else {}
    if each:
        attrs["each"] = True
    return lw.one("model.states", trunk, place, *extra.values(), span=e.span, **attrs)
