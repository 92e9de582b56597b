"""What goes into trees and comes out of them: edits, paths, topologies, growth from an index."""

from __future__ import annotations

import heapq
from dataclasses import replace
from fractions import Fraction

import numpy as np

from decgraph.ir import facts, labels
from decgraph.ir.data.canvas import Edit
from decgraph.ir.data.dist import Draw, Draws, Path, Row, box
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Datum, Following, Machine
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import as_int, need, need_one
from decgraph.ir.ops.draws import point
from decgraph.ir.ops.trees import grown, nodes_type, sizes_grown, tree_of
from decgraph.ir.sizes import Known, Sizes
from decgraph.ir.types import INT, Dim, Type
from decgraph.ir.values import Op


@op("edit")
class EditOp:
    """Edits of a canvas: decide a position with a token (or draw). Vectors of both make a vector of edits."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        i, x = types
        need(i.elem in ("position", "int"), f"edit needs a position, got {i}")
        need(x.is_token or x.elem == "int", f"edit needs a token, got {x}")
        need(len(x.dims) <= len(i.dims) <= 1, f"edit needs a token for each position, got {i} and {x}")
        return (Type("edit", (attrs.get("canvas", "c"),), i.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, i: Datum, x: Datum) -> tuple[Datum, ...]:
        at = np.asarray(i)
        if at.shape == ():
            return (Edit(int(at), _cell(x)),)
        values = np.broadcast_to(x.items if isinstance(x, Draws) else np.asarray(x), at.shape)
        return (box([Edit(int(p), v if isinstance(v, Draw) else int(v)) for p, v in zip(at, values, strict=True)]),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A position and the token that was drawn there, picked out by the same keys."""
        where, what = (k.of(v) for v in op.operands)
        if isinstance(where, facts.Picked) and isinstance(what, facts.Picked) and what.tokens is not None:
            if where.of is what.of and where.keys == what.keys:
                return facts.CellEdit(what.tokens.model, what.tokens.canvas, op.result)
        return None

    attrs = ("canvas?",)
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = edit(%pos, %tok, canvas = "c")', (2, 1)),
        ('%z = edit(%ps, %toks, canvas = "c")', [(0, 2), (2, 0)]),
        ('%z = edit(%ps, %tok, canvas = "c")', [(0, 1), (2, 1)]),
    )
    refusals = (("real, token<V>", "position"),)


def _cell(x: Datum) -> Draw | int:
    return x.draw if isinstance(x, Draws) else x if isinstance(x, Draw) else as_int(x)


@op("edit.get")
class EditGet:
    """The position or the token of an edit."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "edit", f".{attrs['field']} needs an edit, got {types[0]}")
        c = types[0].of
        return (
            Type("position", c, types[0].dims)
            if attrs["field"] == "position"
            else Type("token", (attrs.get("vocab", "V"),), types[0].dims),
        )

    @staticmethod
    def meaning(m: Machine, op: Op, e: Edit) -> tuple[Datum, ...]:
        return (e.position if op.attrs["field"] == "position" else e.token,)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The position and the token of an edit are known together: both have its fact."""
        edit = k.of(op.operands[0])
        return edit if isinstance(edit, facts.CellEdit) else None

    attrs = ("field", "vocab?")
    label, batch = labels.joined, "pointwise"
    samples = (
        ('%z = edit.get(%e, field = "position")', 0),
        ('%z = edit.get(%e, field = "token")', 1),
    )
    refusals = (("int", "edit", {"field": "token"}),)


@op("path.get")
class PathGet:
    """A field of a path: depth (accepted drafts), token (all its tokens), length, prob (of sampled ones), emitted."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need(t.elem == "path", f".{attrs['field']} needs a path, got {t}")
        d = Dim("k")
        f = attrs["field"]
        return (
            {
                "depth": INT,
                "length": INT,
                "token": Type("token", t.of, (d,)),
                "prob": Type("prob", (), (d,)),
                "path": Type("token", t.of, (d,)),
                "node": Type("node", (attrs.get("tree", "t"),)),
                "emitted": Type("token", t.of),
            }[f],
        )

    @staticmethod
    def meaning(m: Machine, op: Op, p: Path) -> tuple[Datum, ...]:
        f = op.attrs["field"]
        if f in ("token", "path"):
            return (np.array([edge_token(x) for x in p.tokens], dtype=np.int64),)
        if f == "prob":
            return (m.reals([x.source.face("raw")[x.token] for x in p.tokens if isinstance(x, Draw)]),)
        return ({"depth": p.depth, "length": len(p.tokens), "node": p.node, "emitted": p.emitted}[f],)

    attrs = ("field", "tree?")
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = path.get(%path, field = "depth")', 2),
        ('%z = path.get(%path, field = "token")', [0, 2]),
        ('%z = path.get(%path, field = "length")', 2),
        ('%z = path.get(%path, field = "node")', 3),
    )
    refusals = (("int", "path", {"field": "depth"}),)


@op("topology")
class TopologyOp:
    """A constant tree shape, level by level. Attribute shape: a name ("recycling_80"), a branching per level ("4x2x1"), or
    paths of ranks ([[0], [1], [0, 0]])."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (Type("topology"),)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (Topology.of(op.attrs["shape"]),)

    attrs = ("shape",)
    label, batch = labels.joined, "scalar"
    samples = (
        ("%z = topology(shape = [[0], [1], [0, 0]])", Topology.of([[0], [1], [0, 0]])),
        ('%z = topology(shape = "2x1")', ...),
    )
    refusals = ()


