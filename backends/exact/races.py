"""Keyed races over unknown noise: what is known of exponentials from the draws that read them.

A draw from q that gave y says E_y / q_y <= E_v / q_v for every v. A second draw from the same noise must agree with what is
known. Equal distributions give equal tokens; for different ones, the outcomes that remain possible are those whose
inequalities (E_a >= c E_b, products along a cycle at most 1) can all hold with positive probability.
"""
from __future__ import annotations

from fractions import Fraction


class Race:
    """The noise at one key: the reads so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads: list[tuple[tuple[Fraction, ...], int]] = []
        self.least: dict[tuple[int, int], Fraction] = {}      # E_a >= least[a, b] * E_b

    def known(self, q: tuple[Fraction, ...]) -> int | None:
        for p, y in self.reads:
            if p == q:
                return y
        return None

    def possible(self, q: tuple[Fraction, ...]) -> list[int]:
        """Tokens that a draw from q can give."""
        return [y for y in range(self.size) if q[y] > 0 and (not self.reads or self._closed(self._with(q, y)) is not None)]

    def read(self, q: tuple[Fraction, ...], y: int) -> None:
        """A draw from q gave y."""
        self.reads.append((q, y))
        closed = self._closed(self._with(q, y))
        assert closed is not None
        self.least = closed

    def _with(self, q: tuple[Fraction, ...], y: int) -> dict[tuple[int, int], Fraction]:
        out = dict(self.least)
        for v in range(self.size):
            if v != y and q[v] > 0:
                c = q[v] / q[y]
                out[v, y] = max(out.get((v, y), Fraction(0)), c)
        return out

    def _closed(self, least: dict[tuple[int, int], Fraction]) -> dict[tuple[int, int], Fraction] | None:
        """The bounds with all consequences; None where they leave no room (a cycle whose product is 1 or more)."""
        d = dict(least)
        n = range(self.size)
        for k in n:
            for a in n:
                if (a, k) not in d:
                    continue
                for b in n:
                    if (k, b) in d and a != k and b != k:
                        c = d[a, k] * d[k, b]
                        if a == b:
                            if c >= 1:
                                return None
                        elif c > d.get((a, b), Fraction(0)):
                            d[a, b] = c
        for (a, b), c in d.items():
            if (b, a) in d and c * d[b, a] >= 1:
                return None
        return d
