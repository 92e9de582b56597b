"""What numbers of a program on a canvas are: sums of parameters, counters and other symbols (ir/linear.py), each by its name,
and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

from decgraph.ir.linear import Inequality, Linear, at_least, contradiction, negated

INF = math.inf
Bound = int | float | Fraction
PLACE = " k"
"""The symbol that stands for the place in a vector (no parameter has a space in its name)."""
ZERO, ONE = Linear(), Linear.of(1)


def hidden(x: Linear) -> bool:
    """Whether it may be another number at each place of a vector, in a way that is not followed."""
    return any(str(s).startswith("@") for s in x.symbols)


def varying(x: Linear) -> bool:
    """Whether it may be another number at each place of a vector."""
    return hidden(x) or PLACE in x.symbols


def anywhere(x: Linear) -> bool:
    """Whether it has parameters and the canvas's length alone: an unknown number has a name in one walk only."""
    return not any(str(s)[0] in "?@" for s in x.symbols)


def slope(x: Linear) -> int | Fraction:
    """By how much a number differs from that at the next place."""
    return dict(x.terms).get(PLACE, 0)


def at_place(x: Linear, place: Linear) -> Linear:
    """The number at a place."""
    return x + (place - Linear.of(PLACE)).times(slope(x))


def _text(x: Linear) -> str:
    return "+".join((*sorted(f"{f}*{s}" for s, f in x.terms), str(x.constant)))


@dataclass
class KnownAmounts:
    """What is known of symbols: bounds, which are real numbers, and inequalities (`facts`). Bounds hold everywhere; a fact may
    have been met under a condition, and is forgotten with it (`back`)."""

    bounds: dict[Hashable, tuple[Inequality, ...]] = field(default_factory=lambda: {PLACE: (Inequality(Linear.of(PLACE)),)})
    reals: set[Hashable] = field(default_factory=set)
    facts: list[Linear] = field(default_factory=list)
    made: dict[tuple[object, ...], Linear] = field(default_factory=dict)
    factors: dict[Linear, dict[Linear, Linear]] = field(default_factory=dict)

    def mark(self) -> list[Linear]:
        """What is known here, for `back`."""
        return list(self.facts)

    def back(self, mark: list[Linear]) -> None:
        """Forget what became known since `mark`."""
        self.facts = list(mark)

    def symbol(self, name: str, low: Bound = -INF, high: Bound = INF) -> Linear:
        """A symbol between two numbers."""
        x = Linear.of(name)
        ends = [x - Linear.of(Fraction(low))] if low > -INF else []
        ends += [Linear.of(Fraction(high)) - x] if high < INF else []
        self.bounds[name] = tuple(map(Inequality, ends))
        return x

    def atom(
        self, low: Bound = -INF, high: Bound = INF, *, real: bool = False, name: str = "", key: tuple[object, ...] | None = None
    ) -> Linear:
        """A number of which no more than bounds is known. The same one for the same key, also in another walk, where the key's
        numbers are the same there."""
        if key is not None and key in self.made:
            return self.made[key]
        parts = [x for x in key or () if isinstance(x, Linear)]
        varies = "@" if any(map(varying, parts)) else ""
        words = [x if isinstance(x, str) else _text(x) for x in key or () if isinstance(x, str | Linear)]
        if key is not None and len(words) == len(key) and all(map(anywhere, parts)):
            name = f"{varies}({' '.join(words)})"
        name = name or f"{varies or '?'}{len(self.bounds)}"
        if real:
            self.reals.add(name)
        made = self.symbol(name, low, high)
        if key is not None:
            self.made[key] = made
        return made

    def whole(self, x: Linear) -> bool:
        """Whether it is a whole number."""
        return all(Fraction(c).denominator == 1 for c in (x.constant, *(c for _, c in x.terms))) and not self.reals & x.symbols

    def _proves(self, atom: Inequality) -> bool:
        if atom.sum.number is not None:
            return atom.sum.number > 0 or not atom.strict and atom.sum.number == 0
        conditions = [*map(Inequality, self.facts), negated(atom)]
        return contradiction(conditions, lambda s: s not in self.reals, lambda s: self.bounds.get(s, ()))

    def at_least(self, x: Linear, least: int = 0) -> bool:
        """Whether x >= least follows from the bounds and the facts."""
        return self._proves(at_least(x, least))

    def above(self, x: Linear) -> bool:
        """Whether x > 0 follows."""
        return self._proves(Inequality(x, True))

    def compared(self, a: Linear, b: Linear) -> bool | None:
        """Whether a >= b, where that follows."""
        return True if self.at_least(a - b) else False if self.above(b - a) else None

    def largest(self, a: Linear, b: Linear) -> Linear | None:
        """The larger of two, where that is known."""
        return a if self.at_least(a - b) else b if self.at_least(b - a) else None

    def least(self, a: Linear, b: Linear) -> Linear | None:
        """The smaller of two, where that is known."""
        return a if self.at_least(b - a) else b if self.at_least(a - b) else None

    def product(self, a: Linear, b: Linear) -> Linear:
        """a * b, where the product of two symbols is a symbol, by both their names."""
        total = b.times(a.constant) + a.times(b.constant) - Linear.of(a.constant * b.constant)
        for (s, f), (t, g) in product(a.terms, b.terms):
            x, y = (Linear.of(name) for name in sorted((str(s), str(t))))
            made = self.atom(real=not self.whole(x + y), key=("*", x, y))
            if self.at_least(x) and self.at_least(y):
                self.facts.append(made)
            self.factors[made] = {x: y, y: x}
            total += made.times(f * g)
        return total

    def _over(self, a: Linear, b: Linear) -> Linear | None:
        """The quotient by a symbol, where that divides every term."""
        total = Linear()
        for s, f in a.terms:
            rest = ONE if Linear.of(s) == b else self.factors.get(Linear.of(s), {}).get(b)
            if rest is None:
                return None
            total += rest.times(f)
        return None if a.constant else total

    def quotient(self, a: Linear, b: Linear) -> Linear | None:
        """a / b, for b that is above 0, or a number."""
        if b.number is not None:
            return a.times(1 / Fraction(b.number)) if b.number else None
        if not self.above(b):
            return None
        if (found := self._over(a, b)) is not None:
            return found
        made = self.atom(real=True, key=("/", a, b))
        self.facts += [f for holds, f in ((a, made), (b - a, ONE - made)) if self.at_least(holds)]
        return made

    def rounded(self, x: Linear) -> Linear:
        """x rounded towards zero."""
        if self.whole(x):
            return x
        made = self.atom(key=("int", x))
        if self.at_least(x):
            self.facts += [made, x - made]
        return made

    def remainder(self, a: Linear, b: Linear) -> Linear | None:
        """a modulo b, of whole numbers, where neither is negative."""
        ratio = self.quotient(a, b) if self.at_least(a) and self.at_least(b, 1) else None
        return None if ratio is None else a - self.product(b, self.rounded(ratio))

    def extreme(self, kind: str, a: Linear, b: Linear) -> Linear:
        """The larger or the smaller of two (`max`, `min`)."""
        found = self.largest(a, b) if kind == "max" else self.least(a, b)
        if found is None:
            found = self.atom(real=not (self.whole(a) and self.whole(b)), key=(kind, a, b))
            self.facts += [found - x if kind == "max" else x - found for x in (a, b)]
        return found
