"""Numbers of the reference: float64 arrays. The exact checker has a twin with rationals (backends/exact/numbers.py).

A `Numbers` object is all that a vector op's meaning knows of arithmetic: `fn` gives an elementwise function by name,
`reduce` and `scan` fold an axis, `lift` turns a value into an array that the functions take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol, Self, TypeVar

import numpy as np

T = TypeVar("T")


def objects(values: Sequence[object]) -> np.ndarray:
    """Values as object[n]: NumPy does not look inside them."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


class Number(Protocol):
    """One number of a machine: a Python or NumPy number, a fraction, or an exact real (runtime/reals)."""

    def __add__(self, other: Self, /) -> Number: ...  # each kind takes numbers of its own kind, and of some others
    def __sub__(self, other: Self, /) -> Number: ...
    def __mul__(self, other: Self, /) -> Number: ...
    def __neg__(self) -> Number: ...
    def __lt__(self, other: Self, /) -> bool: ...
    def __gt__(self, other: Self, /) -> bool: ...
    def __le__(self, other: Self, /) -> bool: ...
    def __ge__(self, other: Self, /) -> bool: ...


class Numbers(Protocol):
    """The arithmetic of a machine: float64 (`Float`), or rationals and exact reals (backends/exact/numbers.py)."""

    @property
    def exact(self) -> bool: ...
    @property
    def zero(self) -> Number: ...  # the logarithm of one
    @property
    def one(self) -> Number: ...
    @property
    def inf(self) -> Number: ...
    @property
    def scalars(self) -> Mapping[str, Callable[..., Number]]: ...  # functions of numbers that are in no array
    def is_scalar(self, x: object) -> bool: ...
    def const(self, value: T) -> T | Number: ...
    def lift(self, value: object) -> np.ndarray: ...
    def fn(self, name: str) -> Callable[..., np.ndarray]: ...
    def reduce(self, name: str, a: object, axis: int) -> np.ndarray: ...
    def scan(self, name: str, a: object, axis: int) -> np.ndarray: ...
    def softmax(self, a: object) -> np.ndarray: ...
    def normalized(self, a: object) -> np.ndarray: ...
    def entropy(self, p: object) -> np.ndarray: ...
    def kl(self, p: object, q: object) -> np.ndarray: ...
    def onehot(self, token: int, size: int) -> np.ndarray: ...
    def zeros(self, shape: tuple[int, ...], elem: str) -> np.ndarray: ...
    def order(self, keys: Sequence[Sequence[Number] | np.ndarray], descending: bool) -> Sequence[int] | np.ndarray: ...
    def truth(self, value: object) -> bool: ...


MAP_FUNCTIONS: dict[str, tuple[int, str]] = {
    # name: (arity, result element: "same" = join of the operands, or an element name)
    "add": (2, "same"),
    "sub": (2, "real"),
    "mul": (2, "same"),
    "div": (2, "real"),
    "mod": (2, "same"),
    "pow": (2, "real"),
    "weigh": (2, "same"),
    "mix": (2, "real"),
    "contrast": (2, "real"),
    "neg": (1, "same"),
    "eq": (2, "bool"),
    "ne": (2, "bool"),
    "lt": (2, "bool"),
    "le": (2, "bool"),
    "gt": (2, "bool"),
    "ge": (2, "bool"),
    "and": (2, "bool"),
    "or": (2, "bool"),
    "not": (1, "bool"),
    "select": (3, "same"),
    "exp": (1, "real"),
    "log": (1, "real"),
    "relu": (1, "same"),
    "abs": (1, "same"),
    "minimum": (2, "same"),
    "maximum": (2, "same"),
    "floor": (1, "int"),
    "sqrt": (1, "real"),
    "clamp": (3, "same"),
}
"""`weigh` is `mul` where 0 times anything is 0: a coefficient of 0 contributes nothing, not even of the logarithm of 0. `mix`
and `contrast` are `add` and `sub` of scores, where -inf on either side stays: a token that one operand rules out is ruled out.
Programs write *, + and -; which of the two functions that is goes by what the operands can be (dsl/lower/expr.py)."""
REDUCE_FUNCTIONS = {
    "sum": "same",
    "max": "same",
    "min": "same",
    "any": "bool",
    "all": "bool",
    "mean": "real",
    "count": "int",
    "logsumexp": "real",
    "prod": "same",
}
SCAN_FUNCTIONS = {"cumsum": "same", "cumprod": "same", "leading": "int", "cummax": "same"}


def _quiet(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def g(*args: object) -> np.ndarray:
        with np.errstate(all="ignore"):
            return f(*args)

    return g


def _weigh(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b))


def _ruled_out(a: np.ndarray, b: np.ndarray, result: np.ndarray) -> np.ndarray:
    return np.where(np.equal(a, -np.inf) | np.equal(b, -np.inf), -np.inf, result)


WIDE = 2.0**63
UNROUNDED = "a number that is infinite, NaN or beyond 64 bits has no whole part"


