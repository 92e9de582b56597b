"""What several op files share: checking operand types, aligning dimensions, arrays of values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import isfinite
from typing import SupportsInt, TypeGuard, TypeVar

import numpy as np

from decgraph.ir.data.dist import Dist, Draw, Draws, Row, Symbol, box0
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Arithmetic, Datum, Listed
from decgraph.ir.opdef import OpError, Types
from decgraph.ir.types import Dim, Type, join

T = TypeVar("T")


def need(cond: bool, message: str, hint: str = "") -> None:
    """Raise OpError unless `cond`."""
    if not cond:
        raise OpError(message, hint)


def is_text(t: Type) -> bool:
    """Whether a value is tokens in a row, which a model can read in place of the request's context."""
    return t.elem == "path" or t.elem in ("token", "draw", "int") and len(t.dims) == 1 and t.dims[0].kind != "vocab"


def need_one(t: Type, what: str) -> None:
    """Raise OpError unless `t` is one number (or a position), not a vector of them. A count drops its fraction."""
    need(
        not t.dims and (t.is_number or t.elem in ("position", "any")),
        f"{what} needs one number, got {t}",
        "index it, or say sum(...), max(...) or len(...)" if t.dims else "",
    )


def need_tokens(t: Type, what: str, hint: str = "") -> None:
    """Raise OpError unless `t` is a token, a vector of tokens, a path, or a list of single tokens."""
    inner = t.of[0] if t.elem == "list" else None
    single = isinstance(inner, Type) and not inner.dims and (inner.is_token or inner.elem in ("int", "any"))
    need(
        single or t.elem in ("path", "any") or (t.is_token or t.elem == "int") and len(t.dims) <= 1,
        f"{what} needs tokens, got {t}",
        hint,
    )


def need_whole_memory(t: Type, what: str) -> None:
    """Raise OpError unless `t` is a memory of all layers."""
    need(t.elem == "memory", f"{what} needs a memory, got {t}", "say given = target.memory(ctx.parent)")
    need(len(t.of) == 1, f"{what} needs a memory of all layers, got that of one", "put the layer back first: m[l] = ...")


def need_keys(candidates: Type, types: Types, what: str) -> None:
    """Raise OpError unless every type holds one thing with an order for each of the candidates."""
    for t in types:
        n = numeric(t)
        ordered = n.is_number or n.elem in ("bool", "token", "position")
        need(
            n.elem in ("list", "any") or ordered and len(n.dims) == max(1, len(candidates.dims)),
            f"{what} needs a number for every candidate, got {t}",
            "by = a vector over the same things",
        )
        if n.dims and candidates.dims and len(n.dims) == len(candidates.dims):
            need(
                all(matches(a, b) for a, b in zip(candidates.dims, n.dims, strict=True)),
                f"{what} needs a number for every candidate; they are {candidates}, the key is {t}",
                "read the key at the candidates: by = key[candidates]",
            )


def numeric(t: Type) -> Type:
    """The type a value has in arithmetic: a dist is probabilities over its vocabulary, a draw its token."""
    if t.elem == "dist" or t.elem == "scores":
        return Type("prob" if t.elem == "dist" and t.of[1] != "logits" else "real", (), (*t.dims, Dim("vocab", t.vocab)))
    if t.elem == "draw":
        return Type("token", t.of, t.dims)
    return t


def matches(a: Dim, b: Dim) -> int:
    """How well two dimensions go together: 2 the same, 1 both plain counts, 0 not at all."""
    if a.same(b):
        return 2
    loose = {"k", "part", "nodes", "cells", "layers"}
    return 1 if a.kind in loose and b.kind in loose else 0


