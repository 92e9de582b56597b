"""Heads whose output is no distribution: one value after every text."""

from __future__ import annotations

from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Datum, Machine, Model
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import need, need_one
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


def _need_beside(place: Type, attrs: Attrs, types: Types) -> None:
    """Raise OpError unless what stands beside hidden states fits them."""
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


@op("head.read")
class HeadRead:
    """What a head with one value after every text (`head(target) -> prob`) says: after a context or path, at nodes (place, then
    the tree), at every node of a tree. A function of the target's state there, and so of the tokens up to there. Of hidden
    states: what the head says of them. Attribute named: the names of the further operands of such a call, of "layer" (whose
    part of the head is asked) and "token" (one beside each state), in this order."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model, place = types[0], types[1]
        need(model.elem == "model", f"a head needs a model, got {model}")
        need(model.of[0] == "head" and model.of[3] != "dist", f"this reads a head's value, got {model}")
        need(
            place.elem in ("node", "path", "hidden") or place.elem == "tree" and place.of[1] != "edit",
            f"a head is read after a context, at nodes of a tree or after a path, got {place}",
            "say judge(ctx), judge(t) or judge(t.leaves)",
        )
        _need_beside(place, attrs, types)
        out = Type(str(model.of[3]))
        return (out.with_dims((Dim("nodes", str(place.of[0])),) if place.elem == "tree" else place.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, place: Datum, *rest: Datum) -> tuple[Datum, ...]:
        if op.operands[1].type.elem == "hidden":
            return (m.read_states(op, model, place, **dict(zip(op.attrs.get("named", ()), rest))),)
        return (m.read_head(op, model, place, rest[0] if rest else None),)

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


@op("head.score")
class HeadScore:
    """The distributions that a head over hidden states (`head(model) -> dist`) gives of them. Attribute named: as of head.read.
    Of the cells of a canvas each is a function of all of them, else of its own state and what stands beside it. The request
    constrains and shapes them as it does the token after the committed context."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model, place = types[0], types[1]
        gives = model.elem == "model" and model.of[0] == "head" and model.of[3] == "dist"
        need(gives, f"a distribution is given by a head that says so, got {model}", "sampler: head(model) -> dist")
        need(
            place.elem == "hidden",
            f"a head that gives distributions reads hidden states, got {place}",
            "sampler(model.states(c)), second(target.upto(l)(ctx)), markov(head.states(t.leaves, given = m))",
        )
        _need_beside(place, attrs, types)
        return (Type("dist", (str(model.of[1]), "shaped"), place.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, place: Datum, *rest: Datum) -> tuple[Datum, ...]:
        return (m.score_states(op, model, place, **dict(zip(op.attrs.get("named", ()), rest))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return [Abs(frozenset().union(*(c.of(v).reads for v in op.operands[1:])))]

    attrs = ("named?",)
    batch = "ragged"
    samples = (
        ("%z = head.score(%scorer, %h)", ...),
        ('%z = head.score(%scorer, %h, %lone, named = ("token",))', ...),
    )
    refusals = (
        ("model<head,V,m,prob>, hidden<m>", "dist"),
        ("model<head,V,m,dist>, node<ctx>", "hidden states"),
    )
