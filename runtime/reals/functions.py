"""Roots, powers, exponentials and logs of exact reals, and distributions of them."""
from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from decgraph.runtime.reals import intervals
from decgraph.runtime.reals.limits import NotSeparated, raised, short
from decgraph.runtime.reals.polynomials import (
    EULER,
    Atom,
    Monomial,
    atom,
    base,
    factors,
    normal,
    primitive,
    raise_to,
    times,
)
from decgraph.runtime.reals.real import CONSTANT, Real, factor, make, plain

Number = Fraction | Real


def key_of(x: Any) -> Any:
    """Equal for numbers of the same form."""
    return x.key if isinstance(x, Real) else Fraction(x)


@lru_cache(maxsize=20_000)
def rooted(x: int | Fraction, e: Fraction) -> Any:
    """x ** e of a positive rational."""
    if e.denominator == 1:
        return raised(x, e.numerator)
    pairs: dict[Atom, Any] = {}
    for n, sign in ((x.numerator, 1), (x.denominator, -1)):
        for p, k in factors(n):
            if p != 1:
                pairs[base(p)] = pairs.get(base(p), 0) + sign * k * e
    number, mono = normal(pairs)
    return make({mono: number}, {})


def power(x: Any, e: Fraction) -> Any:
    """x ** e of a positive number, for a rational e."""
    if e == 0:
        return Fraction(1)
    if not isinstance(x, Real):
        return rooted(plain(x) or Fraction(x), e)
    if e.denominator == 1:
        n = e.numerator
        if abs(n) > 64 and len(x.num) + len(x.den) > 1:
            raise NotSeparated(f"the power of a sum of roots to the {short(n)} is too long to follow")
        return x ** n
    number, mono, rest = primitive(x.num) if len(x.num) > 1 else (*next((c, m) for m, c in x.num.items()), CONSTANT)
    if number < 0:
        number, rest = -number, {m: -c for m, c in rest.items()}
    out = rooted(number, e) * _monomial(mono, e)
    if rest != CONSTANT:
        out = out * _sum_power(make(rest, {}), e)
    for f, n in x.den.items():
        out = out * _factor_power(f, -n * e)
    return out


def _monomial(m: Monomial, e: Fraction) -> Any:
    """A monomial to a rational power."""
    rooty = tuple((a, k) for a, k in m if not a.opaque)
    number, mono = raise_to(rooty, e)
    out = make({mono: number}, {})
    for a, k in m:
        if a.kind == "power":
            out = out * power(a.parts[0], a.parts[1] * k * e)
        elif a.kind == "exp":
            out = out * exp(a.parts * (k * e))
        elif a.opaque:
            out = out * _sum_power(Real({((a, 1),): Fraction(1)}, {}), k * e)
    return out


def _factor_power(f: Any, e: Fraction) -> Any:
    whole = make(CONSTANT, {f: -1})
    return whole ** e.numerator if e.denominator == 1 else _sum_power(make(f.poly, {}), e)


def _sum_power(x: Any, e: Fraction) -> Any:
    """A number that is no product to a power: its whole part is multiplied out as a factor, the rest is an atom."""
    if not isinstance(x, Real) or e.denominator == 1:
        return power(x, e)
    n, part = e.numerator // e.denominator, e - e.numerator // e.denominator
    if x.sign() < 0:
        raise ValueError("a root of a negative number")
    out: Any = Real({((atom("power", (x.key, part), (x, part)), 1),): Fraction(1)}, {})
    if n:
        out = out * (make({m: Fraction(1) for m in [raise_to(next(iter(x.num)), n)[1]]}, {}) if len(x.num) == 1 and x.num ==
                     {next(iter(x.num)): 1} else make(CONSTANT, {factor(x.num): -n}))
    return out


def exp(x: Any) -> Any:
    """e ** x of a finite number."""
    if not isinstance(x, Real):
        x = Fraction(x)
        return make({((EULER, x),): Fraction(1)}, {}) if x else Fraction(1)
    if x.den:
        return _exp_atom(x)
    out: Any = Fraction(1)
    rest = {}
    for m, c in x.num.items():
        if m == ():
            out = out * exp(c)
        elif len(m) == 1 and m[0][0].kind == "log" and m[0][1] == 1:
            out = out * power(m[0][0].parts, c)
        else:
            rest[m] = c
    return out * _exp_atom(Real(rest, {})) if rest else out


def _exp_atom(x: Real) -> Any:
    return Real({((atom("exp", x.key, x), 1),): Fraction(1)}, {})


def log(x: Any) -> Any:
    """The log of a positive number."""
    if not isinstance(x, Real):
        return log_rational(Fraction(x))
    number, mono, rest = primitive(x.num) if len(x.num) > 1 else (*next((c, m) for m, c in x.num.items()), CONSTANT)
    signed = [(a, e) for a, e in mono if not a.positive]
    if signed or number < 0:      # the parts of a product may be negative
        rest = times(rest, {tuple(signed): Fraction(1)})
        rest = {m: c if number > 0 else -c for m, c in rest.items()}
    out = log_rational(abs(number))
    for a, e in mono:
        if a.positive:
            out = out + e * _log_of(a)
    if rest != CONSTANT:
        out = out + _log_atom(make(rest, {}))
    for f, n in x.den.items():
        y = make(f.poly, {})
        out = out - n * _log_atom(y if y.sign() > 0 else -y)
    return out


