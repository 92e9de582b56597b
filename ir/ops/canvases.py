"""Canvases and sets of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels
from decgraph.ir.data.canvas import Canvas, Cell
from decgraph.ir.data.dist import Dist, Draw, Draws, Row, Soft, box
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, OpError, Regions, Sample, Types, op
from decgraph.ir.ops.common import array, as_int, need, need_one
from decgraph.ir.types import BOOL, INT, Dim, Type, listing
from decgraph.ir.values import Op


def _c(t: Type, what: str) -> str:
    need(t.elem == "canvas", f"{what} needs a canvas, got {t}")
    return str(t.of[0])


@op("canvas.new")
class CanvasNew:
    """A canvas of masked cells after the committed context. Attribute canvas: its name; grow_to: its capacity."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need_one(types[0], "the length of a canvas")
        return (Type("canvas", (attrs["canvas"], attrs.get("vocab", "V"))),)

    @staticmethod
    def meaning(m: Machine, op: Op, length: Datum, capacity: Datum = None) -> tuple[Datum, ...]:
        n = min(as_int(length), m.canvas_room())
        cap = m.canvas_room() if capacity is None else min(as_int(capacity), m.canvas_room())
        return (Canvas.start(m.context(), n, cap),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact:
        return facts.Canvas("", k.version)

    attrs = ("canvas", "vocab?")
    label, batch = labels.joined, "ragged"
    samples = (('%z = canvas.new(%i, canvas = "c")', [None, None]),)
    refusals = (("text", "length", {"canvas": "c"}),)


@op("canvas.extend")
class CanvasExtend:
    """A canvas with k more masked cells, up to its capacity."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        _c(types[0], "extend")
        need_one(types[1], "extend")
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, c: Canvas, k: Datum) -> tuple[Datum, ...]:
        return (c.extend(as_int(k)),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        canvas = k.of(op.operands[0])
        return canvas if isinstance(canvas, facts.Canvas) else None

    label, batch = labels.joined, "ragged"
    samples = (("%z = canvas.extend(%c, %i)", [None, 2, None, None]),)
    refusals = (("int, int", "canvas"),)


@op("canvas.put")
class CanvasPut:
    """Decide cells (kind "token"), mask them again ("mask") or fill them softly ("soft"). Operands canvas, positions, values
    [and a mask over the positions, attribute has_mask; attribute open: only cells still masked change]. Values line up with
    the positions, or cover the whole canvas and are read at each."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        _c(types[0], "deciding cells")
        need(types[1].elem in ("position", "int") and len(types[1].dims) <= 1, f"cells are chosen by positions, got {types[1]}")
        if attrs["kind"] == "token":
            x = types[2]
            need(
                x.is_token or x.elem == "int",
                f"a cell takes a token, got {x}",
                "sample a distribution first: x ~ p" if x.elem == "dist" else "",
            )
        if attrs["kind"] == "soft":
            need(
                types[2].elem == "embedding",
                f"a soft cell takes an embedding, got {types[2]}",
                "c.soft[ps] = model.embed(weights), and parts of it with model.embed(mask_)",
            )
        if attrs.get("has_mask"):
            need(types[-1].elem == "bool", f"`where` needs a condition, got {types[-1]}")
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, c: Canvas, ps: Datum, *rest: Datum) -> tuple[Datum, ...]:
        mask = np.atleast_1d(np.asarray(rest[-1])) if op.attrs.get("has_mask") else None
        ids = [int(i) for i in np.ravel(np.asarray(ps))]
        if mask is not None and len(mask) != len(ids):
            mask = np.full(len(ids), bool(mask[0])) if len(mask) == 1 else mask[ids]
        if op.attrs["kind"] == "mask":
            chosen = [i for n, i in enumerate(ids) if (mask is None or mask[n]) and not c.masked(i)]
            m.masked_again(c, chosen)
            return (c.put(chosen, [None] * len(chosen)),)
        taken = [(mask is None or bool(mask[n])) and not (op.attrs.get("open") and not c.masked(i)) for n, i in enumerate(ids)]
        if op.attrs["kind"] == "soft":
            values: list[Cell] = [Soft(tuple(v)) for v in mixtures(rest[0], op.operands[2].type, ids)]
        else:
            values = cells_of(m, rest[0], len(ids), op.operands[2].type, ids, taken)
        chosen = [i for i, yes in zip(ids, taken, strict=True) if yes]
        put = [v for v, yes in zip(values, taken, strict=True) if yes]
        if op.attrs["kind"] == "token":
            m.unmasked(c, chosen, put)
        elif again := [i for i in chosen if not c.masked(i)]:
            m.masked_again(c, again)
        return (c.put(chosen, put),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        canvas = c.of(op.operands[0])
        rest = [c.of(v) for v in op.operands[1:]]
        value = rest[1] if op.attrs["kind"] != "mask" else Abs()
        seen = value.reads if op.attrs["kind"] == "soft" else value.dep
        dep = canvas.dep | seen | rest[0].reads | (rest[-1].reads if op.attrs.get("has_mask") else labels.NO) | c.control
        return [Abs(dep, canvas.draws | (value.draws if op.attrs["kind"] == "token" else labels.NO))]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """Tokens that the model gives mass to on this very canvas, at the positions where they are put."""
        canvas, where = op.operands[:2]
        before = k.of(canvas)
        if not isinstance(before, facts.Canvas) or op.attrs["kind"] == "mask":
            return before if op.attrs["kind"] == "mask" else None
        tokens = k.of(op.operands[2]) if op.attrs["kind"] == "token" else None
        match tokens:
            case facts.CellTokens(at=None) if op.operands[2].type.dims[:1] and op.operands[2].type.dims[0].kind == "cells":
                right = tokens.canvas is canvas
            case facts.CellTokens():
                made = k.producers.get(where)
                same = made is not None and made.opcode == "compact" and tokens.at == tuple(made.operands)
                right = tokens.canvas is canvas and (tokens.at is where or same)
            case facts.CellEdit():
                right = tokens.canvas is canvas and k.of(where) == tokens
            case _:
                return None
        return replace(before, model=tokens.model) if right and before.model in ("", tokens.model) else None

    attrs = ("kind", "has_mask?", "open?")
    batch = "ragged"
    samples = (
        ('%z = canvas.put(%c, %ps, %toks, kind = "token")', [2, 2, 0]),
        ('%z = canvas.put(%c, %ps, %tok, %bs, kind = "token", has_mask = true)', ...),
        ('%z = canvas.put(%c, %ps, kind = "mask")', [None, 2, None]),
    )
    refusals = (("canvas<c,V>, position<c>, dist<V,shaped>", "x ~ p", {"kind": "token"}),)


def mixtures(e: object, t: Type, ids: Sequence[int]) -> list[np.ndarray]:
    """One embedding per position, from coordinates [V + 1] or rows of them: lined up with the positions, read at them, or the
    same for all."""
    a = np.asarray(e)
    if a.ndim == 1:
        return [a] * len(ids)
    if t.dims[0].kind == "cells":
        return [a[i] for i in ids]
    if len(a) != len(ids):
        raise OpError(f"{len(ids)} positions and {len(a)} embeddings")
    return list(a)


def cells_of(m: Machine, x: Datum, n: int, t: Type, ids: list[int], taken: list[bool]) -> list[Cell]:
    """One value per position: lined up with them, read at those that are taken, or the same for all."""
    if isinstance(x, Draw):
        return [x] * n
    if isinstance(x, Draws):
        if x.shape == ():
            return [x.draw] * n
        if t.dims and t.dims[0].kind == "cells":
            return [x.items[i] for i in ids]
        if x.at is not None and not (len(x.at) == n and list(map(int, x.at)) == ids):
            return [x.take(i).draw if yes else None for i, yes in zip(ids, taken, strict=True)]
        if len(x.items) != n:
            raise OpError(f"{n} positions and {len(x.items)} values")
        return list(x.items)
    a = array(m, x)
    if a.shape == ():
        return [int(a)] * n
    if t.dims and t.dims[0].kind == "cells":
        return [a[i] if a.ndim > 1 else int(a[i]) for i in ids]
    if len(a) != n:
        raise OpError(f"{n} positions and {len(a)} values")
    return [v if a.ndim > 1 else int(v) for v in a]


@op("canvas.get")
class CanvasGet:
    """A field over all positions: masked, decided (bools), token, draws; or all (the positions themselves), length."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        c = _c(types[0], "." + attrs["field"])
        d = Dim("cells", c)
        v = str(types[0].of[1])
        table = {
            "masked": Type("bool", (), (d,)),
            "decided": Type("bool", (), (d,)),
            "token": Type("token", (v,), (d,)),
            "draws": Type("draw", (v,), (d,)),
            "all": Type("position", (c,), (d,)),
            "length": INT,
        }
        need(attrs["field"] in table, f"a canvas has no .{attrs['field']}", f"it has {', '.join(table)}")
        return (table[attrs["field"]],)

    @staticmethod
    def meaning(m: Machine, op: Op, c: Canvas) -> tuple[Datum, ...]:
        f = op.attrs["field"]
        if f == "length":
            return (len(c),)
        if f == "all":
            return (np.arange(len(c)),)
        if f in ("masked", "decided"):
            mask = np.array([c.masked(i) for i in range(len(c))], dtype=bool)
            return (mask if f == "masked" else ~mask,)
        if f == "token":
            return (
                np.array(
                    [
                        m.mask_token if x is None or isinstance(x, Soft) else x.token if isinstance(x, Draw) else int(x)
                        for x in c.cells
                    ],
                    dtype=np.int64,
                ),
            )
        from decgraph.ir.ops.draws import point

        return (Draws(box([x if isinstance(x, Draw) else point(m, int(x)) if x is not None else None for x in c.cells])),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        x = c.of(op.operands[0])
        if op.attrs["field"] == "draws":
            return [Abs(x.dep, x.draws, canvas=True)]
        return [Abs(x.dep if op.attrs["field"] in ("masked", "decided", "all", "length") else x.reads)]

    attrs = ("field",)
    batch = "pointwise"
    samples = (
        ('%z = canvas.get(%c, field = "masked")', [True, False, True]),
        ('%z = canvas.get(%c, field = "decided")', [False, True, False]),
        ('%z = canvas.get(%c, field = "token")', [3, 2, 3]),
        ('%z = canvas.get(%c, field = "all")', [0, 1, 2]),
        ('%z = canvas.get(%c, field = "length")', 3),
        ('%z = canvas.get(%c, field = "draws")', [None, 2, None]),
    )
    refusals = (
        ("int", "canvas", {"field": "masked"}),
        ("canvas<c,V>", "masked", {"field": "blank"}),
    )


@op("positions")
class Positions:
    """Sets of positions: span (start, length), from, before, blocks (of k: a list of spans), of a canvas, cut where they reach
    outside of it; union, minus; where a span starts and stops."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        kind = attrs["kind"]
        if kind in ("union", "minus"):
            need(types[0].elem == "position" and types[1].elem == "position", f"{kind} needs positions")
            c = types[0].of
            return (Type("position", c, (Dim("part", str(c[0])),)),)
        if kind in ("span", "blocks", "from", "before"):
            need(types[0].elem == "canvas", f"{kind} needs a canvas, got {types[0]}")
            for t in types[1:]:
                need_one(t, kind)
        if kind in ("start", "stop"):
            need(types[0].elem == "position" and bool(types[0].dims), f".{kind} needs a span, got {types[0]}")
        canvas = attrs.get("canvas") or (str(types[0].of[0]) if types[0].elem in ("canvas", "position") else "c")
        one = Type("position", (canvas,), (Dim("part", canvas, attrs.get("bound")),))
        if kind == "blocks":
            return (listing(one, attrs.get("count")),)
        if kind in ("start", "stop"):
            return (one.scalar,)
        return (one,)

    @staticmethod
    def meaning(m: Machine, op: Op, c: Canvas | np.ndarray, *others: Datum) -> tuple[Datum, ...]:
        kind, n = op.attrs["kind"], len(c) if isinstance(c, Canvas) else np.size(c)
        if kind == "blocks":
            k = max(1, as_int(others[0]))
            return ([np.arange(i, min(i + k, n)) for i in range(0, n, k)],)
        if kind == "span":
            return (np.arange(max(0, as_int(others[0])), min(as_int(others[0]) + as_int(others[1]), n)),)
        if kind == "from":
            return (np.arange(max(0, as_int(others[0])), n),)
        if kind == "before":
            return (np.arange(0, min(as_int(others[0]), n)),)
        if kind in ("start", "stop") and not n:
            raise OpError(f"positions that hold no cell have no {kind}", hint="look before: if len(b) > 0")
        ids = [] if isinstance(c, Canvas) else [int(i) for i in np.ravel(c)]
        if kind == "start":
            return (ids[0],)
        if kind == "stop":
            return (ids[-1] + 1,)
        a, b = ids, [int(i) for i in np.ravel(np.asarray(others[0]))]
        out = a + [i for i in b if i not in set(a)] if kind == "union" else [i for i in a if i not in set(b)]
        return (np.array(out, dtype=np.int64),)

    attrs = ("kind", "canvas?", "bound?", "count?")
    label, batch = labels.joined, "ragged"
    surface = {"span(canvas, start, length)": {"kind": "span"}}
    samples: tuple[Sample, ...] = (
        ('%z = positions(%c, %n, %i, kind = "span")', [1, 2]),
        ('%z = positions(%c, %i, kind = "blocks")', [[0, 1], [2]]),
        ('%z = positions(%c, %n, kind = "from")', [1, 2]),
        ('%z = positions(%c, %n, kind = "before")', [0]),
        ('%z = positions(%ps, kind = "start")', 0),
        ('%z = positions(%ps, kind = "stop")', 3),
        ('%z = positions(%ps, %ps, kind = "union")', [0, 2]),
        ('%z = positions(%ps, %ps, kind = "minus")', []),
    )
    refusals = (("int, int", "canvas", {"kind": "blocks"}),)


@op("block_index")
class BlockIndex:
    """Which block a span is: its start over its length, rounded down."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "position" and bool(types[0].dims), f".index needs a block, got {types[0]}")
        return (INT,)

    @staticmethod
    def meaning(m: Machine, op: Op, b: np.ndarray) -> tuple[Datum, ...]:
        return (int(b[0]) // max(1, len(b)) if len(b) else 0,)

    label, batch = labels.joined, "pointwise"
    samples = (("%z = block_index(%ps)", 0),)
    refusals = (("int", "block"),)


@op("schedule")
class Schedule:
    """How many cells each of `steps` steps decides: n spread evenly, the first ones one more (kind "spread")."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need_one(types[0], "a schedule's count")
        need_one(types[1], "a schedule's steps")
        return (INT.over(Dim("k", "", attrs.get("bound"))),)

    @staticmethod
    def meaning(m: Machine, op: Op, n: Datum, steps: Datum) -> tuple[Datum, ...]:
        n, steps = as_int(n), max(1, as_int(steps))
        return (np.array([n // steps + (i < n % steps) for i in range(steps)], dtype=np.int64),)

    attrs = ("bound?",)
    label, batch = labels.joined, "scalar"
    samples = (("%z = schedule(%i, %n)", [2]),)
    refusals = (("int[k], int", "one number"),)


__all__ = ["BOOL", "Dist", "Row"]