def align(short: tuple[Dim, ...], long: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """Axes of `long` that the axes of `short` go with, in order; the best match, leftmost first; None if there is none."""
    best, best_score = None, -1
    for axes in combinations(range(len(long)), len(short)):
        scores = [matches(s, long[a]) for s, a in zip(short, axes)]
        if all(scores) and sum(scores) > best_score:
            best, best_score = axes, sum(scores)
    return best


def broadcast(types: list[Type]) -> tuple[Dim, ...]:
    """The dimensions of an elementwise result; OpError when the operands do not line up."""
    long = max((t.dims for t in types), key=len, default=())
    for t in types:
        if t.dims and align(t.dims, long) is None:
            raise OpError(
                f"dimensions do not line up: {', '.join(str(x) for x in types)}",
                "index one of them so that both range over the same things",
            )
    out = []
    for axis, d in enumerate(long):
        bounds = [d.bound]
        for t in types:
            axes = align(t.dims, long) or ()
            bounds += [t.dims[i].bound for i, a in enumerate(axes) if a == axis]
        known = [b for b in bounds if b is not None]
        wide = [b for b in known if b > 1]  # one value goes with any number of others
        out.append(Dim(d.kind, d.of, min(wide or known) if known else None))
    return tuple(out)


def spread(value: object, have: tuple[Dim, ...], want: tuple[Dim, ...]) -> np.ndarray:
    """The array `value` [*have], with axes of size 1 put in so that it lines up with [*want]."""
    a = np.asarray(value)
    if len(have) == len(want) or not have:
        return a
    axes = align(have, want) or tuple(range(len(have)))
    shape = [1] * len(want)
    for i, axis in enumerate(axes):
        shape[axis] = a.shape[i]
    return a.reshape(shape)


def array(m: Arithmetic, value: Datum) -> np.ndarray:
    """A value as an array: a dist as probabilities [*dims, V], draws as token ids."""
    if isinstance(value, Dist):
        found = value.vector()  # of no rows it does not know how many tokens there are
        return found if found.shape[-1] else np.zeros((*found.shape[:-1], getattr(m, "vocab_size", 0)))
    if isinstance(value, Row):
        return value.face("shaped")
    if isinstance(value, Draws):
        return np.asarray(value.tokens())
    return np.asarray(stack(m, value) if isinstance(value, list) else value)


def stack(m: Arithmetic, items: Sequence[Datum]) -> Dist | Draws | np.ndarray:
    """A list of equal-shaped values as one array (or one Dist, or one Draws)."""
    dists = [x for x in items if isinstance(x, Dist)]
    if items and len(dists) == len(items) and all(x.shape == dists[0].shape for x in dists):
        return Dist(_boxed([x.rows for x in dists]), dists[0].face)
    draws = [x for x in items if isinstance(x, Draws)]
    if items and len(draws) == len(items) and all(x.shape == draws[0].shape for x in draws):
        return Draws(_boxed([x.items for x in draws]))
    return np.stack([array(m, x) for x in items]) if items else np.zeros((0,), dtype=np.int64)


def _boxed(arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays of objects of one shape as one, with a first dimension more."""
    out = np.empty((len(arrays), *arrays[0].shape), dtype=object)
    for i, a in enumerate(arrays):
        out[i] = a if a.shape else a[()]
    return out


def is_context(x: object) -> TypeGuard[tuple[Symbol, ...]]:
    """Whether a value is a context: all other vectors are arrays or lists."""
    return isinstance(x, tuple)


def plain(x: T) -> T:
    """A NumPy scalar or 0-D array as a Python number."""
    if isinstance(x, np.ndarray | np.generic) and x.shape == ():
        number: T = np.asarray(x).item()
        return plain(number)
    return x


def as_int(x: Datum) -> int:
    """A number, or the token of a draw, without its fraction."""
    x = plain(x)
    if isinstance(x, Draws):
        x = x.tokens()
    return x.token if isinstance(x, Draw) else truncated(x)


def truncated(x: Datum) -> int:
    """A number rounded towards zero; OpError for an infinity or NaN."""
    if isinstance(x, float) and not isfinite(x):
        raise OpError(f"{x} cannot be rounded to a whole number")
    if not isinstance(x, SupportsInt):
        raise OpError(f"{x} is no number")
    return int(x)


def joined(types: list[Type], what: str) -> Type:
    """The join of several types, or OpError."""
    out = types[0]
    for t in types[1:]:
        j = join(out, t)
        if j is None:
            condition = any(a.elem == "bool" and numeric(b).is_number for a, b in ((out, t), (t, out)))
            hint = "make a number of the condition: where(condition, 1, 0)" if condition else ""
            raise OpError(f"{what}: {out} and {t} do not go together", hint)
        out = j
    return out


def bound_of(t: Type) -> int | None:
    """The static bound of the first dimension, where there is one."""
    return t.dims[0].bound if t.dims else None


def length(xs: Listed) -> int:
    """How many elements a vector, list or topology has."""
    return xs.shape[0] if isinstance(xs, (Dist, Draws)) else len(xs)


def element(xs: Listed, i: int) -> Datum:
    """Element i of a vector, list or topology."""
    if isinstance(xs, Dist):
        row = xs.rows[i]
        return Dist(row if isinstance(row, np.ndarray) else box0(row), xs.face)
    if isinstance(xs, Draws):
        item = xs.items[i]
        return Draws(item if isinstance(item, np.ndarray) else box0(item))
    return plain(xs[i]) if isinstance(xs, np.ndarray) and xs.ndim == 1 else xs[i]


def keys_of(m: Arithmetic, by: Datum) -> list[list[Number]]:
    """The keys of a `by =`, each as a flat list."""
    keys = by if isinstance(by, (list, tuple)) else [by]
    return [list(array(m, k).ravel()) for k in keys]


def keep_bound(t: Type, k: int | None) -> Dim:
    """The first dimension of what is left of a vector, or of part of a tree or canvas, when at most k (None: all) stay."""
    d = t.dims[0]
    bounds = [b for b in (d.bound, k) if b is not None]
    return Dim(
        "part" if d.kind in ("nodes", "cells", "part") else "k",
        d.of if d.kind in ("nodes", "cells", "part") else "",
        min(bounds) if bounds else None,
    )
