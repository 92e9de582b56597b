"""Recognises autoregressive draft loops: a loop that calls a model at a tree's one leaf, draws, and grows the draw.

repeat gamma:
    x ~ drafter(t.leaves)
    grow x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decgraph.ir.values import Op, Value


@dataclass(frozen=True)
class Chain:
    """An autoregressive draft loop: its `for` op, the model, and the noise op of its draw."""

    model: Value
    noise: Op
    alone: bool


def chain_of(op: Op) -> Chain | None:
    """The draft loop that a `for` op is, or None. One tree is carried; its body is leaves, call, noise, draw, grow and no
    more."""
    region = op.regions[0]
    if op.attrs.get("stops") or op.attrs.get("lanes") or len(op.operands) != 3 or op.operands[2].type.elem != "tree":
        return None
    flat = list(_flattened(region.ops))
    body = [o for o in flat if o.opcode != "const"]
    if [o.opcode for o in body] not in (_SHAPE, _OTHER):
        return None
    found = {o.opcode: o for o in body}
    nodes, asked, noise, drawn, grown = (found[c] for c in _SHAPE)
    tree, same = region.args[1], _aliases(region.ops)
    plain = (
        nodes.attrs["which"] == "leaves"
        and same(nodes.operands[0]) is tree
        and tuple(asked.attrs.get("with", ())) == ("tree",)
        and not asked.attrs.get("part")
        and same(asked.operands[1]) is nodes.result
        and same(asked.operands[2]) is tree
        and same(drawn.operands[0]) is asked.result
        and same(drawn.operands[1]) is noise.result
        and same(grown.operands[0]) is tree
        and same(grown.operands[1]) is drawn.result
        and len(grown.operands) == 2
        and not grown.attrs.get("has_at")
        and not grown.attrs.get("columns")
        and not grown.attrs.get("chain")
        and same(region.yields[0]) is grown.results[0]
    )
    inside = {r for o in flat for r in o.results} | {tree}
    plain = plain and asked.operands[0] not in inside and not any(v in inside for v in noise.operands)
    return Chain(asked.operands[0], noise, not asked.attrs.get("joint")) if plain and len(drawn.operands) == 2 else None


_SHAPE = ["tree.nodes", "model.eval", "noise", "draw", "tree.grow"]
_OTHER = ["tree.nodes", "noise", "model.eval", "draw", "tree.grow"]


def _flattened(ops: Sequence[Op]) -> Sequence[Op]:
    """The ops, those of segments in place."""
    out: list[Op] = []
    for op in ops:
        out += _flattened(op.regions[0].ops) if op.opcode == "segment" else [op]
    return out


def _aliases(ops: Sequence[Op]) -> Callable[[Value], Value]:
    """Which value inside a segment one of its results is."""
    same: dict[Value, Value] = {}
    for op in ops:
        if op.opcode == "segment":
            inner = _aliases(op.regions[0].ops)
            same.update((r, inner(y)) for r, y in zip(op.results, op.regions[0].yields, strict=True))
    return lambda v: same.get(v, v)