@lru_cache(maxsize=20_000)
def log_rational(x: Fraction) -> Any:
    """The log of a positive rational: a sum of logs of primes."""
    out: Any = Fraction(0)
    for n, sign in ((x.numerator, 1), (x.denominator, -1)):
        for p, k in factors(n):
            if p != 1:
                out = out + sign * k * _log_atom(Fraction(p))
    return out


def _log_of(a: Atom) -> Any:
    if a.kind == "base":
        return _log_atom(Fraction(a.parts))
    if a.kind == "e":
        return Fraction(1)
    if a.kind == "exp":
        return a.parts
    if a.kind == "power":
        return log(a.parts[0]) * a.parts[1]
    return _log_atom(Real({((a, 1),): Fraction(1)}, {}))


def _log_atom(x: Any) -> Any:
    return Real({((atom("log", key_of(x), x), 1),): Fraction(1)}, {})


class Shares:
    """A distribution by weights that are not rational: the shares of all tokens but the last are atoms, and the last is what
    is left of 1, so that sums over the tokens cancel."""

    __slots__ = ("weights",)

    def __init__(self, weights: tuple[Any, ...]) -> None:
        self.weights = weights

    def worth(self, v: int) -> Any:
        """A share, taken apart."""
        return self.weights[v] / sum(self.weights, Fraction(0))


def shares(weights: Sequence[Any]) -> list[Any]:
    """Weights of 0 or more divided by their sum. Raises ZeroDivisionError where all are 0."""
    if all(isinstance(w, int | Fraction) for w in weights):
        total = sum(weights)
        return [Fraction(w) / total for w in weights]
    key = tuple(key_of(w) for w in weights)
    if key not in _known:
        if len(_known) > 20_000:
            _known.clear()
        _known[key] = _shares(weights)
    return list(_known[key])


_known: dict[Any, list[Any]] = {}


def _shares(weights: Sequence[Any]) -> list[Any]:
    live = [i for i, w in enumerate(weights) if w > 0]
    if not live:
        raise ZeroDivisionError("weights that are all 0")
    if any(isinstance(w, Real) and not _low(w) for w in weights):
        total = sum((weights[i] for i in live), Fraction(0))
        return [w / total for w in weights] if isinstance(total, Real) or total != 1 else list(weights)
    ratios = [weights[i] / weights[live[0]] for i in live]
    out: list[Any] = [Fraction(0)] * len(weights)
    if all(not isinstance(r, Real) for r in ratios):
        total = sum(ratios, Fraction(0))
        found = [r / total for r in ratios]
    else:
        whole = Shares(tuple(ratios))
        key = tuple(key_of(r) for r in ratios)
        found = [Real({((atom("share", (key, v), (whole, v)), 1),): Fraction(1)}, {}) for v in range(len(live) - 1)]
        found.append(1 - sum(found, Fraction(0)))
    for i, p in zip(live, found, strict=True):
        out[i] = p
    return out


def _low(x: Real) -> bool:
    """Whether no share stands in a number."""
    return not any(a.kind == "share" for p in (x.num, *(f.poly for f in x.den)) for m in p for a, _ in m)


def worth(a: Atom, digits: int) -> intervals.Interval:
    """An interval around an atom that is made of other numbers."""
    found: intervals.Interval | None = a.cache.get(digits)
    if found is None:
        more = digits + 10
        if a.kind == "share":
            whole, v = a.parts
            total = intervals.rational(Fraction(0), more)
            for w in whole.weights:
                total = intervals.add(total, around(w, more), more)
            found = intervals.multiply(around(whole.weights[v], more), intervals.inverse(total, more), digits)
        elif a.kind == "log":
            found = intervals.log(around(a.parts, more), digits)
        elif a.kind == "exp":
            found = intervals.exp(around(a.parts, more + 20), digits)
        else:
            found = intervals.power(around(a.parts[0], more), a.parts[1], digits)
        a.cache[digits] = found
    return found


def around(x: Any, digits: int) -> intervals.Interval:
    """An interval around a number."""
    return x.around(digits) if isinstance(x, Real) else intervals.rational(x, digits)


def unfolded(x: Any) -> Any:
    """The number with its shares, and what is made of them, taken apart. Denominators are dropped from the whole: this is
    asked whether it is 0."""
    if not isinstance(x, Real):
        return x
    return _open(Real(x.num, {}), {})


def _open(x: Any, seen: dict[Atom, Any]) -> Any:
    if not isinstance(x, Real):
        return x
    out: Any = Fraction(0)
    for m, c in x.num.items():
        term: Any = c
        for a, e in m:
            if a.kind == "power":
                term = term * power(_open_atom(a, seen), a.parts[1] * e)
            elif a.opaque:
                term = term * _open_atom(a, seen) ** e
            else:
                term = term * Real({((a, e),): Fraction(1)}, {})
        out = out + term
    for f, n in x.den.items():
        out = out * power(_open(make(f.poly, {}), seen), Fraction(-n))
    return out


def _open_atom(a: Atom, seen: dict[Atom, Any]) -> Any:
    if a not in seen:
        if a.kind == "share":
            whole, v = a.parts
            opened = [_open(w, seen) for w in whole.weights]
            seen[a] = opened[v] / sum(opened, Fraction(0))
        elif a.kind == "log":
            seen[a] = log(_open(a.parts, seen)) if isinstance(a.parts, Real) else Real({((a, 1),): Fraction(1)}, {})
        elif a.kind == "exp":
            seen[a] = exp(_open(a.parts, seen))
        else:
            seen[a] = _open(a.parts[0], seen)
    return seen[a]


__all__ = ["Number", "around", "exp", "key_of", "log", "log_rational", "power", "rooted", "shares",
           "unfolded", "worth"]