def _floor(a: np.ndarray) -> np.ndarray:
    if not np.all(np.abs(a) < WIDE):
        raise OverflowError(UNROUNDED)
    whole: np.ndarray = np.floor(a)
    return whole.astype(np.int64)


_FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
    "mean": np.mean,
    "prod": np.prod,
}
_SCANS: dict[str, Callable[..., np.ndarray]] = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate}


class Float:
    """float64: what the reference computes with."""

    exact = False
    zero: Number = 0.0
    one: Number = 1.0
    inf: Number = float("inf")
    _fns: dict[str, Callable[..., np.ndarray]] = {
        "add": _quiet(np.add),
        "sub": _quiet(np.subtract),
        "mul": _quiet(np.multiply),
        "div": _quiet(np.divide),
        "mod": np.mod,
        "pow": _quiet(lambda a, b: np.power(np.asarray(a, dtype=np.float64), b)),
        "weigh": _quiet(_weigh),
        "mix": _quiet(lambda a, b: _ruled_out(a, b, np.add(a, b))),
        "contrast": _quiet(lambda a, b: _ruled_out(a, b, np.subtract(a, b))),
        "neg": np.negative,
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "and": np.logical_and,
        "or": np.logical_or,
        "not": np.logical_not,
        "select": np.where,
        "exp": _quiet(np.exp),
        "log": _quiet(np.log),
        "relu": lambda a: np.maximum(a, 0),
        "abs": np.abs,
        "minimum": np.minimum,
        "maximum": np.maximum,
        "floor": lambda a: _floor(a),
        "sqrt": _quiet(np.sqrt),
        "clamp": lambda a, lo, hi: np.minimum(np.maximum(a, lo), hi),
    }

    def const(self, value: T) -> T | float:
        return float(value) if isinstance(value, Fraction) else value

    def lift(self, value: object) -> np.ndarray:
        return np.asarray(value)

    def fn(self, name: str) -> Callable[..., np.ndarray]:
        return self._fns[name]

    def reduce(self, name: str, a: object, axis: int) -> np.ndarray:
        a = np.asarray(a)
        if name in ("max", "min") and a.shape[axis] == 0:
            shape = a.shape[:axis] + a.shape[axis + 1 :] if axis >= 0 else a.shape[:-1]
            return np.full(shape, -np.inf if name == "max" else np.inf)
        if name == "mean" and a.shape[axis] == 0:
            return np.zeros(_FOLDS["sum"](a, axis=axis).shape)
        if name == "count":
            return _FOLDS["sum"](a.astype(np.int64), axis=axis)
        if name == "logsumexp":
            with np.errstate(all="ignore"):
                top = np.max(a, axis=axis, keepdims=True)
                top = np.where(np.isfinite(top), top, 0)
                found: np.ndarray = np.squeeze(np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True)) + top, axis)
                return found
        return _FOLDS[name](a, axis=axis)

    def scan(self, name: str, a: object, axis: int) -> np.ndarray:
        a = np.asarray(a)
        if name == "leading":
            return _FOLDS["sum"](np.cumprod(a.astype(np.int64), axis=axis), axis=axis)
        return _SCANS[name](a, axis=axis)

    def softmax(self, a: object) -> np.ndarray:
        with np.errstate(all="ignore"):
            a = np.asarray(a, dtype=np.float64)
            if not a.shape[-1]:
                return a
            e = np.exp(a - np.max(a, axis=-1, keepdims=True))
            shares: np.ndarray = e / e.sum(-1, keepdims=True)
            return shares

    def entropy(self, p: object) -> np.ndarray:
        """-sum p log p over the last axis of p [..., V], in nats; 0 log 0 is 0."""
        p = np.asarray(p, dtype=np.float64)
        with np.errstate(all="ignore"):
            return -_FOLDS["sum"](np.where(p > 0, p * np.log(p), 0.0), axis=-1)

    def kl(self, p: object, q: object) -> np.ndarray:
        """sum p log(p / q) over the last axis of p and q [..., V], in nats."""
        p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        with np.errstate(all="ignore"):
            return _FOLDS["sum"](np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0), axis=-1)

    def onehot(self, token: int, size: int) -> np.ndarray:
        out = np.zeros(size)
        if token >= 0:  # a masked cell has no token
            out[token] = 1.0
        return out

    def zeros(self, shape: tuple[int, ...], elem: str) -> np.ndarray:
        return np.zeros(shape, dtype={"int": np.int64, "token": np.int64, "bool": bool}.get(elem, np.float64))

    def order(self, keys: Sequence[Sequence[Number] | np.ndarray], descending: bool) -> np.ndarray:
        """Stable order [n] of indices by the keys, most significant first; ties keep the first index first."""
        columns: list[np.ndarray] = []
        for key in keys:
            column = np.asarray(key, dtype=np.float64)
            columns.insert(0, -column if descending else column)
        return np.lexsort(columns) if len(columns) > 1 else np.argsort(columns[0], kind="stable")

    def truth(self, value: object) -> bool:
        return bool(value)


FLOAT = Float()
