"""Parts of models as values: layers of a memory, attention scores, arithmetic on embeddings."""

from __future__ import annotations

import numpy as np

from decgraph.ir import labels
from decgraph.ir.machine import Datum, Machine, Memory
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import array, as_int, need, need_one, numeric
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


def _memory(t: Type, what: str) -> Type:
    need(t.elem == "memory", f"{what} needs a memory, got {t}")
    return t


@op("memory.layer")
class MemoryLayer:
    """One layer of a memory: m[l], to be cut and put back."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        _memory(types[0], "m[l]")
        need(
            types[1].elem == "int" and not types[1].dims,
            f"a layer is a number, got {types[1]}",
            "for l in model.layers: ... m[l]",
        )
        need(len(types[0].of) == 1, "this is one layer of a memory already", "m[l]")
        return (Type("memory", (*types[0].of, "layer")),)

    @staticmethod
    def meaning(m: Machine, op: Op, mem: Memory, layer: Datum) -> tuple[Datum, ...]:
        return (m.host("layer", mem, layer),)

    label, batch = labels.joined, "ragged"
    samples = (("%z = memory.layer(%mem, %n)", [0, 1, 2]),)
    refusals = (("int, int", "memory"),)


@op("memory.put")
class MemoryPut:
    """A memory with one layer replaced: m[l] = m[l].only(ps). What no layer has any more stays evicted: no call attends to it
    or computes it again."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        _memory(types[0], "m[l] =")
        need(
            types[1].elem == "memory" and types[1].of == (types[0].of[0], "layer"),
            f"a layer of {types[0]} is a memory of the same model, got {types[1]}",
        )
        need(types[2].elem == "int" and not types[2].dims, f"a layer is a number, got {types[2]}")
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, mem: Memory, part: Datum, layer: Datum) -> tuple[Datum, ...]:
        return (m.host("put", mem, part, layer),)

    label, batch = labels.joined, "ragged"
    samples = (("%z = memory.put(%mem, %part, %n)", [0, 1, 2]),)
    refusals = (("memory<a>, memory<b,layer>, int", "same model"),)


@op("memory.scores")
class MemoryScores:
    """How much the queries at positions look at every cell, or at the positions of a second vector (below 0: of the context,
    -1 is its last), before the softmax: the mean over queries and heads of q . k; of a whole memory over layers too. The
    memory must hold queries (model.memory(c, queries = yes)). real[cells], or real along the second vector."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        _memory(types[0], ".scores")
        need(types[1].elem == "position", f".scores(b) needs positions of a canvas, got {types[1]}")
        if len(types) > 2:
            need(
                types[2].elem in ("position", "int") and len(types[2].dims) == 1,
                f"at = needs positions, got {types[2]}",
                "m[l].scores(b, at = range_(0 - ctx.length, len(c.all)))",
            )
            return (Type("real", (), types[2].dims),)
        return (Type("real", (), (Dim("cells", str(types[1].of[0])),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, mem: Memory, ps: Datum, at: Datum = None) -> tuple[Datum, ...]:
        return (m.host("scores", mem, ps, at),)

    label, batch = labels.joined, "ragged"
    samples = (("%z = memory.scores(%mem, %ps)", [0.0] * 3), ("%z = memory.scores(%mem, %ps, %deep)", [0.0] * 4))
    refusals = (("memory<a>, int", "positions"),)


@op("maxpool")
class MaxPool:
    """The largest of each value and its neighbours, `width` of them with itself, same length; of an even width one more after
    it than before."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        need(t.is_number and len(t.dims) == 1, f"maxpool needs a vector of numbers, got {types[0]}")
        need_one(types[1], "the width of maxpool")
        return (t,)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, width: Datum) -> tuple[Datum, ...]:
        a = array(m, x)
        width = max(1, as_int(width))
        half = (width - 1) // 2
        out = a.copy()
        for i in range(len(a)):
            out[i] = max(a[max(0, i - half) : i - half + width])
        return (out,)

    label, batch = labels.joined, "ragged"
    surface = "maxpool(x, width)"
    samples = (("%z = maxpool(%xs, %three)", [3, 3, 2]),)
    refusals = (("int, int", "vector"),)


@op("hidden.map")
class HiddenMap:
    """Arithmetic on embeddings (attribute fn: add, sub, mul, div, neg): each with each, or with numbers that line up with
    what the embeddings range over."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        hs = [t for t in types if t.elem in ("hidden", "embedding")]
        need(bool(hs), f"{attrs['fn']} of embeddings needs one, got {', '.join(map(str, types))}")
        need(
            all(t in hs or (numeric(t).is_number and not any(d.kind == "vocab" for d in numeric(t).dims)) for t in types),
            f"embeddings go with numbers and embeddings, got {', '.join(map(str, types))}",
            "embed weights over the vocabulary with model.embed(weights)",
        )
        need(attrs["fn"] in ("add", "sub", "mul", "div", "neg"), "embeddings are added, and multiplied by numbers")
        need(len({t.scalar for t in hs}) == 1, "embeddings of different models do not go together, nor embeddings and states")
        return (
            max(types, key=lambda t: len(numeric(t).dims)).with_dims(max((numeric(t).dims for t in types), key=len))
            if len(hs) == len(types)
            else Type(hs[0].elem, hs[0].of, max((numeric(t).dims for t in types), key=len)),
        )

    @staticmethod
    def meaning(m: Machine, op: Op, *xs: Datum) -> tuple[Datum, ...]:
        values = [
            np.asarray(x) if v.type.elem in ("hidden", "embedding") else array(m, x)[..., None] for v, x in zip(op.operands, xs)
        ]
        return (m.num.fn(op.attrs["fn"])(*values),)

    attrs = ("fn",)
    label, batch = labels.joined, "pointwise"
    samples = (
        ('%z = hidden.map(%h, %r, fn = "mul")', [[1.0, 2.0]]),
        ('%z = hidden.map(%h, %h, fn = "add")', [[4.0, 8.0]]),
    )
    refusals = (
        ("int, int", "embeddings", {"fn": "add"}),
        ("embedding<a>, embedding<b>", "different models", {"fn": "add"}),
        ("embedding<a>, hidden<a>", "states", {"fn": "add"}),
    )
