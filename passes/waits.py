"""Where a step waits for the host: decisions on data, sizes that data decides, commits.

Data is what models computed or what was drawn; a value depends on data if an op that reads data made it. Counters, parameters
and the shape of a tree that grows by counts alone do not. A wait is a place where such a value has to be known before anything
else can be started: a condition, the number of elements that pass a test, tokens that are committed, arguments of host
functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from decgraph.ir.values import Function, Op, Region, Value
from decgraph.passes.motion import HOST

_READ = ("model.states", "head.read", "head.score", "model.attention", "model.embed")
_MODELS = ("model.eval", "model.evals", "model.memory", "model.read", *_READ)
SOURCES = frozenset((*_MODELS, "tree.walk", "state.read", "extern"))
CHOSEN_SIZES = {"compact": "how many pass the test", "take_first": "how many there are"}
SIZED = frozenset({"list", "tree", "path"})
"""Elements that have a size of their own."""

SHAPES = frozenset({"tree.nodes", "len", "tree.size", "tree.new"})
"""Ops that read a size only, which depends on data where a size was chosen by data."""


@dataclass(frozen=True)
class Wait:
    """One place: what is waited for, and where."""

    what: str
    line: int

    def __str__(self) -> str:
        return f"{self.what} (line {self.line})" if self.line else self.what


def waits(function: Function) -> list[Wait]:
    """Every wait of the algorithm's step, once for each place, in order."""
    return WaitFinder(function).found


def chosen_sizes(function: Function) -> frozenset[Value]:
    """The values whose sizes data decides where they are computed (the sizes of values computed from them are known by
    then)."""
    return frozenset(WaitFinder(function).chosen)


class WaitFinder:
    """One walk over a function: `data` holds values that depend on data, `ragged` those whose sizes do."""

    def __init__(self, function: Function) -> None:
        self.data: set[Value] = set()
        self.ragged: set[Value] = set()
        self.chosen: set[Value] = set()
        self.found: list[Wait] = []
        self.step = next((op for op in function.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
        self.inside_step = self.step is None
        while True:
            before = len(self.data) + len(self.ragged)
            self.found = []
            self.region(function.body)
            if before == len(self.data) + len(self.ragged):
                break

    inside_walk = False

    def add(self, what: str, op: Op) -> None:
        if self.inside_walk or not self.inside_step:
            return  # a walk is one wait, however it decides
        wait = Wait(what, op.loc.line)
        if wait not in self.found:
            self.found.append(wait)

    def region(self, region: Region) -> None:
        for op in region.ops:
            self.one(op)

    def one(self, op: Op) -> None:
        if op is self.step:
            self.inside_step = True
        self.enter(op)
        outer, self.inside_walk = self.inside_walk, self.inside_walk or op.opcode == "tree.walk"
        for r in op.regions:
            self.region(r)
        self.inside_walk = outer
        self.leave(op)
        if op is self.step:
            self.inside_step = False

    def enter(self, op: Op) -> None:
        """What the arguments of an op's regions depend on."""
        match op.opcode:
            case "for":
                carried = op.operands[2:]
                self.flow(carried, op.regions[0].args[1:])
                if op.operands[1] in self.data:
                    self.add("a loop's number of iterations", op)
            case "while":
                carried = op.operands[1:] if op.attrs.get("limited") else op.operands
                for r in op.regions:
                    self.flow(carried, r.args[1:])
            case "each":
                self.flow(op.operands[:1], op.regions[0].args[1:])
                if op.operands[0] in self.ragged:
                    self.add("the number of elements to go through", op)
            case "tree.walk":
                self.data.update(op.regions[0].args[1:])

    def flow(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for a, b in zip(sources, targets, strict=False):
            if a in self.data:
                self.data.add(b)
            if a in self.ragged:
                self.ragged.add(b)

    def leave(self, op: Op) -> None:
        match op.opcode:
            case "if":
                if op.operands[0] in self.data:
                    self.add("a branch decided by data", op)
                    self.data.update(op.results)
                for r in op.regions:
                    self.flow(r.yields, op.results)
            case "for" | "while":
                body = op.regions[-1]
                skip = 1 if op.attrs.get("stops") else 0
                if skip and body.yields[0] in self.data:
                    self.add("whether a loop stops, once an iteration", op)
                if op.opcode == "while":
                    self.condition(op)
                self.flow(body.yields[skip:], op.results)
                for r in op.regions:
                    self.flow(body.yields[skip:], r.args[1:])
            case "segment":
                self.flow(op.regions[0].yields, op.results)
            case "each":
                self.data.update(op.results if any(v in self.data for r in op.regions for v in r.yields) else ())
            case "tree.walk":
                self.add(f"the verification by {op.attrs.get('rule', 'a rule')}: what it accepts", op)
                self.data.update(op.results)
            case "commit":
                if op.operands[0] not in self.data or not self.walked(op):
                    self.add("the committed tokens", op)
            case _:
                self.plain(op)

    def walked(self, op: Op) -> bool:
        """Whether what is committed is an accepted path, which the host has already waited for."""
        return op.operands[0].type.elem == "path"

    def condition(self, op: Op) -> None:
        if op.attrs.get("bound") == "done":
            self.add("the stop test, once a step", op)
        elif op.regions[0].yields[0] in self.data:
            self.add("whether a loop goes on, once an iteration", op)

    def plain(self, op: Op) -> None:
        known = [v for v in op.operands if v in self.data]
        if op.opcode in CHOSEN_SIZES and (op.operands[-1] in self.data or op.operands[0] in self.ragged):
            if op.operands[-1] in self.data and op.opcode == "compact":
                self.add(CHOSEN_SIZES[op.opcode], op)
                self.chosen.update(op.results)
            self.ragged.update(op.results)
        elif any(v in self.ragged for v in op.operands):
            self.ragged.update(v for v in op.results if v.type.dims or v.type.elem in SIZED)
        if op.opcode in HOST or op.opcode in ("index.ask", "index.learn", "automaton", "tree.best_first"):
            if known:
                self.add(f"what {op.attrs.get('extern', op.opcode)} is given", op)
        if op.opcode in SOURCES or known and op.opcode not in SHAPES:
            self.data.update(op.results)


__all__ = ["Wait", "waits"]
