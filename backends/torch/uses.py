"""The uses of each value, by which the writer reuses a name or writes a value where it is used."""

from __future__ import annotations

from collections import Counter

from decgraph.ir.values import Function, Region, Value

LATER = ("for", "while")
"""Ops that read values from outside after their results have their first values."""


class Uses:
    """The uses of every value in a function: how many, and at which ops of a region (nested ones count for the op they are in;
    what a region yields is used at the place after its last op)."""

    def __init__(self, f: Function) -> None:
        self.total: Counter[Value] = Counter()
        self._places: dict[int, dict[Value, list[int]]] = {}
        for region in (f.body, *(s.init for s in f.states)):
            self._read(region)

    def _read(self, region: Region) -> None:
        places: dict[Value, list[int]] = {}
        for n, op in enumerate((*region.ops, None)):
            used: list[Value] = list(op.operands if op is not None else region.yields)
            self.total.update(used)
            for inner in op.regions if op is not None else ():
                self._read(inner)
                used += self._places[id(inner)]
            for v in used:
                places.setdefault(v, []).append(n)
        self._places[id(region)] = places

    def places(self, region: Region, v: Value) -> list[int]:
        """Where a region uses a value, in order."""
        return self._places[id(region)].get(v, [])

    def once(self, v: Value) -> bool:
        return self.total[v] == 1

    def producer(self, region: Region, v: Value) -> int | None:
        """The index of the op of a region that produces a value."""
        return next((n for n, op in enumerate(region.ops) if v in op.results), None)

    def may_take(self, region: Region, v: Value, holder: Value | None) -> bool:
        """Whether a yield of a region may be assigned directly to its name after the region, which `holder` has until then:
        nothing reads the holder after the yield is computed."""
        n = self.producer(region, v)
        if n is None:
            return False
        if holder is None:
            return True
        held = self.places(region, holder)
        return all(at <= n for at in held) and not (n in held and region.ops[n].opcode in LATER)
