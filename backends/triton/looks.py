"""Trees of drafts of which a program looks at which nodes there are: counts them, folds over them, chooses among them.

A driver does not draft where a draft is of no use (ir/places.py), and a step does, since its trees have one size. Nothing tells
the two apart where nodes are only grown, computed and verified; a program that looks at more is the driver's.
"""

from __future__ import annotations

from collections.abc import Iterator

from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Op, Value


def unforked(function: Function) -> frozenset[str]:
    """The trees that must be chains: of which nothing is looked at but a condition at the leaves, which ends a loop that grows
    the tree; and those with draws at leaves, since a driver's leaves have other numbers where one of them ends the text. Raises
    NotSteppable for a program that looks at a tree whose end the driver knows."""
    inside = {id(o) for op in function.body.walk() if op.opcode == "tree.walk" for o in _inside(op)}  # rules see the driver's
    ops = [op for op in function.body.walk() if id(op) not in inside]
    made = {v: op for op in ops for v in op.results}
    ending = {str(op.result.type.of[0]) for op in ops if op.opcode == "tree.new" and op.attrs.get("until")}
    loops = [(op, list(_inside(op))) for op in ops if op.opcode in ("for", "while")]
    grows = {(id(o), str(g.operands[0].type.of[0])) for _, body in loops for g in body if g.opcode == "tree.grow" for o in body}
    stopping = {id(o): str(op.attrs["fills"]).rpartition(".")[0] for op, body in loops if "fills" in op.attrs for o in body}
    ended = {str(op.result.type.of[0]) for op in ops if op.opcode == "tree.new" and "ends" in op.attrs.get("until", ())}
    leaves = {str(op.operands[0].type.of[0]) for op in ops if op.opcode == "tree.nodes" and op.attrs["which"] == "leaves"}
    drawn = {name for op in ops if op.opcode in ("draw", "draw.many") for name in _trees(op.operands[0], "all")}
    out = ended & leaves & drawn
    for op in ops:
        looks = lookup(op.opcode).looks
        names = {name for v in op.operands for name in _trees(v, looks)} & ending if looks else set[str]()
        if op.opcode == "len":  # of a frontier that is empty at once: its loop ends
            names -= {stopping.get(id(op), "")}
        if op.opcode == "select.top" and len(op.operands) > 2 and all(_is_logprob(v, made) for v in op.operands[2:]):
            names = set()  # those that a driver does not draft come last
        for name in names:
            parts = {d.kind for v in op.operands[:1] for d in v.type.dims} == {"part"}
            if op.opcode != "reduce" or op.attrs["fn"] not in ("all", "any") or not parts or (id(op), name) not in grows:
                raise NotSteppable("it looks at which drafts there are, which data decides", op)
            out.add(name)
    return frozenset(out)


def _inside(op: Op) -> Iterator[Op]:
    return (o for region in op.regions for o in region.walk())


def _trees(v: Value, looks: str) -> set[str]:
    """The trees that a value is one of, or has nodes of along its dimensions, or its last, as an op looks at them."""
    if looks == "last" and v.type.elem == "dist":
        return set()
    dims = v.type.dims[-1:] if looks == "last" else v.type.dims
    found = {str(d.of) for d in dims if d.kind in ("nodes", "part")}
    return found | {str(v.type.of[0])} if v.type.elem == "tree" else found


def _is_logprob(v: Value, producers: dict[Value, Op]) -> bool:
    """Whether numbers are the log-probabilities of the paths to nodes."""
    op = producers.get(v)
    while op is not None and op.opcode in ("gather", "segment"):
        v = op.operands[0] if op.opcode == "gather" else op.regions[0].yields[op.results.index(v)]
        op = producers.get(v)
    return op is not None and op.opcode == "tree.get" and op.attrs["column"] == "logprob"
