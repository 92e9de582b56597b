"""Vectors: elementwise functions, folds, scans, indexing and joining. Dimensions line up by what they range over."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from decgraph.ir import labels, sizes
from decgraph.ir.data.dist import Dist, Draws, Path, box, box0, locate
from decgraph.ir.data.numbers import MAP_FUNCTIONS, REDUCE_FUNCTIONS, SCAN_FUNCTIONS
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.opdef import OpError, op
from decgraph.ir.ops.common import array, as_int, broadcast, joined, need, need_one, numeric, spread, stack, truncated
from decgraph.ir.ops.limits import allowed, joined_length
from decgraph.ir.sizes import Known, Sizes, add, least, most, times
from decgraph.ir.types import ANY, BOOL, INT, Dim, Type, join, join_dims, listing
from decgraph.ir.values import Op

_ORDERED = ("lt", "le", "gt", "ge")
_KEEP_SHARES = frozenset({"mul", "relu", "minimum", "maximum"})
_LOGIC = ("and", "or", "not")


WHOLE = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
"""Of single whole numbers these are exact: NumPy's integers would begin again at 64 bits, and `within` would see nothing."""


@op("map")
class Map:
    """An elementwise function (attribute fn). Operands line up by their dimensions; a dist stands for its probabilities."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
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

    def meaning(m: Any, op: Any, *xs: Any) -> Any:
        fn = op.attrs["fn"]
        ts = [numeric(v.type) for v in op.operands]
        if (
            fn in ("eq", "ne")
            and not op.results[0].type.dims
            and any(t.elem in ("none", "path", "edit", "text", "list", "astate") for t in ts)
        ):
            same = _same(xs[0], xs[1])
            return (same if fn == "eq" else not same,)
        if fn in WHOLE and all(isinstance(x, int | np.integer) for x in xs):
            return (WHOLE[fn](*map(int, xs)),)
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
            taken = s.made.get(op.operands[1])
            return [xs[0] if taken is None or taken.opcode in ("len", "const", "path.get", "counter") else None]
        if fn in ("minimum", "mod"):
            return [least(*xs)]
        if fn == "clamp":
            return [least(most(*xs[:2]), xs[2])]
        if fn in ("maximum", "select"):
            return [most(*xs[-2:])]
        return [xs[0] if fn in ("floor", "abs") else None]

    attrs = ("fn",)
    label, batch = labels.elementwise, "pointwise"
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
        ("int", "sing", {"fn": "sing"}),
        ("dist<V,shaped>, real[vocab.W]", "share one", {"fn": "sub"}),
    )


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is None and b is None
    if isinstance(a, Path) and isinstance(b, Path):
        return [int(x) for x in a.tokens] == [int(x) for x in b.tokens]
    return bool(np.all(a == b))


def _axis(attrs: Any, t: Type) -> int:
    over = attrs.get("over", "")
    if over:
        for i, d in enumerate(t.dims):
            if d.kind == over or d.of == over:
                return i
        raise OpError(f"{t} has no dimension {over}")
    vocab = [i for i, d in enumerate(t.dims) if d.kind == "vocab"]
    return vocab[-1] if vocab else len(t.dims) - 1


@op("reduce")
class Reduce:
    """Fold one dimension (attribute fn): the vocabulary where there is one, else the last, or attribute over."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
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
            fn in ("any", "all", "count") or t.is_number or t.elem in ("bool", "hidden"), f"{fn} needs numbers, got {types[0]}"
        )
        axis = _axis(attrs, t)
        result = REDUCE_FUNCTIONS[fn]
        elem = t.elem if result == "same" and t.elem != "bool" else ("int" if result == "same" else result)
        return (Type(elem, t.of if elem == t.elem else (), t.dims[:axis] + t.dims[axis + 1 :]),)

    def meaning(m: Any, op: Any, x: Any) -> Any:
        t = numeric(op.operands[0].type)
        a = m.num.lift(array(m, x))
        if t.elem == "bool" and op.results[0].type.elem == "int":
            a = np.asarray(a).astype(np.int64)
        return (m.num.reduce(op.attrs["fn"], a, _axis(op.attrs, t) if t.dims else 0),)

    attrs = ("fn", "over?")
    label, batch = labels.joined, "ragged"
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

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = numeric(types[0])
        need(attrs["fn"] in SCAN_FUNCTIONS and bool(t.dims), f"{attrs['fn']} needs a vector, got {types[0]}")
        if attrs["fn"] == "leading":
            need(t.elem == "bool", f"leading needs bools, got {types[0]}")
            return (Type("int", (), t.dims[:-1]),)
        return (Type("int" if t.elem == "bool" else t.elem, t.of, t.dims),)

    def meaning(m: Any, op: Any, x: Any) -> Any:
        return (m.num.scan(op.attrs["fn"], m.num.lift(array(m, x)), -1),)

    attrs = ("fn",)
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = scan(%xs, fn = "cumsum")', [3, 4, 6]),
        ('%z = scan(%bs, fn = "leading")', 2),
    )
    refusals = (("int[k]", "bools", {"fn": "leading"}),)


