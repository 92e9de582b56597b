"""What growing a tree does to its labels (ir/labels.py) and to its sizes (ir/sizes.py)."""

from __future__ import annotations

from dataclasses import replace

from decgraph.ir import labels
from decgraph.ir.labels import Abs, Checker, TreeAbs
from decgraph.ir.ops.limits import NODES
from decgraph.ir.sizes import Known, Nodes, Size, Sizes, add, most
from decgraph.ir.values import Op, Value


def sizes_grown(s: Sizes, op: Op, count: Size, all_leaves: bool) -> list[Known]:
    """A tree and its new nodes after `count` more; `all_leaves`: every leaf got some."""
    t = s.tree(op.operands[0])
    size = add(t.size, count)
    if size is not None and size > NODES and op not in s.too_large:
        s.too_large.append(op)
    leaves = count if all_leaves else add(t.leaves, count)
    for op_new in t.made:
        s.peaks[op_new] = most(s.peaks[op_new], size)
    return [Nodes(size, leaves, count, count, all_leaves, t.made), (count,)]


_DRAWN = ("draw", "draw.many", "draw.race", "topk", "face", "draw.point", "gather")


_MIXED = ("map", "normalize", "softmax", "warp", "renorm")


def over_leaves(s: Sizes, v: Value, t: Nodes) -> bool:
    """Whether draws grow at every leaf: drawn (or placed) at `t.leaves`, or at a frontier that is these."""
    op = s.made.get(v)
    if op is None:
        return False
    if op.opcode == "draw.point":  # a token that was drawn nowhere grows at the frontier
        return t.edge
    if op.opcode == "if":
        return all(over_leaves(s, r.yields[op.results.index(v)], t) for r in op.regions)
    if op.opcode == "model.eval":
        return over_leaves(s, op.operands[1], t)
    if op.opcode == "tree.nodes":
        return op.attrs["which"] == "leaves" or (op.attrs["which"] == "frontier" and t.edge)
    if (
        op.opcode == "gather"
        and not op.operands[1].type.dims
        and ([d.kind for d in op.operands[0].type.dims[:1]] in (["part"], ["nodes"]))
    ):
        return False  # one leaf of many
    if op.opcode in _DRAWN:
        return over_leaves(s, op.operands[0], t)
    if op.opcode in _MIXED:  # of several distributions, each over the leaves (or over no nodes)
        over = [x for x in op.operands if any(d.kind in ("part", "nodes") for d in x.type.dims)]
        return bool(over) and all(over_leaves(s, x, t) for x in over)
    return False


def grown(c: Checker, op: Op, x: Abs) -> list[Abs]:
    """A tree and its new nodes after edges `x` are grown; finds draws that were chosen by what they are."""
    t = c.of(op.operands[0])
    at = c.of(op.operands[2]) if op.attrs.get("has_at") else None
    name = str(op.operands[0].type.of[0])
    place = at.dep if at is not None else labels.NO
    if x.draws & (x.dep | place):
        c.report("order" if x.canvas else "choice", op, x.draws & (x.dep | place), name, "warning" if x.canvas else "error")
    elif x.draws & c.control:
        c.report("skip", op, x.draws & c.control, name)
    elif x.draws & t.dep:
        c.report("earlier", op, x.draws & t.dep, name)
    key = (op.operands[1], op.operands[2] if at is not None else None)
    if x.draws and t.tree is not None and key in t.tree.grown:
        c.report("twice", op, x.draws, name)
    way = x.draws | x.dep | (at.reads if at is not None else labels.NO)
    new = Abs(x.dep | place, way)
    shape = t.tree or TreeAbs()
    points = shape.points | (way if not x.draws else labels.NO)
    dep = t.dep | x.dep | c.control | (at.reads if at is not None else labels.NO)
    known = shape.grown | {key} if x.draws else shape.grown
    return [
        Abs(
            dep,
            t.draws | x.draws,
            tree=TreeAbs(replace(new, dep=labels.NO), replace(new, dep=labels.NO), points, known),
        ),
        replace(new, dep=labels.NO),
    ]
