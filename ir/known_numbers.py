"""What is known of numbers at one place of a program: linear facts about symbols (ir/linear.py), and what follows from them.

What is always true of a symbol, the numbers that it lies between among it, stands with the symbol (`facts`); what is true here
only is `assumed`. A number of which no more is known than such facts is a symbol of its own. It is named by what it is, so that
the same number is the same symbol wherever it is met, or by the value that it is (`at`): then what follows from what is assumed
where that is made stays with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from itertools import product

from decgraph.ir.expressions import LARGE
from decgraph.ir.linear import Condition, Exact, Inequality, Linear, at_least, compared, contradiction, negated
from decgraph.ir.settings import ends_of
from decgraph.ir.values import Param

INDEX = ("index",)
"""The index of the generic element of a vector."""
EACH = "one for each"
"""How symbols begin that stand for another number for each element of a vector, and of which no more is known."""
ZERO, ONE = Linear(), Linear.of(1)


def _inside(x: Linear) -> Iterator[Hashable]:
    """The symbols of a sum, and those that they are made of."""
    for s in x.symbols:
        yield s
        for part in s if isinstance(s, tuple) else ():
            yield from _inside(part) if isinstance(part, Linear) else ()


def varies(x: Linear) -> bool:
    """Whether it may be another number for each element of a vector."""
    return any(s == INDEX or isinstance(s, tuple) and s[0] == EACH for s in _inside(x))


def hidden(x: Linear) -> bool:
    """Whether it may be another number for each element of a vector, in a way that is not followed."""
    return varies(x - Linear.of(INDEX).times(slope(x)))


def anywhere(x: Linear) -> bool:
    """Whether all that it is made of has a name that says what it is, wherever it is met."""
    return not hidden(x) and all(
        isinstance(s, str) or isinstance(s, tuple) and all(isinstance(part, str | Linear) for part in s) for s in _inside(x)
    )


def slope(x: Linear) -> Exact:
    """By how much an element of a vector is more than the one before it."""
    return dict(x.terms).get(INDEX, 0)


def element(x: Linear, index: Linear) -> Linear:
    """The element at an index, of a vector's generic element."""
    return x + (index - Linear.of(INDEX)).times(slope(x))


