"""What a rule emits where it accepts no further draft: a token of its evidence as it is, or of what is left of it."""

from __future__ import annotations

from decgraph.ir.values import Op, Value

PICKS = frozenset(("draw", "draw.many", "arg", "gather"))
"""Ops that take one of what their first operand has."""


def emits_own(walk: Op) -> bool:
    """Whether the rule of a `tree.walk` emits tokens of the evidence itself, drawn from it or its likeliest, as `match` does;
    `rejection` draws them from a residual."""
    region = walk.regions[0]
    evidence = region.args[-1] if walk.attrs["scope"] == "tree" else region.args[1]
    taken: dict[Value, Value] = {}  # what each value is, or is taken from
    for op in region.walk():
        if op.opcode in PICKS:
            taken[op.results[0]] = op.operands[0]
        elif op.opcode == "segment":
            taken |= {**dict(zip(op.regions[0].args, op.operands)), **dict(zip(op.results, op.regions[0].yields))}

    def source(value: Value) -> Value:
        return source(taken[value]) if value in taken else value

    ends = [op.operands[3] for op in region.walk() if op.opcode == "verdict" and op.operands[3].type.elem != "none"]
    return all(source(token) is evidence for token in ends or region.yields[3:])
