"""Calls of trunks: hidden states as values."""

from __future__ import annotations

from typing import Any

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.state import Lowering
from decgraph.ir.ops.common import is_text
from decgraph.ir.values import Value


def head_operands(lw: Lowering, place: Value, tree: Value | None, e: S.Call) -> list[Value]:
    """What a head with one value is given besides its place: `judge(t.leaves)`, `router(h, layer = l)`."""
    for k in e.kwargs:
        if k.name != "layer" or place.type.elem != "hidden":
            lw.fail(
                k.span,
                "a head with one value takes a place, and of hidden states layer =, and nothing else",
                "judge(t.leaves), router(target.upto(l)(ctx), layer = l)",
                code="E260",
            )
    return [lw.expr(k.value) for k in e.kwargs] + ([] if tree is None else [tree])


def bare_head(lw: Lowering, model: Value, trunk: Value, e: S.Call) -> Value:
    """`target.head(target.upto(2), norm = no)`."""
    (k,) = e.kwargs[:1]
    if k.name != "norm" or len(e.kwargs) > 1 or not isinstance(k.value, S.Name) or k.value.name not in ("yes", "no"):
        lw.fail(k.span, "head takes a trunk and norm = yes or no", "target.head(target.upto(2), norm = no)", code="E260")
    return lw.one("model.derive", model, trunk, span=e.span, how="bare" if k.value.name == "no" else "head")


def states_call(lw: Lowering, trunk: Value, place: Value, tree: Value | None, e: S.Call, *, each: bool = False) -> Value:
    """`target.upto(2)(ctx)`, `small.upto(2)(t.leaves, given = m)`, `target.upto(2).each(tokens)`."""
    extra: dict[str, Value] = {} if tree is None else {"tree": tree}
    text = is_text(place.type)
    for k in e.kwargs:
        if k.name != "given" or text or each:
            lw.fail(k.span, f"states of {'other tokens' if text or each else 'a trunk'} take no {k.name} =", code="E260")
        extra[k.name] = lw.expr(k.value)
    attrs: dict[str, Any] = {"named": tuple(extra)} if extra else {}
    if each:
        attrs["each"] = True
    return lw.one("model.states", trunk, place, *extra.values(), span=e.span, **attrs)
