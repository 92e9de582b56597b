"""Vectors: elementwise functions, folds, scans, indexing and joining. Dimensions line up by what they range over."""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np

from decgraph.ir import facts, labels, sizes
from decgraph.ir.data.dist import Dist, Path, box, resolve_path, value_row
from decgraph.ir.data.numbers import MAP_FUNCTIONS, REDUCE_FUNCTIONS, SCAN_FUNCTIONS
from decgraph.ir.linear import Inequality
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, OpError, Regions, Types, op
from decgraph.ir.ops.common import array, as_int, broadcast, joined, need, numeric, spread, truncated
from decgraph.ir.sizes import Known, Sizes, add, least, most, times
from decgraph.ir.types import ANY, BOOL, INT, Type, join, listing
from decgraph.ir.values import Op, Value

_KEEP_SHARES = frozenset({"mul", "relu", "minimum", "maximum"})


_LOGIC = ("and", "or", "not")


WHOLE = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
"""Of single whole numbers these are exact: NumPy's integers would begin again at 64 bits, and `within` would see nothing."""


def _positive(k: facts.Known, v: Value, *, strict: bool = True) -> bool:
    """Whether a number, or each of a vector, is above 0, or with strict False not below it."""
    low, n = k.low(v), k.sizes.sum(v)
    return low > 0 or low == 0 and not strict or n is not None and k.sizes.proves(Inequality(n, strict))


def _less(k: facts.Known, v: Value) -> facts.Row | facts.CellRows | None:
    """The row that something not negative was taken from: nothing is left of 0 by `relu`."""
    made = k.producers.get(v)
    if made is None or made.opcode != "map" or made.attrs["fn"] != "sub" or not _positive(k, made.operands[1], strict=False):
        return None
    row = k.of(made.operands[0])
    return row if facts.is_row(row, *facts.MASS) else None


