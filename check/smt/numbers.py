"""Numbers of symbolic runs: the exact checker's, with quotients of polynomials in the place of rationals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from decgraph.backends.exact.numbers import Exact
from decgraph.check.smt.ratio import Ratio


class Beyond(Exception):
    """The program leaves what is proved here: polynomials, quotients and comparisons of probabilities."""


def _relu(a: Any) -> Any:
    if isinstance(a, Ratio):
        return a.relu()
    return a if a > 0 else Fraction(0)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two numbers, without a case distinction."""
    if isinstance(a, Ratio) or isinstance(b, Ratio):
        for x, y in ((a, b), (b, a)):
            if isinstance(x, float):  # infinite
                return y if x > 0 else x
        return a - _relu(a - b)
    return b if b < a else a


def maximum(a: Any, b: Any) -> Any:
    """The larger of two numbers."""
    if isinstance(a, Ratio) or isinstance(b, Ratio):
        for x, y in ((a, b), (b, a)):
            if isinstance(x, float):
                return x if x > 0 else y
        return b + _relu(a - b)
    return b if b > a else a


def _power(a: Any, b: Any) -> Any:
    whole: Any = b.constant if isinstance(b, Ratio) else b
    if isinstance(a, Ratio) and (whole is None or Fraction(whole).denominator != 1):
        raise Beyond("a power of a probability with an exponent that is not a whole number")
    if not isinstance(a, Ratio):
        return None
    out: Any = Fraction(1)
    for _ in range(abs(int(whole))):
        out = out * a
    return out if whole >= 0 else 1 / out


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, Ratio) or isinstance(b, Ratio):
        if isinstance(b, float):
            return Fraction(0)
        if isinstance(a, float):
            return a if b >= 0 else -a
        if not isinstance(b, Ratio) and b == 0:
            return float("inf") if a > 0 else Fraction(0)
        return a / b
    return None


def _product(a: Any, b: Any) -> Any:
    if isinstance(a, float) and isinstance(b, Ratio):
        a, b = b, a
    if isinstance(a, Ratio) and isinstance(b, float):
        return b if a > 0 else -b if a < 0 else Fraction(0)
    return None


def _no(what: str) -> Callable[..., Any]:
    def refuse(*a: Any) -> Any:
        if any(isinstance(x, Ratio) and x.constant is None for x in a):
            raise Beyond(f"the {what} of a probability")
        return None

    return refuse


_OWN: dict[str, Callable[..., Any]] = {
    "relu": _relu,
    "minimum": minimum,
    "maximum": maximum,
    "clamp": lambda a, lo, hi: minimum(maximum(a, lo), hi),
    "pow": _power,
    "div": _divided,
    "mul": _product,
    "weigh": _product,
    "exp": _no("exponential"),
    "log": _no("logarithm"),
    "sqrt": _no("root"),
    "floor": _no("whole part"),
    "mod": _no("remainder"),
}


class Symbolic(Exact):
    """The twin of the exact checker's numbers."""

    zero: Any = Fraction(0)

    def fn(self, name: str) -> Callable[..., Any]:
        plain, own = super().fn(name), _OWN.get(name)
        if own is None:
            return plain

        def apply(*arrays: Any) -> Any:
            lifted = np.broadcast_arrays(*[np.asarray(a, dtype=object) for a in arrays])
            out = np.empty(lifted[0].shape, dtype=object)
            for i in np.ndindex(out.shape):
                args = [a[i] for a in lifted]
                got = own(*args) if any(isinstance(x, Ratio) for x in args) else None
                out[i] = plain(*args)[()] if got is None else got
            return out

        return apply

    def reduce(self, name: str, a: Any, axis: int) -> Any:
        folds = {"max": maximum, "min": minimum}
        if name in folds and np.asarray(a).dtype == object and np.shape(a)[axis]:

            def fold(v: list[Any]) -> Any:
                out = v[0]
                for x in v[1:]:
                    out = folds[name](out, x)
                return out

            return self._along(a, axis, fold)
        if name == "logsumexp":
            self._rational(a, "logarithm")
        return super().reduce(name, a, axis)

    def _rational(self, a: Any, what: str) -> None:
        _no(what)(*np.asarray(a, dtype=object).ravel())

    def softmax(self, a: Any) -> Any:
        self._rational(a, "exponential")
        return super().softmax(a)

    def entropy(self, p: Any) -> Any:
        self._rational(p, "entropy")
        return super().entropy(p)

    def kl(self, p: Any, q: Any) -> Any:
        self._rational(p, "divergence")
        self._rational(q, "divergence")
        return super().kl(p, q)


SYMBOLIC = Symbolic()

__all__ = ["SYMBOLIC", "Beyond", "maximum", "minimum"]
