"""Numbers of the exact checker: object arrays of rationals (and exact reals beyond them), ints and bools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import repeat
from typing import Any, ClassVar, TypeVar

import numpy as np

from decgraph.backends.exact import reals
from decgraph.backends.exact.reals import ExactNumber
from decgraph.ir.data.numbers import Number
from decgraph.runtime.reals.real import Real

_PLAIN = frozenset({Fraction, int, bool})
T = TypeVar("T")
Fold = Callable[[list[ExactNumber]], ExactNumber]
"""What becomes of the numbers along an axis."""
_SCALAR = _PLAIN | {reals.Log, Real}


def _number(x: Any) -> ExactNumber:  # Any: an element of an array of objects
    """A Python number: ints stay ints (NumPy's would overflow inside fractions)."""
    if type(x) in _PLAIN:  # nearly all are, and the tests below cost more than most operations
        return x
    if isinstance(x, np.bool_):
        return bool(x)
    if isinstance(x, np.integer):
        return int(x)
    if isinstance(x, np.floating | float):
        return float(x) if not np.isfinite(x) else Fraction(float(x))
    return x


def _smaller(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    return a if a != a else b if b < a or b != b else a


def _larger(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    return a if a != a else b if b > a or b != b else a


def _clamp(a: ExactNumber, lo: ExactNumber, hi: ExactNumber) -> ExactNumber:
    return _smaller(_larger(a, lo), hi)


def _relu(a: ExactNumber) -> ExactNumber:
    return a if a > 0 or a != a else Fraction(0)


_FUNCTIONS: dict[str, Callable[..., ExactNumber]] = {
    "add": reals.add,
    "sub": lambda a, b: reals.add(a, -b),
    "mul": reals.multiply,
    "div": reals.divide,
    "mod": reals.remainder,
    "pow": reals.power,
    "weigh": reals.weigh,
    "mix": reals.mix,
    "contrast": reals.contrast,
    "neg": lambda a: -a,
    "exp": reals.exp,
    "log": reals.log,
    "relu": _relu,
    "abs": lambda a: abs(a),
    "minimum": _smaller,
    "maximum": _larger,
    "floor": reals.rounded_down,
    "sqrt": reals.root,
    "clamp": _clamp,
    "select": lambda c, a, b: a if c else b,
}
_TESTS: dict[str, Callable[..., bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "not": lambda a: not a,
}


def _surprise(weight: ExactNumber, p: ExactNumber) -> ExactNumber:
    """-weight * log p."""
    return -reals.multiply(reals.real(reals.log(p)), weight)


def _comparable(column: Iterable[Number]) -> list[int | Fraction] | None:
    """Rationals in the order of a column, or None where it holds others: logarithms are ordered as what they are of. None that
    is not known yet is computed."""
    numbers: list[ExactNumber | None] = [_number(x) for x in column]
    logs = [x for x in numbers if isinstance(x, reals.Log) and x.den == 1]
    if len(logs) == len(numbers):
        numbers = [x.known for x in logs]
    rational = [x for x in numbers if isinstance(x, int | Fraction)]
    return rational if len(rational) == len(numbers) else None


def _folded(f: Callable[[ExactNumber, ExactNumber], ExactNumber], start: ExactNumber, v: Iterable[ExactNumber]) -> ExactNumber:
    return functools.reduce(f, v, start)


class Exact:
    """The twin of `ir.data.numbers.Float` over rationals."""

    exact = True
    scalars: ClassVar[dict[str, Callable[..., ExactNumber | bool]]] = _FUNCTIONS | _TESTS
    """Functions of numbers in no array, which most of a checked program are: arrays of one take ten times as long."""
    zero: ExactNumber = reals.Log(Fraction(1))
    one: ExactNumber = Fraction(1)
    inf: ExactNumber = float("inf")

    def is_scalar(self, x: object) -> bool:
        """Whether a value is a number in no array."""
        return type(x) in _SCALAR

    def const(self, value: T) -> T | Fraction:
        return Fraction(str(value)) if isinstance(value, float) and np.isfinite(value) else value

    def lift(self, value: object) -> np.ndarray:
        a = np.asarray(value)
        if a.dtype == object and a.shape:
            return a
        out = np.empty(a.shape, dtype=object)
        if not a.shape:
            out[()] = _number(a[()])
            return out
        flat = out.reshape(-1)
        for i, x in enumerate(a.reshape(-1)):
            flat[i] = _number(x)
        return out

    def fn(self, name: str) -> Callable[..., np.ndarray]:
        test = name in _TESTS
        f = _TESTS[name] if test else _FUNCTIONS[name]

        def apply(*arrays: object) -> np.ndarray:
            objects = [np.asarray(a, dtype=object) for a in arrays]
            shape = next((a.shape for a in objects if a.shape), ())
            if not shape:
                single = np.empty((), dtype=bool if test else object)
                single[()] = f(*[_number(a[()]) for a in objects])
                return single
            if any(a.shape and a.shape != shape for a in objects):
                objects = list(np.broadcast_arrays(*objects))
                shape = objects[0].shape
            out = np.empty(shape, dtype=bool if test else object)
            columns = [a.ravel().tolist() if a.shape else repeat(_number(a[()])) for a in objects]
            out.reshape(-1)[:] = [f(*[x if type(x) in _PLAIN else _number(x) for x in xs]) for xs in zip(*columns)]
            return out

        return apply

    def reduce(self, name: str, a: object, axis: int) -> np.ndarray:
        a = np.asarray(a)
        if name in ("any", "all"):
            return (np.any if name == "any" else np.all)(a.astype(bool), axis=axis)
        if name == "count":
            return np.sum(a.astype(bool).astype(np.int64), axis=axis)
        fold: dict[str, Fold] = {
            "sum": lambda v: _folded(reals.add, 0, v),
            "max": lambda v: functools.reduce(_larger, v) if v else -self.inf,
            "min": lambda v: functools.reduce(_smaller, v) if v else self.inf,
            "mean": lambda v: reals.divide(_folded(reals.add, 0, v), len(v)) if v else Fraction(0),
            "prod": lambda v: _folded(reals.multiply, 1, v),
            "logsumexp": lambda v: reals.log(_folded(reals.add, Fraction(0), map(reals.exp, v))),
        }
        return self._along(a, axis, lambda v: fold[name](v))

    def _along(self, a: object, axis: int, f: Fold) -> Any:  # Any: an array, or one number
        moved = np.asarray(a, dtype=object)
        if moved.ndim == 1:
            return f([_number(x) for x in moved])
        moved = np.moveaxis(moved, axis, -1)
        out = np.empty(moved.shape[:-1], dtype=object)
        for i in np.ndindex(out.shape):
            out[i] = f([_number(x) for x in moved[i]])
        return out if out.shape else out[()]

    def scan(self, name: str, a: object, axis: int) -> np.ndarray:
        a = np.asarray(a)
        if name == "leading":
            return np.sum(np.cumprod(a.astype(bool).astype(np.int64), axis=axis), axis=axis)
        if name == "cumsum" and a.dtype == bool:
            return np.cumsum(a, axis=axis)
        step = {"cumsum": reals.add, "cumprod": reals.multiply, "cummax": _larger}[name]
        out = np.array(a, dtype=object)
        moved = np.moveaxis(out, axis, -1)
        for i in np.ndindex(moved.shape[:-1]):
            for j in range(1, moved.shape[-1]):
                moved[i][j] = step(_number(moved[i][j - 1]), _number(moved[i][j]))
        return out

    def softmax(self, a: object) -> np.ndarray:
        """Exact, over the last axis of a [..., V]: sums of whole multiples of logs give rationals, all others weights that are
        not rational, divided by their sum."""
        return self.normalized(self._each(a, reals.exp))

    def normalized(self, a: object) -> np.ndarray:
        """Weights [..., V] of 0 or more divided by their sum over the last axis."""
        a = np.asarray(a, dtype=object)
        out = np.empty(a.shape, dtype=object)
        if a.ndim == 1:
            out[:] = reals.shares([_number(x) for x in a])
            return out
        for i in np.ndindex(a.shape[:-1]):
            out[i] = reals.shares([_number(x) for x in a[i]])
        return out

    def weights(self, values: Iterable[Number], is_probs: bool) -> Sequence[ExactNumber]:
        """Scores (or probabilities) of one row as weights. They sum to 1, unless one of them is infinite or NaN: those
        are left for the request's constraints to mask."""
        found = [_number(x) if is_probs else reals.exp(_number(x)) for x in values]
        return found if any(isinstance(w, float) for w in found) or not any(w > 0 for w in found) else reals.shares(found)

    def _each(self, a: object, f: Callable[[ExactNumber], ExactNumber]) -> np.ndarray:
        a = np.asarray(a, dtype=object)
        out = np.empty(a.shape, dtype=object)
        if a.ndim == 1:
            out[:] = [f(_number(x)) for x in a]
            return out
        for i in np.ndindex(a.shape):
            out[i] = f(_number(a[i]))
        return out

    def entropy(self, p: object) -> np.ndarray:
        """-sum p log p of p [..., V]: a sum of multiples of logs."""
        return self._along(p, -1, lambda v: sum((_surprise(x, x) for x in v if x > 0), Fraction(0)))

    def kl(self, p: object, q: object) -> np.ndarray:
        """sum p log(p / q) of p and q [..., V]."""
        p, q = np.broadcast_arrays(np.asarray(p, dtype=object), np.asarray(q, dtype=object))
        out = np.empty(p.shape[:-1], dtype=object)
        for i in np.ndindex(out.shape):
            pairs = [(_number(x), _number(y)) for x, y in zip(p[i], q[i], strict=True) if x > 0]
            out[i] = (
                self.inf
                if any(y == 0 for _, y in pairs)
                else sum((_surprise(x, reals.divide(y, x)) for x, y in pairs), Fraction(0))
            )
        return out if out.shape else out[()]

    def onehot(self, token: int, size: int) -> np.ndarray:
        out = np.empty(size, dtype=object)
        out[:] = [Fraction(int(v == token)) for v in range(size)]
        return out

    def zeros(self, shape: tuple[int, ...], elem: str) -> np.ndarray:
        if elem in ("int", "token"):
            return np.zeros(shape, dtype=np.int64)
        if elem == "bool":
            return np.zeros(shape, dtype=bool)
        out = np.empty(shape, dtype=object)
        out.fill(Fraction(0))
        return out

    def order(self, keys: Sequence[Sequence[Number] | np.ndarray], descending: bool) -> list[int]:
        """Stable order [n] of indices by the keys, most significant first."""
        plain = [_comparable(k) for k in keys]
        if None not in plain:
            return sorted(range(len(keys[0])), key=lambda i: [k[i] for k in plain if k is not None], reverse=descending)
        sign = -1 if descending else 1

        def compare(i: int, j: int) -> int:
            for k in keys:
                a, b = _number(k[i]), _number(k[j])
                if a != a or b != b:  # NaN comes last
                    if (a == a) != (b == b):
                        return 1 if a != a else -1
                    continue
                if a < b:
                    return -sign
                if b < a:
                    return sign
            return i - j

        return sorted(range(len(keys[0])), key=functools.cmp_to_key(compare))

    def truth(self, value: object) -> bool:
        return bool(value)


EXACT = Exact()