@op("topology.narrow")
class TopologyNarrow:
    """A tree shape without the nodes of a rank from k on and what stands below them: where no node has more than k children."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "topology", f"narrow takes a topology, got {types[0]}")
        need_one(types[1], "narrow")
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, shape: Topology, k: Datum) -> tuple[Datum, ...]:
        return (shape.narrow(as_int(k)),)

    label, batch = labels.joined, "scalar"
    surface = "narrow(shape, k)"
    samples = (
        ('%t = topology(shape = "3x2")\n%z = topology.narrow(%t, %n)', Topology.of([[0], [0, 0]])),
        ("%z = topology.narrow(%shape, %i)", Topology.of([[0], [1], [0, 0]])),
    )
    refusals = (("int, int", "topology"), ("topology, real[k]", "one number"))


@op("level.get")
class LevelGet:
    """A field of a level of a topology: parent (index in the level above), rank (which child), index (its number), width."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        f = attrs["field"]
        need(
            types[0].elem == "level" or types[0].elem == "topology" and f == "width",
            f".{f} needs a level of a topology, got {types[0]}",
        )
        need(f in ("parent", "rank", "index", "width"), f"a level has parent, rank, index and width, not {f}")
        return (INT if f in ("index", "width") else INT.over(Dim("k", "", attrs.get("bound"))),)

    @staticmethod
    def meaning(m: Machine, op: Op, level: Level) -> tuple[Datum, ...]:
        return (m.level_field(level, op.attrs["field"]),)

    attrs = ("field", "bound?")
    label, batch = labels.joined, "scalar"
    samples = (
        ('%z = level.get(%level, field = "parent")', [0, 0]),
        ('%z = level.get(%level, field = "rank")', [0, 1]),
        ('%z = level.get(%level, field = "width")', 2),
        ('%z = level.get(%level, field = "index")', 0),
    )
    refusals = (
        ("level", "parent", {"field": "colour"}),
        ("int", "topology", {"field": "rank"}),
    )


@op("tree.best_first")
class TreeBestFirst:
    """Grow a tree under its root by what an index says comes next: the likeliest node first, at most `size` nodes, none less
    likely than `above`. Operands tree, an index looked up with `after`, size, above. Draws without randomness; `prob` is
    the share of the places of what stands above a token where it followed. Results: the tree, the new nodes."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "grow")
        need(
            types[1].elem == "index" and len(types[1].of) > 2,
            f"best_first needs what follows a context, got {types[1]}",
            "grow best_first(index.after(m), size = n)",
        )
        need(
            types[2].is_number and types[3].is_number and not types[2].dims and not types[3].dims,
            "best_first takes size = a number, above = a probability",
        )
        return (t, nodes_type(t, "part", attrs.get("bound")))

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, asked: Following, size: Datum, above: Fraction | float) -> tuple[Datum, ...]:
        heap: list[tuple[Fraction, tuple[int, ...], int, Row]] = []

        def ask(path: tuple[int, ...], node: int, mass: Fraction) -> None:
            counts = asked.counts(path)
            total = asked.total(path)
            row = Row(lambda face: m.reals([m.num.const(Fraction(counts.get(v, 0), total)) for v in range(m.vocab_size)]))
            for token, count in sorted(counts.items()):
                p = mass * Fraction(count, total)
                if p >= Fraction(above):
                    heapq.heappush(heap, (-p, (*path, token), node, row))

        ask((), 0, Fraction(1))
        tree, ids = t, list[int]()
        while heap and len(ids) < as_int(size):
            mass, path, parent, row = heapq.heappop(heap)
            if not m.fits(tree, parent):
                continue
            edge = point(m, path[-1], source=row, tag="index")
            tree = tree.grow([edge], [parent], [m.add_log(tree.nodes[parent].logprob, edge)], [{}])
            ids.append(len(tree) - 1)
            m.grew(tree, len(tree) - 1, edge)
            ask(path, len(tree) - 1, -mass)
        return (replace(tree, new=tuple(ids), frontier=tuple(ids)), np.array(ids, dtype=np.int64))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return grown(c, op, Abs(c.of(op.operands[1]).reads))

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        count = s.number(op.operands[2])
        return sizes_grown(s, op, count, s.tree(op.operands[0]).size == 1 and count == 1)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """What an index says comes next is certain, and is what no model gave mass to."""
        tree = k.of(op.operands[0])
        if not isinstance(tree, facts.Tree):
            return None
        return replace(tree, tree=op.results[0], grown=tree.grown | {op.results[0]}, inside=None)

    attrs = ("bound?",)
    batch = "host"
    samples = (("%z, %new = tree.best_first(%root_alone, %followed, %i, %r)", [0, 0]),)
    refusals = (("tree<t,token,V>, int, int, real", "index.after"),)
