"""Trees of drafts of which a program looks at which nodes there are: counts them, folds over them, chooses among them.

A driver does not draft where a draft is of no use (ir/places.py), and a step does, since its trees have one size. Nothing tells
the two apart where nodes are only grown, computed and verified. In the trees that are found here such nodes are dead from their
growth on.
"""

from __future__ import annotations

from collections.abc import Iterator

from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Op, Value

ROWS = frozenset(("draw", "draw.many", "draw.race", "face", "gather", "segment", "slice", "topk"))
"""Ops whose results are of the rows of their first operand."""


def looked_at(function: Function) -> dict[str, str]:
    """Those trees by name: "always", or "forks" where nothing is looked at but a condition at the leaves, which ends a loop
    that grows the tree, or how many nodes draws from computed distributions grow at. As long as such a tree is a chain it is
    all the same."""
    ops = list(_outside(function))
    made = {v: op for op in ops for v in op.results}
    loops = [(op, list(_inside(op))) for op in ops if op.opcode in ("for", "while")]
    stopping = {id(o): str(op.attrs["fills"]).rpartition(".")[0] for op, inside in loops if "fills" in op.attrs for o in inside}
    grows = {
        (id(o), str(g.operands[0].type.of[0])) for _, inside in loops for g in inside if g.opcode == "tree.grow" for o in inside
    }
    out: dict[str, str] = {}
    for op in ops:
        names: set[str] = set()
        if op.opcode == "tree.grow" and not op.attrs.get("has_at") and not op.attrs.get("chain") and op.operands[1].type.dims:
            names = set() if _of_rows(op.operands[1], made) else _trees(op.operands[0])  # as many as the frontier has nodes?
        elif lookup(op.opcode).looks == "last":
            names = {name for v in op.operands if v.type.elem != "dist" for name in _trees(v, last=True)}
        elif lookup(op.opcode).looks == "all":
            names = {name for v in op.operands for name in _trees(v)}
            if op.opcode == "len" and stopping.get(id(op)) in names:  # of a frontier that is empty at once: its loop ends
                continue
            if op.opcode == "select.top" and _by_logprob(op, made):
                continue
        for name in names:
            ends = op.opcode == "reduce" and op.attrs["fn"] in ("all", "any") and (id(op), name) in grows
            ends = ends and all(d.kind == "part" for d in op.operands[0].type.dims)
            if op.opcode != "tree.grow" and not ends:
                out[name] = "always"
            out.setdefault(name, "forks")
    return out


def stopping(function: Function) -> frozenset[int]:
    """The ids of those growths that stand in a loop that stops when nothing fits into their tree."""
    loops = [op for op in function.body.walk() if "fills" in op.attrs]
    names = {id(o): str(op.attrs["fills"]).rpartition(".")[0] for op in loops for o in _inside(op) if o.opcode == "tree.grow"}
    grown = {id(op): str(op.operands[0].type.of[0]) for op in function.body.walk() if op.opcode == "tree.grow"}
    return frozenset(o for o, name in names.items() if grown[o] == name)


def _outside(function: Function) -> Iterator[Op]:
    """The ops but for those of verifications, which see the nodes that a driver drafts."""
    inside = {id(o) for op in function.body.walk() if op.opcode == "tree.walk" for o in _inside(op)}
    return (op for op in function.body.walk() if id(op) not in inside)


def _inside(op: Op) -> Iterator[Op]:
    return (o for region in op.regions for o in region.walk())


def _trees(v: Value, last: bool = False) -> set[str]:
    """The trees that a value is one of, or has nodes of along its dimensions, or its last."""
    dims = v.type.dims[-1:] if last else v.type.dims
    found = {str(d.of) for d in dims if d.kind in ("nodes", "part")}
    return found | {str(v.type.of[0])} if v.type.elem == "tree" else found


def _of_rows(v: Value, made: dict[Value, Op]) -> bool:
    """Whether draws are from rows that a model computed at nodes, where they grow."""
    op = made.get(v)
    while op is not None and op.opcode in ROWS:
        v = op.regions[0].yields[op.results.index(v)] if op.opcode == "segment" else op.operands[0]
        op = made.get(v)
    return op is not None and op.opcode in ("model.eval", "model.evals")


def _by_logprob(op: Op, made: dict[Value, Op]) -> bool:
    """Whether nodes are chosen by the log-probability of their paths alone, by which the others come last."""
    return len(op.operands) > 2 and all(_is_logprob(v, made) for v in op.operands[2:])


def _is_logprob(v: Value, made: dict[Value, Op]) -> bool:
    op = made.get(v)
    while op is not None and op.opcode in ("gather", "segment"):
        v = op.operands[0] if op.opcode == "gather" else op.regions[0].yields[op.results.index(v)]
        op = made.get(v)
    return op is not None and op.opcode == "tree.get" and op.attrs["column"] == "logprob"
