"""Polynomials over the rationals in atoms: roots of whole numbers, powers of e, logs, and shares of a distribution.

A monomial is a tuple of (atom, exponent), sorted by the atoms' numbers; a polynomial maps monomials to coefficients that
are not 0. Exponents of whole numbers lie between 0 and 1 (what is more goes into the coefficient), those of e are any
rational, all others are whole. Equal polynomials are equal numbers; the converse is not claimed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import floor, isqrt
from weakref import WeakValueDictionary

from decgraph.runtime.reals import intervals
from decgraph.runtime.reals.limits import DEPTH, TERMS, NotSeparated, raised

Monomial = tuple[tuple["Atom", int | Fraction], ...]
Polynomial = dict[Monomial, Fraction]

_count = itertools.count()
_atoms: WeakValueDictionary[Hashable, Atom] = WeakValueDictionary()


class Atom:
    """A number that is not taken apart. Kinds: "base" (a whole number under a root), "e", "share", "log", "exp", "power".
    `parts` is what it is made of: a whole number, or one of the classes of real.py. Atoms
    are made once (`atom`), so that the same one is the same object."""

    __slots__ = ("__weakref__", "cache", "depth", "kind", "number", "parts")

    def __init__(self, kind: str, parts: object, depth: int) -> None:
        self.kind, self.parts, self.depth, self.number = kind, parts, depth, next(_count)
        self.cache: dict[Hashable, intervals.Interval] = {}

    @property
    def opaque(self) -> bool:
        """Whether its powers are nothing but powers of it."""
        return self.kind not in ("base", "e")

    @property
    def positive(self) -> bool:
        """Whether it is provably more than 0."""
        return self.kind != "log"

    def __repr__(self) -> str:
        return str(self.parts) if self.kind == "base" else "e" if self.kind == "e" else f"{self.kind}{self.number}"


def atom(kind: str, key: Hashable, parts: object, inner: Iterable[Polynomial] = ()) -> Atom:
    """The atom of this kind and key, made of numbers with these polynomials."""
    found = _atoms.get((kind, key))
    if found is None:
        depth = 1 + max((a.depth for p in inner for m in p for a, _ in m), default=0)
        if depth > DEPTH:
            raise NotSeparated(f"powers, logs and shares of each other, {depth} deep, are too long to follow")
        found = _atoms[kind, key] = Atom(kind, parts, depth)
    return found


EULER = atom("e", 0, None)
_bases: dict[int, Atom] = {}


def base(n: int) -> Atom:
    """The atom whose powers are the roots of a whole number."""
    if n not in _bases:
        _bases[n] = atom("base", n, n)
    return _bases[n]


@lru_cache(maxsize=4096)
def factors(n: int) -> tuple[tuple[int, int], ...]:
    """A positive whole number as powers of primes; what has no small prime factor is left whole, or as a root of itself."""
    out = []
    for p in _primes():
        k = 0
        while n % p == 0:
            n, k = n // p, k + 1
        if k:
            out.append((p, k))
        if n == 1:
            return tuple(out)
    k = 1
    for e in (2, 3, 5, 7) if n.bit_length() < 4096 else ():
        while (r := whole_root(n, e)) is not None:
            n, k = r, e * k
    return (*out, (n, k))


def whole_root(n: int, k: int) -> int | None:
    """The whole k-th root of n >= 0, or None if n is not a perfect k-th power."""
    if k == 1 or n < 2:
        return n
    low, high = 1, 1 << -(-n.bit_length() // k)
    while low < high:  # the largest r with r**k <= n
        mid = (low + high + 1) // 2
        low, high = (mid, high) if mid**k <= n else (low, mid - 1)
    return low if low**k == n else None


@lru_cache(maxsize=1)
def _primes() -> tuple[int, ...]:
    return tuple(p for p in range(2, 1000) if all(p % d for d in range(2, isqrt(p) + 1)))


def normal(pairs: Mapping[Atom, int | Fraction]) -> tuple[Fraction, Monomial]:
    """A product of powers of atoms as a rational and a monomial."""
    number, out = Fraction(1), []
    for a, e in pairs.items():
        if e and a.kind == "base":
            k = floor(e)
            assert isinstance(a.parts, int)
            if k:
                number *= raised(a.parts, k)
                e = e - k
        if e:
            out.append((a, e))
    out.sort(key=lambda pair: pair[0].number)
    return number, tuple(out)


def join(m: Monomial, n: Monomial) -> tuple[Fraction, Monomial]:
    """The product of two monomials."""
    if not m or not n:
        return Fraction(1), m or n
    pairs = dict(m)
    for a, e in n:
        pairs[a] = pairs.get(a, 0) + e
    return normal(pairs)


def raise_to(m: Monomial, k: int | Fraction) -> tuple[Fraction, Monomial]:
    """A monomial to a power (a fraction only where its atoms have roots)."""
    return normal({a: e * k for a, e in m})


def plus(p: Polynomial, q: Polynomial) -> Polynomial:
    """The sum."""
    if len(p) < len(q):
        p, q = q, p
    out = dict(p)
    for m, c in q.items():
        s = out.get(m)
        if s is None:
            out[m] = c
        elif s + c == 0:
            del out[m]
        else:
            out[m] = s + c
    return out


def scaled(p: Polynomial, number: Fraction, m: Monomial = ()) -> Polynomial:
    """The polynomial times a rational and a monomial."""
    if not m:
        return p if number == 1 else {n: c * number for n, c in p.items()} if number else {}
    return times(p, {m: number}) if number else {}


def times(p: Polynomial, q: Polynomial) -> Polynomial:
    """The product. Raises NotSeparated where it would be too long."""
    if len(p) * len(q) > 4 * TERMS:
        raise NotSeparated("a sum of products of roots is too long to follow")
    out: Polynomial = {}
    for m, c in p.items():
        for n, d in q.items():
            number, mono = join(m, n)
            s = out.get(mono, 0) + c * d * number
            if s:
                out[mono] = s
            else:
                out.pop(mono, None)
    if len(out) > TERMS:
        raise NotSeparated(f"a sum of more than {TERMS} products of roots is too long to follow")
    return out


def to_power(p: Polynomial, n: int) -> Polynomial:
    """A polynomial to a whole power of 0 or more."""
    if len(p) == 1:
        ((m, c),) = p.items()
        number, mono = raise_to(m, n)
        return {mono: raised(c, n) * number}
    if n > 64:
        raise NotSeparated(f"the power of a sum of roots to the {n} is too long to follow")
    out: Polynomial = {(): Fraction(1)}
    for _ in range(n):
        out = times(out, p)
    return out


def order(m: Monomial) -> tuple[tuple[int, int | Fraction], ...]:
    """A key that orders monomials, the same in every call."""
    return tuple((a.number, e) for a, e in m)


def primitive(p: Polynomial) -> tuple[Fraction, Monomial, Polynomial]:
    """A rational, a monomial and a polynomial whose product is p, so that multiples of a polynomial have the same third."""
    seen = {a for m in p for a, _ in m if a.opaque}
    least = {a: min(dict(m).get(a, 0) for m in p) for a in seen}
    _, mono = normal(least)
    _, down = raise_to(mono, -1)
    q = scaled(p, Fraction(1), down) if mono else p
    lead = q[max(q, key=order)]
    return lead, mono, scaled(q, 1 / lead)


def divided(p: Polynomial, q: Polynomial) -> Polynomial | None:
    """p / q where that is a polynomial; None where it is not, or where roots are in the way."""
    if len(q) > len(p):
        return None
    (m, c), (n, d) = max(p.items(), key=lambda t: order(t[0])), max(q.items(), key=lambda t: order(t[0]))
    if len(p) == len(q) and m == n and scaled(q, c / d) == p:
        return {(): c / d}
    if any(not a.opaque for m in q for a, _ in m):
        return None
    atoms = sorted({a for m in (*p, *q) for a, _ in m if a.opaque}, key=lambda a: a.number)
    least = {a: min(dict(m).get(a, 0) for m in p) for a in atoms}
    _, low = normal(least)
    rest = scaled(p, Fraction(1), raise_to(low, -1)[1])

    def size(m: Monomial) -> tuple[int | Fraction, ...]:
        e = dict(m)
        return tuple(e.get(a, 0) for a in atoms)

    lead = max(q, key=size)
    top, out = size(lead), Polynomial()
    down = raise_to(lead, -1)[1]
    for _ in range(4 * len(p)):
        if not rest:
            return scaled(out, Fraction(1), low)
        m = max(rest, key=size)
        if any(x < y for x, y in zip(size(m), top, strict=True)):
            return None
        step: Polynomial = {join(m, down)[1]: rest[m] / q[lead]}
        out, rest = plus(out, step), plus(rest, scaled(times(step, q), Fraction(-1)))
    return None


def around(p: Polynomial, digits: int, value: Callable[[Atom, int | Fraction, int], intervals.Interval]) -> intervals.Interval:
    """An interval around a polynomial; `value` gives one around a power of an atom."""
    total: intervals.Interval = (intervals.ZERO, intervals.ZERO)
    for m, c in p.items():
        term = intervals.rational(c, digits)
        for a, e in m:
            term = intervals.multiply(term, value(a, e, digits), digits)
        total = intervals.add(total, term, digits)
    return total
