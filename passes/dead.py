"""Part of simplify: what nothing needs is dropped, also results of branches and values that loops carry."""

from __future__ import annotations

from collections.abc import Collection

from decgraph.ir.values import Op, Region, Value
from decgraph.ir.walk import EXITS, breaking, breaks, free_values
from decgraph.passes.motion import fixed

COLUMNS = ("for", "while", "if", "segment")
"""Ops whose results are needed one by one."""


def without_dead(region: Region) -> Region:
    """The region without ops whose results nothing needs. Ops with effects stay, and all that they need."""
    return Liveness(region).swept(region)


class Liveness:
    """Marks what is needed, starting from effects, from what the region yields, and from the ops in `also`."""

    def __init__(self, region: Region, also: Collection[Op] = ()) -> None:
        self.definition: dict[Value, Op] = {}
        self.holder: dict[Value, tuple[Op, int]] = {}
        """Arguments of the regions of loops: the op, and which of its carried values (-1: the counter)."""
        self.live: set[Value] = set()
        self.live_ops: set[Op] = set()
        self.index(region)
        self.work: list[Value] = list(region.yields)
        for op in region.walk():
            if fixed(op) or also and (op in also or any(o in also for r in op.regions for o in r.walk())):
                self.keep(op)
        while self.work:
            v = self.work.pop()
            if v not in self.live:
                self.live.add(v)
                self.reach(v)

    def index(self, region: Region) -> None:
        for op in region.ops:
            for v in op.results:
                self.definition[v] = op
            if op.opcode in EXITS:
                self.live_ops.add(op)
            for r in op.regions:
                for n, arg in enumerate(r.args):
                    self.holder[arg] = (op, n - 1 if op.opcode in ("for", "while") else -1)
                self.index(r)

    def keep(self, op: Op) -> None:
        """An op is needed, with all that it needs."""
        if op in self.live_ops:
            return
        self.live_ops.add(op)
        match op.opcode:
            case "for":
                self.work += op.operands[:2]
                self.work += op.regions[0].yields[:1] if op.attrs.get("stops") else ()
            case "while":
                self.work += op.operands[:1] if op.attrs.get("limited") else ()
                self.work += op.regions[0].yields
                self.work += op.regions[1].yields[:1] if op.attrs.get("stops") else ()
            case "if":
                self.work.append(op.operands[0])
            case "segment":
                pass
            case _:
                self.work += op.operands
                for r in op.regions:
                    self.work += r.yields
                    self.work += [v for o in r.walk() if o.opcode == "verdict" for v in o.operands]

    def reach(self, v: Value) -> None:
        if v in self.definition:
            op = self.definition[v]
            self.keep(op)
            if op.opcode in COLUMNS:
                self.column(op, op.results.index(v))
        elif v in self.holder:
            op, n = self.holder[v]
            self.keep(op)
            if n >= 0:
                self.column(op, n)

    def column(self, op: Op, n: int) -> None:
        """The n-th value that a branch yields or a loop carries is needed: where it starts, in every iteration, and after."""
        match op.opcode:
            case "if" | "segment":
                self.work += [r.yields[n] for r in op.regions]
            case "for" | "while":
                first, stop = _offsets(op)
                self.work.append(op.operands[first + n])
                self.work.append(op.regions[-1].yields[stop + n])
                self.work += [r.args[1 + n] for r in op.regions]
                self.work += [o.operands[n] for o in breaks(op.regions[-1])]
                self.work.append(op.results[n])

    def swept(self, region: Region) -> Region:
        ops: list[Op] = []
        for op in region.ops:
            if op in self.live_ops:
                ops.append(self.trimmed(op))
        if len(ops) == len(region.ops) and all(a is b for a, b in zip(ops, region.ops, strict=True)):
            return region
        return Region(region.args, tuple(ops), region.yields)

    def trimmed(self, op: Op) -> Op:
        regions = tuple(map(self.swept, op.regions))
        if op.opcode in COLUMNS and not all(v in self.live for v in op.results):
            keep = [n for n, v in enumerate(op.results) if v in self.live]
            results = tuple(op.results[n] for n in keep)
            if op.opcode in ("if", "segment"):
                regions = tuple(Region(r.args, r.ops, tuple(r.yields[n] for n in keep)) for r in regions)
                operands = op.operands if op.opcode == "if" else tuple(free_values(regions[0]))
                return Op(op.opcode, operands, op.attrs, regions, results, op.loc)
            first, stop = _offsets(op)
            operands = (*op.operands[:first], *(op.operands[first + n] for n in keep))
            cut = []
            for r in regions:
                body = r is regions[-1]
                args = (r.args[0], *(r.args[1 + n] for n in keep))
                yields = (*r.yields[:stop], *(r.yields[stop + n] for n in keep)) if body else r.yields
                cut.append(breaking(Region(args, r.ops, yields), keep) if body else Region(args, r.ops, yields))
            return Op(op.opcode, operands, op.attrs, tuple(cut), results, op.loc)
        if all(a is b for a, b in zip(regions, op.regions, strict=True)):
            return op
        operands = tuple(free_values(regions[0])) if op.opcode == "segment" else op.operands
        return Op(op.opcode, operands, op.attrs, regions, op.results, op.loc)


def _offsets(op: Op) -> tuple[int, int]:
    """Where the carried values begin among a loop's operands, and among what its body yields."""
    first = 2 if op.opcode == "for" else 1 if op.attrs.get("limited") else 0
    return first, 1 if op.attrs.get("stops") else 0
