"""Distributions that depend on cases: decision diagrams over signs of polynomials, with symbolic probabilities at their leaves.

The runs of a program are folded from the last fork to the first. A draw adds up the distributions after it, each times its
weight; a comparison keeps both apart, unless they are equal. A distribution after a draw of weight w is only known where w > 0,
and its denominators may vanish where w does. Then the product is kept apart by the denominator's sign, until a sum has
cancelled it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from decgraph.check.smt.field import Fact, Field
from decgraph.check.smt.poly import Poly
from decgraph.check.smt.ratio import Ratio
from decgraph.check.smt.trail import Fork

Tokens = tuple[int, ...]
Facts = tuple[Fact, ...]
Leaf = dict[Tokens, Ratio]
"""How likely it is that a step commits these tokens. What comes after them is the specification's business."""


@dataclass(frozen=True)
class Case:
    """Two distributions: where a polynomial is positive, and where it is not."""

    poly: Poly
    yes: Diagram
    no: Diagram


Diagram = Leaf | Case | None
"""A distribution by cases; None where the case is impossible."""


class Specified(Protocol):
    """What distributions are followed by."""

    def next(self, done: Tokens) -> Leaf:
        """The specification's distribution of the token after `done`."""
        ...


class Folder:
    """Distributions of programs over a field, where every distribution is followed by a specification."""

    def __init__(self, field: Field, spec: Specified) -> None:
        self.field, self.spec = field, spec

    def fold(self, runs: Sequence[tuple[list[Fork], Any]], depth: int, facts: Facts) -> Diagram:
        """The distribution of the runs that share their first `depth` forks, given the facts that hold there."""
        if len(runs) == 1 and len(runs[0][0]) == depth:
            distribution: Diagram = runs[0][1]
            return distribution
        fork = runs[0][0][depth]
        groups: dict[int, list[tuple[list[Fork], Any]]] = {}
        for run in runs:
            groups.setdefault(run[0][depth].taken, []).append(run)
        after = {}
        for taken, group in groups.items():
            fact = fork.facts[taken]
            after[taken] = self.fold(group, depth + 1, facts if fact is None or fact in facts else (*facts, fact))
        if fork.kind == "sign":
            yes = fork.facts[0]
            assert yes is not None
            return self.reduced(Case(yes[0], after[0], after[1]), facts)
        total: Diagram = {}
        for taken, distribution in after.items():
            total = self.combined(total, self.weighted(fork.weights[taken], distribution, facts), facts)
        return self.reduced(total, facts)

    def weighted(self, w: Ratio, distribution: Diagram, facts: Facts) -> Diagram:
        """A distribution times a weight that may be 0, and known only where it is not."""
        if distribution is None:
            return {}
        if isinstance(distribution, Case):
            return Case(
                distribution.poly,
                self.weighted(w, distribution.yes, with_(facts, distribution.poly, True)),
                self.weighted(w, distribution.no, with_(facts, distribution.poly, False)),
            )
        dens = {f for x in (w, *distribution.values()) for f in x.den}
        out: Diagram = {k: w * x for k, x in distribution.items()}
        for f in sorted(dens, key=repr):
            if not self.field.implies(facts, f, strict=True):
                out = Case(f, out, {})
        return self.reduced(out, facts)

    def combined(self, a: Diagram, b: Diagram, facts: Facts) -> Diagram:
        """The sum of two distributions, case by case."""
        if a is None or b is None:
            return None
        if not isinstance(a, Case) and not isinstance(b, Case):
            return added(a, b)
        poly = a.poly if isinstance(a, Case) else b.poly  # type: ignore[union-attr]
        sides: list[Diagram] = []
        for yes in (True, False):
            here = with_(facts, poly, yes)
            if self.field.possible(here, deep=False) is False:
                sides.append(None)
            else:
                sides.append(self.combined(restricted(a, poly, yes), restricted(b, poly, yes), here))
        return Case(poly, sides[0], sides[1])

    def reduced(self, d: Diagram, facts: Facts) -> Diagram:
        """The same distribution with fewer cases: impossible ones dropped, equal ones merged."""
        if d is None:
            return None
        if not isinstance(d, Case):
            return self.shorter(d)
        inside, outside = with_(facts, d.poly, True), with_(facts, d.poly, False)
        if d.no is None or self.field.possible(outside, deep=False) is False:  # first: it is the side with all terms
            return self.reduced(d.yes, facts)
        if d.yes is None or self.field.possible(inside, deep=False) is False:
            return self.reduced(d.no, facts)
        yes, no = self.reduced(d.yes, inside), self.reduced(d.no, outside)
        if yes is None or no is None:
            return no if yes is None else yes
        if isinstance(yes, dict) and isinstance(no, dict) and not any(d.poly in x.den for x in yes.values()):
            if self.agree(yes, no, outside):  # the distribution of the one side also says what happens on the other
                return yes
            if self.agree(no, yes, inside):
                return no
        return Case(d.poly, yes, no)

    def agree(self, distribution: Leaf, other: Leaf, facts: Facts) -> bool:
        """Whether `distribution` is defined wherever the facts hold, and equals `other` there."""
        if any(not self.field.implies(facts, f, strict=True) for f in {f for x in distribution.values() for f in x.den}):
            return False
        return all(self.field.zero(x.num, facts, splits=2) is True for x in self.difference(distribution, other).values())

    # -- distributions of tokens
    def shorter(self, distribution: Leaf) -> Leaf:
        """The same distribution with fewer tokens: where the last token is as the specification draws it, the specification
        may."""
        out = dict(distribution)
        for stem in sorted({k[:-1] for k in distribution if k}, key=len, reverse=True):
            row = self.spec.next(stem)
            ends = {(*stem, *t): x for t, x in row.items()}
            if not all(k in out for k in ends):
                continue
            mass = sum((out[k] for k in ends), out[next(iter(ends))] * 0)
            if all((out[k] - mass * x).num.terms == {} for k, x in ends.items()):
                for k in ends:
                    del out[k]
                out[stem] = out[stem] + mass if stem in out else mass
        return {k: x for k, x in out.items() if x.num.terms}

    def difference(self, a: Leaf, b: Leaf) -> Leaf:
        """What must vanish for two distributions to be one: their difference, drawn out to the same tokens."""
        out = added(a, {k: -x for k, x in b.items()})
        for n in range(max((len(k) for k in out), default=0)):
            for stem in [k for k in out if len(k) == n]:
                if any(len(k) > n and k[:n] == stem for k in out):
                    w = out.pop(stem)
                    out = added(out, {(*stem, *t): w * x for t, x in self.spec.next(stem).items()})
        return out


