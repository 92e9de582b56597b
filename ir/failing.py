"""Which ops may end in an error when they run, as far as the text of a program shows.

What is shown here holds for every run: an op is said not to fail only where its operands' types and the ops that made them say
so. Errors of models (a text that is longer than their context, memory that is used up), of functions of the caller's, and of
requests that constrain a row to nothing are no errors of a program, and are left out (docs/checking.md).
"""

from __future__ import annotations

from decgraph.ir.values import Function, Op

NEVER = frozenset(
    {
        *("const", "unfailing", "if", "for", "while", "noise", "request", "topology", "vocab_size", "len", "face", "context"),
        *("done", "draw.get", "draw.point", "tree.nodes", "tree.get", "tree.new", "tree.size", "tree.front", "tree.keep"),
        *("level.get", "path.get", "state.read", "state.write", "commit", "return", "model.layers", "contains", "list"),
        *("model.eval", "model.evals", "model.memory", "model.read", "model.states", "model.attention", "head.read"),
        *("extern", "run", "tree.grow", "topk", "batch.fold", "batch.top", "tree.continue", "tree.reroot"),
    }
)
"""Ops that do not fail whatever they are given, and those whose errors are not the program's."""


def may_fail(function: Function, op: Op) -> bool:
    """Whether an op may end in an error of the program's own."""
    if op.opcode == "draw":
        return op.operands[0].type.elem != "dist"
    if op.opcode == "map":
        return op.attrs["fn"] in ("mod", "idiv") or sum(bool(v.type.dims) for v in op.operands) > 1
    return op.opcode not in NEVER
