"""How much attention a causal model's queries gave each position: what choices of keys and values are made from."""

from __future__ import annotations

from decgraph.ir import labels
from decgraph.ir.machine import Datum, Machine, Model
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import is_text, need, need_whole_memory
from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Op


@op("model.attention")
class ModelAttention:
    """How much attention each position of a context, of the tokens of a node, or of other tokens, is given: the mean over
    layers, heads and the last `last` positions that the call computes (1 where nothing is said) of their attention weights,
    one value a position, which sum to one. A position that is not in the memory `given` has 0. Attribute named: the names of
    the further operands, of "tree", "given" (a memory) and "last" (a whole number), in this order."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        model, place, extra = types[0], types[1], dict(zip(attrs.get("named", ()), types[2:]))
        need(model.elem == "model", f".attention needs a model, got {model}")
        need(
            model.of[0] == "causal",
            f"the attention of a {model.of[0]} model cannot be read",
            "that of a causal model can: target.attention(ctx)",
        )
        need(
            place.elem == "node" and not place.dims or is_text(place),
            f"attention is read at a context, at one node or after a vector of tokens, got {place}",
            "target.attention(ctx), target.attention(t.leaves[0])",
        )
        given, last = extra.get("given"), extra.get("last")
        if given is not None:
            need_whole_memory(given, "given =")
        need(
            last is None or last.elem == "int" and not last.dims,
            f"last = needs a whole number of queries, got {last}",
            "target.attention(ctx, last = 8)",
        )
        return (Type("prob", (), (Dim("k"),)),)

    @staticmethod
    def meaning(m: Machine, op: Op, model: Model, place: Datum, *rest: Datum) -> tuple[Datum, ...]:
        return (m.attention(model, place, dict(zip(op.attrs.get("named", ()), rest))),)

    attrs = ("named?",)
    label, batch = labels.joined, "ragged"
    samples = (
        ("%z = model.attention(%target, %ctx)", ...),
        ("%z = model.attention(%target, %toks)", ...),
        ('%z = model.attention(%target, %ctx, %three, named = ("last",))', ...),
    )
    refusals = (
        ("int, node<ctx>", "model"),
        ("model<masked,V,m,full>, node<ctx>", "causal"),
        ("model<causal,V,m,causal>, int", "ctx"),
        ("model<causal,V,m,causal>, node<ctx>, int", "memory", {"named": ("given",)}),
        ("model<causal,V,m,causal>, node<ctx>, text", "queries", {"named": ("last",)}),
    )
