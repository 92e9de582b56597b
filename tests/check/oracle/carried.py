"""Which local values a turn of a loop may read that an earlier turn wrote."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from oracle import language as L


def names(e: Any) -> set[str]:
    """Every name in an expression (or in a statement, with what it holds)."""
    if isinstance(e, L.Name):
        return {e.id}
    if isinstance(e, tuple):
        return set().union(*map(names, e)) if e else set()
    if is_dataclass(e) and not isinstance(e, type):
        return set().union(*(names(getattr(e, f.name)) for f in fields(e)))
    return set()


def carried(body: tuple[Any, ...]) -> frozenset[str]:
    """The names that a turn may read before it surely wrote them."""
    read: set[str] = set()
    _block(body, set(), read)
    return frozenset(read)


def _block(body: tuple[Any, ...], sure: set[str], read: set[str]) -> set[str]:
    """The names that are surely written after a block, and into `read` those that it reads without that."""
    for s in body:
        match s:
            case L.If(test, then, other):
                read |= names(test) - sure
                sure = sure | (_block(then, set(sure), read) & _block(other, set(sure), read))
            case L.For(name, over, inner):
                read |= names(over) - sure
                _block(inner, sure | {name}, read)
            case L.Repeat(count, cond, inner):
                read |= (names(count) | names(cond)) - sure
                _block(inner, set(sure), read)
            case L.While(test, inner):
                read |= names(test) - sure
                _block(inner, set(sure), read)
            case L.Draft(name, of, inner):
                read |= names(of) - sure
                sure = _block(inner, sure | {name}, read)
            case L.Draw(name, value, output, using):
                read |= (names(value) | names(output) | ({using} if using else set())) - sure
                sure = sure | {name}
            case L.Assign(L.Name(name), "=", value):
                read |= names(value) - sure
                sure = sure | {name}
            case L.Canvas(name, size):
                read |= names(size) - sure
                sure = sure | {name}
            case L.Noise(name, _, _):
                sure = sure | {name}
            case _:
                read |= names(s) - sure
    return sure
