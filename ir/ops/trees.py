"""Trees of states: new, grow, columns, folds along paths, keep, walk. Draws are edges and are never merged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from decgraph.ir import labels, sizes
from decgraph.ir.data.canvas import Canvas, Edit, Soft
from decgraph.ir.data.dist import Dist, Draws, Path, box
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.labels import Abs, Checker, TreeAbs
from decgraph.ir.opdef import op
from decgraph.ir.ops.common import array, as_int, need, numeric, plain
from decgraph.ir.ops.draws import law_row, point
from decgraph.ir.ops.limits import NODES, room_for_nodes
from decgraph.ir.sizes import Known, Nodes, Size, Sizes, add, least, most, times
from decgraph.ir.types import INT, Dim, Type, join, listing
from decgraph.ir.values import Op, Value


def tree_of(types: Any, what: str) -> Type:
    need(types[0].elem == "tree", f"{what} needs a tree, got {types[0]}")
    found: Type = types[0]
    return found


def nodes_type(t: Type, kind: str = "nodes", bound: int | None = None) -> Type:
    return Type("node", (t.of[0],), (Dim(kind, str(t.of[0]), bound),))


def bounded(m: Any, op: Any, t: Tree) -> Tree:
    """The tree with what its attribute until means in this run."""
    if "until" not in op.attrs:
        return t
    extent, closes = m.bounds(op.attrs["until"])
    return replace(t, extent=extent, closes=closes)


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


def _over_leaves(s: Sizes, v: Value, t: Nodes) -> bool:
    """Whether draws grow at every leaf: made (or placed) at `t.leaves`, or at a frontier that is these."""
    op = s.made.get(v)
    if op is None:
        return False
    if op.opcode == "draw.point":  # a token that was drawn nowhere grows at the frontier
        return t.edge
    if op.opcode == "if":
        return all(_over_leaves(s, r.yields[op.results.index(v)], t) for r in op.regions)
    if op.opcode == "model.eval":
        return _over_leaves(s, op.operands[1], t)
    if op.opcode == "tree.nodes":
        return op.attrs["which"] == "leaves" or (op.attrs["which"] == "frontier" and t.edge)
    if (
        op.opcode == "gather"
        and not op.operands[1].type.dims
        and ([d.kind for d in op.operands[0].type.dims[:1]] in (["part"], ["nodes"]))
    ):
        return False  # one leaf of many
    if op.opcode in _DRAWN:
        return _over_leaves(s, op.operands[0], t)
    if op.opcode in _MIXED:  # of several laws, each over the leaves (or over no nodes)
        over = [x for x in op.operands if any(d.kind in ("part", "nodes") for d in x.type.dims)]
        return bool(over) and all(_over_leaves(s, x, t) for x in over)
    return False


def grown(c: Checker, op: Op, x: Abs) -> list[Abs]:
    """A tree and its new nodes after edges `x` are grown; finds draws that were chosen by what they are."""
    t = c.of(op.operands[0])
    at = c.of(op.operands[2]) if op.attrs.get("has_at") else None
    name = str(op.operands[0].type.of[0])
    place = at.dep if at is not None else labels.NO
    if x.held & (x.dep | place):
        c.report("order" if x.canvas else "choice", op, x.held & (x.dep | place), name, "warning" if x.canvas else "error")
    elif x.held & c.control:
        c.report("skip", op, x.held & c.control, name)
    elif x.held & t.dep:
        c.report("earlier", op, x.held & t.dep, name)
    key = (op.operands[1], op.operands[2] if at is not None else None)
    if x.held and t.tree is not None and key in t.tree.grown:
        c.report("twice", op, x.held, name)
    way = x.held | x.dep | (at.reads if at is not None else labels.NO)
    new = Abs(x.dep | place, way)
    shape = t.tree or TreeAbs()
    points = shape.points | (way if not x.held else labels.NO)
    dep = t.dep | x.dep | c.control | (at.reads if at is not None else labels.NO)
    known = shape.grown | {key} if x.held else shape.grown
    return [
        Abs(
            dep,
            t.held | x.held,
            tree=TreeAbs(replace(new, dep=labels.NO), replace(new, dep=labels.NO), points, known),
        ),
        replace(new, dep=labels.NO),
    ]


@op("tree.new")
class TreeNew:
    """A tree of a root alone: the committed context, a context node, or a canvas (attribute tree: its name; until: where it
    ends before the context window does, see ir/places.py)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        if not types:
            return (Type("tree", (attrs["tree"], "token", attrs.get("vocab", "V"))),)
        if types[0].elem == "canvas":
            return (Type("tree", (attrs["tree"], "edit", str(types[0].of[0]))),)
        need(types[0].elem == "node", f"a tree grows from a context or a canvas, got {types[0]}")
        return (Type("tree", (attrs["tree"], attrs.get("edge", "token"), attrs.get("vocab", "V"))),)

    def meaning(m: Any, op: Any, base: Any = None) -> Any:
        t = Tree.start(m.context() if base is None else base, op.attrs.get("capacity"), m.num.zero)
        return (bounded(m, op, t),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        base = c.reads(op)
        return [Abs(base, labels.NO, tree=TreeAbs(Abs(), Abs(), labels.NO))]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        s.peaks.setdefault(op, 1)
        return [Nodes(1, 1, 1, 1, True, (op,))]

    attrs = ("tree", "edge?", "capacity?", "vocab?", "until?")
    batch = "ragged"
    samples: Any = (
        ('%z = tree.new(%ctx, tree = "t")', []),
        ('%z = tree.new(%c, tree = "v")', []),
    )
    refusals = (("int", "context or a canvas", {"tree": "t"}),)


@op("tree.continue")
class TreeContinue:
    """A carried tree, on the context as it is now (an empty one where nothing was carried). Attribute until as for tree.new."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "draft")
        return (Type("tree", (attrs["tree"],) + t.of[1:]),)

    def meaning(m: Any, op: Any, t: Any) -> Any:
        if t is None:
            return (bounded(m, op, Tree.start(m.context(), None, m.num.zero)),)
        return (bounded(m, op, replace(t, base=m.context(), frontier=tuple(t.leaves()), new=tuple(t.leaves()))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return [c.of(op.operands[0])]

    attrs = ("tree", "until?")
    batch = "ragged"
    samples = (('%z = tree.continue(%t, tree = "s")', [0, 1, 2]),)
    refusals = (("int", "tree", {"tree": "t"}),)


@op("tree.grow")
class TreeGrow:
    """Append edges: draws (or edits, steps, soft cells), in order, at given nodes or, for draws, where their law was
    evaluated. Operands tree, edges, [at], column values; attributes has_at, columns (names), chain (each under the one
    before). Nodes past the context window are not grown, nor those that are of no use (attribute until of tree.new). Results:
    the tree, the new nodes."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "grow")
        what = types[1]
        edge = {"draw": "token", "edit": "edit", "path": "step", "hidden": "soft", "list": "step"}.get(what.elem)
        hint = ""
        if what.elem in ("token", "int"):
            hint = "say grow point(x), or grow chain(x) for one under the other: a token has forgotten its law"
        if what.elem == "dist":
            hint = "draw from it first: x ~ q, then grow x; or grow topk(q.raw, k)"
        if what.elem == "list":
            need(what.of[0].elem in ("path", "any"), f"grow takes draws, or a list of paths, got {what}")
        need(edge is not None, f"grow takes draws, got {what}", hint)
        if edge == "token" and t.of[1] == "token":
            need(what.vocab == t.of[2] or not what.vocab, f"draws of vocabulary {what.vocab} grow a tree over {t.of[2]}")
        kind = t.of[1]
        if kind == "token" and edge in ("soft", "step"):
            kind = edge
        need(kind == edge or kind in ("soft", "step", "any"), f"a tree of {t.of[1]}s cannot grow {what}")
        if attrs.get("has_at"):
            at = types[2]
            need(at.elem == "node", f"grow ... at needs nodes, got {at}")
            need(at.of[0] == t.of[0], f"grow ... at: a node of tree {at.of[0]} in tree {t.of[0]}")
        for name, value in zip(attrs.get("columns", ()), types[3 if attrs.get("has_at") else 2 :]):
            need(
                len(value.dims) <= max(1, len(what.dims)) or what.elem == "list",
                f"the column {name} is given {value}: more values than {what} becomes nodes",
                "take it from what is grown: best = top(xs, k, by = xs.race), then grow best with race = best.race",
            )
        bounds = [d.bound for d in what.dims]
        n = None
        if what.elem != "list" and all(b is not None for b in bounds):
            n = int(np.prod([b for b in bounds if b is not None])) if bounds else 1
        single = not what.dims and edge != "step" and not (attrs.get("has_at") and types[2].dims)
        new = Type("node", (t.of[0],), (Dim("part", str(t.of[0]), 1 if single else n),))
        return (Type("tree", (t.of[0], kind, t.of[2])), new)

    def meaning(m: Any, op: Any, t: Tree, what: Any, *rest: Any) -> Any:
        at, given_columns = (rest[0], rest[1:]) if op.attrs.get("has_at") else (None, rest)
        names = op.attrs.get("columns", ())
        edges, parents, rows = attach(m, t, what, at, bool(op.attrs.get("chain")))
        room_for_nodes(len(t.nodes), len(edges))
        columns: list[dict[str, Any]] = [{} for _ in edges]
        given = None
        for name, value in zip(names, given_columns, strict=True):
            values = spread_column(m, value, len(edges), rows)
            if name == "logprob":
                given = values
            else:
                for i, v in enumerate(values):
                    columns[i][name] = v
        tree, ids = t, []
        made: dict[int, int] = {}
        for i, (edge, parent) in enumerate(zip(edges, parents)):
            parent = made.get(-1 - parent, -1) if parent < 0 else parent
            if edge is None or parent < 0:
                continue
            if not m.fits(tree, parent):
                continue
            score = given[i] if given is not None else m.add_log(tree.nodes[parent].logprob, edge)
            tree = tree.grow([edge], [parent], [score], [columns[i]])
            made[i] = len(tree) - 1
            ids.append(len(tree) - 1)
            m.grew(tree, len(tree) - 1, edge)
        tree = replace(tree, new=tuple(ids), frontier=tuple(ids))
        return (tree, np.array(ids, dtype=np.int64))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return grown(c, op, c.of(op.operands[1]))

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        t, edges = s.tree(op.operands[0]), op.operands[1]
        at = op.operands[2] if op.attrs.get("has_at") else None
        listed = edges.type.elem == "list"
        count = None if listed else times(s.lengths(edges if edges.type.dims or at is None else at))
        every = t.size == 1 or _over_leaves(s, edges if at is None else at, t)
        if op.attrs.get("chain"):
            every = t.size == 1 and count == 1
        return sizes_grown(s, op, count, every)

    attrs = ("has_at?", "columns?", "chain?")
    batch = "ragged"
    samples = (
        ("%z, %new = tree.grow(%t, %x)", [0, 1, 2, 1]),
        ("%z, %new = tree.grow(%t, %ds, %ns, has_at = true)", [0, 1, 2, 2, 0]),
        ("%z, %new = tree.grow(%t, %ds, %node, has_at = true, chain = true)", [0, 1, 2, 2, 0]),
        ("%z, %new = tree.grow(%u, %e)", [1, 1]),
    )
    refusals = (
        ("tree<t,token,V>, token<V>", "point(x)"),
        ("tree<t,token,V>, dist<V,shaped>", "x ~ q"),
        ("tree<t,token,V>, draw<W>", "W"),
        ("int, draw<V>", "tree"),
    )


def attach(m: Any, t: Tree, what: Any, at: Any, chain: bool) -> tuple[list[Any], list[int], list[int]]:
    """Edges with their parents (a negative parent -1-i is edge i of this very list), and the leading row of each."""
    if isinstance(what, Path):
        return [what], [int(plain(at)) if at is not None else t.frontier[0]], [0]
    if isinstance(what, list) and what and isinstance(what[0], Path):
        at_ids = np.atleast_1d(np.asarray(at)) if at is not None else np.array([t.frontier[0]] * len(what))
        return list(what), [int(at_ids[i if len(at_ids) > 1 else 0]) for i in range(len(what))], list(range(len(what)))
    if isinstance(what, (Edit, Soft)):
        return [what], [int(plain(np.ravel(at)[0])) if at is not None else t.frontier[0]], [0]
    if isinstance(what, np.ndarray) and what.dtype == object:
        ids = np.atleast_1d(np.asarray(at)) if at is not None else np.array(t.frontier)
        return list(what), [int(ids[i if len(ids) == len(what) else 0]) for i in range(len(what))], list(range(len(what)))
    items = what.items
    flat = list(items.ravel())
    if chain:
        start = int(plain(np.ravel(at)[0])) if at is not None else 0
        return flat, [start if i == 0 else -1 - (i - 1) for i in range(len(flat))], list(range(len(flat)))
    width = int(np.prod(items.shape[1:])) if items.ndim > 1 else 1
    leading = [i // width for i in range(len(flat))] if items.ndim >= 1 else [0]
    if at is not None:
        ids = np.ravel(np.asarray(at))
        if len(ids) == 1:
            return flat, [int(ids[0])] * len(flat), leading
        full = np.shape(at) == items.shape
        return (
            flat,
            [int(ids[i if full else r]) for i, r in enumerate(leading)]
            if len(flat) > 1 or items.ndim
            else [int(i) for i in ids],
            leading,
        )
    parents = []
    for n, d in enumerate(flat):
        node = None if d is None else (d.source.node if d.source.node is not None else d.law.node)
        if node is None:
            node = (
                t.frontier[leading[n]]
                if len(t.frontier) > 1 and len(t.frontier) == items.shape[0]
                else (t.frontier[0] if t.frontier else 0)
            )
        parents.append(int(node))
    return flat, parents, leading


def spread_column(m: Any, value: Any, n: int, rows: list[int]) -> list[Any]:
    """A column's values, one per new node: elementwise, by row, or the same for all."""
    if isinstance(value, (Draws, Dist)):
        value = array(m, value)
    if isinstance(value, (list, tuple)) or np.ndim(value):
        flat = list(value) if isinstance(value, (list, tuple)) else list(np.ravel(np.asarray(value)))
        return flat if len(flat) == n else [flat[r] for r in rows]
    return [value] * n


_FIELDS = {"parent": "node", "depth": "int", "logprob": "real", "prob": "prob"}


@op("tree.get")
class TreeGet:
    """A column over all nodes: token, parent, depth, logprob, prob, law, point, masked, token of canvases, or the author's own.
    The root's parent is the root; its token is the last of the context; its law has no meaning."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, f".{attrs['column']}")
        d = Dim("nodes", str(t.of[0]))
        c = attrs["column"]
        if t.of[1] == "edit" and c in ("masked", "decided"):
            return (Type("bool", (), (d, Dim("cells", str(t.of[2])))),)
        if c == "token":
            need(t.of[1] != "soft", "a soft node has no token")
            return (Type("token", (attrs.get("vocab", "V") if t.of[1] == "edit" else t.of[2],), (d,)),)
        if c in ("law", "draw", "prob"):
            need(t.of[1] != "edit", f"an edit has no {c}", "the draw it puts in has: keep it in a column")
        if c == "law":
            return (Type("dist", (t.of[2], "shaped"), (d,)),)
        if c == "draw":
            return (Type("draw", (t.of[2],), (d,)),)
        if c == "point":
            return (Type("bool", (), (d,)),)
        if c in _FIELDS:
            return (Type(_FIELDS[c], (t.of[0],) if c == "parent" else (), (d,)),)
        want = attrs.get("type")
        need(
            want is not None,
            f"tree {t.of[0]} has no column {c}",
            "columns: token, parent, depth, logprob, prob, law, or one set with `grow x with name = value`",
        )
        return (want.over(d) if want.elem not in ("path", "list", "none") else listing(want),)

    def meaning(m: Any, op: Any, t: Tree) -> Any:
        c = op.attrs["column"]
        if c == "parent":
            return (np.array([n.parent for n in t.nodes], dtype=np.int64),)
        if c == "depth":
            return (np.array([n.depth for n in t.nodes], dtype=np.int64),)
        if c == "logprob":
            return (m.reals([n.logprob for n in t.nodes]),)
        if c in ("masked", "decided"):
            states = [t.state(i) for i in range(len(t))]
            mask = np.array([[s.masked(i) for i in range(len(s))] for s in states], dtype=bool)
            return (mask if c == "masked" else ~mask,)
        if c == "token":
            last = m.last_token(t)
            return (np.array([last] + [edge_token(n.edge) for n in t.nodes[1:]], dtype=np.int64),)
        if c == "prob":
            return (m.reals([m.num.one] + [n.edge.source.face("raw")[n.edge.token] for n in t.nodes[1:]]),)
        if c == "point":
            return (np.array([True] + [bool(getattr(n.edge, "point", True)) for n in t.nodes[1:]], dtype=bool),)
        if c in ("law", "draw"):
            draws = [m.root_draw(t)] + [n.edge for n in t.nodes[1:]]
            if c == "draw":
                return (Draws(box(draws)),)
            return (Dist.of([law_row(d) for d in draws]),)
        values = [n.columns.get(c) for n in t.nodes]
        if op.results[0].type.elem == "list":
            return (values,)
        return (m.column(values, op.results[0].type),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t = c.of(op.operands[0])
        column = op.attrs["column"]
        if column in ("depth", "parent"):
            return [Abs(column=True)]
        if column == "point":
            return [Abs(column=True, points=(t.tree or TreeAbs()).points)]
        return [Abs(labels.NO, t.held, column=True)]

    attrs = ("column", "type?", "vocab?")
    batch = "ragged"
    samples = (
        ('%z = tree.get(%t, column = "token")', [2, 0, 1, 2]),
        ('%z = tree.get(%t, column = "parent")', [0, 0, 0, 1]),
        ('%z = tree.get(%t, column = "depth")', [0, 1, 1, 2]),
        ('%z = tree.get(%t, column = "law")', ...),
        ('%z = tree.get(%t, column = "logprob")', [0.0, -0.5, -1.5, -2.0]),
        ('%z = tree.get(%t, column = "prob")', [1.0, 0.5, 0.25, 0.25]),
        ('%z = tree.get(%t, column = "draw")', [2, 0, 1, 2]),
        ('%z = tree.get(%t, column = "point")', [True, False, False, False]),
        ('%z = tree.get(%t, column = "score", type = !int)', [0, 2, 3, 4]),
        ('%z = tree.get(%u, column = "token", vocab = "V")', [2, 1]),
        ('%z = tree.get(%u, column = "masked")', [[True, False, True], [False, False, True]]),
    )
    refusals = (
        ("tree<t,token,V>", "columns: token", {"column": "colour"}),
        ("tree<t,edit,c>", "column", {"column": "prob"}),
    )


@op("tree.set")
class TreeSet:
    """Set a column (attribute column) at nodes."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "setting a column")
        need(
            types[1].elem == "node" and types[1].of[0] == t.of[0],
            f"columns of tree {t.of[0]} are set at its nodes, got {types[1]}",
        )
        need(attrs["column"] not in ("token", "parent", "depth", "law"), f"column {attrs['column']} cannot be set")
        return (t,)

    def meaning(m: Any, op: Any, t: Tree, ns: Any, values: Any) -> Any:
        ids = [int(i) for i in np.ravel(np.asarray(ns))]
        return (t.with_column(op.attrs["column"], ids, spread_column(m, values, len(ids), list(range(len(ids))))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t, value = c.of(op.operands[0]), c.of(op.operands[2])
        return [replace(t, dep=t.dep | (value.dep - t.held))]

    attrs = ("column",)
    batch = "ragged"
    capacity = sizes.same
    samples = (('%z = tree.set(%t, %ns, %i, column = "score")', [0, 1, 2]),)
    refusals = (("tree<t,token,V>, node<s>, int", "nodes", {"column": "a"}),)


@op("tree.front")
class TreeFront:
    """The tree with another frontier: the nodes that `t.frontier` names next."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "setting the frontier")
        need(
            types[1].elem == "node" and types[1].of[0] == t.of[0], f"the frontier is made of nodes of {t.of[0]}, got {types[1]}"
        )
        return (t,)

    def meaning(m: Any, op: Any, t: Tree, ns: Any) -> Any:
        return (replace(t, frontier=tuple(int(i) for i in np.ravel(np.asarray(ns)))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t, ns = c.of(op.operands[0]), c.of(op.operands[1])
        return [replace(t, tree=replace(t.tree or TreeAbs(), frontier=Abs(ns.dep, ns.held)))]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        n = s.lengths(op.operands[1])
        return [replace(s.tree(op.operands[0]), frontier=n[0] if n else 1, edge=False)]

    batch = "ragged"
    samples = (("%z = tree.front(%t, %ns)", [0, 1, 2]),)
    refusals = (("tree<t,token,V>, int", "nodes"),)


@op("tree.nodes")
class TreeNodes:
    """Nodes of a tree: root, all, drafted (all but the root), leaves, new, frontier, or the children or the path of a node."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, f".{attrs['which']}")
        which = attrs["which"]
        if which == "root":
            return (Type("node", (t.of[0],)),)
        if which in ("children", "path"):
            need(
                types[1].elem == "node" and types[1].of[0] == t.of[0] and not types[1].dims,
                f".{which}(n) needs one node of tree {t.of[0]}, got {types[1]}",
            )
        return (nodes_type(t, "nodes" if which == "all" else "part", attrs.get("bound")),)

    def meaning(m: Any, op: Any, t: Tree, *n: Any) -> Any:
        which = op.attrs["which"]
        if which == "root":
            return (0,)
        ids = {
            "all": lambda: range(len(t)),
            "drafted": lambda: range(1, len(t)),
            "leaves": t.leaves,
            "new": lambda: t.new,
            "frontier": lambda: t.frontier,
            "children": lambda: t.children(as_int(n[0])),
            "path": lambda: t.path_nodes(as_int(n[0])),
        }[which]()
        return (np.array(list(ids), dtype=np.int64),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t = c.of(op.operands[0])
        which, shape = op.attrs["which"], t.tree or TreeAbs()
        if which == "root":
            return [Abs()]
        if which in ("frontier", "new"):
            return [shape.frontier if which == "frontier" else shape.new]
        return [Abs(labels.NO, t.held)]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        t, which = s.tree(op.operands[0]), op.attrs["which"]
        if which == "root":
            return [None]
        drafted = add(t.size, -1)
        return [({"frontier": t.frontier, "leaves": t.leaves, "new": t.new, "all": t.size}.get(which, drafted),)]

    attrs = ("which", "bound?")
    batch = "ragged"
    samples = (
        ('%z = tree.nodes(%t, which = "root")', 0),
        ('%z = tree.nodes(%t, which = "all")', [0, 1, 2, 3]),
        ('%z = tree.nodes(%t, which = "drafted")', [1, 2, 3]),
        ('%z = tree.nodes(%t, which = "leaves")', [2, 3]),
        ('%z = tree.nodes(%t, which = "new")', [3]),
        ('%z = tree.nodes(%t, which = "frontier")', [3]),
        ('%z = tree.nodes(%t, %first, which = "children")', [3]),
        ('%z = tree.nodes(%t, %node, which = "path")', [0, 1, 3]),
    )
    refusals = (
        ("int", "tree", {"which": "all"}),
        ("tree<t,token,V>, int", "one node", {"which": "children"}),
    )


@op("tree.size")
class TreeSize:
    """How many drafted nodes a tree has (attribute what "size"), or how deep it is ("height")."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        tree_of(types, "." + attrs["what"])
        return (INT,)

    def meaning(m: Any, op: Any, t: Tree) -> Any:
        return (len(t) - 1 if op.attrs["what"] == "size" else t.height(),)

    attrs = ("what",)
    label, batch = labels.nothing, "ragged"
    samples = (
        ('%z = tree.size(%t, what = "size")', 3),
        ('%z = tree.size(%t, what = "height")', 2),
    )
    refusals = (("int", "tree", {"what": "size"}),)


def _folded(t: Type, v: Type, given: Type, fn: str, what: str) -> Type:
    """The type of a fold over a tree: of bools for any and all, else of numbers (sums of probabilities are plain numbers)."""
    need(
        len(v.dims) == 1 and v.dims[0].kind == "nodes" and v.dims[0].of == t.of[0],
        f"{what} needs a column over the nodes of {t.of[0]}, got {given}",
    )
    logic = fn in ("any", "all")
    need(v.elem == "bool" if logic else v.is_number, f"{what} by {fn} needs {'bools' if logic else 'numbers'}, got {given}")
    return Type("real", (), v.dims) if fn == "sum" and v.elem == "prob" else v


def _column(m: Any, t: Type, values: list[Any]) -> Any:
    if t.elem in ("bool", "int"):
        return np.array(values, dtype=bool if t.elem == "bool" else np.int64)
    return m.reals(values)


_FOLDS: dict[str, Any] = {
    "all": lambda x, y: bool(x) and bool(y),
    "any": lambda x, y: bool(x) or bool(y),
    "sum": lambda x, y: x + y,
    "max": max,
    "min": min,
}


@op("tree.down")
class TreeDown:
    """Fold a column along each path from the root (attribute fn: all, any, sum, max, min): the root's own value is left out
    for `all` (the root counts as true), `any` (as false) and sums (as 0)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "down")
        v = numeric(types[1])
        return (_folded(t, v, types[1], attrs["fn"], "down"),)

    def meaning(m: Any, op: Any, t: Tree, v: Any) -> Any:
        fn = op.attrs["fn"]
        a = list(np.asarray(array(m, v)))
        start = {"all": True, "any": False, "sum": m.num.zero, "max": a[0], "min": a[0]}[fn]
        out: list[Any] = [start]
        for i in range(1, len(t)):
            up = out[t.nodes[i].parent]
            out.append(_FOLDS[fn](up, a[i]))
        return (_column(m, op.results[0].type, out),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        column = c.of(op.operands[1])
        return [column] if column.column else labels.joined(c, op)

    attrs = ("fn",)
    batch = "ragged"
    samples = (
        ('%z = tree.down(%t, %ok, fn = "all")', [True, True, False, True]),
        ('%z = tree.down(%t, %col, fn = "sum")', [0.0, 1.0, 2.0, 4.0]),
        ('%z = tree.down(%t, %deep, fn = "max")', [0, 1, 1, 2]),
    )
    refusals = (
        ("tree<t,token,V>, int[k]", "column", {"fn": "all"}),
        ("tree<t,token,V>, int[nodes.t]", "bools", {"fn": "all"}),
    )


@op("tree.up")
class TreeUp:
    """Fold a column over each node's subtree (attribute fn: all, any, sum, max, min), the node included."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        return (_folded(tree_of(types, "up"), numeric(types[1]), types[1], attrs["fn"], "up"),)

    def meaning(m: Any, op: Any, t: Tree, v: Any) -> Any:
        fn = op.attrs["fn"]
        out = list(np.asarray(array(m, v)))
        fold = _FOLDS[fn]
        for i in range(len(t) - 1, 0, -1):
            p = t.nodes[i].parent
            out[p] = fold(out[p], out[i])
        return (_column(m, op.results[0].type, out),)

    attrs = ("fn",)
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = tree.up(%t, %col, fn = "max")', [9.0, 3.0, 2.0, 3.0]),
        ('%z = tree.up(%t, %ok, fn = "any")', [True, True, False, True]),
    )
    refusals = (("int, int", "tree", {"fn": "all"}),)


@op("tree.keep")
class TreeKeep:
    """Prune to nodes: the root and those of them whose ancestors are all kept, in growth order."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "prune")
        need(types[1].elem == "node" and types[1].of[0] == t.of[0], f"prune needs nodes of tree {t.of[0]}, got {types[1]}")
        return (t,)

    def meaning(m: Any, op: Any, t: Tree, ns: Any) -> Any:
        tree, place = t.keep([int(i) for i in np.ravel(np.asarray(ns))])
        m.pruned(t, tuple(place))
        return (tree,)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t, ns = c.of(op.operands[0]), c.of(op.operands[1])
        name = str(op.operands[0].type.of[0])
        which = t.held & (ns.dep | c.control)
        if which:
            c.report("prune", op, which, name)
        whole = Abs(held=t.reads)
        return [replace(t, dep=t.dep | ns.dep, tree=TreeAbs(whole, whole, (t.tree or TreeAbs()).points))]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        t = s.tree(op.operands[0])
        n = (s.lengths(op.operands[1]) or (1,))[0]
        size = least(t.size, add(n, 1))
        return [replace(t, size=size, leaves=size, frontier=least(t.frontier, size), new=least(t.new, size), edge=False)]

    batch = "ragged"
    samples = (("%z = tree.keep(%t, %ns)", [0, 2]),)
    refusals = (("tree<t,token,V>, node<s>[part.s]", "tree t"),)


@op("tree.reroot")
class TreeReroot:
    """After a commit: the tree below the accepted node, on the new context; nothing where a token was emitted instead."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "commit")
        need(types[1].elem == "path", f"a tree goes on below an accepted path, got {types[1]}")
        return (t,)

    def meaning(m: Any, op: Any, t: Tree, path: Any) -> Any:
        if path.emitted is not None or m.done():
            return (Tree.start(m.context(), t.capacity, m.num.zero),)
        return (t.below(path.node, m.context()),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return [c.of(op.operands[0])]

    batch = "ragged"
    samples: Any = (("%z = tree.reroot(%t, %path)", []),)
    refusals = (("int, path<V>", "tree"),)


@op("tree.walk")
class TreeWalk:
    """Verify: apply a rule from the root down. Attribute scope: "node" (the rule sees the evidence at a node and the draws
    below it) or "tree" (it sees all). The region yields (accepts, child or node, emits, token); the walk ends where the
    rule emits or accepts nothing, or where the evidence is not known. The result is the accepted path, or for a tree of
    canvases the canvas at the accepted node."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = tree_of(types, "verify")
        need(t.of[1] not in ("soft",), "a tree with soft nodes cannot be verified: a soft node has no token")
        e = types[1]
        need(
            bool(e.dims) or e.elem == "list",
            f"verify ... against needs evidence at every node, got {e}",
            "evaluate the model at the tree: target(t)",
        )
        y = regions[0].yields
        need(len(y) == 4, "a rule yields (accepts, what, emits, token)")
        if attrs["scope"] == "node" and t.of[1] == "token" and e.elem == "dist":
            need(
                e.of[0] == t.of[2],
                f"the drafts are tokens of vocabulary {t.of[2]}, the evidence is over {e.of[0]}",
                "take models that share one vocabulary",
            )
        return (Type("canvas", (t.of[2], attrs.get("vocab", "V"))) if t.of[1] == "edit" else Type("path", (t.of[2],)),)

    def regions(types: Any, attrs: Any) -> Any:
        t, e = types[:2]
        if attrs["scope"] == "tree":
            return ((INT, t, e),)
        row = e.of[0] if e.elem == "list" else e.drop()
        return ((INT, row, Type("edit" if t.of[1] == "edit" else "draw", (t.of[2],), (Dim("k"),))),)

    def meaning(m: Any, op: Any, t: Tree, evidence: Any, *rest: Any) -> Any:
        return (m.walk(op, t, evidence, rest),)

    attrs = ("scope", "rule?", "vocab?")
    label, batch = labels.joined, "ragged"
    samples = (
        (
            (
                '%z = tree.walk(%t, %at_t, scope = "node") (%d: int, %p: dist<V,shaped>, %xs: draw<V>[k]) {\n'
                "%o = const(value = 0, type = !int)\n%first = gather(%xs, %o)\nyield %b, %first, %b, %first\n}"
            ),
            [0],
        ),
    )
    refusals = ()


__all__ = ["Canvas", "join", "point"]