class KnownNumbers:
    """Linear facts, and what is asked of them."""

    def __init__(self) -> None:
        self.facts: dict[Hashable, tuple[Inequality, ...]] = {}
        self.real: set[Hashable] = set()
        self.assumed: list[Condition] = []
        self.factors: dict[Linear, dict[Linear, Linear]] = {}
        self.symbol(INDEX, 0)

    def symbol(self, s: Hashable, low: Exact | None = None, high: Exact | None = None, real: bool = False) -> Linear:
        """A symbol, between two numbers."""
        x, ends = Linear.of(s), (None if end is None else Linear.of(end) for end in (low, high))
        self.facts[s] = tuple(Inequality((x - end).times(sign)) for end, sign in zip(ends, (1, -1)) if end is not None)
        if real:
            self.real.add(s)
        return x

    def fresh(self, low: Exact | None = None, high: Exact | None = None, real: bool = False, varies: bool = False) -> Linear:
        """A number like no other, between two numbers; of a vector maybe another one for each element."""
        return self.symbol((EACH if varies else "one", len(self.facts)), low, high, real)

    def know(self, s: Hashable, *atoms: Inequality) -> None:
        """More that is true of a symbol."""
        self.facts[s] = (*self.facts.get(s, ()), *atoms)

    def parameter(self, p: Param, s: Hashable) -> Linear | None:
        """A parameter, where it is a finite number."""
        t = p.value.type
        if t.elem not in ("int", "prob", "real") or t.dims:
            return None
        low, high = ends_of(p)
        if t.elem != "int" and (low is None or high is None or max(abs(low), abs(high)) > LARGE):
            return None
        return self.symbol(s, low, high, real=t.elem != "int")

    def whole(self, x: Linear) -> bool:
        """Whether it is a whole number."""
        return x.constant.denominator == 1 and all(f.denominator == 1 and s not in self.real for s, f in x.terms)

    # -- what follows
    def proves(self, condition: Condition) -> bool:
        """Whether a condition follows from what is known here."""
        if condition is None or isinstance(condition, bool):
            return condition is True
        return contradiction([*self.assumed, negated(condition)], lambda s: s not in self.real, lambda s: self.facts.get(s, ()))

    def at_least(self, a: Linear, b: Linear | int = 0) -> bool:
        """Whether a >= b."""
        return self.proves(at_least(a, b))

    def above(self, a: Linear, b: Linear | int = 0) -> bool:
        """Whether a > b."""
        return self.proves(Inequality(a - b, True))

    def equal(self, a: Linear, b: Linear) -> bool:
        return a == b or self.at_least(a, b) and self.at_least(b, a)

    def compared(self, a: Linear, b: Linear) -> bool | None:
        """Whether a >= b, where that is known."""
        return True if self.at_least(a, b) else False if self.above(b, a) else None

    def which(self, fn: str, a: Linear, b: Linear) -> Linear | None:
        """The larger or the smaller of two (`maximum`, `minimum`), where that is known."""
        larger, smaller = (a, b) if fn == "maximum" else (b, a)
        return a if self.at_least(larger, smaller) else b if self.at_least(smaller, larger) else None

    # -- numbers made of others
    def _new(
        self, s: Hashable, always: Sequence[Inequality], local: Sequence[Inequality], at: Hashable = None, real: bool = False
    ) -> Linear:
        """A symbol of which this is true always, and this here."""
        x = self.symbol(s, real=real)
        self.know(s, *always, *(local if at is not None else ()))
        self.assumed += local if at is None else ()
        return x

    def applied(self, fn: str, xs: Sequence[Linear], at: Hashable = None) -> Linear | None:
        """A function of numbers; None where it is not followed."""
        a, b = (*xs, ZERO)[:2]
        name = (fn, *xs) if at is None else at
        match fn:
            case "add" | "mix":
                return a + b
            case "sub" | "contrast":
                return a - b
            case "neg":
                return a.times(-1)
            case "mul" | "weigh" if (found := a.multiplied(b)) is not None or at is None:
                return self.product(a, b) if found is None else found
            case "mul" | "weigh" if self.at_least(a) and self.at_least(b):
                return self.symbol(name, 0, real=not self.whole(a + b))
            case "div" if a == ZERO and self.proves(compared("ne", b, ZERO)):
                return ZERO
            case "div" if at is None or b.number:
                return self.quotient(a, b)
            case "minimum" | "maximum":
                return self.extreme(fn, a, b, at)
            case "abs" | "relu" if self.at_least(a):
                return a
            case "abs" | "relu":
                v = Linear.of(name)
                return self._new(name, [at_least(v), at_least(v, a)], (), at, not self.whole(a))
            case "mod" if b == ONE and self.whole(a):
                return ZERO
            case "mod" if at is None and self.whole(a) and self.whole(b):
                return self.remainder(a, b)
            case "mod" if b.number and b.number > 0 and self.whole(a) and self.whole(b):
                return Linear.of(a.number % b.number) if a.number is not None else self.symbol(name, 0, b.number - 1)
        return None

    def extreme(self, fn: str, a: Linear, b: Linear, at: Hashable = None) -> Linear:
        """The larger or the smaller of two (`maximum`, `minimum`)."""
        if (found := self.which(fn, a, b)) is not None:
            return found
        v, sign = Linear.of(name := (fn, a, b) if at is None else at), 1 if fn == "maximum" else -1
        least = next((n for n in (1, 0) if self.at_least(a, n) and self.at_least(b, n)), None)
        bounds = [Inequality((v - x).times(sign)) for x in (a, b)]
        return self._new(name, bounds, [] if least is None else [at_least(v, least)], at, not (self.whole(a) and self.whole(b)))

    def truncated(self, a: Linear, at: Hashable = None) -> Linear:
        """A number without its fraction, as counts, the ends of slices and those of loops are taken."""
        if self.whole(a):
            return a
        if a.number is not None:
            return Linear.of(int(a.number))
        v = Linear.of(name := ("truncated", a) if at is None else ("truncated", at, a))
        here, always = [Inequality(v), at_least(a, v)] if self.at_least(a) else [], [Inequality(v + 1 - a, True)]
        always += [] if here else [Inequality(a + 1 - v, True)]
        return self._new(name, always, here, at)

    def product(self, a: Linear, b: Linear) -> Linear:
        """a * b, where the product of two symbols is a symbol."""
        total = b.times(a.constant) + a.times(b.constant) - Linear.of(a.constant * b.constant)
        for (s, f), (t, g) in product(a.terms, b.terms):
            x, y = Linear.of(s), Linear.of(t)
            name = ("*", x + y)  # of two symbols the sum says which they are
            here = [Inequality(Linear.of(name))] if self.at_least(x) and self.at_least(y) else []
            made = self._new(name, (), here, real=not self.whole(x + y))
            self.factors[made] = {x: y, y: x}
            total += made.times(f * g)
        return total

    def quotient(self, a: Linear, b: Linear) -> Linear | None:
        """a / b, for b that is above 0, or a number."""
        if b.number is not None:
            return a.times(1 / Fraction(b.number)) if b.number else None
        if not self.above(b):
            return None
        if (found := self._over(a, b)) is not None:
            return found
        made = Linear.of(name := ("/", a, b))
        here = [Inequality(x) for holds, x in ((a, made), (b - a, ONE - made)) if self.at_least(holds)]
        return self._new(name, (), here, real=True)

    def _over(self, a: Linear, b: Linear) -> Linear | None:
        """The quotient by a symbol, where that divides every term."""
        total = Linear()
        for s, f in a.terms:
            rest = ONE if Linear.of(s) == b else self.factors.get(Linear.of(s), {}).get(b)
            if rest is None:
                return None
            total += rest.times(f)
        return None if a.constant else total

    def remainder(self, a: Linear, b: Linear) -> Linear | None:
        """a modulo b, of whole numbers, where neither is negative."""
        ratio = self.quotient(a, b) if self.at_least(a) and self.at_least(b, 1) else None
        return None if ratio is None else a - self.product(b, self.truncated(ratio))
