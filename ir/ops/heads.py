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
    states (then perhaps a layer's number): what the head, or that layer's part of it, says of them."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        model, place = types[0], types[1]
        need(model.elem == "model", f"a head needs a model, got {model}")
        need(model.of[0] == "head", f"this reads a head's value, got a {model.of[0]} model")
        need(
            place.elem in ("node", "path", "hidden") or place.elem == "tree" and place.of[1] != "edit",
            f"a head is read after a context, at nodes of a tree or after a path, got {place}",
            "say judge(ctx), judge(t) or judge(t.leaves)",
        )
        if place.elem == "hidden" and len(types) > 2:
            need_one(types[2], "layer =")
        out = Type(str(model.of[3]))
        return (out.with_dims((Dim("nodes", str(place.of[0])),) if place.elem == "tree" else place.dims),)

    def meaning(m: Any, op: Any, model: Any, place: Any, tree: Any = None) -> Any:
        if op.operands[1].type.elem == "hidden":
            return (m.read_states(op, model, place, None if tree is None else int(tree)),)
        return (m.read_head(op, model, place, tree),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        place = c.of(op.operands[1])
        return [Abs(frozenset(), place.draws, column=True) if op.operands[1].type.elem == "tree" else Abs(place.reads)]

    batch, exact = "ragged", "adversary"
    samples = (
        ("%z = head.read(%judge, %ctx)", 0.5),
        ("%z = head.read(%judge, %path)", 0.5),
        ("%z = head.read(%judge, %ns, %t)", ...),
        ("%z = head.read(%judge, %t)", ...),
        ("%z = head.read(%judge, %h, %n)", [0.5]),
    )
    refusals = (
        ("int, node<ctx>", "model"),
        ("model<causal,V,m,causal>, node<ctx>", "head"),
        ("model<head,V,m,prob>, int", "judge(ctx)"),
    )
