"""Segments: a straight run of ops that one backend unit runs as a whole (a graph, a kernel). Made by passes only."""

from __future__ import annotations

from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Datum, Machine
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import need
from decgraph.ir.sizes import Known, Sizes
from decgraph.ir.values import Op
from decgraph.ir.walk import free_values

KINDS = ("vocabulary", "device")


@op("segment")
class Segment:
    """Run the region: what is outlined means what it meant in place. Attributes kind: "vocabulary" (ops on rows of
    distributions, one kernel) or "device" (what lies between two waits for the host, one graph); name. The operands are the
    values that the region uses and does not define, in order of first use; the region takes no arguments, its yields are the
    results."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(attrs["kind"] in KINDS, f"a segment is of kind {' or '.join(KINDS)}, not {attrs['kind']}")
        free = tuple(v.type for v in free_values(regions[0])) if regions else types
        need(
            free == tuple(types),
            f"a segment's operands are what its region uses: {', '.join(map(str, free))}",
            "list every free value of the region once, in order of first use",
        )
        return tuple(v.type for v in regions[0].yields) if regions else ()

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        return ((),)

    @staticmethod
    def meaning(m: Machine, op: Op, *values: Datum) -> tuple[Datum, ...]:
        return tuple(m.region(op.regions[0], ()))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return c.region(op.regions[0], [])

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        return s.region(op.regions[0], [])

    attrs = ("kind", "name")
    batch = "region"
    samples = (('%z = segment(%i, %n, kind = "device", name = "s") {\n%s = map(%i, %n, fn = "add")\nyield %s\n}', 3),)
    refusals = (("", "vocabulary", {"kind": "loud", "name": "s"}),)
