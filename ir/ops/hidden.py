"""Hidden states of models as values."""

from __future__ import annotations

import numpy as np

from decgraph.ir import labels
from decgraph.ir.data.hidden import mean, similarity
from decgraph.ir.labels import Abs, Checker, Labels
from decgraph.ir.machine import Datum, Machine, Model
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import need, need_whole_memory
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


@op("model.states")
class ModelStates:
    """The hidden states that leave a trunk (`target.upto(l)`, `target.skip(s).upto(l)`), or of which a head on features makes
    its scores (`head.states(ns, given = m)`): after a context, at nodes of a tree, and a trunk's after other tokens than the
    request's (a vector or a path). Of a masked model those of which it makes its scores at the cells of a canvas. Attribute
    named: the names of the further operands, of "tree" and "given" (a memory) or "at" (positions), in this order; each: after
    every one of the tokens."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model, place = types[0], types[1]
        need(
            model.elem == "model" and model.of[0] in ("trunk", "features", "masked"),
            f"hidden states are a trunk's or a head's, got {model}",
            "target.upto(2)(ctx)",
        )
        extra = dict(zip(attrs.get("named", ()), types[2:]))
        if model.of[0] == "masked":
            need(place.elem == "canvas", f"a masked model has states at the cells of a canvas, got {place}", "model.states(c)")
            at = extra.get("at", Type("position", (place.of[0],), (Dim("cells", str(place.of[0])),)))
            need(at.elem == "position" and len(at.dims) == 1, f"at = needs positions of the canvas, got {at}")
            return (Type("hidden", (model.of[2],), at.dims),)
        if "given" in extra:
            need_whole_memory(extra["given"], "given =")
        need(
            model.of[0] == "trunk" or "given" in extra and not attrs.get("each"),
            "a head's states are made of its target's",
            "head.states(t.leaves, given = target.memory(ctx.parent))",
        )
        text = place.elem == "path" or place.elem in ("token", "draw", "int") and len(place.dims) == 1
        need(
            text and model.of[0] == "trunk" or place.elem == "node" or place.elem == "tree" and place.of[1] != "edit",
            f"states are read after a context, at nodes of a tree or after tokens, got {place}",
            "say target.upto(2)(ctx) or target.upto(2)(t.leaves)",
        )
        out = Type("hidden", (model.of[2],))
        if attrs.get("each"):
            return (out.with_dims(place.dims or (Dim("k"),)),)
        if text:
            return (out,)
        return (out.with_dims((Dim("nodes", str(place.of[0])),) if place.elem == "tree" else place.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, place: Datum, *rest: Datum) -> tuple[Datum, ...]:
        return (m.states(op, model, place, dict(zip(op.attrs.get("named", ()), rest))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        place = c.of(op.operands[1])
        rest: Labels = frozenset().union(*(c.of(v).reads for v in op.operands[2:] if v.type.elem != "tree"))
        if op.operands[1].type.elem == "tree":
            return [Abs(rest, place.draws, column=True)]
        return [Abs(place.reads | rest)]

    attrs = ("named?", "each?")
    batch = "ragged"
    samples = (
        ("%z = model.states(%trunk, %ctx)", [0.0, 1.0]),
        ('%z = model.states(%trunk, %ns, %t, named = ("tree",))', ...),
        ('%z = model.states(%head, %ns, %t, %mem, named = ("tree", "given"))', ...),
        ("%z = model.states(%trunk, %toks, each = true)", ...),
        ("%z = model.states(%masked, %c)", ...),
        ('%z = model.states(%masked, %c, %ps, named = ("at",))', ...),
    )
    refusals = (
        ("int, node<ctx>", "trunk"),
        ("model<causal,V,m,causal>, node<ctx>", "target.upto"),
        ("model<trunk,V,m,causal>, text", "t.leaves"),
        ("model<features,V,m,causal>, node<ctx>", "given"),
        ("model<masked,V,m,full>, node<ctx>", "model.states(c)"),
    )


@op("hidden.similarity")
class HiddenSimilarity:
    """The cosine of the angle between hidden states, row by row: 1 where they point the same way."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        a, b = types
        need(
            a.elem == b.elem == "hidden",
            f"similarity is of hidden states, got {a} and {b}",
            "similarity(target.upto(1)(ctx), h)",
        )
        need(a.of == b.of, f"states of different models are not compared, got {a} and {b}")
        return (Type("real", (), max(a.dims, b.dims, key=len)),)

    @staticmethod
    def meaning(m: Machine, op: Op, a: Datum, b: Datum) -> tuple[Datum, ...]:
        made = similarity(np.asarray(a), np.asarray(b))
        made = m.num.lift(made) if m.num.exact else np.asarray(made, dtype=np.float64)
        return (made if op.results[0].type.dims else made[()],)

    label, batch = labels.joined, "pointwise"
    surface = "similarity(h, g)"
    samples = (("%z = hidden.similarity(%h, %h)", [1.0]),)
    refusals = (("int, int", "hidden states"),)


@op("hidden.mean")
class HiddenMean:
    """The mean of hidden states."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "hidden" and len(types[0].dims) == 1, f"a mean is of a vector of hidden states, got {types[0]}")
        return (types[0].scalar,)

    @staticmethod
    def meaning(m: Machine, op: Op, h: Datum) -> tuple[Datum, ...]:
        return (mean(np.asarray(h)),)

    label, batch = labels.joined, "ragged"
    samples = (("%z = hidden.mean(%h)", [2.0, 4.0]),)
    refusals = (("int", "hidden states"),)
