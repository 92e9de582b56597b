"""Linear facts about numbers, decided exactly: sums of symbols with rational factors, and whether inequalities between them
contradict each other.

A symbol is anything hashable that stands for one number: a value of a function, the length of the prompt, the length of the
context at some point. What `contradiction` says holds for all numbers that symbols may stand for; where it gives up it says
False. Conditions are data: an `Inequality`, ("and", ...) or ("or", ...) of conditions, True, False, or None where nothing is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor, gcd, lcm
from typing import TypeAlias

from decgraph.ir import values

Exact = int | Fraction
Condition: TypeAlias = "Inequality | bool | tuple[str, *tuple[Condition, ...]] | None"
MOST_ATOMS, MOST_CASES = 150, 48
"""What is given up beyond: inequalities after an elimination, and cases of a condition."""


@dataclass(frozen=True)
class Linear:
    """A sum of symbols with factors, and a constant. Two are equal if they are the same sum."""

    terms: frozenset[tuple[Hashable, Exact]] = frozenset()
    constant: Exact = 0

    @staticmethod
    def of(x: Hashable | int | Fraction) -> Linear:
        """A number or a symbol."""
        if isinstance(x, int | Fraction):
            return Linear(constant=x)
        return Linear(frozenset({(x, 1)}))

    def __add__(self, other: Linear | int) -> Linear:
        if not isinstance(other, Linear):
            return Linear(self.terms, self.constant + other)
        found = dict(self.terms)
        for symbol, factor in other.terms:
            found[symbol] = found.get(symbol, 0) + factor
        return Linear(frozenset((s, f) for s, f in found.items() if f), self.constant + other.constant)

    def __sub__(self, other: Linear | int) -> Linear:
        return self + (other.times(-1) if isinstance(other, Linear) else -other)

    def times(self, factor: Exact) -> Linear:
        """The sum with every factor multiplied."""
        if not factor:
            return Linear()
        return Linear(frozenset((s, f * factor) for s, f in self.terms), self.constant * factor)

    def multiplied(self, other: Linear) -> Linear | None:
        """The product, where one of the two is a number."""
        return self.times(other.constant) if not other.terms else other.times(self.constant) if not self.terms else None

    @property
    def symbols(self) -> frozenset[Hashable]:
        return frozenset(s for s, _ in self.terms)

    @property
    def number(self) -> Exact | None:
        """The constant, where there is nothing else."""
        return None if self.terms else self.constant


@dataclass(frozen=True)
class Inequality:
    """`sum >= 0`, or `sum > 0`."""

    sum: Linear
    strict: bool = False


def at_least(a: Linear, b: Linear | int = 0) -> Inequality:
    """a >= b"""
    return Inequality(a - b)


def compared(fn: str, a: Linear, b: Linear) -> Condition:
    """A comparison of two sums: fn is one of eq, ne, lt, le, gt, ge."""
    match fn:
        case "ge":
            return Inequality(a - b)
        case "gt":
            return Inequality(a - b, True)
        case "le":
            return Inequality(b - a)
        case "lt":
            return Inequality(b - a, True)
        case "eq":
            return ("and", Inequality(a - b), Inequality(b - a))
        case "ne":
            return ("or", Inequality(a - b, True), Inequality(b - a, True))
    return None


def negated(condition: Condition) -> Condition:
    """The condition that is true where this one is false."""
    if isinstance(condition, Inequality):
        return Inequality(condition.sum.times(-1), not condition.strict)
    if isinstance(condition, tuple):
        return ("or" if condition[0] == "and" else "and", *map(negated, condition[1:]))
    return None if condition is None else not condition


def cases(condition: Condition) -> list[tuple[Inequality, ...]] | None:
    """Cases one of which is so where the condition is true, each as what holds in it; None where there are too many. Of what
    nothing is known nothing holds, true or false."""
    if isinstance(condition, Inequality):
        return [(condition,)]
    if condition is False:
        return []
    if not isinstance(condition, tuple):
        return [()]
    found: list[tuple[Inequality, ...]] = [] if condition[0] == "or" else [()]
    for part in condition[1:]:
        more = cases(part)
        if more is None:
            return None
        found = found + more if condition[0] == "or" else [(*a, *b) for a in found for b in more]
        if len(found) > MOST_CASES:
            return None
    return found


def contradiction(
    conditions: Iterable[Condition], whole: Callable[[Hashable], bool], about: Callable[[Hashable], Collection[Inequality]]
) -> bool:
    """Whether conditions cannot all be true. whole: whether a symbol is a whole number. about: what is true of a symbol."""
    found = cases(("and", *conditions))
    return found is not None and all(refutation(_with_facts(case, about), whole) for case in found)


def _with_facts(atoms: tuple[Inequality, ...], about: Callable[[Hashable], Collection[Inequality]]) -> set[Inequality]:
    """Inequalities, with what is true of their symbols, and of those that come in so."""
    out, seen, new = set(atoms), set[Hashable](), atoms
    while new:
        symbols = {s for a in new for s, _ in a.sum.terms} - seen
        seen |= symbols
        new = tuple(a for s in symbols for a in about(s) if a not in out)
        out.update(new)
    return out


Row: TypeAlias = tuple[frozenset[tuple[Hashable, int]], int, bool]
"""An inequality in whole factors: its terms, its constant, whether it is strict."""
Parts: TypeAlias = "tuple[tuple[Row | int, Exact], ...]"
"""What adds up to a row: rows, or given inequalities by their number, each with its factor."""


def refutation(
    atoms: Iterable[Inequality], whole: Callable[[Hashable], bool], order: Callable[[Hashable], str] = lambda s: ""
) -> tuple[Row, Mapping[Row, Parts]] | None:
    """How inequalities without a common solution add up to one that is false, with what each row is made of; None where that
    is not found. Symbols are eliminated one after the other (Fourier and Motzkin); order: of equally good ones."""
    how: dict[Row, Parts] = {}
    now: dict[Row, None] = {}
    for n, atom in enumerate(atoms):
        row, scale = _tight(dict(atom.sum.terms), atom.sum.constant, atom.strict, whole)
        how.setdefault(row, ((n, scale),))
        if row[0]:
            now[row] = None
        elif _false(row):
            return row, how
    while now:
        sides: dict[Hashable, list[int]] = {}
        for terms, _, _ in now:
            for s, f in terms:
                sides.setdefault(s, [0, 0])[f > 0] += 1
        free = {s for s, (below, above) in sides.items() if not below or not above}
        if free:  # such a symbol may be as large or as small as these inequalities want
            now = {row: None for row in now if not any(s in free for s, _ in row[0])}
            continue
        symbol = min(sides, key=lambda s: (sides[s][0] * sides[s][1], order(s)))
        split: tuple[list[tuple[int, Row]], list[tuple[int, Row]]] = ([], [])
        left: dict[Row, None] = {}
        for row in now:
            factor = next((f for s, f in row[0] if s == symbol), 0)
            if factor:
                split[factor > 0].append((abs(factor), row))
            else:
                left[row] = None
        for f, one in split[0]:
            for g, other in split[1]:
                terms_now = {s: x * g for s, x in one[0]}
                for s, x in other[0]:
                    terms_now[s] = terms_now.get(s, 0) + x * f
                added = {s: x for s, x in terms_now.items() if x}
                row, scale = _tight(added, one[1] * g + other[1] * f, one[2] or other[2], whole)
                how.setdefault(row, ((one, g * scale), (other, f * scale)))
                if row[0]:
                    left[row] = None
                elif _false(row):
                    return row, how
        if len(left) > MOST_ATOMS:
            return None
        now = left
    return None


def _false(row: Row) -> bool:
    """Whether an inequality without symbols is not so."""
    return row[1] < 0 or row[2] and row[1] == 0


def _tight(
    terms: Mapping[Hashable, Exact], constant: Exact, strict: bool, whole: Callable[[Hashable], bool]
) -> tuple[Row, Exact]:
    """An inequality in its smallest whole factors, of whole numbers with what that allows: 2a >= 1 is a >= 1; and by what it
    was multiplied."""
    if not terms:
        return (frozenset(), (constant > 0) - (constant < 0), strict), 1
    scale = Fraction(lcm(*(f.denominator for f in terms.values())), gcd(*(f.numerator for f in terms.values())))
    c = constant * scale
    if all(map(whole, terms)):
        factors = frozenset((s, int(f * scale)) for s, f in terms.items())
        return (factors, -floor(-c) - 1 if strict else floor(c), False), scale
    scale *= c.denominator
    return (frozenset((s, int(f * scale)) for s, f in terms.items()), c.numerator, strict), scale


def condition_of(setting: values.Condition, number: Callable[[str, str], Linear | None]) -> Condition:
    """A condition of a claim (ir/settings.py) as one between sums. number: what a parameter or a quantity of the request is,
    None for what is no number."""
    match setting:
        case (("and" | "or") as op, *parts):
            return (op, *(condition_of(p, number) for p in parts))
        case ("not", part):
            return negated(condition_of(part, number))
        case (op, a, b) if op in _FN:
            x, y = (sum_of(t, number) for t in (a, b))
            return None if x is None or y is None else compared(_FN[op], x, y)
    return None


_FN = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def sum_of(
    term: values.Condition,
    number: Callable[[str, str], Linear | None],
    product: Callable[[Linear, Linear], Linear | None] = Linear.multiplied,
) -> Linear | None:
    """A number of a claim as a sum; None where it is none."""
    match term:
        case ("const", bool()):
            return None
        case ("const", int() | Fraction() as x):
            return Linear.of(x)
        case ("const", float() as x) if x == x and abs(x) != float("inf"):
            return Linear.of(Fraction(str(x)))
        case (("param" | "request") as kind, name):
            return number(kind, name)
        case ("neg", part):
            whole = sum_of(part, number, product)
            return None if whole is None else whole.times(-1)
        case (("+" | "-" | "*") as op, one, other):
            a, b = (sum_of(t, number, product) for t in (one, other))
            if a is None or b is None:
                return None
            return product(a, b) if op == "*" else a + b if op == "+" else a - b
    return None