@op("map")
class Map:
    """An elementwise function (attribute fn). Operands line up by their dimensions; a dist stands for its probabilities."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        fn = attrs["fn"]
        need(fn in MAP_FUNCTIONS, f"no elementwise function {fn}")
        arity, result = MAP_FUNCTIONS[fn]
        need(len(types) == arity, f"{fn} takes {arity} operands, got {len(types)}")
        ts = [numeric(t) for t in types]
        if fn in ("eq", "ne") and any(
            t.elem in ("none", "path", "edit", "node", "text", "position", "astate", "list") for t in ts
        ):
            need(join(ts[0].scalar, ts[1].scalar) is not None, f"{types[0]} and {types[1]} cannot be equal")
            return (BOOL if any(t.elem == "none" for t in ts) else Type("bool", (), broadcast(ts)),)
        need(
            all(t.elem != "none" for t in ts) or fn == "select",
            f"{fn} needs values, got {', '.join(map(str, types))}",
            "none is compared with == and !=",
        )
        if fn in _LOGIC:
            need(all(t.elem == "bool" for t in ts), f"{fn} needs bools, got {', '.join(map(str, types))}")
            return (Type("bool", (), broadcast(ts)),)
        body = ts[1:] if fn == "select" else ts
        if fn == "select":
            need(ts[0].elem == "bool", f"where(...) needs a condition first, got {types[0]}")
        elem = (
            joined(
                [
                    Type(t.elem, t.of) if t.elem != "token" or fn in ("eq", "ne", "select") else INT
                    for t in (
                        [
                            t if not (t.elem == "int" and any(u.elem == "token" for u in body)) or fn != "select" else t
                            for t in body
                        ]
                    )
                ],
                fn,
            )
            if not (fn in ("eq", "ne") and {t.elem for t in ts} <= {"token", "int"})
            else INT
        )
        if fn not in ("eq", "ne", "select"):
            need(
                elem.is_number or elem.elem == "bool" and fn in ("add", "mul"),
                f"{fn} needs numbers, got {', '.join(map(str, types))}",
            )
        if fn in ("eq", "ne"):
            vocabs = {t.vocab for t in ts if t.elem == "token"}
            need(
                len(vocabs) < 2,
                f"tokens of different vocabularies ({', '.join(sorted(vocabs))}) are compared",
                "take models that share one vocabulary",
            )
            states = f"{fn} of vectors of numbers has no one answer, got {types[0]}"
            need(elem.elem not in ("hidden", "embedding"), states, "compare how alike they are: similarity(a, b)")
        if any(t.dims and t.dims[-1].kind == "vocab" for t in ts):
            names = {d.of for t in ts for d in t.dims if d.kind == "vocab" and d.of}
            need(
                len(names) < 2,
                f"distributions over different vocabularies ({', '.join(sorted(names))}) are mixed",
                "take models that share one vocabulary",
            )
        if result == "same":
            # of probabilities and whole numbers together only a choice is taken for a probability: 0.5 * 3 is none
            shares = fn == "select" or fn in _KEEP_SHARES and all(t.elem != "int" for t in ts)
            name = "real" if elem.elem == "prob" and not shares else elem.elem
            if elem.elem == "bool" and fn in ("add", "mul"):
                name = "int"
            out = Type(name, elem.of if name == elem.elem else ())
        else:
            out = Type("int" if fn == "sub" and elem.elem in ("int", "bool") else result)
        return (out.with_dims(broadcast(ts)),)

    @staticmethod
    def meaning(m: Machine, op: Op, *xs: Datum) -> tuple[Datum, ...]:
        fn = op.attrs["fn"]
        if m.num.exact and all(map(m.num.is_scalar, xs)):
            return (m.num.scalars[fn](*xs),)
        ts = [numeric(v.type) for v in op.operands]
        if (
            fn in ("eq", "ne")
            and not op.results[0].type.dims
            and any(t.elem in ("none", "path", "edit", "text", "list", "astate") for t in ts)
        ):
            same = _same(xs[0], xs[1])
            return (same if fn == "eq" else not same,)
        if fn in WHOLE and all(isinstance(x, int | np.integer) for x in xs):
            return (WHOLE[fn](*map(as_int, xs)),)
        want = max((t.dims for t in ts), key=len, default=())
        arrays = [spread(m.num.lift(array(m, x)), t.dims, want) for x, t in zip(xs, ts)]
        out = m.num.fn(fn)(*arrays)
        return (out[()] if isinstance(out, np.ndarray) and out.shape == () else out,)

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        if op.result.type.dims or op.result.type.elem not in ("int", "real"):
            return sizes.of_operands(s, op)
        xs = [s.number(v) for v in op.operands]
        fn = op.attrs["fn"]
        if fn == "add":
            return [add(*xs)]
        if fn == "mul":
            return [times(xs)]
        if fn == "div":
            return [xs[0]]
        if fn == "sub":  # what is taken away is a length, a parameter or a number, not a difference itself
            taken = s.producers.get(op.operands[1])
            return [xs[0] if taken is None or taken.opcode in ("len", "const", "path.get", "counter") else None]
        if fn in ("minimum", "mod"):
            return [least(*xs)]
        if fn == "clamp":
            return [least(most(*xs[:2]), xs[2])]
        if fn in ("maximum", "select"):
            return [most(*xs[-2:])]
        return [xs[0] if fn in ("floor", "abs") else None]

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A condition on depths that the root meets; rows that have no mass, or scores of -inf, where the model's has none."""
        fn, args = op.attrs["fn"], [k.of(v) for v in op.operands]
        if fn == "ge" and isinstance(args[0], facts.Column) and args[0].holds == "depth" and k.const(op.operands[1]) == 0:
            return replace(args[0], holds="everywhere")
        if fn == "mod" and isinstance(args[0], facts.Token):  # of the number of tokens, a token is itself
            made = k.producers.get(op.operands[1])
            return args[0] if made is not None and made.opcode == "vocab_size" else None
        if fn == "lt" and isinstance(args[0], facts.Column) and args[0].holds == "depth" and k.low(op.operands[1]) >= 1:
            return facts.Column(args[0].tree, "at root")
        mass = [x if facts.is_row(x, *facts.MASS) else None for x in args]
        scores = [x if facts.is_row(x, *facts.SCORES) else None for x in args]
        row: facts.Row | facts.CellRows | None = None
        match fn:
            case "log" if mass[0] is not None:
                return replace(mass[0], face="logs" if mass[0].face == "raw" else "scores")
            case "mul" | "weigh":
                row = mass[0] or mass[1] or (scores[1] if _positive(k, op.operands[0]) else None)
                row = row or (scores[0] if _positive(k, op.operands[1]) else None)
            case "div" | "pow":
                row = mass[0] if fn == "div" or _positive(k, op.operands[1]) else None
                row = row or (scores[0] if fn == "div" and _positive(k, op.operands[1]) else None)
            case "relu" | "sqrt":
                row = mass[0] or (_less(k, op.operands[0]) if fn == "relu" else None)
            case "mix" | "contrast":  # what one operand rules out is ruled out
                row = scores[0] or scores[1]
            case "add" | "sub":  # of a finite number
                row = scores[0] or (scores[1] if fn == "add" else None)
            case "exp" if scores[0] is not None:
                return replace(scores[0], face="mass")
            case "select":
                arms = facts.arms(args[1:], [k.const(v) for v in op.operands[1:]])
                return _logits_where_mass(k, op) or arms or _only_where_mass(k, op)
        return None if row is None else replace(row, face="scores" if row.face in facts.SCORES else "mass")

    attrs = ("fn",)
    label, batch = labels.elementwise, "pointwise"
    vocabulary = True
    surface = {name + "(x)": {"fn": name} for name in ("exp", "log", "relu", "abs", "sqrt", "floor")} | {
        "clamp(x, low, high)": {"fn": "clamp"},
        "where(condition, x, otherwise)": {"fn": "select"},
    }
    samples = (
        ('%z = map(%rs, %r, fn = "add")', [1.0, 2.5, 2.5]),
        ('%z = map(%q, %q, fn = "sub")', [0.0] * 3),
        ('%z = map(%bs, %xs, %n, fn = "select")', [3, 1, 1]),
        ('%z = map(%tok, %i, fn = "eq")', False),
        ('%z = map(%path, %nil, fn = "ne")', True),
        ('%z = map(%rs, %nil, fn = "eq")', False),
        ('%z = map(%pr, %r, %i, fn = "clamp")', 0.5),
        ('%z = map(%pr, %pr, fn = "add")', 0.5),
        ('%z = map(%b, fn = "not")', False),
        ('%z = map(%rs, fn = "floor")', [0, 2, 2]),
        ('%z = map(%m, %qs, fn = "mul")', ...),
    )
    refusals = (
        ("text, int", "do not go together", {"fn": "add"}),
        ("int[nodes.t], int[vocab.V]", "index one of them", {"fn": "add"}),
        ("token<V>, token<W>", "W", {"fn": "eq"}),
        ("hidden<target>, hidden<target>", "similarity", {"fn": "eq"}),
        ("int", "sing", {"fn": "sing"}),
        ("dist<V,shaped>, real[vocab.W]", "share one", {"fn": "sub"}),
    )


