"""Vectors: elementwise functions, folds, scans, indexing, joining. Lists in, lists out."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from meanings.registry import Draw, Sample, V, says
from meanings.values import INTS, REALS, TOKENS, bools, dist, exactly, ints, lists, probs, reals, row, rows, tokens

TWO: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "minimum": lambda a, b: b if b < a else a,
    "maximum": lambda a, b: b if b > a else a,
}
ONE: dict[str, Any] = {
    "neg": lambda a: -a,
    "exp": math.exp,
    "relu": lambda a: a if a > 0 else a * 0,
    "abs": lambda a: -a if a < 0 else a,
    "floor": math.floor,
}


@says("map")
def of_two(draw: Draw) -> Sample:
    """Each with each, one with each, a single pair."""
    fn = draw(st.sampled_from(sorted(TWO)))
    of, kind = draw(st.sampled_from([(INTS, "int"), (REALS, "real")]))
    vector = ints if kind == "int" else reals
    a = draw(lists(of))
    how = draw(st.sampled_from(["vectors", "one", "single"]))
    if how == "vectors":
        b = draw(exactly(of, len(a)))
        return Sample(
            f'%z = map(%a, %b, fn = "{fn}")',
            {"a": vector(a), "b": vector(b)},
            ([TWO[fn](x, y) for x, y in zip(a, b, strict=True)],),
        )
    y = draw(of)
    if how == "one":
        return Sample(f'%z = map(%a, %y, fn = "{fn}")', {"a": vector(a), "y": (kind, y)}, ([TWO[fn](x, y) for x in a],))
    x = draw(of)
    return Sample(f'%z = map(%x, %y, fn = "{fn}")', {"x": (kind, x), "y": (kind, y)}, (TWO[fn](x, y),))


@says("map")
def of_one(draw: Draw) -> Sample:
    fn = draw(st.sampled_from(sorted(ONE)))
    a = draw(lists(REALS))
    if draw(st.booleans()):
        x = draw(REALS)
        return Sample(f'%z = map(%x, fn = "{fn}")', {"x": ("real", x)}, (ONE[fn](x),))
    return Sample(f'%z = map(%a, fn = "{fn}")', {"a": reals(a)}, ([ONE[fn](x) for x in a],))


@says("map")
def quotients(draw: Draw) -> Sample:
    """What floating point says of 0 / 0, logarithms and roots of what is not positive, powers."""

    def divided(a: float, b: float) -> float:
        if b == 0:
            return math.nan if a == 0 else math.copysign(math.inf, a) * math.copysign(1, b)
        return a / b

    fn = draw(st.sampled_from(["div", "log", "sqrt", "mod", "pow"]))
    a = draw(lists(REALS))
    if fn == "div":
        b = draw(exactly(REALS, len(a)))
        return Sample(
            '%z = map(%a, %b, fn = "div")',
            {"a": reals(a), "b": reals(b)},
            ([divided(x, y) for x, y in zip(a, b, strict=True)],),
        )
    if fn == "log":
        return Sample(
            '%z = map(%a, fn = "log")',
            {"a": reals(a)},
            ([math.log(x) if x > 0 else -math.inf if x == 0 else math.nan for x in a],),
        )
    if fn == "sqrt":
        return Sample('%z = map(%a, fn = "sqrt")', {"a": reals(a)}, ([math.sqrt(x) if x >= 0 else math.nan for x in a],))
    n = draw(st.integers(1, 4))
    if fn == "mod":
        xs = draw(lists(INTS))
        return Sample('%z = map(%a, %n, fn = "mod")', {"a": ints(xs), "n": ("int", n)}, ([x - n * (x // n) for x in xs],))
    return Sample('%z = map(%a, %n, fn = "pow")', {"a": reals(a), "n": ("int", n)}, ([math.prod([x] * n) for x in a],))


@says("map")
def logic(draw: Draw) -> Sample:
    a = draw(lists(st.booleans()))
    b = draw(exactly(st.booleans(), len(a)))
    fn = draw(st.sampled_from(["and", "or", "not", "eq"]))
    if fn == "not":
        return Sample('%z = map(%a, fn = "not")', {"a": bools(a)}, ([not x for x in a],))
    how = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "eq": lambda x, y: x == y}[fn]
    return Sample(
        f'%z = map(%a, %b, fn = "{fn}")', {"a": bools(a), "b": bools(b)}, ([how(x, y) for x, y in zip(a, b, strict=True)],)
    )


@says("map")
def choosing(draw: Draw) -> Sample:
    """where(c, a, b) and clamp(x, lo, hi)."""
    a = draw(lists(REALS))
    if draw(st.booleans()):
        c, b = draw(exactly(st.booleans(), len(a))), draw(REALS)
        return Sample(
            '%z = map(%c, %a, %b, fn = "select")',
            {"c": bools(c), "a": reals(a), "b": ("real", b)},
            ([x if ok else b for ok, x in zip(c, a, strict=True)],),
        )
    lo, hi = sorted((draw(REALS), draw(REALS)))
    return Sample(
        '%z = map(%a, %lo, %hi, fn = "clamp")',
        {"a": reals(a), "lo": ("real", lo), "hi": ("real", hi)},
        ([lo if x < lo else hi if x > hi else x for x in a],),
    )


@says("map")
def over_the_vocabulary(draw: Draw) -> Sample:
    """A distribution stands for its probabilities; a vector before the vocabulary lines up with the rows."""
    p = probs(draw)
    if draw(st.booleans()):
        w = draw(exactly(REALS, V))
        want = [x * y for x, y in zip(p, w, strict=True)]
        return Sample('%z = map(%q, %w, fn = "mul")', {"q": dist(p), "w": row(w)}, (want,))
    m = draw(lists(exactly(REALS, V), 1, 3))
    a = draw(exactly(REALS, len(m)))
    return Sample(
        '%z = map(%m, %a, fn = "add")',
        {"m": rows(m), "a": reals(a)},
        ([[x + y for x in xs] for xs, y in zip(m, a, strict=True)],),
    )


FOLDS: dict[str, Any] = {
    "sum": sum,
    "mean": lambda xs: sum(xs) / len(xs),
    "prod": math.prod,
    "max": max,
    "min": min,
    "logsumexp": lambda xs: math.log(sum(math.exp(x) for x in xs)),
}


@says("reduce")
def folds(draw: Draw) -> Sample:
    fn = draw(st.sampled_from(sorted(FOLDS)))
    least = 0 if fn in ("sum", "prod") else 1
    a = draw(lists(REALS, least))
    return Sample(f'%z = reduce(%a, fn = "{fn}")', {"a": reals(a)}, (FOLDS[fn](a),))


@says("reduce")
def folds_of_rows(draw: Draw) -> Sample:
    """The vocabulary where there is one, else what is named."""
    fn = draw(st.sampled_from(["sum", "max", "min", "mean"]))
    m = draw(lists(exactly(REALS, V), 1, 4))
    if draw(st.booleans()):
        return Sample(f'%z = reduce(%m, fn = "{fn}")', {"m": rows(m)}, ([FOLDS[fn](xs) for xs in m],))
    return Sample(
        f'%z = reduce(%m, fn = "{fn}", over = "k")', {"m": rows(m)}, ([FOLDS[fn]([xs[v] for xs in m]) for v in range(V)],)
    )


@says("reduce")
def folds_of_conditions(draw: Draw) -> Sample:
    a = draw(lists(st.booleans()))
    fn = draw(st.sampled_from(["any", "all", "count", "sum"]))
    want = {"any": True in a, "all": False not in a, "count": a.count(True), "sum": a.count(True)}[fn]
    return Sample(f'%z = reduce(%a, fn = "{fn}")', {"a": bools(a)}, (want,))


@says("scan")
def running(draw: Draw) -> Sample:
    fn = draw(st.sampled_from(["cumsum", "cumprod", "cummax", "leading"]))
    if fn == "leading":
        b = draw(lists(st.booleans()))
        return Sample('%z = scan(%b, fn = "leading")', {"b": bools(b)}, ([*b, False].index(False),))
    of, vector = draw(st.sampled_from([(INTS, ints), (REALS, reals)]))
    a = draw(lists(of))
    fold = {"cumsum": sum, "cumprod": math.prod, "cummax": max}[fn]
    return Sample(f'%z = scan(%a, fn = "{fn}")', {"a": vector(a)}, ([fold(a[: i + 1]) for i in range(len(a))],))


@says("gather")
def indexing(draw: Draw) -> Sample:
    a = draw(lists(REALS, 1))
    if draw(st.booleans()):
        i = draw(st.integers(-len(a), len(a) - 1))
        return Sample("%z = gather(%a, %i)", {"a": reals(a), "i": ("int", i)}, (a[i],))
    ix = draw(lists(st.integers(0, len(a) - 1)))
    return Sample("%z = gather(%a, %ix)", {"a": reals(a), "ix": ints(ix)}, ([a[i] for i in ix],))


@says("gather")
def indexing_twice(draw: Draw) -> Sample:
    m = draw(lists(exactly(REALS, V), 1, 4))
    i = draw(lists(st.integers(0, len(m) - 1)))
    x = draw(exactly(TOKENS, len(i)))
    return Sample(
        "%z = gather(%m, %i, %x)", {"m": rows(m), "i": ints(i), "x": tokens(x)}, ([m[a][b] for a, b in zip(i, x, strict=True)],)
    )


@says("slice")
def slices(draw: Draw) -> Sample:
    a = draw(lists(INTS))
    lo, hi = draw(st.none() | st.integers(-7, 7)), draw(st.none() | st.integers(-7, 7))
    ends = [n for n, v in (("%lo", lo), ("%hi", hi)) if v is not None]
    said = [f"{n} = true" for n, v in (("has_lo", lo), ("has_hi", hi)) if v is not None]
    given: dict[str, tuple[str, Any]] = {"a": ints(a)}
    given |= {n: ("int", v) for n, v in (("lo", lo), ("hi", hi)) if v is not None}
    n = len(a)
    first = 0 if lo is None else max(0, n + lo) if lo < 0 else lo
    last = n if hi is None else n + hi if hi < 0 else hi
    return Sample(f"%z = slice({', '.join(['%a', *ends, *said])})", given, ([x for i, x in enumerate(a) if first <= i < last],))


@says("concat")
def joining(draw: Draw) -> Sample:
    a, b, x = draw(lists(REALS)), draw(lists(REALS)), draw(REALS)
    given = {"a": reals(a), "b": reals(b), "x": ("real", x)}
    pair, want = draw(st.sampled_from([("%a, %b", a + b), ("%a, %x", [*a, x]), ("%x, %a", [x, *a]), ("%x, %x", [x, x])]))
    return Sample(f"%z = concat({pair})", given, (want,))


@says("list")
def writing_out(draw: Draw) -> Sample:
    xs = draw(lists(REALS, 1, 3))
    names = [f"x{n}" for n in range(len(xs))]
    return Sample(
        f"%z = list({', '.join(f'%{n}' for n in names)})", {n: ("real", x) for n, x in zip(names, xs, strict=True)}, (xs,)
    )


@says("tile")
def repeating(draw: Draw) -> Sample:
    n, x = draw(st.integers(0, 5)), draw(REALS)
    return Sample('%z = tile(%x, %n, kind = "tile", bound = 5)', {"x": ("real", x), "n": ("int", n)}, ([x] * n,))


@says("tile")
def repeating_a_row(draw: Draw) -> Sample:
    n, w = draw(st.integers(1, 4)), draw(exactly(REALS, V))
    return Sample('%z = tile(%w, %n, kind = "tile", bound = 5)', {"w": row(w), "n": ("int", n)}, ([w] * n,))


@says("tile")
def counting(draw: Draw) -> Sample:
    lo, hi = draw(st.integers(-3, 4)), draw(st.integers(-3, 6))
    if draw(st.booleans()):
        return Sample('%z = tile(%hi, kind = "iota", bound = 8)', {"hi": ("int", hi)}, (list(range(hi)),))
    return Sample(
        '%z = tile(%lo, %hi, kind = "iota", bound = 8)',
        {"lo": ("int", lo), "hi": ("int", hi)},
        ([i for i in range(-9, 9) if lo <= i < hi],),
    )


@says("tile")
def zeros(draw: Draw) -> Sample:
    n, elem = draw(st.integers(0, 4)), draw(st.sampled_from(["int", "real", "bool"]))
    zero = {"int": 0, "real": 0.0, "bool": False}[elem]
    return Sample(
        f'%z = tile(%n, kind = "zeros", elem = "{elem}", dims = [dim k, dim vocab.V])', {"n": ("int", n)}, ([[zero] * V] * n,)
    )


@says("len")
def lengths(draw: Draw) -> Sample:
    a = draw(lists(INTS))
    return Sample("%z = len(%a)", {"a": ints(a)}, (len(a),))


@says("as_int")
def whole_numbers(draw: Draw) -> Sample:
    """Rounded towards zero; a bool is 0 or 1."""
    a, b = draw(lists(REALS)), draw(lists(st.booleans()))
    toward = lambda x: -math.floor(-x) if x < 0 else math.floor(x)
    which = draw(st.integers(0, 2))
    if which == 0:
        return Sample("%z = as_int(%a)", {"a": reals(a)}, ([toward(x) for x in a],))
    if which == 1:
        return Sample("%z = as_int(%b)", {"b": bools(b)}, ([1 if x else 0 for x in b],))
    x = draw(REALS)
    return Sample("%z = as_int(%x)", {"x": ("real", x)}, (toward(x),))


@says("contains")
def membership(draw: Draw) -> Sample:
    a, among = draw(lists(INTS)), draw(lists(INTS))
    which = draw(st.integers(0, 2))
    if which == 0:
        return Sample("%z = contains(%a, %b)", {"a": ints(a), "b": ints(among)}, ([any(x == y for y in among) for x in a],))
    x = draw(INTS)
    if which == 1:
        return Sample("%z = contains(%x, %b)", {"x": ("int", x), "b": ints(among)}, (any(x == y for y in among),))
    return Sample("%z = contains(%x, %s)", {"x": ("int", x), "s": ("set", frozenset(among))}, (any(x == y for y in among),))


@says("scatter")
def setting(draw: Draw) -> Sample:
    """One place, or several: of equal places the last one wins, or all are added."""
    a = draw(lists(REALS, 1))
    mode = draw(st.sampled_from(["last", "sum"]))
    out = list(a)
    if draw(st.booleans()):
        i, x = draw(st.integers(0, len(a) - 1)), draw(REALS)
        out[i] = out[i] + x if mode == "sum" else x
        return Sample(f'%z = scatter(%a, %x, %i, mode = "{mode}")', {"a": reals(a), "x": ("real", x), "i": ("int", i)}, (out,))
    ix = draw(lists(st.integers(0, len(a) - 1)))
    xs = draw(exactly(REALS, len(ix)))
    for i, x in zip(ix, xs, strict=True):
        out[i] = out[i] + x if mode == "sum" else x
    return Sample(f'%z = scatter(%a, %xs, %ix, mode = "{mode}")', {"a": reals(a), "xs": reals(xs), "ix": ints(ix)}, (out,))


@says("scatter")
def setting_where(draw: Draw) -> Sample:
    """A condition names the places where it holds."""
    a, x = draw(lists(REALS)), draw(REALS)
    c = draw(exactly(st.booleans(), len(a)))
    return Sample(
        '%z = scatter(%a, %x, %c, mode = "last")',
        {"a": reals(a), "x": ("real", x), "c": bools(c)},
        ([x if ok else y for ok, y in zip(c, a, strict=True)],),
    )


@says("scatter")
def setting_in_rows(draw: Draw) -> Sample:
    m = draw(lists(exactly(REALS, V), 1, 3))
    i = draw(lists(st.integers(0, len(m) - 1)))
    x = draw(exactly(TOKENS, len(i)))
    v = draw(REALS)
    out = [list(xs) for xs in m]
    for a, b in zip(i, x, strict=True):
        out[a][b] = v
    return Sample(
        '%z = scatter(%m, %v, %i, %x, mode = "last")', {"m": rows(m), "v": ("real", v), "i": ints(i), "x": tokens(x)}, (out,)
    )
