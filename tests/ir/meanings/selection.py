"""Choosing: best, ranks, sorting, compacting. Of equals the first comes first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from meanings.registry import Draw, Raises, Sample, V, says
from meanings.values import INTS, REALS, bools, dist, dists, exactly, ints, lists, probs, reals, row, rows


def best_first(keys: Sequence[Sequence[float]]) -> list[int]:
    """Places by their keys, the largest first; the first key counts most, and of equals the first comes first."""
    left = list(range(len(keys[0])))
    out = []
    while left:
        best = left[0]
        for i in left[1:]:
            for key in keys:
                if key[i] != key[best]:
                    if key[i] > key[best]:
                        best = i
                    break
        out.append(best)
        left.remove(best)
    return out


def down(keys: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[-x for x in key] for key in keys]


@says("arg")
def best_of_rows(draw: Draw) -> Sample:
    fn = draw(st.sampled_from(["max", "min"]))
    m = draw(lists(exactly(REALS, V), 1, 4))
    places = [best_first([xs] if fn == "max" else down([xs]))[0] for xs in m]
    which = draw(st.integers(0, 1))
    if which:
        return Sample(f'%z = arg(%w, fn = "{fn}")', {"w": row(m[0])}, (places[0],))
    return Sample(f'%z = arg(%m, fn = "{fn}")', {"m": rows(m)}, (places,))


@says("arg")
def best_of_distributions(draw: Draw) -> Sample:
    ps = [probs(draw) for _ in range(draw(st.integers(1, 3)))]
    return Sample('%z = arg(%q, fn = "max")', {"q": dists(ps)}, ([best_first([p])[0] for p in ps],))


@says("arg")
def best_by_keys(draw: Draw) -> Sample:
    fn = draw(st.sampled_from(["max", "min"]))
    xs = draw(lists(INTS))
    a, b = draw(exactly(REALS, len(xs))), draw(exactly(INTS, len(xs)))
    keys: list[Sequence[float]] = [a, b]
    given = {"x": ints(xs), "a": reals(a), "b": ints(b)}
    if not xs:
        return Sample(f'%z = arg(%x, %a, %b, fn = "{fn}")', given, Raises("nothing"))
    return Sample(f'%z = arg(%x, %a, %b, fn = "{fn}")', given, (xs[best_first(keys if fn == "max" else down(keys))[0]],))


@says("topk")
def likeliest(draw: Draw) -> Sample:
    k = draw(st.integers(0, V + 1))
    if draw(st.booleans()):
        p = probs(draw)
        return Sample(f"%z = topk(%q, %k, bound = {V})", {"q": dist(p), "k": ("int", k)}, (best_first([p])[:k],))
    ps = [probs(draw) for _ in range(draw(st.integers(1, 3)))]
    return Sample(f"%z = topk(%q, %k, bound = {V})", {"q": dists(ps), "k": ("int", k)}, ([best_first([p])[:k] for p in ps],))


@says("select.top")
def several_best(draw: Draw) -> Sample:
    xs, k = draw(lists(INTS)), draw(st.integers(-1, 7))
    a, b = draw(exactly(REALS, len(xs))), draw(exactly(INTS, len(xs)))
    chosen = best_first([a, b])[: max(k, 0)]
    order = draw(st.sampled_from(["best", "kept"]))
    if order == "kept":
        chosen = sorted(chosen)
    return Sample(
        f'%z = select.top(%x, %k, %a, %b, order = "{order}", bound = 7)',
        {"x": ints(xs), "k": ("int", k), "a": reals(a), "b": ints(b)},
        ([xs[i] for i in chosen],),
    )


@says("select.top")
def best_by_themselves(draw: Draw) -> Sample:
    xs, k = draw(lists(REALS)), draw(st.integers(0, 7))
    return Sample(
        "%z = select.top(%x, %k, bound = 7)", {"x": reals(xs), "k": ("int", k)}, ([xs[i] for i in best_first([xs])[:k]],)
    )


@says("pairs.top")
def best_pairs(draw: Draw) -> Sample:
    m = draw(lists(exactly(REALS | st.just(-math.inf), V), 1, 4))
    k = draw(st.integers(0, 9))
    flat = [x for xs in m for x in xs]
    chosen = [i for i in best_first([flat]) if flat[i] > -math.inf][:k]
    return Sample(
        "%z, %y, %v = pairs.top(%m, %k, bound = 9)",
        {"m": rows(m), "k": ("int", k)},
        ([i // V for i in chosen], [i % V for i in chosen], [flat[i] for i in chosen]),
    )


@says("sort")
def in_order(draw: Draw) -> Sample:
    xs, descending = draw(lists(INTS)), draw(st.booleans())
    said = ", descending = true" if descending else ""
    if draw(st.booleans()):
        keys: list[Any] = [xs]
        text, given = f"%z = sort(%x{said})", {"x": ints(xs)}
    else:
        a, b = draw(exactly(REALS, len(xs))), draw(exactly(INTS, len(xs)))
        keys, text, given = [a, b], f"%z = sort(%x, %a, %b{said})", {"x": ints(xs), "a": reals(a), "b": ints(b)}
    return Sample(text, given, ([xs[i] for i in best_first(keys if descending else down(keys))] if xs else [],))


@says("rank")
def places(draw: Draw) -> Sample:
    """How many are larger, and how many equal ones came before."""

    def place(xs: Sequence[float], i: int) -> int:
        return sum(x > xs[i] for x in xs) + sum(x == xs[i] for x in xs[:i])

    if draw(st.booleans()):
        xs = draw(lists(REALS))
        return Sample("%z = rank(%x)", {"x": reals(xs)}, ([place(xs, i) for i in range(len(xs))],))
    m = draw(lists(exactly(REALS, V), 1, 3))
    return Sample("%z = rank(%m)", {"m": rows(m)}, ([[place(xs, i) for i in range(V)] for xs in m],))


@says("first_max")
def first_of_the_largest(draw: Draw) -> Sample:
    xs = draw(lists(REALS))
    return Sample(
        "%z = first_max(%x)",
        {"x": reals(xs)},
        ([all(x > y for y in xs[:i]) and all(x >= y for y in xs[i:]) for i, x in enumerate(xs)],),
    )


@says("compact")
def where(draw: Draw) -> Sample:
    xs = draw(lists(REALS))
    c = draw(exactly(st.booleans(), len(xs)))
    if draw(st.booleans()):
        x, ok = draw(REALS), draw(st.booleans())
        return Sample("%z = compact(%x, %b)", {"x": ("real", x), "b": ("bool", ok)}, ([x] if ok else [],))
    return Sample("%z = compact(%x, %c)", {"x": reals(xs), "c": bools(c)}, ([x for x, ok in zip(xs, c, strict=True) if ok],))


@says("compact")
def where_of_distributions(draw: Draw) -> Sample:
    ps = [probs(draw) for _ in range(draw(st.integers(1, 4)))]
    c = draw(exactly(st.booleans(), len(ps)).filter(any))
    return Sample("%z = compact(%q, %c)", {"q": dists(ps), "c": bools(c)}, ([p for p, ok in zip(ps, c, strict=True) if ok],))


@says("take_first")
def first_ones(draw: Draw) -> Sample:
    k = draw(st.integers(-1, 7))
    if draw(st.booleans()):
        c = draw(lists(st.booleans()))
        return Sample(
            "%z = take_first(%c, %k, bound = 7)",
            {"c": ("bool[cells.c]", bools(c)[1]), "k": ("int", k)},
            ([i for i, ok in enumerate(c) if ok][: max(k, 0)],),
        )
    xs = draw(lists(REALS))
    return Sample("%z = take_first(%x, %k, bound = 7)", {"x": reals(xs), "k": ("int", k)}, (xs[: max(k, 0)],))
