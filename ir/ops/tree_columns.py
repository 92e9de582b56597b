"""What trees hold: columns, sets of nodes, sizes, and folds along paths and over subtrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import numpy as np

from decgraph.errors import DecError
from decgraph.ir import facts, labels, sizes
from decgraph.ir.data.dist import Dist, Draw, Draws, Row, box
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Node, Tree, edge_token
from decgraph.ir.labels import Abs, Checker, TreeAbs
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import array, as_int, need, numeric
from decgraph.ir.ops.draws import law_row
from decgraph.ir.ops.trees import nodes_type, spread_column, tree_of
from decgraph.ir.sizes import Known, Sizes, add
from decgraph.ir.types import INT, Dim, Type, listing
from decgraph.ir.values import Op

_FIELDS = {"parent": "node", "depth": "int", "logprob": "real", "prob": "prob"}


def stored(values: Sequence[Dist | None], column: str) -> Dist:
    """A column of distributions, each as it was stored."""

    def row(v: Dist | None) -> Row:
        if v is None:
            return Row(partial(_nothing_stored, column))
        return v.row if v.face == "shaped" else Row(lambda face: v.vector(), node=v.row.node)

    return Dist.of([row(v) for v in values])


def _nothing_stored(column: str, face: str) -> NoReturn:
    raise DecError(f"column {column} was not set at this node", hint="set it before it is read")


def _draw_of(n: Node) -> Draw:
    assert isinstance(n.edge, Draw), "a node of a tree of tokens that is no draw"
    return n.edge


_FOLDS: dict[str, Callable[..., Number]] = {
    "all": lambda x, y: bool(x) and bool(y),
    "any": lambda x, y: bool(x) or bool(y),
    "sum": lambda x, y: x + y,
    "max": max,
    "min": min,
}


@op("tree.get")
class TreeGet:
    """A column over all nodes: token, parent, depth, logprob, prob, law, point, masked, token of canvases, or the author's own.
    The root's parent is the root; its token is the last of the context; it was drawn from no distribution."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
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

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree) -> tuple[Datum, ...]:
        c = op.attrs["column"]
        if c == "parent":
            return (np.array([n.parent for n in t.nodes], dtype=np.int64),)
        if c == "depth":
            return (np.array([n.depth for n in t.nodes], dtype=np.int64),)
        if c == "logprob":
            return (m.reals([n.logprob for n in t.nodes]),)
        if c in ("masked", "decided"):
            states = [t.canvas(i) for i in range(len(t))]
            mask = np.array([[s.masked(i) for i in range(len(s))] for s in states], dtype=bool)
            return (mask if c == "masked" else ~mask,)
        if c == "token":
            last = m.last_token(t)
            return (np.array([last] + [edge_token(n.edge) for n in t.nodes[1:]], dtype=np.int64),)
        if c == "prob":
            return (m.reals([m.num.one] + [d.source.face("raw")[d.token] for d in map(_draw_of, t.nodes[1:])]),)
        if c == "point":
            return (np.array([True] + [bool(getattr(n.edge, "point", True)) for n in t.nodes[1:]], dtype=bool),)
        if c in ("law", "draw"):
            draws = [m.root_draw(t), *map(_draw_of, t.nodes[1:])]
            if c == "draw":
                return (Draws(box(draws)),)
            return (Dist.of([law_row(d) for d in draws]),)
        values = [n.columns.get(c) for n in t.nodes]
        if op.results[0].type.elem == "list":
            return (values,)
        if op.results[0].type.elem == "dist":
            return (stored(values, c),)
        return (m.column(values, op.results[0].type),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t = c.of(op.operands[0])
        column = op.attrs["column"]
        if column in ("depth", "parent"):
            return [Abs(column=True)]
        if column == "point":
            return [Abs(column=True, points=(t.tree or TreeAbs()).points)]
        return [Abs(labels.NO, t.draws, column=True)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        tree = k.of(op.operands[0])
        return facts.Column(tree.tree, "depth") if isinstance(tree, facts.Tree) and op.attrs["column"] == "depth" else None

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

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "setting a column")
        need(
            types[1].elem == "node" and types[1].of[0] == t.of[0],
            f"columns of tree {t.of[0]} are set at its nodes, got {types[1]}",
        )
        need(attrs["column"] not in ("token", "parent", "depth", "law"), f"column {attrs['column']} cannot be set")
        return (t,)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, ns: Datum, values: Datum) -> tuple[Datum, ...]:
        ids = [int(i) for i in np.ravel(np.asarray(ns))]
        return (t.with_column(op.attrs["column"], ids, spread_column(m, values, len(ids), list(range(len(ids))))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t, value = c.of(op.operands[0]), c.of(op.operands[2])
        return [replace(t, dep=t.dep | (value.dep - t.draws))]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The same nodes and draws."""
        return k.of(op.operands[0])

    attrs = ("column",)
    batch = "ragged"
    capacity = sizes.same
    samples = (('%z = tree.set(%t, %ns, %i, column = "score")', [0, 1, 2]),)
    refusals = (("tree<t,token,V>, node<s>, int", "nodes", {"column": "a"}),)


@op("tree.front")
class TreeFront:
    """The tree with another frontier: the nodes that `t.frontier` names next."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "setting the frontier")
        need(
            types[1].elem == "node" and types[1].of[0] == t.of[0],
            f"the frontier consists of nodes of {t.of[0]}, got {types[1]}",
        )
        return (t,)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, ns: Datum) -> tuple[Datum, ...]:
        return (replace(t, frontier=tuple(int(i) for i in np.ravel(np.asarray(ns)))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t, ns = c.of(op.operands[0]), c.of(op.operands[1])
        return [replace(t, tree=replace(t.tree or TreeAbs(), frontier=Abs(ns.dep, ns.draws)))]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        n = s.lengths(op.operands[1])
        return [replace(s.tree(op.operands[0]), frontier=n[0] if n else 1, edge=False)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The same nodes and draws."""
        return k.of(op.operands[0])

    batch = "ragged"
    samples = (("%z = tree.front(%t, %ns)", [0, 1, 2]),)
    refusals = (("tree<t,token,V>, int", "nodes"),)


@op("tree.nodes")
class TreeNodes:
    """Nodes of a tree: root, all, drafted (all but the root), leaves, new, frontier, or the children or the path of a node."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
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

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, *n: Datum) -> tuple[Datum, ...]:
        which = op.attrs["which"]
        if which == "root":
            return (0,)
        if which in ("all", "drafted"):
            return (np.arange(which == "drafted", len(t), dtype=np.int64),)
        if which in ("children", "path"):
            ids = (t.children if which == "children" else t.path_nodes)(as_int(n[0]))
        else:
            ids = t.leaves() if which == "leaves" else list(t.new if which == "new" else t.frontier)
        return (np.array(ids, dtype=np.int64),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t = c.of(op.operands[0])
        which, shape = op.attrs["which"], t.tree or TreeAbs()
        if which == "root":
            return [Abs()]
        if which in ("frontier", "new"):
            return [shape.frontier if which == "frontier" else shape.new]
        return [Abs(labels.NO, t.draws)]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        t, which = s.tree(op.operands[0]), op.attrs["which"]
        if which == "root":
            return [None]
        drafted = add(t.size, -1)
        return [({"frontier": t.frontier, "leaves": t.leaves, "new": t.new, "all": t.size}.get(which, drafted),)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        tree, which = k.of(op.operands[0]), op.attrs["which"]
        return (
            facts.Nodes(tree.tree, tree.version, which) if isinstance(tree, facts.Tree) and which in ("all", "root") else None
        )

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

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        tree_of(types, "." + attrs["what"])
        return (INT,)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree) -> tuple[Datum, ...]:
        return (len(t) - 1 if op.attrs["what"] == "size" else t.height(),)

    attrs = ("what",)
    label, batch = labels.nothing, "ragged"
    looks = "all"
    samples = (
        ('%z = tree.size(%t, what = "size")', 3),
        ('%z = tree.size(%t, what = "height")', 2),
    )
    refusals = (("int", "tree", {"what": "size"}),)


def _folded(t: Type, v: Type, actual: Type, fn: str, what: str) -> Type:
    """The type of a fold over a tree: of bools for any and all, else of numbers (sums of probabilities are plain numbers)."""
    need(
        len(v.dims) == 1 and v.dims[0].kind == "nodes" and v.dims[0].of == t.of[0],
        f"{what} needs a column over the nodes of {t.of[0]}, got {actual}",
    )
    logic = fn in ("any", "all")
    need(v.elem == "bool" if logic else v.is_number, f"{what} by {fn} needs {'bools' if logic else 'numbers'}, got {actual}")
    return Type("real", (), v.dims) if fn == "sum" and v.elem == "prob" else v


def _column(m: Machine, t: Type, values: Sequence[Number]) -> np.ndarray:
    if t.elem in ("bool", "int"):
        return np.array(values, dtype=bool if t.elem == "bool" else np.int64)
    return m.reals(values)


@op("tree.down")
class TreeDown:
    """Fold a column along each path from the root (attribute fn: all, any, sum, max, min): the root's own value is left out
    for `all` (the root counts as true), `any` (as false) and sums (as 0)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "down")
        v = numeric(types[1])
        return (_folded(t, v, types[1], attrs["fn"], "down"),)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, v: Datum) -> tuple[Datum, ...]:
        fn = op.attrs["fn"]
        a = list(array(m, v))
        start = {"all": True, "any": False, "sum": m.num.zero, "max": a[0], "min": a[0]}[fn]
        out: list[Number] = [start]
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

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (_folded(tree_of(types, "up"), numeric(types[1]), types[1], attrs["fn"], "up"),)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, v: Datum) -> tuple[Datum, ...]:
        fn = op.attrs["fn"]
        out = list(array(m, v))
        fold = _FOLDS[fn]
        for i in range(len(t) - 1, 0, -1):
            p = t.nodes[i].parent
            out[p] = fold(out[p], out[i])
        return (_column(m, op.results[0].type, out),)

    attrs = ("fn",)
    label, batch = labels.joined, "ragged"
    looks = "all"
    samples = (
        ('%z = tree.up(%t, %col, fn = "max")', [9.0, 3.0, 2.0, 3.0]),
        ('%z = tree.up(%t, %ok, fn = "any")', [True, True, False, True]),
    )
    refusals = (("int, int", "tree", {"fn": "all"}),)