def _whole(x: Any) -> Any:
    """Indices as whole numbers, also where they were computed as rationals."""
    a = np.asarray(x)
    return a.astype(np.int64) if a.dtype == object else a


@op("gather")
class Gather:
    """v[i] along the first dimensions: one index operand per dimension, lined up with each other. Where distributions or draws
    range over a part of a tree or canvas, an index that is a node or position names its member; numbers do not know which part
    they are of, and take none. Attribute axis 1: the one index, of positions, is along the second dimension of
    distributions."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
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
            return (v.of[0],)
        need(
            len(v.dims) >= len(ix),
            f"{v} does not have {len(ix)} dimensions to index",
            "this value is a single one" if not v.dims else "",
        )
        for i in ix:
            need(
                i.elem in ("int", "token", "node", "position"),
                f"an index must be a whole number, a token, a node or a position, got {i}",
                "use `where` to select by a condition" if i.elem == "bool" else "",
            )
        for i, d in zip(ix, v.dims):
            if i.elem == "node":
                need(d.kind in ("nodes", "part", "k"), f"{v} does not range over nodes")
                need(d.kind == "k" or d.of == i.of[0] or not d.of, f"a node of tree {i.of[0]} looks into values of tree {d.of}")
            if i.elem in ("node", "position") and d.kind == "part":
                need(
                    v.elem in ("dist", "draw"),
                    f"a {i.elem} cannot look into {v}: numbers do not know which {i.elem}s they are of",
                    "distributions and draws know: p.raw[i][x[i]] for s[i] after s = p.raw[x]; or count: s[k] is that of b[k]",
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

    def meaning(m: Any, op: Any, v: Any, *ix: Any) -> Any:
        if op.attrs.get("axis"):
            return (Dist(v.rows[:, locate(v.inner, ix[0])], v.face, v.at, np.asarray(ix[0])),)
        if isinstance(v, list) or op.operands[0].type.elem == "topology":
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
            index = [
                locate(at, i) if t.elem in ("node", "position") else i
                for i, t, at in zip(index, types, (v.at, v.inner, *[None] * len(index)))
            ]
            inner = None if len(index) > 1 else v.inner
            at, inner = (None, inner) if np.ndim(index[0]) else (inner, None)
            if isinstance(v, Dist):
                rows = v.rows[tuple(index)]
                return (Dist(rows if isinstance(rows, np.ndarray) else box0(rows), v.face, at, inner),)
            items = v.items[tuple(index)]
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

    attrs = ("axis?",)
    batch = "ragged"
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

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        v = types[0]
        for end in types[1:]:
            need_one(end, "a slice")
        if v.elem in ("list", "path"):
            return (v,)
        need(bool(v.dims), f"a slice needs a vector, got {v}")
        d = v.dims[0]
        kind = d.kind if d.kind == "part" else "k"
        return (Type(v.elem, v.of, (Dim(kind, d.of if kind == "part" else "", d.bound),) + v.dims[1:]),)

    def meaning(m: Any, op: Any, v: Any, *ends: Any) -> Any:
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
        made = s.made.get(op.operands[-1])
        end = made.attrs["value"] if op.attrs.get("has_hi") and made is not None and made.opcode == "const" else None
        return [(least(first, end if isinstance(end, int) and end >= 0 else None), *rest)]

    attrs = ("has_lo?", "has_hi?")
    label, batch = labels.choice, "ragged"
    samples = (
        ("%z = slice(%xs, %n, has_lo = true)", [1, 2]),
        ("%z = slice(%path, %n, has_hi = true)", [0]),
        ("%z = slice(%ds, %n, %i, has_lo = true, has_hi = true)", [0]),
    )
    refusals = (("int, int", "vector", {"has_lo": True}),)


@op("concat")
class Concat:
    """a ++ b along the first dimension; single values count as vectors of one."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        a, b = types
        if a == listing(ANY):
            return (b if b.dims or b.elem == "list" else b.over(Dim("k", "", 1)),)
        if b == listing(ANY):
            return (a if a.dims or a.elem == "list" else a.over(Dim("k", "", 1)),)
        if a.elem == "list" or b.elem == "list":
            inner = joined([t.of[0] if t.elem == "list" else (t.drop() if t.dims else t) for t in (a, b)], "++")
            return (listing(inner),)
        if a.elem == "path" or b.elem == "path" or "node" in (a.elem, b.elem) and a.elem != b.elem:
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

    def meaning(m: Any, op: Any, a: Any, b: Any) -> Any:
        want = op.results[0].type
        allowed(joined_length(a, b), "this vector")
        if want.elem == "path":
            return (Path(_path_tokens(a) + _path_tokens(b)),)
        if want.elem == "list":
            return (_listed(a) + _listed(b),)
        if isinstance(a, list) and not a:
            return (b if op.operands[1].type.dims else stack(m, [b]),)
        if isinstance(b, list) and not b:
            return (a if op.operands[0].type.dims else stack(m, [a]),)
        if want.elem == "dist":
            rows = [np.atleast_1d(x.rows) for x in (a, b)]
            at = None if a.at is None or b.at is None else np.concatenate([a.at, b.at])
            return (Dist(np.concatenate(rows), a.face, at),)
        if want.elem == "draw":
            parts = [np.atleast_1d(x.items) if isinstance(x, Draws) else box([x]) for x in (a, b)]
            return (Draws(np.concatenate(parts)),)
        arrays = [np.atleast_1d(np.asarray(array(m, x))) for x in (a, b)]
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


