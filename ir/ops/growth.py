"""What growing a tree does to its labels (ir/labels.py) and to its sizes (ir/sizes.py)."""

from __future__ import annotations

from dataclasses import replace

from decgraph.ir import labels, origins
from decgraph.ir.labels import Abs, Checker, TreeAbs
from decgraph.ir.ops.limits import NODES
from decgraph.ir.origins import Element, Place
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


def again(c: Checker, op: Op, x: Abs, at: Abs | None, tree: TreeAbs, name: str) -> list[tuple[Element, Place]]:
    """The draws that are grown here, with their places; finds those that were grown before, here or in an earlier step, and
    siblings in another order than they were drawn in."""
    edges, node = op.operands[1], op.operands[2] if at is not None else None
    new: list[tuple[Element, Place]] = []
    for base, pick in origins.elements(c, edges):
        where = origins.place(c, base if node is None else node)
        for (old, earlier), there in (*tree.grown, *(new if node is None or not node.type.dims else ())):
            if old is base and (there == where or at is not None and at.reads & x.draws):
                apart = origins.apart(pick, earlier)
                if apart == 0:
                    c.report("twice" if there == where else "below", op, x.draws, name)
                elif apart is not None and apart < 0 and there == where and origins.in_order(c, base):
                    c.report("siblings", op, x.draws, name)
        for loop in c.loops[op.result]:
            if any(loop in c.loops.get(v, ()) for v in origins.sources(c, op.operands[0], "tree")):
                if severity := origins.kept(c, op, base, pick, loop):
                    c.report("kept", op, x.draws, name, severity)
            falls = any(n < 0 and loop.regions[-1].args[0] is v for v, n in (pick.terms if pick is not None else ()))
            if falls and not origins.varies(c, where, loop) and origins.in_order(c, base):
                c.report("siblings", op, x.draws, name)
        new.append(((base, pick), where))
    for drawn in origins.draws(c, edges):
        sums = origins.mass(c, drawn.operands[origins.DISTRIBUTION_OF[drawn.opcode]])
        if sums != origins.ONE:
            c.report("mass", drawn, labels.NO, name, "warning" if sums is None or sums.number is None else "error")
    return new


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
    grows = again(c, op, x, at, t.tree or TreeAbs(), name) if x.draws and not x.canvas else ()
    way = x.draws | x.dep | (at.reads if at is not None else labels.NO)
    new = Abs(x.dep | place, way)
    shape = t.tree or TreeAbs()
    points = shape.points | (way if not x.draws else labels.NO)
    dep = t.dep | x.dep | c.control | (at.reads if at is not None else labels.NO)
    return [
        Abs(
            dep,
            t.draws | x.draws,
            tree=TreeAbs(replace(new, dep=labels.NO), replace(new, dep=labels.NO), points, shape.grown.union(grows)),
        ),
        replace(new, dep=labels.NO),
    ]
