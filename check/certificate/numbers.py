"""Numbers and lengths: constants, ranges, and what follows from linear facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from decgraph.check.certificate.data import Fact
from decgraph.ir.values import Constant, Op, Param, Value

if TYPE_CHECKING:
    from decgraph.check.certificate.following import Pass

INF = float("inf")


class Numbers:
    """What is known of whole numbers and of lengths at the place where the pass stands."""

    def __init__(self, k: Pass, condition: tuple[Any, ...]) -> None:
        self.k = k
        self.settings = settings(condition)
        self.ranges: dict[Value, tuple[Any, Any]] = {}

    def parameter(self, p: Param) -> None:
        t = p.value.type
        if t.elem not in ("int", "prob", "real") or t.dims:
            return
        low, high = (0, 1) if t.elem == "prob" else (-INF, INF)
        ends = [Fraction(str(x)) if isinstance(x, int | float | Fraction) else None for x in (p.low, p.high)]
        self.ranges[p.value] = (low if ends[0] is None else ends[0], high if ends[1] is None else ends[1])

    def range(self, v: Value) -> tuple[Any, Any]:
        known = self.k.constants.get(v)
        if isinstance(known, int | float | Fraction) and not isinstance(known, bool):
            return (known, known)
        return self.ranges.get(v, (-INF, INF))

    def low(self, v: Value) -> Any:
        return self.range(v)[0]

    def note(self, op: Op) -> None:
        pass

    def decided(self, v: Value) -> bool | None:
        known = self.k.constants.get(v)
        return known if isinstance(known, bool) else None

    @contextmanager
    def under(self, v: Value | None, true: bool, head: int | None = None) -> Iterator[None]:
        yield

    def committed(self, old: int, new: int, one: bool) -> None:
        pass

    def alias(self, v: Value, y: Value) -> None:
        self.ranges[v] = self.range(y)

    def iterations(self, op: Op) -> int | None:
        low, high = (self.k.constants.get(v) for v in op.operands[:2])
        if not isinstance(low, int) or not isinstance(high, int):
            return None
        ends = any(op.attrs.get(name) for name in ("stops", "fills"))
        return 0 if high <= low else 1 if high == low + 1 and not ends else None

    def begin(self, op: Op, carried: Sequence[Value], entry: int) -> None:
        pass

    def end(self, op: Op, yields: Sequence[Value]) -> None:
        pass

    def after(self, op: Op, carried: Sequence[Value]) -> None:
        pass

    def at_least(self, op: Op, v: Value, n: int) -> bool:
        return bool(self.low(v) >= n)

    def positive(self, op: Op, v: Value, strict: bool = True) -> bool:
        return bool(self.low(v) > 0 or not strict and self.low(v) == 0)

    def empty(self, op: Op, v: Value) -> bool:
        known = self.k.constants.get(v)
        return isinstance(known, list | tuple) and not known

    def equal(self, op: Op, a: Any, b: Any) -> bool:
        return bool(a == b)

    def whole_context(self, op: Op, start: Any, end: Any) -> bool:
        return False

    def single(self, op: Op) -> bool:
        return False

    def sliced(self, op: Op, start: Any, end: Any) -> Fact | None:
        return None

    def prompt(self, op: Op) -> Fact | None:
        return None

    def last(self, op: Op) -> Fact | None:
        return None


def settings(condition: tuple[Any, ...]) -> dict[str, Constant]:
    """The values of parameters that a condition asks for."""
    match condition:
        case ("and", *parts):
            return {name: value for part in parts for name, value in settings(part).items()}
        case ("==", ("param", name), ("const", value)) | ("==", ("const", value), ("param", name)):
            return {name: value}
        case ("not", ("param", name)):
            return {name: False}
        case ("param", name):
            return {name: True}
    return {}