def _listed(x: Any) -> list[Any]:
    if isinstance(x, list):
        return list(x)
    if isinstance(x, Draws):
        return [Draws(x.items[i : i + 1].reshape(())) for i in range(len(x.items))]
    return list(x) if np.ndim(x) else [x]


def _path_tokens(x: Any) -> list[Any]:
    if isinstance(x, Path):
        return list(x.tokens)
    if isinstance(x, tuple):
        return list(x)
    if isinstance(x, Draws):
        return list(np.atleast_1d(x.items))
    return list(np.atleast_1d(np.asarray(x)))


@op("list")
class ListOp:
    """[a, b, c]: a vector where the items stack, else a list."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        if not types:
            return (listing(ANY),)
        elem = joined(list(types), "a list")
        some = any(t.elem == "none" for t in types)
        if some or elem.elem in ("tree", "canvas", "path", "memory", "model", "list", "none") or attrs.get("ragged"):
            return (listing(elem, len(types)),)
        return (elem.over(Dim("k", "", len(types))),)

    def meaning(m: Any, op: Any, *xs: Any) -> Any:
        return (list(xs) if op.results[0].type.elem == "list" else stack(m, list(xs)),)

    attrs = ("ragged?",)
    label, batch = labels.together, "ragged"
    samples: Any = (
        ("%z = list(%i, %r)", [2.0, 0.5]),
        ("%z = list()", []),
        ("%z = list(%path, %path)", ...),
        ("%z = list(%path, %nil)", ...),
    )
    refusals = (("int, text", "go together"),)


@op("tile")
class Tile:
    """A value repeated n times (kind "tile"), or 0, 1, ... (kind "iota", from lo to hi), or zeros over given sizes."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
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

    def meaning(m: Any, op: Any, *xs: Any) -> Any:
        kind = op.attrs["kind"]
        if kind == "iota":
            lo, hi = (0, xs[0]) if len(xs) == 1 else xs
            return (np.arange(as_int(lo), as_int(hi)),)
        if kind == "zeros":
            sizes = iter(xs)
            shape = tuple(m.vocab_size if d.kind == "vocab" else max(0, as_int(next(sizes))) for d in op.attrs["dims"])
            allowed(prod(shape), "zeros(...)")
            return (m.num.zeros(shape, op.attrs.get("elem", "real")),)
        return (stack(m, [xs[0]] * as_int(xs[1])) if as_int(xs[1]) else _none(xs[0]),)

    attrs = ("kind", "dims?", "dim?", "of?", "bound?", "elem?")
    label, batch = labels.together, "ragged"
    samples = (
        ('%z = tile(%r, %i, kind = "tile", bound = 2)', [0.5, 0.5]),
        ('%z = tile(%n, %i, kind = "iota")', [1]),
        ('%z = tile(%i, kind = "zeros", elem = "int", dims = [dim k, dim vocab.V])', [[0] * 3] * 2),
    )
    refusals = (("int, int[k]", "one number", {"kind": "tile"}),)


