"""Vectors as sequences: indexing, slices, joining, lists, tiles, lengths."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from decgraph.ir import facts, labels
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draws, Path, Symbol, box, box0, locate
from decgraph.ir.data.topology import Topology
from decgraph.ir.data.tree import Tree
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.linear import Linear
from decgraph.ir.machine import Datum, Machine, Vector
from decgraph.ir.opdef import Attrs, Regions, Sample, Types, op
from decgraph.ir.ops.common import array, as_int, broadcast, is_context, joined, need, need_one, numeric, spread, stack
from decgraph.ir.ops.limits import LARGEST, TABLE, allowed, joined_length
from decgraph.ir.sizes import Known, Sizes, add, least
from decgraph.ir.types import ANY, INT, Dim, Type, join_dims, listing
from decgraph.ir.values import Op, Value


def _whole(a: np.ndarray) -> np.ndarray:
    """Indices as whole numbers, also where they were computed as rationals."""
    return a.astype(np.int64) if a.dtype == object else a


def _of_level(k: facts.Known, index: tuple[Value, ...]) -> bool:
    """Whether an index is `[level.parent, level.rank]`: each pair occurs once, and ranks ascend below a parent."""
    made = [k.producers.get(v) for v in index]
    if len(made) != 2 or any(op is None or op.opcode != "level.get" for op in made):
        return False
    parent, rank = made
    assert parent is not None and rank is not None
    fields = (parent.attrs["field"], rank.attrs["field"])
    return fields == ("parent", "rank") and parent.operands == rank.operands


def _at_positions(column: facts.CellRows | facts.CellTokens, at: Value) -> facts.Fact:
    """Values of cells at some positions; draws that are chosen so are no drafts."""
    if isinstance(column, facts.CellRows):
        return replace(column, at=at)
    return replace(column, at=at, drafts=None)


@op("gather")
class Gather:
    """v[i] along the first dimensions: one index operand per dimension, lined up with each other. Where distributions or draws
    range over a part of a tree or canvas, an index that is a node or position names its member; numbers do not know which part
    they are of, and take none. Attribute axis 1: the one index, of positions, is along the second dimension of
    distributions."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v, *ix = types
        ix = [numeric(i) for i in ix]
        need(bool(ix), f"an index needs a dimension to look into, {v} has none")
        if v.elem in ("topology", "list"):
            need(
                len(ix) == 1 and not ix[0].dims and ix[0].elem in ("int", "token", "position", "any"),
                f"a {v.elem} takes one whole number as its index, got {', '.join(map(str, ix))}",
            )
        if v.elem == "topology":
            return (Type("level"),)
        if v.elem == "list":
            return (v.item,)
        need(
            len(v.dims) >= len(ix),
            f"{v} does not have {len(ix)} dimensions to index",
            "a tree is indexed by its columns: t.token[n]; of a tree of canvases `verify` accepts one, v.accepted"
            if v.elem == "tree"
            else "this value is a single one"
            if not v.dims
            else "",
        )
        for i in ix:
            need(
                i.elem in ("int", "token", "node", "position"),
                f"an index must be a whole number, a token, a node or a position, got {i}",
                "use `where` to select by a condition" if i.elem == "bool" else "",
            )
        for i, d in zip(ix, v.dims):
            if i.elem == "node":
                need(i.of[0] != "ctx", f"the context is no place in {v}", "a node of a tree, or a number")
                need(d.kind in ("nodes", "part", "k"), f"{v} does not range over nodes")
                need(d.kind == "k" or d.of == i.of[0] or not d.of, f"a node of tree {i.of[0]} looks into values of tree {d.of}")
            if i.elem in ("node", "position") and d.kind == "part":
                need(
                    v.elem in ("dist", "draw"),
                    f"a {i.elem} cannot look into {v}: numbers do not know which {i.elem}s they are of",
                    "distributions and draws know: p.raw[i][x[i]] for s[i] after s = p.raw[x]; or count: s[k] is that of b[k]",
                )
            need(
                i.elem != "token" or d.kind not in ("nodes", "part", "cells"),
                f"a token is no place in {v}",
                "values at nodes or positions are read by a node, a position or a whole number",
            )
            if i.elem == "token" and d.kind == "vocab" and d.of and i.vocab:
                need(d.of == i.vocab, f"a token of vocabulary {i.vocab} indexes vocabulary {d.of}")
        if attrs.get("axis"):
            need(
                v.elem == "dist" and len(v.dims) == 2 and [i.elem for i in ix] == ["position"] and len(ix[0].dims) == 1,
                f"positions are looked up in distributions at every canvas of a tree, not in {v}",
            )
            return (Type(v.elem, v.of, (v.dims[0], *ix[0].dims)),)
        return (Type(v.elem, v.of, broadcast(ix) + v.dims[len(ix) :]),)

    @staticmethod
    def meaning(m: Machine, op: Op, v: Datum, *ix: Datum) -> tuple[Datum, ...]:
        if isinstance(v, Dist) and op.attrs.get("axis"):
            return (Dist(v.rows[:, locate(v.inner, array(m, ix[0]))], v.face, v.at, array(m, ix[0])),)
        if isinstance(v, (list, Topology)):
            return (v[as_int(ix[0])],)
        index = [_whole(array(m, i)) for i in ix]
        types = [numeric(o.type) for o in op.operands[1:]]
        want = max((t.dims for t in types), key=len)
        if len(index) > 1:
            index = [spread(i, t.dims, want) for i, t in zip(index, types)]
        index = [i[()] if i.shape == () else i for i in index]
        if isinstance(v, (Dist, Draws)):
            if len(index) == 1 and types[0].elem in ("node", "position"):
                return (v.take(index[0]),)
            where = [
                locate(at, i) if t.elem in ("node", "position") else i
                for i, t, at in zip(index, types, (v.at, v.inner, *[None] * len(index)))
            ]
            inner = None if len(index) > 1 else v.inner
            at, inner = (None, inner) if np.ndim(where[0]) else (inner, None)
            if isinstance(v, Dist):
                rows = v.rows[tuple(where)]
                return (Dist(rows if isinstance(rows, np.ndarray) else box0(rows), v.face, at, inner),)
            items = v.items[tuple(where)]
            return (Draws(items if isinstance(items, np.ndarray) else box0(items), at, inner=inner),)
        return (np.asarray(v)[tuple(index)],)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        x = c.of(op.operands[0])
        if x.column and op.operands[1].type.elem == "node":
            return [Abs(x.dep | c.of(op.operands[1]).reads)]
        return labels.choice(c, op)

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        v, *ix = op.operands
        if not op.result.type.dims:
            return [None]
        index = max((s.lengths(i) for i in ix), key=len, default=())
        rest = s.lengths(v)[len(ix) :] if v.type.elem not in ("list", "topology") else ()
        sizes = (*index, *rest)
        return [sizes if len(sizes) == len(op.result.type.dims) else tuple(d.bound for d in op.result.type.dims)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A model's distributions at nodes of the tree that they are of; draws that are taken out one by one, in order."""
        column, *places = (k.of(v) for v in op.operands)
        if isinstance(column, facts.CellTokens) and op.operands[1].type.elem != "position":
            column = column.drafts
        match column, places[0] if places else None:
            case facts.Alone(), _ if len(places) == 1 and not op.operands[1].type.dims:
                return column.of
            case facts.Rows(), facts.Nodes(which="root") as at if at.tree is column.tree:
                return facts.Row(column.model, at.version)
            case facts.Rows(), facts.Nodes(which="all") as at if at.tree is column.tree:
                return column
            case facts.CellRows() | facts.CellTokens(), _ if len(places) == 1 and op.operands[1].type.elem == "position":
                return _at_positions(column, op.operands[1])
            case facts.Drafts(race=False), _ if op.result.type.elem == "draw":
                index = op.operands[1:]
                if not column.noises:
                    return column
                if k.tells(column.noises, *index):
                    return None
                if _of_level(k, index):
                    return column
                if len(index) == 1 and not index[0].type.dims and index[0].type.elem == "int":
                    return facts.Drafts(column.noises, one=True)
        return None

    attrs = ("axis?",)
    batch = "ragged"
    vocabulary = True
    samples = (
        ("%z = gather(%xs, %n)", 1),
        ("%z = gather(%col, %ns)", [1.0, 3.0]),
        ("%z = gather(%at_t, %node)", ...),
        ("%z = gather(%lst, %n)", [2, 3]),
        ("%z = gather(%m, %n, %i)", 5.0),
        ("%z = gather(%ds, %n)", 0),
    )
    refusals = (
        ("int[k], bool[k]", "where"),
        ("int, int", "single"),
        ("int[nodes.t], node<s>", "tree s"),
    )


@op("slice")
class Slice:
    """v[lo:hi] of the first dimension. Attributes has_lo, has_hi; negative ends count from the end."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v = types[0]
        for end in types[1:]:
            need_one(end, "a slice")
        if v.elem in ("list", "path"):
            return (v,)
        need(bool(v.dims), f"a slice needs a vector, got {v}")
        d = v.dims[0]
        kind = d.kind if d.kind == "part" else "k"
        return (Type(v.elem, v.of, (Dim(kind, d.of if kind == "part" else "", d.bound),) + v.dims[1:]),)

    @staticmethod
    def meaning(m: Machine, op: Op, v: Vector | Dist | Draws | Path, *ends: Datum) -> tuple[Datum, ...]:
        lo = as_int(ends[0]) if op.attrs.get("has_lo") else None
        hi = as_int(ends[-1]) if op.attrs.get("has_hi") else None
        cut = slice(lo, hi)
        if isinstance(v, Dist):
            return (v.pick(cut, None if v.at is None else v.at[cut]),)
        if isinstance(v, Draws):
            return (v.pick(cut, None if v.at is None else v.at[cut]),)
        if isinstance(v, Path):
            return (Path(v.tokens[cut], base=v.base),)
        return (v[cut],)

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        if not op.result.type.dims:
            return [None]
        first, *rest = s.lengths(op.operands[0])
        made = s.producers.get(op.operands[-1])
        end = made.attrs["value"] if op.attrs.get("has_hi") and made is not None and made.opcode == "const" else None
        return [(least(first, end if isinstance(end, int) and end >= 0 else None), *rest)]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """The beginning or the end of a piece of text is one; so are the first cells of a canvas. Of own draws at nodes the
        first one is that after the context."""
        piece = k.of(op.operands[0])
        if (
            isinstance(piece, facts.Tokens)
            and not op.attrs.get("has_lo")
            and k.sizes.equal(k.sizes.length(op.result), Linear.of(1))
        ):
            tree = k.of(piece.tree)
            return facts.Path(piece.model, tree.version, "own") if isinstance(tree, facts.Tree) else None
        if isinstance(piece, facts.CellTokens) and piece.at is None and not op.attrs.get("has_lo"):
            return replace(piece, drafts=None)
        if not isinstance(piece, facts.Piece):
            return facts.points_stay(k, op)
        length = k.sizes.length(op.result)
        if not op.attrs.get("has_lo"):
            return facts.Piece(piece.start, piece.start + length)
        return None if op.attrs.get("has_hi") else facts.Piece(piece.end - length, piece.end)

    attrs = ("has_lo?", "has_hi?")
    label, batch = labels.choice, "ragged"
    looks = "all"
    samples = (
        ("%z = slice(%xs, %n, has_lo = true)", [1, 2]),
        ("%z = slice(%path, %n, has_hi = true)", [0]),
        ("%z = slice(%ds, %n, %i, has_lo = true, has_hi = true)", [0]),
    )
    refusals = (("int, int", "vector", {"has_lo": True}),)


def _is_empty(x: Datum) -> bool:
    return isinstance(x, list) and not x


@op("concat")
class Concat:
    """a ++ b along the first dimension; single values count as vectors of one."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        a, b = types
        if a == listing(ANY):
            return (b if b.dims or b.elem == "list" else b.over(Dim("k", "", 1)),)
        if b == listing(ANY):
            return (a if a.dims or a.elem == "list" else a.over(Dim("k", "", 1)),)
        if a.elem == "list" or b.elem == "list":
            inner = joined([t.item if t.elem == "list" else (t.drop() if t.dims else t) for t in (a, b)], "++")
            return (listing(inner),)
        if a.elem == "path" or b.elem == "path" or "node" in (a.elem, b.elem) and a.elem != b.elem:
            for t in (a, b):
                need(
                    t.elem != "node" or t.of[0] == "ctx" and not t.dims,
                    f"++ of {a} and {b}: nodes are places in a tree, and no tokens",
                    "their tokens: t.token[ns]; those on the way to one: t.token[t.path[n]]",
                )
            return (Type("path", (a.vocab or b.vocab or "V",)),)
        need("none" not in (a.elem, b.elem), "nothing cannot be joined to a vector", "leave it out with `if`, or start with []")
        va = a if a.dims else a.over(Dim("k", "", 1))
        vb = b if b.dims else b.over(Dim("k", "", 1))
        elem = joined([va.scalar, vb.scalar], "++")
        rest = join_dims(va.dims[1:], vb.dims[1:])
        need(rest is not None, f"++ of {a} and {b}: their elements are not alike")
        bound = None if va.dims[0].bound is None or vb.dims[0].bound is None else va.dims[0].bound + vb.dims[0].bound
        first = va.dims[0]
        same = first.same(vb.dims[0]) and first.kind == "part"
        return (Type(elem.elem, elem.of, (Dim(first.kind if same else "k", first.of if same else "", bound),) + (rest or ())),)

    @staticmethod
    def meaning(m: Machine, op: Op, a: Datum, b: Datum) -> tuple[Datum, ...]:
        want = op.results[0].type
        allowed(joined_length(a, b), "this vector")
        if want.elem == "path":
            return (Path(_path_tokens(a) + _path_tokens(b)),)
        if want.elem == "list":
            return (_listed(a) + _listed(b),)
        if _is_empty(a):
            return (b if op.operands[1].type.dims else stack(m, [b]),)
        if _is_empty(b):
            return (a if op.operands[0].type.dims else stack(m, [a]),)
        if isinstance(a, Dist) and isinstance(b, Dist):
            at = None if a.at is None or b.at is None else np.concatenate([a.at, b.at])
            return (Dist(np.concatenate([np.atleast_1d(x.rows) for x in (a, b)]), a.face, at),)
        if want.elem == "draw":
            parts = [np.atleast_1d(x.items) if isinstance(x, Draws) else box([x]) for x in (a, b)]
            return (Draws(np.concatenate(parts)),)
        arrays = [np.atleast_1d(array(m, x)) for x in (a, b)]
        if 0 in (len(arrays[0]), len(arrays[1])) and arrays[0].ndim != arrays[1].ndim:
            return (arrays[0] if len(arrays[0]) else arrays[1],)
        return (np.concatenate(arrays),)

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        if not op.result.type.dims:
            return [None]
        parts = [
            (s.lengths(v) or (1,)) if v.type.elem != "list" else (0 if v.type.of[0] == ANY else None,) for v in op.operands
        ]
        return [(add(parts[0][0], parts[1][0]), *s.lengths(op.result)[1:])]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Points stay points, and draws are draws where the first tell nothing of the others; of two pieces of text one after
        the other a longer one."""
        a, b = (k.of(v) for v in op.operands)
        for v, other in zip(op.operands, (b, a)):
            if isinstance(other, facts.Piece | facts.Alone) and (v.type.dims or v.type.elem == "list") and k.sizes.empty(v):
                return other
        if isinstance(a, facts.Piece) and isinstance(b, facts.Piece) and k.sizes.equal(a.end, b.start):
            return facts.Piece(a.start, b.end)
        if op.result.type.elem != "draw" or not (isinstance(a, facts.Drafts) and isinstance(b, facts.Drafts)):
            return None
        told = a.noises & b.noises or k.tells(b.noises, op.operands[0]) or a.race or b.race or a.one or b.one
        return None if told else facts.Drafts(a.noises | b.noises)

    label, batch = labels.together, "ragged"
    samples = (
        ("%z = concat(%xs, %i)", [3, 1, 2, 2]),
        ("%z = concat(%path, %path)", [0, 2, 0, 2]),
        ("%z = concat(%ds, %x)", [2, 0, 1]),
        ("%z = concat(%q, %at_t)", ...),
        ("%z = concat(%lst, %lst)", [[1], [2, 3], [1], [2, 3]]),
    )
    refusals = (
        ("int[k], text", "go together"),
        ("int[k], none", "if"),
        ("int[k], int[k,vocab.V]", "not alike"),
    )


def _listed(x: Datum) -> list[Datum]:
    if isinstance(x, list):
        return list(x)
    if isinstance(x, Draws):
        return [Draws(x.items[i : i + 1].reshape(())) for i in range(len(x.items))]
    return list(x) if isinstance(x, tuple) or isinstance(x, np.ndarray) and x.ndim else [x]


def _path_tokens(x: Datum) -> list[Symbol]:
    if isinstance(x, Path):
        return list(x.tokens)
    if is_context(x):
        return list(x)
    if isinstance(x, Draws):
        return list(np.atleast_1d(x.items))
    return list(np.atleast_1d(np.asarray(x)))


@op("list")
class ListOp:
    """[a, b, c]: a vector where the items stack, else a list."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        if not types:
            return (listing(ANY),)
        elem = joined(list(types), "a list")
        some = any(t.elem == "none" for t in types)
        if some or elem.elem in ("tree", "canvas", "path", "memory", "model", "list", "none") or attrs.get("ragged"):
            return (listing(elem, len(types)),)
        return (elem.over(Dim("k", "", len(types))),)

    @staticmethod
    def meaning(m: Machine, op: Op, *xs: Datum) -> tuple[Datum, ...]:
        return (list(xs) if op.results[0].type.elem == "list" else stack(m, list(xs)),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        known = k.of(op.operands[0]) if len(op.operands) == 1 else None
        return facts.Alone(known) if known is not None else None

    attrs = ("ragged?",)
    label, batch = labels.together, "ragged"
    samples: tuple[Sample, ...] = (
        ("%z = list(%i, %r)", [2.0, 0.5]),
        ("%z = list()", []),
        ("%z = list(%path, %path)", ...),
        ("%z = list(%path, %nil)", ...),
    )
    refusals = (("int, text", "go together"),)


@op("tile")
class Tile:
    """A value repeated n times (kind "tile"), or 0, 1, ... (kind "iota", from lo to hi), or zeros over given sizes."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        kind = attrs["kind"]
        for t in types[1:] if kind == "tile" else types:
            need_one(t, {"tile": "fill", "iota": "a range"}.get(kind, "a size"))
        d = Dim(attrs.get("dim", "k"), attrs.get("of", ""), attrs.get("bound"))
        need(kind != "tile" or types[0].elem not in ("none", "any"), "none cannot be repeated: it has no value")
        if kind == "iota":
            return (INT.over(d),)
        if kind == "zeros":
            return (Type(attrs.get("elem", "real"), (), tuple(attrs["dims"])),)
        return (types[0].over(d),)

    @staticmethod
    def meaning(m: Machine, op: Op, *xs: Datum) -> tuple[Datum, ...]:
        kind = op.attrs["kind"]
        if kind == "iota":
            lo, hi = (0, xs[0]) if len(xs) == 1 else xs
            return (np.arange(as_int(lo), as_int(hi)),)
        if kind == "zeros":
            sizes = iter(xs)
            shape = tuple(m.vocab_size if d.kind == "vocab" else max(0, as_int(next(sizes))) for d in op.attrs["dims"])
            allowed(prod(shape), "zeros(...)", TABLE if len(shape) > 1 else LARGEST)
            return (m.num.zeros(shape, op.attrs.get("elem", "real")),)
        return (stack(m, [xs[0]] * as_int(xs[1])) if as_int(xs[1]) else _none(xs[0]),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        return facts.points_stay(k, op)

    attrs = ("kind", "dims?", "dim?", "of?", "bound?", "elem?")
    label, batch = labels.together, "ragged"
    samples = (
        ('%z = tile(%r, %i, kind = "tile", bound = 2)', [0.5, 0.5]),
        ('%z = tile(%n, %i, kind = "iota")', [1]),
        ('%z = tile(%i, kind = "zeros", elem = "int", dims = [dim k, dim vocab.V])', [[0] * 3] * 2),
    )
    refusals = (("int, int[k]", "one number", {"kind": "tile"}),)


def _none(x: Datum) -> Draws | np.ndarray:
    if isinstance(x, Draws):
        return Draws(np.empty((0,), dtype=object))
    a = x.rows if isinstance(x, Dist) else np.asarray(x)
    return np.zeros((0, *a.shape), dtype=np.float64 if isinstance(x, Dist) else a.dtype)


@op("len")
class Len:
    """How many there are along the first dimension (of a vector, list, path, tree or canvas)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = types[0]
        need(bool(t.dims) or t.elem in ("list", "path", "tree", "canvas", "set", "topology"), f"len needs a vector, got {t}")
        return (INT,)

    @staticmethod
    def meaning(
        m: Machine, op: Op, x: Vector | Dist | Draws | Path | Tree | Canvas | Topology | frozenset[int]
    ) -> tuple[Datum, ...]:
        if isinstance(x, Path):
            return (len(x.tokens),)
        if isinstance(x, (Dist, Draws)):
            return (x.shape[0],)
        return (len(x),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        """How many there are does not tell what they are."""
        return [Abs(c.of(op.operands[0]).dep)]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        sizes = s.lengths(op.operands[0])
        return [sizes[0] if sizes else None]

    batch = "pointwise"
    looks = "all"
    samples = (
        ("%z = len(%xs)", 3),
        ("%z = len(%path)", 2),
        ("%z = len(%t)", 4),
        ("%z = len(%c)", 3),
    )
    refusals = (("int", "vector"),)
