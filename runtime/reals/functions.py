"""Roots, powers, exponentials and logs of exact reals, and distributions of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor

from decgraph.runtime.reals.limits import NotSeparated, raised, short
from decgraph.runtime.reals.polynomials import (
    EULER,
    Atom,
    Monomial,
    Polynomial,
    atom,
    base,
    factors,
    normal,
    primitive,
    raise_to,
    times,
)
from decgraph.runtime.reals.real import CONSTANT, TAKEN_APART, Exp, LogAtom, Number, Power, Real, Share, factor, make, plain


def key_of(x: Number) -> Hashable:
    """Equal for numbers of the same form."""
    return x.key if isinstance(x, Real) else Fraction(x)


def _number(kind: str, key: Hashable, parts: Share | LogAtom | Exp | Power, *made_of: Number) -> Real:
    """The number that is an atom."""
    inner = (p for x in made_of if isinstance(x, Real) for p in (x.num, *(f.poly for f in x.den)))
    return Real({((atom(kind, key, parts, inner), 1),): Fraction(1)}, {})


@lru_cache(maxsize=20_000)
def rooted(x: int | Fraction, e: Fraction) -> Number:
    """x ** e of a positive rational."""
    if e.denominator == 1:
        return raised(x, e.numerator)
    pairs: dict[Atom, int | Fraction] = {}
    for n, sign in ((x.numerator, 1), (x.denominator, -1)):
        for p, k in factors(n):
            if p != 1:
                pairs[base(p)] = pairs.get(base(p), 0) + sign * k * e
    number, mono = normal(pairs)
    return make({mono: number}, {})


def power(x: Number, e: Fraction) -> Number:
    """x ** e of a positive number, for a rational e."""
    if e == 0:
        return Fraction(1)
    if not isinstance(x, Real):
        return rooted(plain(x) or Fraction(x), e)
    if e.denominator == 1:
        n = e.numerator
        if abs(n) > 64 and len(x.num) + len(x.den) > 1:
            raise NotSeparated(f"the power of a sum of roots to the {short(n)} is too long to follow")
        return x**n
    number, mono, rest = taken_apart(x.num)
    out = rooted(abs(number), e)  # of every part only the size counts, for the whole is positive
    rooty, low = raise_to(tuple((a, k) for a, k in mono if not a.opaque), e)
    out = out * make({low: rooty}, {})
    for a, k in mono:
        if isinstance(a.parts, Power):
            out = out * power(a.parts.of, a.parts.exponent * k * e)
        elif isinstance(a.parts, Exp):
            out = out * exp(a.parts.of * (k * e))
        elif a.opaque:
            out = out * _size_power(Real({((a, 1),): Fraction(1)}, {}), k * e)
    if rest != CONSTANT:
        out = out * _size_power(make(rest, {}), e)
    for f, n in x.den.items():
        out = out * _size_power(make(f.poly, {}), -n * e)
    return out


def taken_apart(p: Polynomial) -> tuple[Fraction, Monomial, Polynomial]:
    """A rational, a monomial and a polynomial whose product is p; the last is 1 where p is a product."""
    if len(p) > 1:
        return primitive(p)
    ((m, c),) = p.items()
    return c, m, CONSTANT


def _size_power(x: Number, e: Fraction) -> Number:
    """|x| ** e of a number that is not taken apart: a whole power of a factor, times an atom for the rest."""
    n = floor(e)
    assert isinstance(x, Real)
    x = abs(x)
    out = make(CONSTANT, {factor(x.num): -n}) if len(x.num) > 1 else x**n
    if e != n:
        out = out * _number("power", (x.key, e - n), Power(x, e - n), x)
    return out


def exp(x: Number) -> Number:
    """e ** x of a finite number."""
    if not isinstance(x, Real):
        x = Fraction(x)
        return make({((EULER, x),): Fraction(1)}, {}) if x else Fraction(1)
    if x.den:
        return _exp_atom(x)
    out: Number = Fraction(1)
    rest = {}
    for m, c in x.num.items():
        if m == ():
            out = out * exp(c)
        elif len(m) == 1 and isinstance(made := m[0][0].parts, LogAtom) and m[0][1] == 1:
            out = out * power(made.of, c)
        else:
            rest[m] = c
    return out * _exp_atom(Real(rest, {})) if rest else out


def _exp_atom(x: Real) -> Number:
    return _number("exp", x.key, Exp(x), x)


def log(x: Number) -> Number:
    """The log of a positive number."""
    if not isinstance(x, Real):
        return log_rational(Fraction(x))
    number, mono, rest = taken_apart(x.num)
    rest = times(rest, {tuple((a, e) for a, e in mono if not a.positive): Fraction(1)})
    out = log_rational(abs(number))  # of every part only the size counts, for the whole is positive
    for a, e in mono:
        if a.positive:
            out = out + e * _log_of(a)
    if rest != CONSTANT:
        out = out + _log_atom(_size(make(rest, {})))
    for f, n in x.den.items():
        out = out - n * _log_atom(_size(make(f.poly, {})))
    return out


@lru_cache(maxsize=20_000)
def log_rational(x: Fraction) -> Number:
    """The log of a positive rational: a sum of logs of primes."""
    out: Number = Fraction(0)
    for n, sign in ((x.numerator, 1), (x.denominator, -1)):
        for p, k in factors(n):
            if p != 1:
                out = out + sign * k * _log_atom(Fraction(p))
    return out


def _log_of(a: Atom) -> Number:
    match a.parts:
        case int(n):
            return _log_atom(Fraction(n))
        case None:
            return Fraction(1)
        case Exp(of):
            return of
        case Power(of, exponent):
            return log(of) * exponent
    return _log_atom(Real({((a, 1),): Fraction(1)}, {}))


def _size(x: Number) -> Number:
    return -x if x < 0 else x


def _log_atom(x: Number) -> Number:
    return _number("log", key_of(x), LogAtom(x), x)


def shares(weights: Sequence[Number]) -> list[Number]:
    """Weights of 0 or more divided by their sum. Raises ZeroDivisionError where all are 0."""
    if all(isinstance(w, int | Fraction) for w in weights):
        total = sum(weights, Fraction(0))
        return [w / total for w in weights]
    if not all(isinstance(w, int | Fraction | Real) for w in weights):  # numbers of another sort, such as symbols
        whole = sum(weights)
        return [w / whole for w in weights]
    key = tuple(key_of(w) for w in weights)
    if key not in _known:
        if len(_known) > 20_000:
            _known.clear()
        _known[key] = _shares(weights)
    return list(_known[key])


_known: dict[Hashable, list[Number]] = {}


def _shares(weights: Sequence[Number]) -> list[Number]:
    live = [i for i, w in enumerate(weights) if w > 0]
    if not live:
        raise ZeroDivisionError("weights that are all 0")
    if any(isinstance(w, Real) and not _low(w) for w in weights):
        total = sum((weights[i] for i in live), Fraction(0))
        return [w / total for w in weights] if isinstance(total, Real) or total != 1 else list(weights)
    ratios = [weights[i] / weights[live[0]] for i in live]
    out: list[Number] = [Fraction(0)] * len(weights)
    if all(not isinstance(r, Real) for r in ratios):
        total = sum(ratios, Fraction(0))
        found = [r / total for r in ratios]
    else:
        found = _atoms(ratios)
    for i, p in zip(live, found, strict=True):
        out[i] = p
    return out


def _atoms(ratios: list[Number]) -> list[Number]:
    """The shares of weights that are not all rational: an atom for each weight but the last different one, whose share is what
    is left of 1, so that sums over the tokens cancel."""
    weights, keys = tuple(ratios), tuple(key_of(r) for r in ratios)
    different = list(dict.fromkeys(keys))
    by_key: dict[Hashable, Number] = {}
    left: Number = Fraction(1)
    for k in different[:-1]:
        by_key[k] = _number("share", (keys, k), Share(weights, keys.index(k)), *ratios)
        left = left - by_key[k] * keys.count(k)
    by_key[different[-1]] = left / keys.count(different[-1])
    return [by_key[k] for k in keys]


def _low(x: Real) -> bool:
    """Whether no share stands in a number."""
    return not any(a.kind == "share" for p in (x.num, *(f.poly for f in x.den)) for m in p for a, _ in m)


def unfolded(x: Number) -> Number:
    """The number with its shares, and what is made of them, taken apart. Denominators are dropped from the whole: this is
    asked whether it is 0."""
    if not isinstance(x, Real):
        return x
    return _open(Real(x.num, {}), {})


def _open(x: Number, seen: dict[Atom, Number]) -> Number:
    if not isinstance(x, Real):
        return x
    out: Number = Fraction(0)
    for m, c in x.num.items():
        term: Number = c
        for a, e in m:
            if isinstance(a.parts, Power):
                term = term * power(_open_atom(a, seen), a.parts.exponent * e)
            elif a.opaque:
                term = term * _open_atom(a, seen) ** e
            else:
                term = term * Real({((a, e),): Fraction(1)}, {})
        out = out + term
    for f, n in x.den.items():
        out = out * power(_open(make(f.poly, {}), seen), Fraction(-n))
    return out


def _open_atom(a: Atom, seen: dict[Atom, Number]) -> Number:
    if a not in seen:
        match a.parts:
            case Share(weights, token):
                opened = [_open(w, seen) for w in weights]
                seen[a] = opened[token] / sum(opened, Fraction(0))
            case LogAtom(of):
                seen[a] = log(_open(of, seen)) if isinstance(of, Real) else Real({((a, 1),): Fraction(1)}, {})
            case Exp(of):
                seen[a] = exp(_open(of, seen))
            case Power(of, _):
                seen[a] = _open(of, seen)
    return seen[a]


TAKEN_APART.append(unfolded)

__all__ = ["Number", "exp", "key_of", "log", "log_rational", "power", "rooted", "shares", "unfolded"]
