"""Linear facts about numbers, decided exactly: sums of symbols with rational factors, and whether inequalities between them
contradict each other.

A symbol is anything hashable that stands for one number: a value of a function, the length of the prompt, the length of the
context at some point. What `contradiction` says holds for all numbers that symbols may stand for; where it gives up it says
False. Conditions are data: an `Atom`, ("and", ...) or ("or", ...) of conditions, True, False, or None where nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor, gcd, lcm
from typing import Any

Number = int | float | Fraction
Condition = Any
MOST_ATOMS, MOST_CASES = 150, 48
"""What is given up beyond: inequalities after an elimination, and cases of a condition."""


@dataclass(frozen=True)
class Linear:
    """A sum of symbols with factors, and a constant. Two are equal if they are the same sum."""

    terms: frozenset[tuple[Hashable, Fraction]] = frozenset()
    constant: Fraction = Fraction(0)

    @staticmethod
    def of(x: Hashable | int | Fraction) -> Linear:
        """A number or a symbol."""
        if isinstance(x, int | Fraction):
            return Linear(constant=Fraction(x))
        return Linear(frozenset({(x, Fraction(1))}))

    def __add__(self, other: Linear | int) -> Linear:
        other = other if isinstance(other, Linear) else Linear.of(other)
        found = dict(self.terms)
        for symbol, factor in other.terms:
            found[symbol] = found.get(symbol, Fraction(0)) + factor
        return Linear(frozenset((s, f) for s, f in found.items() if f), self.constant + other.constant)

    def __sub__(self, other: Linear | int) -> Linear:
        other = other if isinstance(other, Linear) else Linear.of(other)
        return self + other.times(Fraction(-1))

    def times(self, factor: Fraction) -> Linear:
        """The sum with every factor multiplied."""
        if not factor:
            return Linear()
        return Linear(frozenset((s, f * factor) for s, f in self.terms), self.constant * factor)

    @property
    def symbols(self) -> frozenset[Hashable]:
        return frozenset(s for s, _ in self.terms)

    @property
    def number(self) -> Fraction | None:
        """The constant, where there is nothing else."""
        return None if self.terms else self.constant


@dataclass(frozen=True)
class Atom:
    """`sum >= 0`, or `sum > 0`."""

    sum: Linear
    strict: bool = False


def at_least(a: Linear, b: Linear | int) -> Atom:
    """a >= b"""
    return Atom(a - b)


def compared(fn: str, a: Linear, b: Linear) -> Condition:
    """A comparison of two sums: fn is one of eq, ne, lt, le, gt, ge."""
    match fn:
        case "ge":
            return Atom(a - b)
        case "gt":
            return Atom(a - b, True)
        case "le":
            return Atom(b - a)
        case "lt":
            return Atom(b - a, True)
        case "eq":
            return ("and", Atom(a - b), Atom(b - a))
        case "ne":
            return ("or", Atom(a - b, True), Atom(b - a, True))
    return None


def negated(condition: Condition) -> Condition:
    """The condition that is true where this one is false."""
    if isinstance(condition, Atom):
        return Atom(condition.sum.times(Fraction(-1)), not condition.strict)
    if isinstance(condition, tuple):
        return ("or" if condition[0] == "and" else "and", *map(negated, condition[1:]))
    return None if condition is None else not condition


def cases(condition: Condition) -> list[tuple[Atom, ...]] | None:
    """Cases one of which is so where the condition is true, each as what holds in it; None where there are too many. Of what
    nothing is known nothing holds, true or false."""
    if isinstance(condition, Atom):
        return [(condition,)]
    if condition is False:
        return []
    if not isinstance(condition, tuple):
        return [()]
    found: list[tuple[Atom, ...]] = [] if condition[0] == "or" else [()]
    for part in condition[1:]:
        more = cases(part)
        if more is None:
            return None
        found = found + more if condition[0] == "or" else [(*a, *b) for a in found for b in more]
        if len(found) > MOST_CASES:
            return None
    return found


def contradiction(
    conditions: Iterable[Condition], whole: Callable[[Hashable], bool], about: Callable[[Hashable], Collection[Atom]]
) -> bool:
    """Whether conditions cannot all be true. whole: whether a symbol is a whole number. about: what is true of a symbol."""
    found = cases(("and", *conditions))
    return found is not None and all(_infeasible(_with_facts(case, about), whole) for case in found)


def _with_facts(atoms: tuple[Atom, ...], about: Callable[[Hashable], Collection[Atom]]) -> set[Atom]:
    """Inequalities, with what is true of their symbols, and of those that come in so."""
    out, seen = set(atoms), set[Hashable]()
    while new := {s for a in out for s in a.sum.symbols} - seen:
        seen |= new
        out |= {a for s in new for a in about(s)}
    return out


def _infeasible(atoms: Collection[Atom], whole: Callable[[Hashable], bool]) -> bool:
    """Whether inequalities have no common solution, by eliminating one symbol after the other (Fourier and Motzkin)."""
    now: set[Atom] = set()
    for atom in atoms:
        made = _tight(atom, whole)
        if made is False:
            return True
        if isinstance(made, Atom):
            now.add(made)
    while now:
        sides: dict[Hashable, list[int]] = {}
        for atom in now:
            for s, f in atom.sum.terms:
                sides.setdefault(s, [0, 0])[f > 0] += 1
        symbol = min(sides, key=lambda s: sides[s][0] * sides[s][1])
        factor = {a: dict(a.sum.terms).get(symbol, Fraction(0)) for a in now}
        left = {a for a in now if not factor[a]}
        for a in (a for a in now if factor[a] > 0):
            for b in (b for b in now if factor[b] < 0):
                made = _tight(Atom(a.sum.times(-factor[b]) + b.sum.times(factor[a]), a.strict or b.strict), whole)
                if made is False:
                    return True
                if isinstance(made, Atom):
                    left.add(made)
        if len(left) > MOST_ATOMS:
            return False
        now = left
    return False


def _tight(atom: Atom, whole: Callable[[Hashable], bool]) -> Atom | bool:
    """An inequality in its smallest whole factors, of whole numbers with what that allows: 2a >= 1 is a >= 1. True and False
    where it has no symbols."""
    if not atom.sum.terms:
        return atom.sum.constant > 0 or not atom.strict and atom.sum.constant == 0
    factors = [f for _, f in atom.sum.terms]
    scale = Fraction(lcm(*(f.denominator for f in factors)), gcd(*(f.numerator for f in factors)))
    scaled = atom.sum.times(scale) if scale != 1 else atom.sum
    if not all(whole(s) for s in scaled.symbols):
        return Atom(scaled, atom.strict)
    c = scaled.constant
    return Atom(Linear(scaled.terms, Fraction(-floor(-c) - 1 if atom.strict else floor(c))))


def condition_of(setting: Any, symbol: Callable[[str, str], Hashable | None], values: Mapping[str, Any]) -> Condition:
    """A condition of a claim (ir/settings.py) as one between sums. symbol: what stands for a parameter or a quantity of the
    request, None for what is no number; values: parameters that are known."""
    match setting:
        case (("and" | "or") as op, *parts):
            return (op, *(condition_of(p, symbol, values) for p in parts))
        case ("not", part):
            return negated(condition_of(part, symbol, values))
        case (op, a, b) if op in _FN:
            x, y = (_sum_of(t, symbol, values) for t in (a, b))
            return None if x is None or y is None else compared(_FN[op], x, y)
    return None


_FN = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def _sum_of(term: Any, symbol: Callable[[str, str], Hashable | None], values: Mapping[str, Any]) -> Linear | None:
    match term:
        case ("const", bool()):
            return None
        case ("const", int() | Fraction() as x):
            return Linear.of(x)
        case ("const", float() as x) if x == x and abs(x) != float("inf"):
            return Linear.of(Fraction(str(x)))
        case (("param" | "request") as kind, name):
            known = values.get(name) if kind == "param" else None
            if isinstance(known, int | Fraction) and not isinstance(known, bool):
                return Linear.of(known)
            found = symbol(kind, name)
            return None if found is None else Linear.of(found)
        case ("neg", a):
            x = _sum_of(a, symbol, values)
            return None if x is None else x.times(Fraction(-1))
        case (("+" | "-" | "*") as op, a, b):
            x, y = (_sum_of(t, symbol, values) for t in (a, b))
            if x is None or y is None:
                return None
            if op == "*":
                return x.times(y.constant) if not y.terms else y.times(x.constant) if not x.terms else None
            return x + y if op == "+" else x - y
    return None