def added(a: Leaf, b: Leaf) -> Leaf:
    """The sum of two distributions."""
    out = dict(a)
    for key, x in b.items():
        out[key] = out[key] + x if key in out else x
    return {k: x for k, x in out.items() if x.num.terms}


def with_(facts: Facts, p: Poly, yes: bool) -> Facts:
    """Facts with the sign of a polynomial."""
    fact = (p, True) if yes else (-p, False)
    return facts if fact in facts else (*facts, fact)


def restricted(d: Diagram, p: Poly, yes: bool) -> Diagram:
    """A diagram in which the sign of a polynomial is known."""
    if not isinstance(d, Case):
        return d
    if d.poly == p:
        return restricted(d.yes if yes else d.no, p, yes)
    return Case(d.poly, restricted(d.yes, p, yes), restricted(d.no, p, yes))


def leaves(d: Diagram, facts: Facts) -> Iterator[tuple[Facts, Leaf]]:
    """The distributions of a diagram with the facts that lead to them."""
    if isinstance(d, Case):
        yield from leaves(d.yes, with_(facts, d.poly, True))
        yield from leaves(d.no, with_(facts, d.poly, False))
    elif d is not None:
        yield facts, d


__all__ = ["Case", "Diagram", "Facts", "Folder", "Leaf", "Tokens", "leaves"]