def _same(a: Datum, b: Datum) -> bool:
    if a is None or b is None:
        return a is None and b is None
    if isinstance(a, Path) and isinstance(b, Path):
        return resolve_path(a.tokens) == resolve_path(b.tokens)
    return bool(np.all(a == b))


def _axis(over: str, t: Type) -> int:
    if over:
        for i, d in enumerate(t.dims):
            if d.kind == over or d.of == over:
                return i
        raise OpError(f"{t} has no dimension {over}")
    vocab = [i for i, d in enumerate(t.dims) if d.kind == "vocab"]
    return vocab[-1] if vocab else len(t.dims) - 1


def _logits_where_mass(k: facts.Known, op: Op) -> facts.Fact | None:
    """`where(p.raw > 0, p.logits, -inf)` is p.logits: where a row has no mass its logarithm is -inf."""
    asks, scores = k.producers.get(op.operands[0]), k.of(op.operands[1])
    if asks is None or asks.attrs.get("fn") != "gt" or not isinstance(scores, facts.Row):
        return None
    if scores.face not in ("logits", "logs"):
        return None
    mass, limit = k.of(asks.operands[0]), k.const(asks.operands[1])
    same = mass == facts.Row(scores.model, scores.version, "raw") and not isinstance(limit, bool) and limit == 0
    return scores if same and k.const(op.operands[2]) in ("-inf", -float("inf")) else None


