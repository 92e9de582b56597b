"""Heads whose output is no distribution: one value after every text."""

from __future__ import annotations

from typing import Any

from decgraph.ir.labels import Abs, Checker
from decgraph.ir.opdef import op
from decgraph.ir.ops.common import need, need_one
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


@op("head.read")
class HeadRead:
    """What a head with one value after every text (`head(target) -> prob`) says: after a context or path, at nodes (place, then
    the tree), at every node of a tree. A function of the target's state there, and so of the tokens up to there. Of hidden
    states: what the head says of them. Attribute named: the names of the further operands of such a call, of "layer" (whose
    part of the head is asked) and "token" (one beside each state), in this order."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        model, place = types[0], types[1]
        need(model.elem == "model", f"a head needs a model, got {model}")
        need(model.of[0] == "head", f"this reads a head's value, got a {model.of[0]} model")
        need(
            place.elem in ("node", "path", "hidden") or place.elem == "tree" and place.of[1] != "edit",
            f"a head is read after a context, at nodes of a tree or after a path, got {place}",
            "say judge(ctx), judge(t) or judge(t.leaves)",
        )
        extra = dict(zip(attrs.get("named", ()), types[2:]))
        if "layer" in extra:
            need_one(extra["layer"], "layer =")
        if "token" in extra:
            token = extra["token"]
            need(
                place.elem == "hidden" and (token.is_token or token.elem == "int") and len(token.dims) == len(place.dims),
                f"token = is a token beside each hidden state, got {token}",
                "sure(head.states(t.leaves, given = m), token = t.token[t.leaves])",
            )
        out = Type(str(model.of[3]))
        return (out.with_dims((Dim("nodes", str(place.of[0])),) if place.elem == "tree" else place.dims),)

    def meaning(m: Any, op: Any, model: Any, place: Any, *rest: Any) -> Any:
        if op.operands[1].type.elem == "hidden":
            return (m.read_states(op, model, place, **dict(zip(op.attrs.get("named", ()), rest))),)
        return (m.read_head(op, model, place, *(rest or (None,))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        place = c.of(op.operands[1])
        if op.operands[1].type.elem == "hidden":
            return [Abs(frozenset().union(*(c.of(v).reads for v in op.operands[1:])))]
        return [Abs(frozenset(), place.draws, column=True) if op.operands[1].type.elem == "tree" else Abs(place.reads)]

    attrs = ("named?",)
    batch, exact = "ragged", "adversary"
    samples = (
        ("%z = head.read(%judge, %ctx)", 0.5),
        ("%z = head.read(%judge, %path)", 0.5),
        ("%z = head.read(%judge, %ns, %t)", ...),
        ("%z = head.read(%judge, %t)", ...),
        ('%z = head.read(%judge, %h, %n, named = ("layer",))', [0.5]),
        ('%z = head.read(%judge, %h, %lone, named = ("token",))', [0.5]),
    )
    refusals = (
        ("int, node<ctx>", "model"),
        ("model<causal,V,m,causal>, node<ctx>", "head"),
        ("model<head,V,m,prob>, int", "judge(ctx)"),
        ("model<head,V,m,prob>, hidden<m>[k], token<V>", "beside each", {"named": ("token",)}),
    )
