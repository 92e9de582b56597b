"""Keyed races over unknown noise: bounds on the exponentials from the draws that read them.

A draw from q that gave y says E_y / q_y <= E_v / q_v for every v. A second draw from the same noise must agree with
these bounds. Equal distributions give equal tokens; for different ones, the outcomes that remain possible are those whose
inequalities (E_a >= c E_b, products along a cycle at most 1) can all hold with positive probability. How likely each is
given one earlier draw is rational (`joint`); given two or more it is not computed here.
"""

from __future__ import annotations

from fractions import Fraction


class Race:
    """The noise at one key: the reads so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads: list[tuple[tuple[Fraction, ...], int]] = []
        self.bounds: dict[tuple[int, int], Fraction] = {}
        self.bounded = 0  # how many of the reads are in the bounds: most noise is read once, and its bounds by nobody
        self.told: set[int] = set()  # tokens of one-hot draws, which say nothing about the noise

    def known(self, q: tuple[Fraction, ...]) -> int | None:
        for p, y in self.reads:
            if p == q:
                return y
        return None

    def possible(self, q: tuple[Fraction, ...]) -> list[int]:
        """Tokens that a draw from q can return."""
        live = [y for y in range(self.size) if q[y] > 0]
        if not self.reads:
            return live
        if len(self.reads) == 1:  # the bounds of two draws contradict each other in their two tokens alone
            p, a = self.reads[0]
            return [y for y in live if y == a or p[y] * q[a] < p[a] * q[y]]
        return [y for y in live if self._closed(self._with(q, y)) is not None]

    def weights(self, q: tuple[Fraction, ...]) -> list[Fraction] | None:
        """The distribution of a draw from q given the earlier reads; None after reads from two or more other distributions."""
        if not self.reads:
            total = sum(q)
            return [x / total for x in q]
        if len(self.reads) > 1:
            return None
        p, a = self.reads[0]
        mass = p[a] / sum(p)
        return [joint(p, a, q, b) / mass for b in range(self.size)]

    def read(self, q: tuple[Fraction, ...], y: int) -> None:
        """Record that a draw from q returned y."""
        self.reads.append((q, y))

    @property
    def least(self) -> dict[tuple[int, int], Fraction]:
        """The bounds, with all consequences: E_a >= least[a, b] * E_b."""
        while self.bounded < len(self.reads):
            q, y = self.reads[self.bounded]
            closed = self._closed(self._beside(self.bounds, q, y))
            assert closed is not None
            self.bounds, self.bounded = closed, self.bounded + 1
        return self.bounds

    def _with(self, q: tuple[Fraction, ...], y: int) -> dict[tuple[int, int], Fraction]:
        return self._beside(self.least, q, y)

    def _beside(
        self, bounds: dict[tuple[int, int], Fraction], q: tuple[Fraction, ...], y: int
    ) -> dict[tuple[int, int], Fraction]:
        out = dict(bounds)
        for v in range(self.size):
            if v != y and q[v] > 0:
                c = q[v] / q[y]
                out[v, y] = max(out.get((v, y), Fraction(0)), c)
        return out

    def _closed(self, least: dict[tuple[int, int], Fraction]) -> dict[tuple[int, int], Fraction] | None:
        """The bounds with all consequences; None where they leave no room (a cycle whose product is 1 or more)."""
        d = dict(least)
        above: dict[int, dict[int, None]] = {}  # of each token those that are bounded by it, and below: those that bound it
        below: dict[int, dict[int, None]] = {}
        for a, b in d:
            above.setdefault(b, {})[a] = None
            below.setdefault(a, {})[b] = None
        for k in sorted(above.keys() & below.keys()):  # a way through a token needs bounds on either side
            for a in list(above[k]):
                for b in list(below[k]):
                    c = d[a, k] * d[k, b]
                    if a == b:
                        if c >= 1:
                            return None
                    elif c > d.get((a, b), Fraction(0)):
                        d[a, b] = c
                        above.setdefault(b, {})[a] = None
                        below.setdefault(a, {})[b] = None
        for (a, b), c in d.items():
            if (b, a) in d and c * d[b, a] >= 1:
                return None
        return d


def joint(p: tuple[Fraction, ...], a: int, q: tuple[Fraction, ...], b: int) -> Fraction:
    """The probability that draws from p and from q with the same noise return a and b. Neither p nor q needs to sum to one."""
    if p[a] == 0 or q[b] == 0:
        return Fraction(0)
    alpha, beta = [x / p[a] for x in p], [x / q[b] for x in q]  # E_v >= alpha_v E_a and E_v >= beta_v E_b
    if a == b:
        return 1 / sum((max(x, y) for x, y in zip(alpha, beta, strict=True)), Fraction(0))
    low, high = alpha[b], (1 / beta[a] if beta[a] > 0 else None)  # of E_b / E_a
    if high is not None and low >= high:
        return Fraction(0)
    others = [v for v in range(len(p)) if v not in (a, b)]
    cuts = sorted(
        {
            low,
            *(
                alpha[v] / beta[v]
                for v in others
                if beta[v] > 0 and alpha[v] / beta[v] > low and (high is None or alpha[v] / beta[v] < high)
            ),
        }
    )
    total = Fraction(0)
    for i, left in enumerate(cuts):
        right = cuts[i + 1] if i + 1 < len(cuts) else high
        first = Fraction(1) + sum((alpha[v] for v in others if alpha[v] > beta[v] * left), Fraction(0))
        second = Fraction(1) + sum((beta[v] for v in others if not alpha[v] > beta[v] * left), Fraction(0))
        total += (1 / (first + second * left) - (1 / (first + second * right) if right is not None else 0)) / second
    return total