def _only_where_mass(k: facts.Known, op: Op) -> facts.Fact | None:
    """`where(p > 0, any numbers, 0)` is 0, and with -inf -inf, where the row p has no mass."""
    asks, other = k.producers.get(op.operands[0]), k.const(op.operands[2])
    if asks is None or asks.attrs.get("fn") != "gt" or isinstance(other, bool):
        return None
    row, limit = k.of(asks.operands[0]), k.const(asks.operands[1])
    if not isinstance(row, facts.Row) or row.face not in facts.MASS or isinstance(limit, bool) or limit != 0:
        return None
    face: facts.Face | None = "mass" if other == 0 else "scores" if other in ("-inf", -float("inf")) else None
    return None if face is None else replace(row, face=face)


@op("reduce")
class Reduce:
    """Fold one dimension (attribute fn): the vocabulary where there is one, else the last, or attribute over."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        fn = attrs["fn"]
        need(fn in REDUCE_FUNCTIONS, f"no fold {fn}")
        if t.elem == "list":
            inner = t.of[0]
            need(
                inner == ANY
                or isinstance(inner, Type)
                and not inner.dims
                and (
                    inner.elem == "bool"
                    if fn in ("any", "all", "count")
                    else inner.is_number or inner.elem in ("bool", "token")
                ),
                f"{fn} needs {'bools' if fn in ('any', 'all', 'count') else 'numbers'}, got a list of {inner}",
            )
            return (Type("bool") if fn in ("any", "all") else Type("real"),)
        need(bool(t.dims), f"{fn} needs a vector, got {types[0]}")
        need(fn not in ("any", "all", "count") or t.elem == "bool", f"{fn} needs bools, got {types[0]}")
        need(
            fn in ("any", "all", "count") or t.is_number or t.elem in ("bool", "hidden", "embedding"),
            f"{fn} needs numbers, got {types[0]}",
        )
        axis = _axis(attrs.get("over", ""), t)
        result = REDUCE_FUNCTIONS[fn]
        elem = t.elem if result == "same" and t.elem != "bool" else ("int" if result == "same" else result)
        return (Type(elem, t.of if elem == t.elem else (), t.dims[:axis] + t.dims[axis + 1 :]),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        t = numeric(op.operands[0].type)
        a = m.num.lift(array(m, x))
        if t.elem == "bool" and op.results[0].type.elem == "int":
            a = np.asarray(a).astype(np.int64)
        return (m.num.reduce(op.attrs["fn"], a, _axis(op.attrs.get("over", ""), t) if t.dims else 0),)

    attrs = ("fn", "over?")
    label, batch = labels.joined, "ragged"
    vocabulary = True
    looks = "last"
    samples = (
        ('%z = reduce(%xs, fn = "sum")', 6),
        ('%z = reduce(%q, fn = "max")', 0.5),
        ('%z = reduce(%bs, fn = "all")', False),
        ('%z = reduce(%bs, fn = "count")', 2),
        ('%z = reduce(%xs, fn = "mean")', 2.0),
        ('%z = reduce(%m, fn = "max", over = "k")', [4.0, 5.0, 5.0]),
        ('%z = reduce(%bs, fn = "sum")', 2),
        ('%z = reduce(%bs, fn = "max")', 1),
    )
    refusals = (
        ("int", "vector", {"fn": "sum"}),
        ("int[k]", "bools", {"fn": "any"}),
    )


@op("scan")
class Scan:
    """Running folds along the last dimension (cumsum, cumprod, cummax); `leading` counts how many are true at the front."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        need(attrs["fn"] in SCAN_FUNCTIONS and bool(t.dims), f"{attrs['fn']} needs a vector, got {types[0]}")
        if attrs["fn"] == "leading":
            need(t.elem == "bool", f"leading needs bools, got {types[0]}")
            return (Type("int", (), t.dims[:-1]),)
        return (Type("int" if t.elem == "bool" else t.elem, t.of, t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        return (m.num.scan(op.attrs["fn"], m.num.lift(array(m, x)), -1),)

    attrs = ("fn",)
    label, batch = labels.joined, "ragged"
    vocabulary = True
    surface = {"cumsum(x)": {"fn": "cumsum"}, "leading(condition)": {"fn": "leading"}}
    looks = "last"
    samples = (
        ('%z = scan(%xs, fn = "cumsum")', [3, 4, 6]),
        ('%z = scan(%bs, fn = "leading")', 2),
    )
    refusals = (("int[k]", "bools", {"fn": "leading"}),)


@op("as_int")
class AsInt:
    """A position (or a bool, or a real rounded towards zero) as a whole number."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t = numeric(types[0])
        need(t.is_number or t.elem in ("position", "bool", "token"), f"int needs a number, got {types[0]}")
        return (Type("int", (), t.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum) -> tuple[Datum, ...]:
        a = array(m, x)
        if np.ndim(a) == 0:
            return (as_int(a),)
        return (np.array([truncated(v) for v in np.ravel(a)], dtype=np.int64).reshape(np.shape(a)),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        """A token is its number (of the vocabulary that is committed)."""
        token = k.of(op.operands[0])
        return token if isinstance(token, facts.Token) and op.operands[0].type.of[:1] == ("V",) else None

    label, batch = labels.joined, "pointwise"
    capacity = sizes.same
    surface = "int(x)"
    samples = (
        ("%z = as_int(%pos)", 2),
        ("%z = as_int(%rs)", [0, 2, 2]),
    )
    refusals = (("text", "number"),)


@op("contains")
class Contains:
    """Whether each element of the first is among the second (a vector, a list or a set)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(bool(types[1].dims) or types[1].elem in ("set", "list"), f"`in` needs a vector or a set, got {types[1]}")
        need(types[1].elem != "list" or not types[1].item.dims, f"`in` needs a vector or a set, got {types[1]}")
        whole = ("int", "token", "draw", "position", "node", "any")
        of = types[1].item if types[1].elem == "list" else types[1]
        need(
            types[0].elem in whole and (types[1].elem == "set" or of.elem in whole),
            f"`in` compares tokens, nodes, positions or whole numbers, got {types[0]} and {types[1]}",
        )
        need(
            types[1].elem == "set" or (types[0].elem == "node") == (of.elem == "node"),
            f"{types[0]} cannot be among {types[1]}",
        )
        return (Type("bool", (), types[0].dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, x: Datum, xs: Datum) -> tuple[Datum, ...]:
        inside = xs if isinstance(xs, (set, frozenset)) else {int(v) for v in np.ravel(array(m, xs))}
        a = array(m, x)
        if a.shape == ():
            return (int(a) in inside,)
        return (np.array([int(v) in inside for v in a.ravel()], dtype=bool).reshape(a.shape),)

    label, batch = labels.joined, "pointwise"
    samples = (
        ("%z = contains(%i, %xs)", True),
        ("%z = contains(%toks, %xs)", [True, False]),
    )
    refusals = (("int, int", "vector or a set"),)


def _where_held(
    index: list[np.ndarray], types: list[Type], shape: tuple[int, ...], values: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Indices and values where all masks among the indices hold, the masks as whole numbers."""
    masks = [(i, n) for i, t, n in zip(index, types, shape) if t.elem == "bool"]
    for mask, n in masks:
        if len(mask) != n or len(mask) != len(masks[0][0]):
            raise OpError(f"a mask of {len(mask)} as an index of a dimension of {n}")
    chosen = np.flatnonzero(np.logical_and.reduce([np.asarray(mask, dtype=bool) for mask, _ in masks]))
    size = len(masks[0][0])
    for i, t in zip(index, types):
        if t.elem != "bool" and i.ndim and len(i) != size:
            raise OpError(f"an index of {len(i)} beside a mask of {size}")
    out = [chosen if t.elem == "bool" else i[chosen] if i.ndim else i for i, t in zip(index, types)]
    return out, values[chosen] if values.ndim and len(values) == size else values


@op("scatter")
class Scatter:
    """v with v[i] set to x (mode "last": of colliding rows the last in order wins), or added to (mode "sum"). An index of bools
    is a mask over its dimension: the others and x, where they line up with it, are read where it holds."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        v, x, *ix = types
        if v.elem == "list":
            return (listing(joined([v.item, x], "a list")),)
        need(len(v.dims) >= len(ix), f"{v} cannot be indexed {len(ix)} times")
        for i in ix:
            need(
                i.is_token or i.elem in ("int", "node", "position", "bool"),
                f"an index must be a whole number, a token, a node or a position, got {i}",
            )
            need(i.elem != "bool" or len(i.dims) == 1, f"a condition as an index is a mask over one dimension, got {i}")
        for i, d in zip(ix, v.dims):
            need(i.elem != "node" or d.kind != "vocab", f"{v} does not range over nodes", "a node's token: t.token[n]")
        each = max((i.dims for i in ix), key=len, default=())
        need(
            len(x.dims) <= len(each) + len(v.dims) - len(ix),
            f"{x} does not fit where {v} is set at {len(each) or 'one'} {'vector' if each else 'place'}",
        )
        need(
            x.elem != "none" and (x.elem != "dist" or v.elem == "dist"),
            f"values of {v} cannot be set to {x}",
            "an entry is one value: p[x]",
        )
        elem = (
            v.scalar
            if v.scalar == x.scalar
            else (
                join(numeric(v).scalar, numeric(x).scalar)
                or (v.scalar if {v.elem, numeric(x).elem} <= {"int", "token", "real", "prob"} else None)
            )
        )
        if elem is None:
            raise OpError(f"values of {v} cannot be set to {x}")
        return (Type(elem.elem, elem.of, v.dims),)

    @staticmethod
    def meaning(m: Machine, op: Op, v: Datum, x: Datum, *ix: Datum) -> tuple[Datum, ...]:
        if isinstance(v, list):
            out = list(v)
            out[as_int(ix[0])] = x
            return (out,)
        index = [array(m, i) for i in ix]
        types = [o.type for o in op.operands[2:]]
        a = np.array(array(m, v), dtype=object if m.num.exact else None)
        if a.dtype.kind == "i" and array(m, x).dtype.kind == "f":
            a = a.astype(np.float64)
        values = array(m, x)
        if any(t.elem == "bool" for t in types):
            index, values = _where_held(index, types, a.shape, values)
        want = max((t.dims for t in types), key=len, default=())
        flat = [
            np.broadcast_to(
                spread(i, t.dims, want), np.broadcast_shapes(*[spread(j, u.dims, want).shape for j, u in zip(index, types)])
            )
            for i, t in zip(index, types)
        ]
        shape = flat[0].shape if flat else ()
        for n in np.ndindex(shape):
            at = tuple(int(f[n]) for f in flat)
            value = values[n] if values.ndim >= len(n) and values.shape[: len(n)] == shape else values
            a[at] = a[at] + value if op.attrs["mode"] == "sum" else value
        if isinstance(v, Dist) and op.results[0].type.elem == "dist":
            rows = [value_row(a[n]) for n in np.ndindex(a.shape[:-1])]
            return (Dist(box(rows).reshape(a.shape[:-1]), str(op.results[0].type.of[1]), v.at),)
        return (a,)

    attrs = ("mode",)
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = scatter(%rs, %r, %n, mode = "last")', [0.5, 0.5, 2.0]),
        ('%z = scatter(%xs, %i, %i, mode = "sum")', [3, 1, 4]),
    )
    refusals = (
        ("int, int, int", "indexed", {"mode": "last"}),
        ("int[k], int, path<V>", "index", {"mode": "last"}),
        ("int[k], int[k], int", "does not fit", {"mode": "last"}),
    )
