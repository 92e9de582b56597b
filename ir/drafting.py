"""Which calls of a model on a memory draft for it.

A program may let the target draft for itself: on some of its keys and values, rounded or merged ones (MagicDec, sparse-to-dense
decoding). Papers count such a call as a draft, and the verification alone as a call of the target; so do statistics, whether
layers are left out (a derived model, which is another model) or positions (a memory). Attribute `drafts` of model.eval says
that a causal model is called at nodes of a tree on a memory, and that no verification reads the result as its evidence. A call
at the context commits what it says, on whatever memory, and is a call of the target.
"""

from __future__ import annotations

from decgraph.ir.values import Function, Module, Op, Value

NUMBERS = frozenset({"dist", "real", "prob", "list"})
"""What evidence is computed from. Trees and tokens were drafted with calls that are not evidence."""


def drafting(name: str) -> str:
    """What events, statistics and costs call a model that drafts for itself on a memory."""
    return f"{name} (drafting)"


def note_drafting(module: Module) -> None:
    """Write attribute `drafts` where it holds (in place: for modules just created)."""
    for function in module.functions.values():
        evidence = evidence_of(function)
        for op in function.body.walk():
            if op.opcode == "model.eval" and on_a_tree(op) and op.result not in evidence:
                op.attrs["drafts"] = True


def on_a_tree(op: Op) -> bool:
    """Whether a causal model is called at nodes of a tree, on a memory."""
    extra = op.attrs.get("with", ())
    return op.operands[0].type.of[0] == "causal" and "given" in extra and "tree" in (*extra, op.operands[1].type.elem)


def evidence_of(function: Function) -> set[Value]:
    """What the evidence of verifications may have been computed from, up to the model calls."""
    sources: dict[Value, tuple[Value, ...]] = {}
    wanted: list[Value] = []
    for op in function.body.walk():
        inner = tuple(v for region in op.regions for v in region.yields)
        sources.update(dict.fromkeys(op.results, () if op.opcode == "model.eval" else (*op.operands, *inner)))
        sources.update((arg, op.operands) for region in op.regions for arg in region.args)
        if op.opcode == "tree.walk":
            wanted.append(op.operands[1])
    found: set[Value] = set()
    while wanted:
        value = wanted.pop()
        if value not in found and value.type.elem in NUMBERS:
            found.add(value)
            wanted += sources.get(value, ())
    return found
