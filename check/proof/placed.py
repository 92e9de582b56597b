"""Where the values of a function are made: by which op, in which loops, and how often each is read."""

from __future__ import annotations

from decgraph.ir.values import Function, Op, Region, Value

LOOPS = ("for", "while", "each")


class Placed:
    """Of each value the op that makes it, the counters of what goes round about it, the loops around it, and how many operands
    it is; of what a loop carries the loop and the place. Noises of `shared_sites` are made at more than one place."""

    def place(self, function: Function) -> None:
        self.producers: dict[Value, Op] = {}
        self.loops: dict[Value, tuple[Value, ...]] = {}
        self.around: dict[Value, tuple[Op, ...]] = {}
        self.reads: dict[Value, int] = {}
        self.carried: dict[Value, tuple[Op, int]] = {}
        self._place(function.body, (), ())
        noises = [op for op in self.producers.values() if op.opcode == "noise" and op.attrs["kind"] != "output"]
        sites = [op.attrs["site"] for op in noises]
        self.shared_sites = {site for site in sites if sites.count(site) > 1}

    def _place(self, region: Region, counters: tuple[Value, ...], loops: tuple[Op, ...]) -> None:
        for op in region.ops:
            for v in op.results:
                self.producers[v], self.loops[v], self.around[v] = op, counters, loops
            for v in op.operands:
                self.reads[v] = self.reads.get(v, 0) + 1
            for r in op.regions:
                looped = op.opcode in LOOPS
                if looped:
                    self.carried |= {v: (op, n) for n, v in enumerate(r.args[1:])}
                inner = (*counters, r.args[0]) if looped or op.opcode == "tree.walk" else counters
                self._place(r, inner, (*loops, op) if looped else loops)

    def read_alone(self, op: Op, noise: Value) -> bool:
        """Whether nothing else reads a noise: made beside its draw, in the same loops and keyed by all their counters, at a
        site of its own, and read once."""
        made = self.producers.get(noise)
        return (
            made is not None
            and made.opcode == "noise"
            and made.attrs["kind"] != "output"
            and made.attrs["site"] not in self.shared_sites
            and self.loops[noise] == self.loops[op.result]
            and set(self.loops[noise]) <= set(made.operands)
            and self.reads[noise] == 1
        )
