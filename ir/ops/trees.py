"""Trees of states: new, grow, columns, folds along paths, keep, walk. Draws are edges and are never merged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels, origins
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Dist, Draws, Path, Soft, box, box0
from decgraph.ir.data.tree import Edge, Tree
from decgraph.ir.labels import Abs, Checker, TreeAbs
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, Regions, Sample, Types, op
from decgraph.ir.ops.common import array, as_int, is_context, need
from decgraph.ir.ops.draws import point
from decgraph.ir.ops.limits import NODES, room_for_nodes
from decgraph.ir.origins import Element, Place
from decgraph.ir.sizes import Known, Nodes, Size, Sizes, add, least, most, times
from decgraph.ir.types import INT, Dim, Type, join
from decgraph.ir.values import Op, Value


def sizes_grown(s: Sizes, op: Op, count: Size, all_leaves: bool) -> list[Known]:
    """A tree and its new nodes after `count` more; `all_leaves`: every leaf got some."""
    t = s.tree(op.operands[0])
    size = add(t.size, count)
    if size is not None and size > NODES and op not in s.too_large:
        s.too_large.append(op)
    leaves = count if all_leaves else add(t.leaves, count)
    for op_new in t.producers:
        s.peaks[op_new] = most(s.peaks[op_new], size)
    return [Nodes(size, leaves, count, count, all_leaves, t.producers), (count,)]


_DRAWN = ("draw", "draw.many", "draw.race", "topk", "face", "draw.point", "gather")


_MIXED = ("map", "normalize", "softmax", "warp", "renorm")


def over_leaves(s: Sizes, v: Value, t: Nodes) -> bool:
    """Whether draws grow at every leaf: drawn (or placed) at `t.leaves`, or at a frontier that is these."""
    op = s.producers.get(v)
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
                if severity := origins.invariant_draws(c, op, base, pick, loop):
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


def tree_of(types: Types, what: str) -> Type:
    """The type of the first operand. Raises OpError unless it is a tree."""
    need(types[0].elem == "tree", f"{what} needs a tree, got {types[0]}")
    found: Type = types[0]
    return found


def nodes_type(t: Type, kind: str = "nodes", bound: int | None = None) -> Type:
    """The type of all nodes of a tree, or of a part of them (kind `part`)."""
    return Type("node", (t.of[0],), (Dim(kind, str(t.of[0]), bound),))


def bounded(m: Machine, op: Op, t: Tree) -> Tree:
    """The tree with what its attributes until and unread mean in this run."""
    if op.attrs.get("unread"):
        return replace(t, unread=True)
    if "until" not in op.attrs:
        return t
    extent, closes = m.bounds(op.attrs["until"])
    return replace(t, extent=extent, closes=closes)


@op("tree.new")
class TreeNew:
    """A tree of a root alone: the committed context, a context node, or a canvas (attribute tree: its name; until: where it
    ends before the context window does, see ir/places.py; unread: it may hold the token behind the window, see
    ir/last_place.py)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        if not types:
            return (Type("tree", (attrs["tree"], "token", attrs.get("vocab", "V"))),)
        if types[0].elem == "canvas":
            return (Type("tree", (attrs["tree"], "edit", str(types[0].of[0]))),)
        need(types[0].elem == "node", f"a tree grows from a context or a canvas, got {types[0]}")
        return (Type("tree", (attrs["tree"], attrs.get("edge", "token"), attrs.get("vocab", "V"))),)

    @staticmethod
    def meaning(m: Machine, op: Op, base: Datum = None) -> tuple[Datum, ...]:
        base = m.context() if base is None else base
        assert isinstance(base, Canvas) or is_context(base), "a tree grows from a context or a canvas"
        t = Tree.start(base, op.attrs.get("capacity"), m.num.zero)
        return (bounded(m, op, t),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        base = c.reads(op)
        return [Abs(base, labels.NO, tree=TreeAbs(Abs(), Abs(), labels.NO))]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        s.peaks.setdefault(op, 1)
        return [Nodes(1, 1, 1, 1, True, (op,))]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        base = k.of(op.operands[0]) if op.operands else facts.Context(k.version)
        if isinstance(base, facts.Context) and not base.parent and op.attrs.get("edge", "token") == "token":
            return facts.Tree(base.version, op.result, grown=frozenset({op.result}), inside="")
        return None

    attrs = ("tree", "edge?", "capacity?", "vocab?", "until?", "unread?")
    batch = "ragged"
    samples: tuple[Sample, ...] = (
        ('%z = tree.new(%ctx, tree = "t")', []),
        ('%z = tree.new(%c, tree = "v")', []),
    )
    refusals = (("int", "context or a canvas", {"tree": "t"}),)


def _of_draws(op: Op, tree: object) -> bool:
    """Whether an op gives the trees of a name no edges but draws, and none of another name's trees."""
    if op.opcode == "state.write" and op.attrs["type"].elem == "tree" and op.attrs["type"].of[0] == tree:
        return op.operands[0].type.elem == "tree" and op.operands[0].type.of[0] == tree
    if op.opcode not in ("tree.new", "tree.grow") or op.results[0].type.of[0] != tree:
        return True
    return op.operands[1].type.elem == "draw" if op.opcode == "tree.grow" else op.attrs.get("edge", "token") == "token"


@op("tree.continue")
class TreeContinue:
    """A carried tree, on the context as it is now (an empty one where nothing was carried). Attribute until as for tree.new."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "draft")
        return (Type("tree", (attrs["tree"],) + t.of[1:]),)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree | None) -> tuple[Datum, ...]:
        if t is None:
            return (bounded(m, op, Tree.start(m.context(), None, m.num.zero)),)
        return (bounded(m, op, replace(t, base=m.context(), frontier=tuple(t.leaves()), new=tuple(t.leaves()))),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return [c.of(op.operands[0])]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A tree that is carried on stands on the context as it is now; what is known of its draws is lost. A tree that starts
        as `empty` does not say what its edges are: they are tokens where all that grows it anywhere is draws."""
        name, edge, *_ = op.result.type.of
        if edge != "token" and not (edge == "any" and all(_of_draws(other, name) for other in k.function.body.walk())):
            return None
        fault = f"draws of an earlier decoding step (line {op.loc.line})"
        return facts.Tree(k.version, op.result, fault=fault, grown=frozenset({op.result}))

    attrs = ("tree", "until?")
    batch = "ragged"
    samples = (('%z = tree.continue(%t, tree = "s")', [0, 1, 2]),)
    refusals = (("int", "tree", {"tree": "t"}),)


@op("tree.grow")
class TreeGrow:
    """Append edges: draws (or edits, steps, soft cells), in order, at given nodes or, for draws, where their distribution was
    evaluated. Operands tree, edges, [at], column values; attributes has_at, columns (names), chain (each under the one
    before). Nodes past the context window are not grown, nor those that are of no use (attributes until and unread of
    tree.new). Results: the tree, the new nodes."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "grow")
        what = types[1]
        edge = {"draw": "token", "edit": "edit", "path": "step", "embedding": "soft", "list": "step"}.get(what.elem)
        hint = ""
        if what.elem in ("token", "int"):
            hint = "say grow point(x), or grow chain(x) for one under the other: a token does not carry its distribution"
        if what.elem == "dist":
            hint = "draw from it first: x ~ q, then grow x; or grow topk(q.raw, k)"
        if what.elem == "list":
            need(what.item.elem in ("path", "any"), f"grow takes draws, or a list of paths, got {what}")
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

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, what: Datum, *rest: Datum) -> tuple[Datum, ...]:
        at, given_columns = (rest[0], rest[1:]) if op.attrs.get("has_at") else (None, rest)
        names = op.attrs.get("columns", ())
        if op.operands[1].type.elem == "embedding":
            what = Soft(tuple(np.asarray(what)))
        edges, parents, rows = attach(m, t, what, at, bool(op.attrs.get("chain")))
        room_for_nodes(len(t.nodes), len(edges))
        columns: list[dict[str, Datum]] = [{} for _ in edges]
        given = None
        for name, value in zip(names, given_columns, strict=True):
            values = spread_column(m, value, len(edges), rows)
            if name == "logprob":
                given = list(box(values))
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
        every = t.size == 1 or over_leaves(s, edges if at is None else at, t)
        if op.attrs.get("chain"):
            every = t.size == 1 and count == 1
        return sizes_grown(s, op, count, every)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """What draws state stays true where they are fresh, grown once, and in the order and the loops of drawing."""
        tree, drafts = k.of(op.operands[0]), k.of(op.operands[1])
        if not isinstance(tree, facts.Tree) or op.operands[1].type.elem != "draw":
            return None
        inside = facts.one_model(tree.inside, _inside(k, op, tree, drafts))
        if isinstance(drafts, facts.Token) and drafts.how == "drawn":
            drafts = facts.Drafts(drafts.noises)
        if isinstance(drafts, facts.CellTokens):
            drafts = drafts.drafts
        tree = replace(tree, tree=op.result, grown=tree.grown | {op.result}, inside=inside)
        if not isinstance(drafts, facts.Drafts) or drafts.race:
            fault = f"drafts whose distributions are not known to be those they state (line {op.loc.line})"
            return replace(tree, fault=tree.fault or fault)
        return replace(tree, noises=tree.noises | drafts.noises, fault=tree.fault or k.grows(op, drafts))

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


def _inside(k: facts.Known, op: Op, tree: facts.Tree, drafts: facts.Fact | None) -> str | None:
    """The model that gives mass to every edge that is grown here: draws that are grown where they were drawn."""
    at = op.operands[2] if op.attrs.get("has_at") else None
    if op.attrs.get("chain"):
        return None
    match drafts:
        case facts.CellTokens(model, whole, nodes) if whole in tree.grown:
            made = k.producers.get(op.operands[1])  # what is drawn stands where its distribution was evaluated
            return model if nodes is at or at is None and made is not None and made.opcode == "draw" else None
        case facts.Token(model, version) | facts.Drafts(after=(model, version)) if version == tree.version:
            made = k.producers.get(op.operands[0])
            bare = made is not None and made.opcode == "tree.new"
            place = k.of(at) if at is not None else None
            root = isinstance(place, facts.Nodes) and place.which == "root"
            return model if root or bare and at is None else None
    return None


def attach(m: Machine, t: Tree, what: Datum, at: Datum, chain: bool) -> tuple[list[Edge | None], list[int], list[int]]:
    """Edges with their parents (a negative parent -1-i is edge i of this very list), and the leading row of each."""
    if isinstance(what, Path):
        return [what], [as_int(at) if at is not None else t.frontier[0]], [0]
    if isinstance(what, list) and what and isinstance(what[0], Path):
        at_ids = np.atleast_1d(np.asarray(at)) if at is not None else np.array([t.frontier[0]] * len(what))
        return (
            [e for e in what if isinstance(e, Path)],
            [int(at_ids[i if len(at_ids) > 1 else 0]) for i in range(len(what))],
            list(range(len(what))),
        )
    if isinstance(what, (Edit, Soft)):
        return [what], [int(np.ravel(np.asarray(at))[0]) if at is not None else t.frontier[0]], [0]
    if isinstance(what, np.ndarray) and what.dtype == object:
        ids = np.atleast_1d(np.asarray(at)) if at is not None else np.array(t.frontier)
        return list(what), [int(ids[i if len(ids) == len(what) else 0]) for i in range(len(what))], list(range(len(what)))
    assert isinstance(what, Draws)
    items = what.items
    flat = list(items.ravel())
    if chain:
        start = int(np.ravel(np.asarray(at))[0]) if at is not None else 0
        return flat, [start if i == 0 else -1 - (i - 1) for i in range(len(flat))], list(range(len(flat)))
    width = int(np.prod(items.shape[1:])) if items.ndim > 1 else 1
    leading = [i // width for i in range(len(flat))] if items.ndim >= 1 else [0]
    if at is not None:
        ids = np.ravel(np.asarray(at))
        if len(ids) == 1:
            return flat, [int(ids[0])] * len(flat), leading
        full = np.shape(np.asarray(at)) == items.shape
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


def spread_column(m: Machine, value: Datum, n: int, rows: list[int]) -> list[Datum]:
    """A column's values, one per new node: elementwise, by row, or the same for all."""
    if isinstance(value, Dist):  # a distribution each, computed where it is read
        each = [Dist(box0(row), value.face) for row in value.rows.ravel()]
        value = each if len(each) != 1 else each * n
    elif isinstance(value, Draws):
        value = array(m, value)
    if isinstance(value, (list, tuple)) or np.asarray(value).ndim:
        flat = list(value) if isinstance(value, (list, tuple)) else list(np.ravel(np.asarray(value)))
        return flat if len(flat) == n else [flat[r] for r in rows]
    return [value] * n


@op("tree.keep")
class TreeKeep:
    """Prune to nodes: the root and those of them whose ancestors are all kept, in growth order."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "prune")
        need(types[1].elem == "node" and types[1].of[0] == t.of[0], f"prune needs nodes of tree {t.of[0]}, got {types[1]}")
        return (t,)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, ns: Datum) -> tuple[Datum, ...]:
        tree, place = t.keep([int(i) for i in np.ravel(np.asarray(ns))])
        m.pruned(t, tuple(place))
        return (tree,)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        t, ns = c.of(op.operands[0]), c.of(op.operands[1])
        name = str(op.operands[0].type.of[0])
        which = t.draws & (ns.dep | c.control)
        if which:
            c.report("prune", op, which, name)
        whole = Abs(draws=t.reads)
        return [replace(t, dep=t.dep | ns.dep, tree=TreeAbs(whole, whole, (t.tree or TreeAbs()).points))]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        t = s.tree(op.operands[0])
        n = (s.lengths(op.operands[1]) or (1,))[0]
        size = least(t.size, add(n, 1))
        return [replace(t, size=size, leaves=size, frontier=least(t.frontier, size), new=least(t.new, size), edge=False)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The nodes that stay are those of the tree, with other numbers. Sampled ones may stay or go by what they turned out to
        be."""
        tree = k.of(op.operands[0])
        if not isinstance(tree, facts.Tree):
            return None
        fault = f"sampled drafts that are pruned (line {op.loc.line})" if tree.noises else ""
        return replace(tree, tree=op.result, grown=frozenset({op.result}), fault=tree.fault or fault)

    batch = "ragged"
    samples = (("%z = tree.keep(%t, %ns)", [0, 2]),)
    refusals = (("tree<t,token,V>, node<s>[part.s]", "tree t"),)


@op("tree.reroot")
class TreeReroot:
    """After a commit: the tree below the accepted node, on the new context; nothing where a token was emitted instead."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = tree_of(types, "commit")
        need(types[1].elem == "path", f"a tree goes on below an accepted path, got {types[1]}")
        return (t,)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, path: Path) -> tuple[Datum, ...]:
        if path.emitted is not None or m.done():
            return (Tree.start(m.context(), t.capacity, m.num.zero),)
        return (t.below(path.node, m.context(), m.add_log),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return [c.of(op.operands[0])]

    batch = "ragged"
    samples: tuple[Sample, ...] = (("%z = tree.reroot(%t, %path)", []),)
    refusals = (("int, path<V>", "tree"),)


@op("tree.walk")
class TreeWalk:
    """Verify: apply a rule from the root down. Attribute scope: "node" (the rule sees the evidence at a node and the draws
    below it) or "tree" (it sees all). The region yields (accepts, child or node, emits, token); the walk ends where the
    rule emits or accepts nothing, or where the evidence is not known. The result is the accepted path, or for a tree of
    canvases the canvas at the accepted node."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
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

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        t, e = types[:2]
        if attrs["scope"] == "tree":
            return ((INT, t, e),)
        row = e.item if e.elem == "list" else e.drop()
        return ((INT, row, Type("edit" if t.of[1] == "edit" else "draw", (t.of[2],), (Dim("k"),))),)

    @staticmethod
    def meaning(m: Machine, op: Op, t: Tree, evidence: Datum, *rest: Datum) -> tuple[Datum, ...]:
        return (m.walk(op, t, evidence, rest),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        if own := c.of(op.operands[0]).draws & c.control:
            c.report("chosen", op, own, str(op.operands[0].type.of[0]))
        c.came_by(op.operands[0])
        return labels.joined(c, op)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact:
        return k.walk(op)

    attrs = ("scope", "rule?", "vocab?")
    batch = "ragged"
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
