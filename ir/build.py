"""The builder: appends ops to the region being built and infers their result types from the op table."""

from __future__ import annotations

from collections.abc import Sequence

from decgraph.ir.table import lookup
from decgraph.ir.types import Type
from decgraph.ir.values import NOWHERE, Constant, Loc, Op, Region, Value


class Builder:
    """The one mutable object of the IR. `open` starts a region, `close` ends it and returns it."""

    def __init__(self) -> None:
        self._stack: list[tuple[tuple[Value, ...], list[Op]]] = []

    def open(self, args: Sequence[Value] = ()) -> None:
        """Start a region with the given arguments; ops go into it until `close`."""
        self._stack.append((tuple(args), []))

    def close(self, yields: Sequence[Value] = ()) -> Region:
        """End the region last opened."""
        args, ops = self._stack.pop()
        return Region(args, tuple(ops), tuple(yields))

    @property
    def last(self) -> Op:
        """The op that was appended last."""
        return self._stack[-1][1][-1]

    @property
    def has_ops(self) -> bool:
        return bool(self._stack) and bool(self._stack[-1][1])

    @property
    def length(self) -> int:
        """How many ops the region being built has."""
        return len(self._stack[-1][1])

    def since(self, first: int) -> tuple[Op, ...]:
        """The ops of the region being built from number `first` on."""
        return tuple(self._stack[-1][1][first:])

    @property
    def depth(self) -> int:
        return len(self._stack)

    def splice(self, region: Region) -> None:
        """Append the ops of a region that was closed to the region now open."""
        self._stack[-1][1].extend(region.ops)

    def unwind(self, depth: int) -> None:
        """Drop the regions opened beyond `depth` (after an error)."""
        del self._stack[depth:]

    def emit(
        self,
        opcode: str,
        operands: Sequence[Value] = (),
        attrs: dict[str, object] | None = None,
        regions: Sequence[Region] = (),
        *,
        loc: Loc = NOWHERE,
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """Append an op; returns its results. Raises OpError when the operands do not fit."""
        attrs = dict(attrs or {})
        types = lookup(opcode).type(tuple(v.type for v in operands), attrs, tuple(regions))
        results = tuple(Value(t, names[i] if i < len(names) else "") for i, t in enumerate(types))
        self._stack[-1][1].append(Op(opcode, tuple(operands), attrs, tuple(regions), results, loc))
        return results

    def one(self, opcode: str, *operands: Value, loc: Loc = NOWHERE, name: str = "", **attrs: object) -> Value:
        """`emit` for an op with one result and no regions."""
        return self.emit(opcode, operands, attrs, loc=loc, names=(name,))[0]

    def const(self, value: Constant, type: Type, loc: Loc = NOWHERE) -> Value:
        """A constant."""
        return self.emit("const", (), {"value": value, "type": type}, loc=loc)[0]
