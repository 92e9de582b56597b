"""Multipliers for the linear facts of a certificate: an elimination (Fourier and Motzkin) that notes what it adds up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from decgraph.check.certificate.numbers import Atom, Form, plus

MOST = 120
Row = tuple[Form, bool, Any]
"""A form that is at least 0, or above it; and how it came about: (name, sign), or a list of (row, factor)."""


def multipliers(known: Mapping[str, Atom], goal: Atom, tight: Callable[[Form, bool], Atom]) -> list[Any] | None:
    """Steps, each a list of [name, multiplier], that add up to a contradiction of the known atoms and the goal's opposite."""
    rows: list[Row] = [(goal[0], goal[1] == ">", ("goal", 1))]
    seen, names = {s for s in goal[0] if s}, set[str]()
    while new := [n for n, (form, _) in known.items() if n not in names and seen & form.keys() - {""}]:
        names |= set(new)
        for name in new:
            form, relation = known[name]
            seen |= form.keys() - {""}
            rows += [(plus({}, form, sign), relation == ">", (name, sign)) for sign in ((1, -1) if relation == "=" else (1,))]
        if len(rows) > MOST:
            break
    now = [made for row in rows if (made := _rounded([(row, Fraction(1))], tight)) is not None]
    while now:
        if (found := next((row for row in now if _contradicts(row)), None)) is not None:
            return _steps(found)
        sides: dict[str, tuple[list[Row], list[Row]]] = {}
        for row in now:
            for s, f in row[0].items():
                if s:
                    sides.setdefault(s, ([], []))[f > 0].append(row)
        if not sides:
            return None
        symbol = min(sides, key=lambda s: (len(sides[s][0]) * len(sides[s][1]) - len(sides[s][0]) - len(sides[s][1]), s))
        below, above = sides[symbol]
        left = [row for row in now if symbol not in row[0]]
        for a in below:
            for b in above:
                left.append(_rounded([(a, b[0][symbol]), (b, -a[0][symbol])], tight))
        unique = {(tuple(sorted(row[0].items())), row[1]): row for row in reversed(left) if row[0] or row[1]}
        now = list(unique.values())
        if len(now) > MOST:
            return None
    return None


def _contradicts(row: Row) -> bool:
    c = row[0].get("", Fraction(0))
    return not row[0].keys() - {""} and (c < 0 or c == 0 and row[1])


def _rounded(parts: list[tuple[Row, Fraction]], tight: Callable[[Form, bool], Atom]) -> Row:
    total: Form = {}
    for row, factor in parts:
        total = plus(total, row[0], factor)
    form, relation = tight(total, any(row[1] for row, _ in parts))
    return form, relation == ">", parts


def _steps(last: Row) -> list[Any]:
    """The rows that a contradiction came from, each once, in order."""
    out: list[Any] = []
    number: dict[int, str] = {}

    def name(row: Row) -> tuple[str, int]:
        if isinstance(row[2], tuple):
            return row[2]
        if id(row) not in number:
            parts = [(name(r), f) for r, f in row[2]]
            number[id(row)] = f"step {len(out)}"
            out.append([[n, str(f * sign)] for (n, sign), f in parts])
        return number[id(row)], 1

    name(last)
    return out
