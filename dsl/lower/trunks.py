"""Calls of trunks: hidden states as values."""

from __future__ import annotations

from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.state import Lowering
from decgraph.ir.ops.common import is_text
from decgraph.ir.values import Value


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