def _none(x: Any) -> Any:
    return Draws(np.empty((0,), dtype=object)) if isinstance(x, Draws) else np.zeros((0,) + np.shape(x))


@op("len")
class Len:
    """How many there are along the first dimension (of a vector, list, path, tree or canvas)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = types[0]
        need(bool(t.dims) or t.elem in ("list", "path", "tree", "canvas", "set", "topology"), f"len needs a vector, got {t}")
        return (INT,)

    def meaning(m: Any, op: Any, x: Any) -> Any:
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
    samples = (
        ("%z = len(%xs)", 3),
        ("%z = len(%path)", 2),
        ("%z = len(%t)", 4),
        ("%z = len(%c)", 3),
    )
    refusals = (("int", "vector"),)


@op("as_int")
class AsInt:
    """A position (or a bool, or a real rounded towards zero) as a whole number."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t = numeric(types[0])
        need(t.is_number or t.elem in ("position", "bool", "token"), f"int needs a number, got {types[0]}")
        return (Type("int", (), t.dims),)

    def meaning(m: Any, op: Any, x: Any) -> Any:
        a = array(m, x)
        if np.ndim(a) == 0:
            return (as_int(a),)
        return (np.array([truncated(v) for v in np.ravel(a)], dtype=np.int64).reshape(np.shape(a)),)

    label, batch = labels.joined, "pointwise"
    capacity = sizes.same
    samples = (
        ("%z = as_int(%pos)", 2),
        ("%z = as_int(%rs)", [0, 2, 2]),
    )
    refusals = (("text", "number"),)


@op("contains")
class Contains:
    """Whether each element of the first is among the second (a vector, a list or a set)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(bool(types[1].dims) or types[1].elem in ("set", "list"), f"`in` needs a vector or a set, got {types[1]}")
        need(types[1].elem != "list" or not types[1].of[0].dims, f"`in` needs a vector or a set, got {types[1]}")
        whole = ("int", "token", "draw", "position", "node", "any")
        of = types[1].of[0] if types[1].elem == "list" else types[1]
        need(
            types[0].elem in whole and (types[1].elem == "set" or of.elem in whole),
            f"`in` compares tokens, nodes, positions or whole numbers, got {types[0]} and {types[1]}",
        )
        return (Type("bool", (), types[0].dims),)

    def meaning(m: Any, op: Any, x: Any, xs: Any) -> Any:
        inside = xs if isinstance(xs, (set, frozenset)) else {int(v) for v in np.ravel(np.asarray(array(m, xs)))}
        a = np.asarray(array(m, x))
        if a.shape == ():
            return (int(a) in inside,)
        return (np.array([int(v) in inside for v in a.ravel()], dtype=bool).reshape(a.shape),)

    label, batch = labels.joined, "pointwise"
    samples = (
        ("%z = contains(%i, %xs)", True),
        ("%z = contains(%toks, %xs)", [True, False]),
    )
    refusals = (("int, int", "vector or a set"),)
